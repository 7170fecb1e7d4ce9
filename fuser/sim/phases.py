"""State of mbarriers: phases, arrivals and bytes that are still to come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    changes
        How often phases have changed.
    """

    name: str
    size: int
    expected: Ints
    pending: Ints
    tx: Ints
    phase: Ints
    flying: Ints
    waiting: Ints
    changes: int = 0

    @classmethod
    def raw(cls, name: str, size: int, blocks: int) -> Mbarriers:
        """Return memory in which no barrier has been made."""
        zeros = np.zeros((6, size * blocks), np.int64)
        return cls(name, size, zeros[0], zeros[1], zeros[2], zeros[3], zeros[4], zeros[5])

    def make(self, cells: Ints, count: Ints) -> None:
        """Start a phase of parity 0; phases are never counted back, so that times stay unique."""
        self.expected[cells] = self.pending[cells] = count
        self.tx[cells] = self.flying[cells] = 0
        self.phase[cells] += self.phase[cells] % 2
        self.changes += 1

    def end_phases(self, cells: Ints) -> Ints:
        """End the current phase of those `cells` that wait for nothing more; return them."""
        ended: Ints = cells[(self.pending[cells] == 0) & (self.tx[cells] == 0)]
        self.phase[ended] += 1
        self.changes += ended.size
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


@dataclass(slots=True)
class Knowledge:
    """How many phases of each barrier an agent knows to have ended.

    It knows of those it has awaited, and of those that were known to whoever arrived on a barrier
    that it has awaited. A parity tells one phase from the next only, so nobody may await a phase
    that is further away from what is known.

    Attributes
    ----------
    begin
        By array of barriers, its first column.
    begun
        Phases when the barriers were made: one row a block slot, one column a barrier.
    rows
        By agent, phases in the same order.
    told
        By block slot and barrier, what those knew that arrived on it.
    """

    begin: Mapping[str, int]
    begun: Ints
    rows: dict[str, Ints]
    told: Ints

    @classmethod
    def of(cls, barriers: Mapping[str, Mbarriers], blocks: int) -> Knowledge:
        """Return what is known when nothing has happened."""
        begin, columns = dict[str, int](), 0
        for name, array in barriers.items():
            begin[name] = columns
            columns += array.size
        begun = np.zeros((blocks, columns), np.int64)
        return cls(begin, begun, {}, np.zeros((blocks, columns, columns), np.int64))

    def at(self, barriers: Mbarriers, cells: Ints) -> tuple[Ints, Ints]:
        """Return block slot and column of cells."""
        return cells // barriers.size, self.begin[barriers.name] + cells % barriers.size

    def row(self, agent: str) -> Ints:
        """Return what an agent knows."""
        if agent not in self.rows:
            self.rows[agent] = self.begun.copy()
        return self.rows[agent]

    def made(self, barriers: Mbarriers, cells: Ints) -> None:
        """Note that barriers begin anew, at a phase that all know."""
        slots, columns = self.at(barriers, cells)
        for row in (self.begun, *self.rows.values()):
            row[slots, columns] = barriers.phase[cells]

    def seen(self, agent: str, barriers: Mbarriers) -> Ints:
        """Return the phases that an agent knows of, one per cell of an array."""
        first = self.begin[barriers.name]
        return self.row(agent)[:, first : first + barriers.size].reshape(-1)

    def arrive(self, agent: str, barriers: Mbarriers, cells: Ints) -> None:
        """Leave what an agent knows with barriers on which it arrives."""
        slots, columns = self.at(barriers, cells)
        told = self.told[slots, columns]
        self.told[slots, columns] = np.maximum(told, self.row(agent)[slots])

    def learn(self, agent: str, barriers: Mbarriers, cells: Ints) -> None:
        """Take over what is to be known from barriers whose phase has ended."""
        slots, columns = self.at(barriers, cells)
        row = self.row(agent)
        np.maximum.at(row, slots, self.told[slots, columns])
        row[slots, columns] = barriers.phase[cells]
