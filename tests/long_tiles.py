"""Schedules whose tiles are longer than a box, and loads of several boxes that are cut short."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.api.tensor import Tensor
from fuser.kir.core import Kernel
from fuser.schedule.circular import CircularBufferType, Pipelined, WarpSpecialized
from fuser.schedule.swizzle import SwizzleName

P, L = ParallelType, LoadStoreOpType
THREADS = 64
KINDS = (Pipelined(war="mbarrier"), Pipelined("token", "barrier"), WarpSpecialized())


def staged(x: Tensor, load: LoadStoreOpType) -> Tensor:
    """Insert a copy into shared memory."""
    cache = x.cache_after(load)
    cache.set_memory_type(MemoryType.shared)
    return cache


def doubled(rank: int, dtype: DataType, **layout: Any) -> tuple[FusionDefinition, Tensor, Tensor]:
    """Return the definition of ``y = 2 x``, `x` and `y`."""
    layout.setdefault("contiguity", True)
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1] * rank, dtype=dtype, **layout)
        y = fd.ops.add(x, x)
        fd.add_output(y)
    return fd, x, y


def vector(
    tile: int,
    load: LoadStoreOpType = L.tma,
    kind: CircularBufferType | None = KINDS[0],
    dtype: DataType = DataType.Float,
    box: int = 0,
) -> FusionDefinition:
    """Return ``y = 2 x`` of a vector, a tile a trip; `box`: the schedule's own boxes."""
    fd, x, y = doubled(1, dtype)
    cache = staged(x, load)
    y.split(0, tile)
    y.split(1, THREADS)
    y.axis(2).parallelize(P.block_x)
    cache.split(0, tile)
    if box:
        cache.split(1, box)
    cache.axis(-1).parallelize(P.tma)
    cache.inline_at(y, 1)
    if kind is not None:
        cache.circular_buffer(3, type=kind)
    return fd


def matrix(
    rows: int,
    columns: int,
    load: LoadStoreOpType = L.tma,
    kind: CircularBufferType | None = KINDS[0],
    dtype: DataType = DataType.Float,
    *,
    box: int = 0,
    swizzle: SwizzleName = "none",
    stages: int = 2,
    **layout: Any,
) -> FusionDefinition:
    """Return ``y = 2 x`` of a matrix, tiles of `rows` and `columns` in trips along its rows.

    Of ``bulk`` a box is `box` elements of a row.
    """
    fd, x, y = doubled(2, dtype, **layout)
    cache = staged(x, load)
    for t in (y, cache):
        t.split(1, columns)
        t.split(0, rows)
        t.reorder({2: 0, 0: 1, 1: 2})  # column tile, row tile, row, column
        t.axis(0).parallelize(P.grid_x)
    y.split(3, THREADS)
    y.axis(4).parallelize(P.block_x)
    if load is L.tma:
        cache.axis(2).parallelize(P.tma)
    elif box:
        cache.split(3, box)
    cache.axis(-1).parallelize(P.tma)
    if swizzle != "none":
        cache.set_swizzle(swizzle)
    cache.inline_at(y, 2)
    if kind is not None:
        cache.circular_buffer(stages, type=kind)
    return fd


def kernel_of(fd: FusionDefinition, *inputs: np.ndarray) -> Kernel:
    """Return the kernel of a call."""
    (kernel,) = program_of(fd, bind(fd, inputs, True), True).kernels
    return kernel


def numbers(rng: np.random.Generator, *shape: int, dtype: DataType = DataType.Float) -> np.ndarray:
    """Return random small integers that begin at a multiple of 16 bytes."""
    count = int(np.prod(shape))
    memory = np.zeros(count + 64, dtype.np)
    first = -memory.ctypes.data % 16 // memory.itemsize
    x: np.ndarray = memory[first : first + count].reshape(shape)
    x[...] = rng.integers(-9, 10, shape)
    return x


def vectors(
    rank: int = 1,
    each: int = 1,
    kind: CircularBufferType | None = KINDS[0],
    dtype: DataType = DataType.Float,
    **layout: Any,
) -> FusionDefinition:
    """Return ``y = 2 x``: `each` vectors of 16 bytes a thread are copied by ``cp.async`` a trip."""
    fd, x, y = doubled(rank, dtype, **layout)
    cache, width, last = staged(x, L.cp_async), 16 // dtype.nbytes, rank - 1
    for t in (y, cache):
        t.split(last, THREADS * width * each)
    y.split(rank, THREADS)
    y.axis(rank + 1).parallelize(P.block_x)
    cache.split(rank, THREADS * width)
    cache.split(rank + 1, width)
    cache.axis(rank + 1).parallelize(P.block_x)
    cache.axis(rank + 2).parallelize(P.vectorize)
    if rank == 2:
        for t in (y, cache):
            t.axis(0).parallelize(P.grid_x)
    cache.inline_at(y, rank)
    if kind is not None:
        cache.circular_buffer(3, type=kind)
    return fd
