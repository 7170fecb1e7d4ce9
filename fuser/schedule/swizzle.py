"""How the copy engine permutes the elements of a tile in shared memory.

A swizzle of 32, 64 or 128 bytes exchanges pieces of 16 bytes within spans of so many bytes: the
number of a piece is xored with that of its 128-byte row, both modulo the pieces of a span (PTX ISA,
swizzling modes of tensors). The pattern repeats every 8 spans, and addresses count: tiles begin at
multiples of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from fuser.core.errors import ScheduleError
from fuser.core.expr import BinOp, Expr
from fuser.core.simplify import Facts, simplify

SwizzleName: TypeAlias = Literal["none", "32B", "64B", "128B"]

SPANS: dict[str, int] = {"32B": 32, "64B": 64, "128B": 128}
PIECE_BYTES = 16
ROW_BYTES = 128


@dataclass(frozen=True, slots=True)
class TileSwizzle:
    """A swizzle of elements of `itemsize` bytes.

    Attributes
    ----------
    name
        As tensor maps call it.
    """

    name: SwizzleName
    itemsize: int

    def __post_init__(self) -> None:
        if self.name not in tuple(SPANS):  # a list has no hash
            raise ScheduleError(
                f"set_swizzle: {self.name!r}; needed one of 'none', '32B', '64B', '128B'"
            )

    @property
    def span_bytes(self) -> int:
        """Bytes within which pieces are exchanged: those of a box along its innermost axis."""
        return SPANS[self.name]

    @property
    def pattern_bytes(self) -> int:
        """Bytes after which the pattern repeats."""
        return 8 * self.span_bytes

    def place(self, index: Expr, facts: Facts) -> Expr:
        """Return where element number `index` of a tile lies, in elements from its begin."""
        piece = PIECE_BYTES // self.itemsize
        row = index // (ROW_BYTES // self.itemsize) % (self.span_bytes // PIECE_BYTES)
        row = simplify(row, facts)
        return simplify(BinOp("^", index // piece, row) * piece + index % piece, facts)
