"""Generated rings: a sum and a map of one long vector through circular buffers, by hand schedules.

The counterparts of the hand-written rings in `benchmarks.ceilings`.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.schedule.circular import CircularBufferType, WarpSpecialized

VECTOR = 4


@dataclass(frozen=True, slots=True)
class RingShape:
    """Sizes of a ring.

    Attributes
    ----------
    tile
        Elements of a stage.
    stages
        Stages of the ring.
    threads
        Threads that compute.
    blocks
        Blocks of the persistent grid.
    """

    tile: int
    stages: int
    threads: int
    blocks: int
    load: LoadStoreOpType = LoadStoreOpType.bulk
    type: CircularBufferType = WarpSpecialized(ParallelType.block_x)


RING_SUM = RingShape(tile=8192, stages=4, threads=512, blocks=132)
RING_MAP = RingShape(tile=1024, stages=8, threads=256, blocks=264)


def ring_sum(shape: RingShape = RING_SUM) -> FusionDefinition:
    """Return the fusion ``sum(x)`` of a float vector, scheduled as a ring."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float)
        total = fd.ops.sum(x)
        fd.add_output(total)
    stage = x.cache_after(shape.load)
    _tiles(total, shape)  # bx, i, tile
    total.split(2, VECTOR)
    total.split(2, shape.threads)  # bx, i, k, tx, v
    total.axis(0).parallelize(ParallelType.grid_x)
    total.axis(3).parallelize(ParallelType.block_x)
    total.axis(4).parallelize(ParallelType.vectorize)
    _ring(stage, total, shape)
    return fd


def ring_map(shape: RingShape = RING_MAP) -> FusionDefinition:
    """Return the fusion ``2x + 1`` of a float vector, scheduled as a ring with register stores."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float)
        y = x * 2.0 + 1.0
        fd.add_output(y)
    stage = x.cache_after(shape.load)
    _tiles(y, shape)
    y.split(2, VECTOR)
    y.split(2, shape.threads)
    y.axis(0).parallelize(ParallelType.grid_x)
    y.axis(3).parallelize(ParallelType.block_x)
    y.axis(4).parallelize(ParallelType.vectorize)
    _ring(stage, y, shape)
    return fd


def _tiles(tensor, shape: RingShape) -> None:
    """Cut a vector into tiles, dealt out to the blocks in turn: axes block, trip, tile."""
    tensor.split(0, shape.tile)
    tensor.split(0, shape.blocks)
    tensor.reorder({0: 1, 1: 0})


def _ring(stage, reader, shape: RingShape) -> None:
    """Buffer the copies of tiles over the trips of each block."""
    stage.set_memory_type(MemoryType.shared)
    _tiles(stage, shape)
    stage.axis(0).parallelize(ParallelType.grid_x)
    stage.axis(2).parallelize(ParallelType.tma)
    stage.inline_at(reader, 2)
    stage.circular_buffer(shape.stages, type=shape.type)
