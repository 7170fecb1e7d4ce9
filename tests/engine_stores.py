"""Fusions whose outputs the copy engine stores, in shapes that the ring matrix does not have."""

from __future__ import annotations

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.tensor import Tensor
from fuser.schedule.circular import CircularBufferType, Pipelined

P, L = ParallelType, LoadStoreOpType
TILE, THREADS = 256, 64
PIPELINED = Pipelined(war="mbarrier")


def vector(fd: FusionDefinition, rank: int = 1, dtype: DataType = DataType.Float) -> Tensor:
    """Define a contiguous tensor of symbolic extents."""
    return fd.define_tensor(shape=[-1] * rank, contiguity=[True] * rank, dtype=dtype)


def boxed(t: Tensor, axis: int = 0) -> None:
    """Split `axis` into trips and boxes."""
    t.split(axis, TILE)
    t.axis(axis + 1).parallelize(P.tma)


def threaded(t: Tensor, axis: int = 0) -> None:
    """Split `axis` into trips, elements of a thread and threads."""
    t.split(axis, TILE)
    t.split(axis + 1, THREADS)
    t.axis(axis + 2).parallelize(P.block_x)


def tile_of(y: Tensor, load: LoadStoreOpType = L.tma) -> Tensor:
    """Make `y` the copy of a tile in shared memory."""
    tile = y.cache_before(load)
    tile.set_memory_type(MemoryType.shared)
    return tile


def stream(
    stages: int = 2,
    ring: int = 2,
    kind: CircularBufferType = PIPELINED,
    store: LoadStoreOpType = L.tma,
) -> FusionDefinition:
    """``y = 2 x + 1``, through a ring of loads if `ring`, out of tiles of so many stages."""
    with FusionDefinition() as fd:
        x = vector(fd)
        y = x * 2.0 + 1.0
        fd.add_output(y)
    tile = tile_of(y, store)
    boxed(y)
    threaded(tile)
    tile.inline_at(y, 1)
    tile.circular_buffer(stages)
    if ring:
        cache = x.cache_after(L.tma)
        cache.set_memory_type(MemoryType.shared)
        boxed(cache)
        cache.inline_at(tile, 1)
        cache.circular_buffer(ring, None, kind)
    return fd


def two_outputs(stages: int = 2, ring: int = 2) -> FusionDefinition:
    """``y = 2 x``, ``z = x + 1``: stored together, in the loop of the tile that both read.

    Without a ring of loads each has a loop of its own.
    """
    with FusionDefinition() as fd:
        x = vector(fd)
        y, z = x * 2.0, x + 1.0
        fd.add_output(y)
        fd.add_output(z)
    tiles = [tile_of(out) for out in (y, z)]
    for out, tile in zip((y, z), tiles, strict=True):
        boxed(out)
        threaded(tile)
        tile.inline_at(out, 1)
        tile.circular_buffer(stages)
    if ring:
        cache = x.cache_after(L.tma)
        cache.set_memory_type(MemoryType.shared)
        boxed(cache)
        cache.inline_at(tiles[0], 1)
        cache.circular_buffer(ring)
    return fd


def rows(stages: int, kind: CircularBufferType, ring: int = 2) -> FusionDefinition:
    """``y = 2 x`` of rows one after the other: stages go on across rows."""
    with FusionDefinition() as fd:
        x = vector(fd, 2)
        y = x * 2.0
        fd.add_output(y)
    tile = tile_of(y)
    boxed(y, 1)
    threaded(tile, 1)
    tile.inline_at(y, 2)
    tile.circular_buffer(stages)
    cache = x.cache_after(L.bulk)
    cache.set_memory_type(MemoryType.shared)
    boxed(cache, 1)
    cache.inline_at(tile, 2)
    cache.circular_buffer(ring, None, kind)
    return fd


def copy_and_map(kind: CircularBufferType, ring: int = 3) -> FusionDefinition:
    """``y = x``, ``z = 2 x``: threads read the stage that the copy engine stores out of."""
    with FusionDefinition() as fd:
        x = vector(fd)
        y, z = fd.ops.set(x), x * 2.0
        fd.add_output(y)
        fd.add_output(z)
    cache = x.cache_after(L.tma)
    cache.set_memory_type(MemoryType.shared)
    boxed(y)
    through = y.cache_before(L.tma)
    through.inline_at(y)
    threaded(z)
    boxed(cache)
    cache.inline_at(z, 1)
    cache.circular_buffer(ring, None, kind)
    return fd


def copy(
    kind: CircularBufferType = PIPELINED, ring: int = 2, load: LoadStoreOpType = L.tma
) -> FusionDefinition:
    """``y = x``: out of the stage of a ring of loads; `ring` 0: of one stage without a ring."""
    with FusionDefinition() as fd:
        x = vector(fd)
        y = fd.ops.set(x)
        fd.add_output(y)
    cache = x.cache_after(load)
    cache.set_memory_type(MemoryType.shared)
    boxed(y)
    through = y.cache_before(load)
    through.inline_at(y)
    boxed(cache)
    cache.inline_at(through, 1)
    if ring:
        cache.circular_buffer(ring, None, kind)
    return fd


def read_again() -> FusionDefinition:
    """``y = 2 x``, stored; ``z = y + 1``: threads read from the tile what others wrote."""
    with FusionDefinition() as fd:
        x = vector(fd)
        y = x * 2.0
        z = y + 1.0
        fd.add_output(y)
        fd.add_output(z)
    tile = tile_of(y)
    boxed(y)
    threaded(tile)
    z.split(0, TILE)
    z.split(1, TILE // THREADS)
    z.axis(1).parallelize(P.block_x)
    tile.inline_at(y, 1)
    return fd
