"""Where global tensors lie in memory, as far as a shape class knows."""

from __future__ import annotations

from dataclasses import dataclass

from fuser.core.expr import ONE, ZERO, Expr
from fuser.kir.core import Mode


@dataclass(frozen=True, slots=True)
class Layout:
    """Strides and alignment of one global tensor.

    Attributes
    ----------
    shape
        Extents.
    strides
        Elements between neighbours, per dimension; 0 in expanded and size-1 dimensions.
    mode
        How kernels use it.
    aligned_bytes
        Guaranteed alignment of the first element's address.
    aliased
        Another tensor of the kernel may share its memory.
    far
        An extent may be larger than the coordinates of a tensor map, 2^31 - 1.
    """

    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    mode: Mode
    aligned_bytes: int = 16
    aliased: bool = False
    far: bool = False

    def address(self, coords: tuple[Expr, ...]) -> Expr:
        """Return the element offset of the element with these coordinates."""
        total: Expr = ZERO
        for i, stride in zip(coords, self.strides, strict=True):
            total = total + i * stride
        return total

    @property
    def inner(self) -> int | None:
        """The dimension whose neighbours are adjacent in memory; None where there is none."""
        found = (d for d, stride in enumerate(self.strides) if stride == ONE)
        return next(found, None)

    @property
    def numel(self) -> Expr:
        """Number of addressable elements: the last element's offset plus one."""
        last: Expr = ZERO
        for extent, stride in zip(self.shape, self.strides, strict=True):
            last = last + (extent - 1) * stride
        return last + 1


def contiguous_strides(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return row-major strides; 0 in dimensions of extent 1."""
    strides: list[Expr] = []
    step: Expr = ONE
    for extent in reversed(shape):
        strides.append(ZERO if extent == ONE else step)
        step = step * extent
    return tuple(reversed(strides))
