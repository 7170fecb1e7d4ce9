"""Asynchronous operations in flight, the groups they belong to, and tensor maps they go through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from fuser.sim.agent import Array
from fuser.sim.memo import frozen

Ints = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Flight:
    """An operation that has been issued; `land` makes it take effect.

    Attributes
    ----------
    after
        Flights that land earlier.
    """

    what: str
    land: Callable[[], None]
    after: tuple[Flight, ...] = ()
    landed: bool = False

    def may_land(self) -> bool:
        """Whether nothing has to land before."""
        return not self.after or all(f.landed for f in self.after)


@dataclass(slots=True)
class Groups:
    """Flights of one agent in groups, oldest first.

    Attributes
    ----------
    lanes
        Which lanes have issued some.
    issued
        How many statements have issued.
    marks
        `issued` at each commit.
    """

    lanes: NDArray[np.bool_]
    open: list[Flight] = field(default_factory=list[Flight])
    closed: list[list[Flight]] = field(default_factory=list[list[Flight]])
    marks: list[int] = field(default_factory=list[int])
    issued: int = 0

    def add(self, flight: Flight, lanes: NDArray[np.bool_]) -> None:
        """Put a flight into the open group."""
        self.open.append(flight)
        self.lanes |= lanes

    def commit(self) -> None:
        """Close the open group."""
        self.closed.append(self.open)
        self.marks.append(self.issued)
        self.open = []

    def complete(self, pending: int) -> int:
        """Return how many of the oldest groups a wait for all but `pending` covers."""
        return max(0, len(self.closed) - pending)

    def flights(self, groups: int) -> list[Flight]:
        """Return the flights of the oldest `groups`."""
        return [f for group in self.closed[:groups] for f in group]


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map with its sizes: boxes of a strided tensor.

    Attributes
    ----------
    offset, strides
        In elements; dimensions innermost first.
    extents
        Elements one copy transfers along each dimension.
    steps
        Distance of neighbours inside a box.
    swizzle_bits
        How many address bits are permuted: 0 to 3.
    """

    tensor: str
    offset: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    extents: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle_bits: int

    @property
    def numel(self) -> int:
        """Elements of a box, those that overhang included."""
        return prod(self.extents)

    def source(self, coords: Sequence[Ints]) -> tuple[Ints, NDArray[np.bool_] | None]:
        """Return flat tensor elements of boxes, shape (lanes, numel), and which of them exist.

        None: all do.
        """
        ways = _ways(self.extents, self.steps)
        flat = np.full((coords[0].size, self.numel), self.offset)
        exists: NDArray[np.bool_] | None = None
        for first, dim, stride, way in zip(coords, self.dims, self.strides, ways, strict=True):
            at = first[:, None] + way
            flat += at * stride
            if np.count_nonzero((first < 0) | (first + way[-1] >= dim)):
                inside = (at >= 0) & (at < dim)
                exists = inside if exists is None else exists & inside
        return flat, exists

    def target(self, first: Ints, itemsize: int) -> Ints:
        """Return shared elements of boxes that begin at elements `first`, shape (lanes, numel)."""
        place = (first[:, None] + np.arange(self.numel)) * itemsize
        place ^= (place >> 7 & (1 << self.swizzle_bits) - 1) << 4
        return place // itemsize


@lru_cache(maxsize=256)
def _ways(extents: tuple[int, ...], steps: tuple[int, ...]) -> tuple[Ints, ...]:
    """Return how far the elements of a box are from its first one, along each dimension."""
    place = np.arange(prod(extents))
    ways = list[Ints]()
    for extent, step in zip(extents, steps, strict=True):
        ways.append(frozen(place % extent * step))
        place = place // extent
    return tuple(ways)


def move(src: Array, src_at: Array, dst: Array, dst_at: Array) -> None:
    """Copy elements without looking inside them; both have the same size in bytes."""
    units = f"u{src.itemsize}"
    dst.view(units)[dst_at] = src.view(units)[src_at]
