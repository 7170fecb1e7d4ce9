"""Fusions whose warp roles combine values across threads, with references in float64.

Every trip of a ring is a row (or a plane) that consumers reduce, or pass on to each other through
shared memory. Numbers are small integers, so that every order of summation is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.api.tensor import Tensor
from fuser.kir.core import Kernel
from fuser.schedule.circular import WarpSpecialized

P, L = ParallelType, LoadStoreOpType
REGISTERS = (40, 232)
MAX_BOX = 256


@dataclass(frozen=True)
class Options:
    """What varies.

    Attributes
    ----------
    columns
        Extent of a row; the last box of the copy engine may overhang.
    over
        Dimensions that planes are reduced over.
    """

    stages: int = 3
    registers: bool = False
    dtype: DataType = DataType.Float
    columns: int = 700
    load: LoadStoreOpType = L.tma
    over: tuple[int, ...] = (2,)

    def type(self, on: ParallelType) -> WarpSpecialized:
        """The directive's type."""
        return WarpSpecialized(on, REGISTERS if self.registers else None)

    @property
    def threads(self) -> int:
        """Threads of the consumers."""
        return 256 if self.registers else 64


def _staged(x: Tensor, load: LoadStoreOpType) -> Tensor:
    cache = x.cache_after(load)
    cache.set_memory_type(MemoryType.shared)
    return cache


def _boxes(cache: Tensor, o: Options) -> None:
    if o.columns > MAX_BOX and o.load is L.tma:
        cache.split(1, MAX_BOX)
    cache.axis(-1).parallelize(P.tma)


def centred(o: Options) -> FusionDefinition:
    """``y = x - max(x, 1) + sum(x, 1)``: two reductions of a row, one after the other."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, o.columns], contiguity=True, dtype=o.dtype)
        wide, shape = fd.ops.cast(x, dtype=DataType.Float), fd.ops.shape(x)
        most, total = fd.ops.max(wide, [1]), fd.ops.sum(wide, [1])
        below = wide - fd.ops.broadcast_in_dim(most, shape, [0])
        y = below + fd.ops.broadcast_in_dim(total, shape, [0])
        fd.add_output(y)
    cache = _staged(x, o.load)
    for t in (y, most, total):
        t.split(1, o.threads)
        t.axis(2).parallelize(P.block_x)
    for t in (most, total):
        t.inline_at(y, 1)
    _boxes(cache, o)
    cache.inline_at(y, 1)
    cache.circular_buffer(o.stages, None, o.type(P.block_x))
    return fd


def planes(o: Options) -> FusionDefinition:
    """``y = x + sum(x, over)`` of planes, one a trip: threads along x and y, producers behind y."""
    rows = o.threads // 16
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 2 * rows, 40], contiguity=True, dtype=o.dtype)
        wide, shape = fd.ops.cast(x, dtype=DataType.Float), fd.ops.shape(x)
        s = fd.ops.sum(wide, list(o.over))
        kept = [d for d in range(3) if d not in o.over]
        y = wide + fd.ops.broadcast_in_dim(s, shape, kept)
        fd.add_output(y)
    cache = _staged(x, L.tma)
    for t in (y, s):
        t.split(2, 16)
        t.split(1, rows)
        # plane, rows of a thread, thread along y, columns of a thread, thread along x
        t.axis(2).parallelize(P.block_y)
        t.axis(4).parallelize(P.block_x)
    s.inline_at(y, 1)
    cache.axis(1).parallelize(P.tma)
    cache.axis(2).parallelize(P.tma)
    cache.inline_at(y, 1)
    cache.circular_buffer(o.stages, None, o.type(P.block_y))
    return fd


def turned(o: Options) -> FusionDefinition:
    """``y[i, c, r] = 2 x[i, r, c]``: what one consumer computes, others read from shared memory."""
    side = 16
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, side, side], contiguity=True, dtype=o.dtype)
        twice = fd.ops.cast(x, dtype=DataType.Float) * 2.0
        y = fd.ops.permute(twice, [0, 2, 1]) + 1.0
        fd.add_output(y)
    cache = _staged(x, L.tma)
    held = twice.cache_after()
    held.set_memory_type(MemoryType.shared)
    for t in (y, held):
        t.merge(1, 2)
        t.split(1, o.threads)
        t.axis(2).parallelize(P.block_x)
    held.inline_at(y, 1)
    for axis in (1, 2):
        cache.axis(axis).parallelize(P.tma)
    cache.inline_at(held, 1)
    cache.circular_buffer(o.stages, None, o.type(P.block_x))
    return fd


@dataclass(frozen=True)
class RoleFusion:
    """A builder, the shape of its input for so many trips, and its reference."""

    build: Callable[[Options], FusionDefinition]
    shape: Callable[[Options, int], tuple[int, ...]]
    reference: Callable[[Options, np.ndarray], np.ndarray]

    def inputs(self, o: Options, trips: int, seed: int = 0) -> list[np.ndarray]:
        """Random small integers."""
        rng = np.random.default_rng(seed)
        return [rng.integers(-3, 4, self.shape(o, trips)).astype("f4").astype(o.dtype.np)]


FUSIONS = {
    "centred": RoleFusion(
        centred, lambda o, n: (n, o.columns),
        lambda o, x: x - x.max(1, keepdims=True, initial=-np.inf) + x.sum(1, keepdims=True),
    ),
    "planes": RoleFusion(
        planes, lambda o, n: (n, 2 * (o.threads // 16), 40),
        lambda o, x: x + x.sum(o.over, keepdims=True),
    ),
    "turned": RoleFusion(turned, lambda o, n: (n, 16, 16), lambda o, x: x.swapaxes(1, 2) * 2 + 1),
}  # fmt: skip


def kernel_of(fd: FusionDefinition, inputs: list[np.ndarray]) -> Kernel:
    """Return the only kernel of a definition."""
    (kernel,) = program_of(fd, bind(fd, inputs, True), True).kernels
    return kernel
