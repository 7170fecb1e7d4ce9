"""Matrix products by tensor cores, step by step, so that a test can change one of the steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuser import (
    DataType,
    FusionDefinition,
    LoadStoreOpType,
    MemoryType,
    ParallelType,
    Pipelined,
)
from fuser.core.errors import ScheduleError
from fuser.core.unroll import DefaultUnroll
from fuser.schedule.circular import CircularBufferType

P, L, D, M = ParallelType, LoadStoreOpType, DataType, MemoryType
SPANS = {"none": 8, "32B": 16, "64B": 32, "128B": 64}
"""Elements of 2 bytes in a row of a swizzle's box."""
ROWS, STEP = 64, 16
PIPELINED = Pipelined(war="mbarrier")
Combine = Callable[[FusionDefinition, Any, Any], Any]


def multiplied(fd: FusionDefinition, x: Any, y: Any) -> Any:
    """The summand of a product: operands of shape (m, 1, k) and (1, n, k), cast to Float."""
    return fd.ops.mul(fd.ops.cast(x, dtype=D.Float), fd.ops.cast(y, dtype=D.Float))


def as_it_is(fd: FusionDefinition, c: Any) -> Any:
    """No epilogue."""
    return c


def relu_cast(fd: FusionDefinition, c: Any) -> Any:
    """Positive part, rounded to 16 bits."""
    return fd.ops.cast(fd.ops.relu(c), dtype=D.BFloat16)


def with_bias(fd: FusionDefinition, c: Any) -> Any:
    """A bias of columns, which is a third input."""
    bias = fd.define_tensor(shape=[-1], contiguity=[True], dtype=D.Float)
    return fd.ops.add(c, fd.ops.broadcast_in_dim(bias, [fd.ops.size(c, 0), fd.ops.size(c, 1)], [1]))


@dataclass
class Product:
    """``c = a b``, with K contiguous in both operands or the other dimension (`turned`).

    Attributes
    ----------
    tile
        Rows, columns and depth of what a block computes in a trip.
    """

    tile: tuple[int, int, int] = (64, 64, 64)
    swizzle: str = "128B"
    turned: tuple[bool, bool] = (False, False)
    dtype: DataType = D.BFloat16
    summand: Combine = multiplied
    epilogue: Callable[[FusionDefinition, Any], Any] = as_it_is
    stages: int = 3
    kind: CircularBufferType = PIPELINED
    load: LoadStoreOpType = L.tma
    default_unroll: DefaultUnroll = "auto"
    fd: FusionDefinition = field(init=False)
    tiles: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        with FusionDefinition(default_unroll=self.default_unroll) as self.fd:
            fd = self.fd
            given = [
                fd.define_tensor(shape=[-1, -1], contiguity=[True] * 2, dtype=self.dtype)
                for _ in range(2)
            ]
            left, right = (
                fd.ops.permute(t, [1, 0]) if turned else t
                for t, turned in zip(given, self.turned, strict=True)
            )
            every = [fd.ops.size(left, 0), fd.ops.size(right, 0), fd.ops.size(left, 1)]
            x = fd.ops.broadcast_in_dim(left, every, [0, 2])
            y = fd.ops.broadcast_in_dim(right, every, [1, 2])
            self.c = fd.ops.sum(self.summand(fd, x, y), [2])
            self.out = self.epilogue(fd, self.c)
            fd.add_output(self.out)
        self.given = given

    # ---- schedule --------------------------------------------------------------------------

    def staged(self) -> None:
        """Make the tiles."""
        self.tiles = [t.cache_after(self.load) for t in self.given]
        for t in self.tiles:
            t.set_memory_type(M.shared)

    def split(self) -> None:
        """Split the axes: block of rows, of columns, trip, row, column, k."""
        rows, columns, depth = self.tile
        self.c.split(0, rows)
        self.c.split(2, columns)
        self.c.split(4, depth)
        self.c.reorder({1: 3, 2: 1, 4: 2})

    def shared_out(self) -> None:
        """Schedule the tiles like the product, each with its own axes only."""
        self.fd.sched.transform_like(self.c, self.tiles)
        self.tiles[0].once(4)
        self.tiles[1].once(3)

    def boxed(self) -> None:
        """Split the tiles, (row, k), into boxes as wide as the swizzle's span."""
        span = SPANS[self.swizzle]
        for t, turned, rows in zip(self.tiles, self.turned, self.tile, strict=False):
            if span < (rows if turned else self.tile[2]):
                t.split(3 if turned else 4, span)
                if not turned:
                    t.reorder({4: 3})  # span, row, k
            for axis in (-2, -1):
                t.axis(axis).parallelize(P.tma)
            if self.swizzle != "none":
                t.set_swizzle(self.swizzle)

    def multiplied(self) -> None:
        """Give the product to the tensor cores; more than 64 rows are rounds of one warp group."""
        first = 3
        if self.tile[0] > ROWS:
            self.c.split(3, ROWS)
            first = 4
        self.c.split(first + 2, STEP)
        self.c.wgmma(first, first + 1, first + 3)

    def placed(self) -> None:
        """Blocks of the grid compute tiles of the result."""
        for t in (self.c, *self.tiles):
            t.axis(0).parallelize(P.grid_y)
            t.axis(1).parallelize(P.grid_x)

    def finished(self) -> None:
        """Compute an epilogue in the registers of the product."""
        if self.out is not self.c:
            self.fd.sched.transform_like(self.c, [self.out])
            self.fd.sched.parallelize_like(self.c, -1, [self.out])
            self.c.inline_at(self.out, 2)

    def buffered(self) -> None:
        """Stream the tiles through a ring of `stages`; 0: one after the other."""
        for t in self.tiles:
            t.inline_at(self.c, 3)
            if self.stages:
                t.circular_buffer(self.stages, None, self.kind)

    STEPS = ("staged", "split", "shared_out", "boxed", "multiplied", "placed", "finished",
             "buffered")  # fmt: skip

    def schedule(self, **instead: Callable[[Product], None]) -> Product:
        """Take all steps, those named by what is given for them."""
        for step in self.STEPS:
            (instead.get(step) or getattr(Product, step))(self)
        return self

    # ---- data ------------------------------------------------------------------------------

    def arrays(self, rng: np.random.Generator, m: int, n: int, k: int) -> list[np.ndarray]:
        """Return small integers, of which sums are exact."""
        shapes = [(k, rows) if turned else (rows, k)
                  for rows, turned in zip((m, n), self.turned, strict=True)]  # fmt: skip
        arrays = [rng.integers(-4, 5, s).astype(self.dtype.np) for s in shapes]
        if self.epilogue is with_bias:
            arrays.append(rng.integers(-99, 100, n).astype("f4"))
        return arrays

    def reference(self, arrays: list[np.ndarray]) -> np.ndarray:
        """Return the result in float64, but for the rounding that the epilogue asks for."""
        a, b = (x.astype("f8") for x in arrays[:2])
        c = (a.T if self.turned[0] else a) @ (b if self.turned[1] else b.T)
        if self.epilogue is with_bias:
            c = c + arrays[2]
        if self.epilogue is relu_cast:
            c = np.maximum(c, 0).astype(D.BFloat16.np).astype("f8")
        return c


def refusal(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return the text with which a call is refused, behind a file of the tests and its line."""
    with pytest.raises(ScheduleError) as caught:
        call(*args, **kwargs)
    where, _, text = str(caught.value).partition(": ")
    file, _, line = where.rpartition(":")
    assert Path(__file__).parent in Path(file).parents, str(caught.value)
    assert line.isdigit()
    return text
