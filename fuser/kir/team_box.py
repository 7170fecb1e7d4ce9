"""The threads of a warp role, or of one of its groups, as a box of the block's threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fuser.core.expr import Expr
from fuser.core.thread_box import ThreadBox


@dataclass(frozen=True, slots=True)
class TeamBox:
    """Threads that meet at a hardware barrier of their own.

    Groups of a role run the same statements: expressions are over thread coordinates, and the same
    in all threads of a box.

    Attributes
    ----------
    first
        Coordinates (x, y, z) of the first thread.
    extents
        Threads along each axis.
    barrier
        Number of the barrier, 1 to 15 (PTX ISA, ``bar.sync``).
    """

    first: tuple[Expr, Expr, Expr]
    extents: tuple[int, int, int]
    barrier: Expr

    @property
    def threads(self) -> int:
        """How many threads meet."""
        x, y, z = self.extents
        return x * y * z

    def of(self, number: Callable[[Expr], int]) -> ThreadBox:
        """Return the box of the threads for which `number` evaluates expressions."""
        x, y, z = (number(e) for e in self.first)
        return ThreadBox((x, y, z), self.extents, number(self.barrier))
