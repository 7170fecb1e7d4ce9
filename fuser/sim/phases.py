"""State of mbarriers: phases, arrivals and bytes that are still to come."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Mbarriers:
    """One array of mbarriers, in every block of the machine; cell = block slot * size + index.

    Attributes
    ----------
    expected
        Arrivals a phase takes; 0 where the memory is no barrier.
    pending, tx
        Arrivals and bytes the current phase still waits for. Bytes may be negative while arrivals
        are pending: a copy may be faster than the arrival that announces it.
    phase
        Phases that have ended.
    flying
        Copies issued in the current phase that have not landed.
    waiting
        Agents inside a wait.
    seen
        By agent, how many phases had ended when it last looked.
    """

    name: str
    size: int
    expected: Ints
    pending: Ints
    tx: Ints
    phase: Ints
    flying: Ints
    waiting: Ints
    seen: dict[str, Ints] = field(default_factory=dict[str, Ints])

    @classmethod
    def raw(cls, name: str, size: int, blocks: int) -> Mbarriers:
        """Return memory in which no barrier has been made."""
        zeros = np.zeros((6, size * blocks), np.int64)
        return cls(name, size, zeros[0], zeros[1], zeros[2], zeros[3], zeros[4], zeros[5])

    def seen_by(self, agent: str) -> Ints:
        """Return how many phases of each cell `agent` knows to have ended."""
        if agent not in self.seen:
            self.seen[agent] = np.zeros_like(self.phase)
        return self.seen[agent]

    def make(self, cells: Ints, count: Ints) -> None:
        """Start a phase of parity 0; phases are never counted back, so that times stay unique."""
        self.expected[cells] = self.pending[cells] = count
        self.tx[cells] = self.flying[cells] = 0
        self.phase[cells] += self.phase[cells] % 2
        for seen in self.seen.values():
            seen[cells] = self.phase[cells]

    def end_phases(self, cells: Ints) -> Ints:
        """End the current phase of those `cells` that wait for nothing more; return them."""
        ended: Ints = cells[(self.pending[cells] == 0) & (self.tx[cells] == 0)]
        self.phase[ended] += 1
        self.pending[ended] = self.expected[ended]
        return ended

    def label(self, cell: int) -> str:
        """Return the name of a cell."""
        return f"{self.name}[{cell % self.size}]"

    def state(self, cell: int) -> str:
        """Return name, phase and what is pending, for error texts."""
        if not self.expected[cell]:
            return f"{self.label(cell)} is no barrier: not initialised, or invalidated"
        return (
            f"{self.label(cell)} is in phase {self.phase[cell]} with {self.pending[cell]} of "
            f"{self.expected[cell]} arrivals and {self.tx[cell]} bytes pending"
        )

    def unbalanced(self) -> Ints:
        """Return the cells whose current phase has begun and not ended."""
        return np.flatnonzero((self.pending != self.expected) | (self.tx != 0))
