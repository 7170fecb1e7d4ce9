"""Small fusions with hand-made circular buffers: what ``check --matrix`` and the tests are run on.

Each streams a tensor through shared memory in one block; the number of trips follows from its
size, so one kernel serves every number of trips.
"""

from __future__ import annotations

from fuser.api.definition import FusionDefinition
from fuser.api.tensor import Tensor
from fuser.core.dtypes import DataType
from fuser.schedule.circular import CircularBufferType
from fuser.schedule.kinds import LoadStoreOpType, MemoryType, ParallelType

ENGINE = (LoadStoreOpType.tma, LoadStoreOpType.bulk)
VECTOR_BYTES = 16
ROWS, COLUMNS, DEPTH, STEP = 64, 64, 64, 16
"""Of a product of a warp group: its tile, how deep a stage is, and how deep one instruction."""


def ring_map(
    load: LoadStoreOpType,
    stages: int,
    prefetch: int | None,
    type: CircularBufferType,
    tile: int = 256,
    threads: int = 64,
    second: LoadStoreOpType | None = None,
    dtype: DataType = DataType.Float,
) -> FusionDefinition:
    """``y = x * 2 + 1`` (``+ z`` with a `second` load): a tile of `tile` elements a trip."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=[True], dtype=dtype)
        y = x * 2.0 + 1.0
        sources = [(x, load)]
        if second is not None:
            z = fd.define_tensor(shape=[-1], contiguity=[True], dtype=dtype)
            y = y + z
            sources.append((z, second))
        y = fd.ops.cast(y, dtype=dtype)
        fd.add_output(y)
    caches = [(_cached(source, kind), kind) for source, kind in sources]
    _share(y, 0, tile, threads)
    for cache, kind in caches:
        _tiled(cache, 0, tile, threads, kind, dtype)
        cache.inline_at(y, 1)
        cache.circular_buffer(stages, prefetch, type)
    return fd


def ring_store(
    load: LoadStoreOpType,
    stages: int,
    prefetch: int | None,
    type: CircularBufferType,
    tile: int = 256,
    threads: int = 64,
) -> FusionDefinition:
    """``y = x * 2 + 1``: a ring of loads, and as many stages of tiles that the engine stores."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=[True])
        y = x * 2.0 + 1.0
        fd.add_output(y)
    cache, out = _cached(x, load), y.cache_before(load)
    out.set_memory_type(MemoryType.shared)
    _share(out, 0, tile, threads)
    for t in (y, cache):
        _tiled(t, 0, tile, threads, load, DataType.Float)
    out.inline_at(y, 1)
    out.circular_buffer(stages)
    cache.inline_at(out, 1)
    cache.circular_buffer(stages, prefetch, type)
    return fd


def ring_copy(
    load: LoadStoreOpType,
    stages: int,
    prefetch: int | None,
    type: CircularBufferType,
    tile: int = 256,
    threads: int = 64,
) -> FusionDefinition:
    """``y = x``, ``z = x * 2``: stores out of the stage of loads, which threads read too."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=[True])
        y, z = fd.ops.set(x), x * 2.0
        fd.add_output(y)
        fd.add_output(z)
    cache = _cached(x, load)
    _share(z, 0, tile, threads)
    for t in (y, cache):
        _tiled(t, 0, tile, threads, load, DataType.Float)
    through = y.cache_before(load)
    through.inline_at(y)
    cache.inline_at(z, 1)
    cache.circular_buffer(stages, prefetch, type)
    return fd


def ring_rows(
    load: LoadStoreOpType,
    stages: int,
    prefetch: int | None,
    type: CircularBufferType,
    tile: int = 256,
    threads: int = 64,
) -> FusionDefinition:
    """``y = x * 2 + 1`` of rows, one after the other: a loop over tiles inside a persistent one."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True])
        y = x * 2.0 + 1.0
        fd.add_output(y)
    cache = _cached(x, load)
    _share(y, 1, tile, threads)
    _tiled(cache, 1, tile, threads, load, DataType.Float)
    cache.inline_at(y, 2)
    cache.circular_buffer(stages, prefetch, type)
    return fd


def ring_multicast(
    load: LoadStoreOpType,
    stages: int,
    prefetch: int | None,
    type: CircularBufferType,
    tile: int = 256,
    threads: int = 64,
    blocks: int = 2,
) -> FusionDefinition:
    """``y = x + b`` of rows over the `blocks` of clusters, which share every tile of `b`."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True])
        b = fd.define_tensor(shape=[-1], contiguity=[True])
        y = x + fd.ops.broadcast_in_dim(b, fd.ops.shape(x), [1])
        fd.add_output(y)
    cache = _cached(b, load)
    y.split(0, blocks)  # cluster, block of it, column
    y.split(2, tile)
    fd.sched.transform_like(y, [cache])
    y.split(3, threads)
    y.axis(4).parallelize(ParallelType.block_x)
    for t in (y, cache):
        t.axis(0).parallelize(ParallelType.grid_x)
        t.axis(1).parallelize(ParallelType.cluster_x)
    cache.axis(3).parallelize(ParallelType.tma)
    cache.inline_at(y, 3)
    cache.circular_buffer(stages, prefetch, type)
    return fd


def ring_sum(
    load: LoadStoreOpType,
    stages: int,
    prefetch: int | None,
    type: CircularBufferType,
    tile: int = 256,
    threads: int = 64,
    dtype: DataType = DataType.Float,
) -> FusionDefinition:
    """``s = sum(x)``: every thread adds up its share of all tiles, then the block combines."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=[True], dtype=dtype)
        s = fd.ops.sum(x, [0])
        fd.add_output(s)
    cache = _cached(x, load)
    s.split(0, tile)
    s.split(1, threads)
    partial = s.rfactor([0, 1])
    partial.axis(2).parallelize(ParallelType.block_x)
    s.axis(0).parallelize(ParallelType.block_x)
    _tiled(cache, 0, tile, threads, load, dtype)
    cache.inline_at(partial, 1)
    cache.circular_buffer(stages, prefetch, type)
    return fd


def ring_groups(
    load: LoadStoreOpType,
    stages: int,
    prefetch: int | None,
    type: CircularBufferType,
    trips: int = 1,
    groups: int = 2,
) -> FusionDefinition:
    """``s = sum(x, 1)``: 32 rows a consumer group, columns in `trips` trips (-1: any number)."""
    width = 16
    with FusionDefinition() as fd:
        columns = -1 if trips < 0 else trips * width
        x = fd.define_tensor(shape=[-1, columns], contiguity=[True, True])
        s = fd.ops.sum(x, [1])
        fd.add_output(s)
    cache = _cached(x, load)
    for t in (s, cache):
        t.split(0, 32)
        t.split(0, groups)
        t.split(3, width)
        t.reorder({3: 2, 2: 3})  # round, group, trip, row, column
        t.axis(1).parallelize(ParallelType.block_y)
    s.axis(3).parallelize(ParallelType.block_x)
    for axis in (3, 4):
        cache.axis(axis).parallelize(ParallelType.tma)
    cache.inline_at(s, 3)
    cache.circular_buffer(stages, prefetch, type)
    return fd


def ring_persistent(
    load: LoadStoreOpType,
    stages: int,
    prefetch: int | None,
    type: CircularBufferType,
    columns: int = 512,
    threads: int = 64,
) -> FusionDefinition:
    """``y = x + sum(x, 1)`` of rows that stay in a stage: every trip reduces over its threads."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, columns], contiguity=[True, True])
        s = fd.ops.sum(x, [1])
        y = x + fd.ops.broadcast_in_dim(s, fd.ops.shape(x), [0])
        fd.add_output(y)
    cache = _cached(x, load)
    for t in (y, s):
        t.split(1, threads)
        t.axis(2).parallelize(ParallelType.block_x)
    s.inline_at(y, 1)
    cache.axis(1).parallelize(ParallelType.tma)
    cache.inline_at(y, 1)
    cache.circular_buffer(stages, prefetch, type)
    return fd


def ring_products(
    load: LoadStoreOpType,
    stages: int,
    prefetch: int | None,
    type: CircularBufferType,
    groups: int = 1,
    outer: bool = False,
) -> FusionDefinition:
    """``c = a b^T`` by tensor cores, 64 deep a trip; `groups` of 64 rows, or 64 an `outer` trip."""
    fd, tiles, c = _product(load, -1 if outer else groups * ROWS, -1)
    c.split(0, ROWS)  # round or group, row, column, trip, k
    c.reorder({3: 1, 1: 2, 2: 3} if outer else {3: 0, 0: 1, 1: 2, 2: 3})
    fd.sched.transform_like(c, tiles)
    if groups > 1:
        c.axis(1).parallelize(ParallelType.block_y)
    _multiplied(c, tiles, 2, 2 if outer else 1, (stages, prefetch, type))
    return fd


def ring_group_products(
    load: LoadStoreOpType,
    stages: int,
    prefetch: int | None,
    type: CircularBufferType,
    trips: int = 1,
    groups: int = 2,
) -> FusionDefinition:
    """``c = a b^T`` by tensor cores: 64 rows a consumer group, `trips` of 64 deep a round."""
    fd, tiles, c = _product(load, -1, trips * DEPTH)
    c.split(0, ROWS)
    c.split(0, groups)
    c.reorder({4: 2, 2: 3, 3: 4})  # round, group, trip, row, column, k
    c.axis(1).parallelize(ParallelType.block_y)
    fd.sched.transform_like(c, tiles)
    for tile in tiles:
        tile.axis(1).parallelize(ParallelType.block_y)
    _multiplied(c, tiles, 3, 3, (stages, prefetch, type))
    return fd


def _product(
    load: LoadStoreOpType, rows: int, depth: int
) -> tuple[FusionDefinition, list[Tensor], Tensor]:
    """Return a product of a (rows, depth) and b (64, depth), with its tiles and itself split."""
    with FusionDefinition() as fd:
        a, b = (
            fd.define_tensor(shape=[n, depth], contiguity=[True] * 2, dtype=DataType.Half)
            for n in (rows, COLUMNS)
        )
        every = [fd.ops.size(a, 0), COLUMNS, fd.ops.size(a, 1)]
        left, right = (
            fd.ops.broadcast_in_dim(fd.ops.cast(t, dtype=DataType.Float), every, [kept, 2])
            for kept, t in enumerate((a, b))
        )
        c = fd.ops.sum(fd.ops.mul(left, right), [2])
        fd.add_output(c)
    tiles = [_cached(a, load), _cached(b, load)]
    c.split(2, DEPTH)
    return fd, tiles, c


def _multiplied(
    c: Tensor,
    tiles: list[Tensor],
    row: int,
    inlined: int,
    ring: tuple[int, int | None, CircularBufferType],
) -> None:
    """Have axes `row`, and the two behind it, computed by tensor cores, tiles in a ring."""
    tiles[0].once(row + 1)
    tiles[1].once(row)
    c.split(row + 2, STEP)
    c.wgmma(row, row + 1, row + 3)
    for tile in tiles:
        tile.set_swizzle("128B")
        for axis in (-2, -1):
            tile.axis(axis).parallelize(ParallelType.tma)
        tile.inline_at(c, inlined)
        tile.circular_buffer(*ring)


def _cached(x: Tensor, load: LoadStoreOpType) -> Tensor:
    cache = x.cache_after(load)
    cache.set_memory_type(MemoryType.shared)
    return cache


def _share(y: Tensor, axis: int, tile: int, threads: int) -> None:
    """Split `axis` into trips, elements of a thread, and threads."""
    y.split(axis, tile)
    y.split(axis + 1, threads)
    y.axis(axis + 2).parallelize(ParallelType.block_x)


def _tiled(
    cache: Tensor, axis: int, tile: int, threads: int, load: LoadStoreOpType, dtype: DataType
) -> None:
    """Split `axis` into trips and a tile, loaded whole or by all threads."""
    cache.split(axis, tile)
    if load in ENGINE:
        cache.axis(axis + 1).parallelize(ParallelType.tma)
        return
    width = min(VECTOR_BYTES // dtype.nbytes, tile // threads)
    cache.split(axis + 1, threads * width)
    cache.split(axis + 2, width)
    cache.axis(axis + 2).parallelize(ParallelType.block_x)
    cache.axis(axis + 3).parallelize(ParallelType.vectorize)
