"""Some threads of a block that form a box of its coordinates, and where they meet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThreadBox:
    """Threads of a block along (x, y, z) that meet at a hardware barrier of their own.

    Attributes
    ----------
    first
        Coordinates of the first thread.
    extents
        Threads along each axis.
    barrier
        Number of the barrier, 1 to 15; 0 is the block's own (PTX ISA, ``bar.sync``).
    """

    first: tuple[int, int, int]
    extents: tuple[int, int, int]
    barrier: int

    @property
    def threads(self) -> int:
        """How many threads meet."""
        x, y, z = self.extents
        return x * y * z

    def range(self, block: tuple[int, int, int]) -> range | None:
        """Return the linear thread indices; None unless they follow each other in `block`."""
        order = range(3)
        slowest = max((k for k in order if self.extents[k] > 1), default=0)
        if any(self.extents[k] != block[k] or self.first[k] for k in order[:slowest]):
            return None
        x, y, z = self.first
        start = x + block[0] * (y + block[1] * z)
        return range(start, start + self.threads)
