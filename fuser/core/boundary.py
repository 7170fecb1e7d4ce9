"""Between which sizes a decision that follows from them stays the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fuser.core.expr import Expr, evaluate


@dataclass(frozen=True, slots=True)
class Boundary:
    """A promise on sizes: ``least <= extent < limit``; None is no bound."""

    extent: Expr
    least: int | None
    limit: int | None

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes keep the promise."""
        value = int(evaluate(self.extent, sizes))
        return (self.least is None or value >= self.least) and (
            self.limit is None or value < self.limit
        )


def hold(boundaries: Sequence[Boundary], sizes: Mapping[str, int]) -> bool:
    """Whether sizes keep all promises."""
    return all(boundary.holds(sizes) for boundary in boundaries)
