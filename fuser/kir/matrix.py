"""How matrix instructions find the elements of a tile in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fuser.core.errors import VerifyError

Major: TypeAlias = Literal["k", "mn"]
SPANS: dict[str, int] = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
MODES: dict[str, int] = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
MOST_BYTES = (1 << 18) - 16
"""Largest stride of a descriptor: 14 bits of 16 bytes."""
ITEM = 2
"""Bytes of an element: bf16 or f16."""
GROUP = 8
"""Rows of a core matrix, which has 16 bytes in each."""
DEPTH = 16
"""Elements of k of one product."""


@dataclass(frozen=True, slots=True)
class MatrixLayout:
    """Layout of a tile of 16-bit elements: an operand ``A[m, k]`` or ``B[n, k]`` of wgmma.

    The tile consists of *core matrices*: 8 rows of 16 bytes; with a swizzle of 8 rows of its span.
    The swizzle permutes bits of the address, so offsets here are those before it.

    PTX ISA: ``wgmma``, matrix descriptor format, strides; canonical layouts.

    Attributes
    ----------
    major
        Which index is contiguous: ``"k"``, or ``"mn"`` (m of A, n of B; the transposed operand).
    swizzle
        As tensor maps call it.
    leading_bytes, stride_bytes
        The two byte offsets of the descriptor, LBO and SBO. By major and swizzle:
        k, swizzled: SBO to the next 8 rows, LBO unused. k, none: SBO to the next 8 rows, LBO to
        the next 8 elements of k. mn, swizzled: LBO to the next span of rows, SBO to the next 8 of
        k. mn, none: SBO to the next 8 rows, LBO to the next 8 of k.
    """

    major: Major
    swizzle: str
    leading_bytes: int
    stride_bytes: int

    def __post_init__(self) -> None:
        for name, nbytes in (("leading", self.leading_bytes), ("stride", self.stride_bytes)):
            if nbytes % 16 or not 0 <= nbytes <= MOST_BYTES:
                raise VerifyError(
                    f"MatrixLayout: {name} byte offset {nbytes}; needed a multiple of 16, at most "
                    f"{MOST_BYTES}"
                )

    @property
    def span_bytes(self) -> int:
        """Bytes of a row within which the swizzle permutes; 16 without."""
        return SPANS[self.swizzle]

    @property
    def align_bytes(self) -> int:
        """Alignment of an array of such tiles: the swizzle's pattern repeats at multiples of it."""
        return 16 if self.swizzle == "none" else GROUP * self.span_bytes

    @property
    def is_transposed(self) -> bool:
        """Whether the instruction transposes the operand."""
        return self.major == "mn"

    @property
    def mode(self) -> int:
        """Bits 62 and 63 of the descriptor."""
        return MODES[self.swizzle]

    def offset(self, row: Any, k: Any) -> Any:
        """Return the byte offset of element ``(row, k)`` from the tile's start, before the swizzle.

        Parameters
        ----------
        row, k
            Integers or integer arrays.
        """
        span = self.span_bytes
        if self.swizzle == "none":
            inner, outer = (k, row) if self.major == "k" else (row, k)
            blocks = row // GROUP * self.stride_bytes + k // GROUP * self.leading_bytes
            return blocks + outer % GROUP * span + inner % GROUP * ITEM
        if self.major == "k":
            return row // GROUP * self.stride_bytes + row % GROUP * span + k * ITEM
        across = span // ITEM
        blocks = row // across * self.leading_bytes + k // GROUP * self.stride_bytes
        return blocks + k % GROUP * span + row % across * ITEM

    def permuted(self, address: Any) -> Any:
        """Return where a byte of shared memory lies behind the swizzle."""
        bits = {"none": 0, "32B": 1, "64B": 2, "128B": 3}[self.swizzle]
        return address ^ ((address >> 7 & (1 << bits) - 1) << 4)

    def misplaced(self, start: int, rows: int) -> str:
        """Return why a tile of `rows` cannot begin at byte `start` of its array; empty: it can.

        The descriptor's base offset is 0, so the tile begins in the first row of a pattern.
        """
        if start % 16:
            return f"byte {start}; needed a multiple of 16"
        if self.swizzle == "none":
            return ""
        width = min(self.span_bytes, (rows if self.is_transposed else DEPTH) * ITEM)
        most, at = self.span_bytes - width, start % self.align_bytes
        if at <= most:
            return ""
        return f"byte {at} of a pattern of swizzle {self.swizzle}; needed at most {most}"
