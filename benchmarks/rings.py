"""Generated rings: a sum and a map of one long vector through circular buffers, by hand schedules.

The counterparts of the hand-written rings in `benchmarks.ceilings`.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.tensor import Tensor
from fuser.schedule.circular import CircularBufferType, WarpSpecialized

VECTOR = 4
ROLES = WarpSpecialized(ParallelType.block_x)
BOX = 256
"""Elements of a row of a box: the most that a tensor map takes."""


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
    type: CircularBufferType = ROLES


RING_SUM = RingShape(tile=8192, stages=4, threads=256, blocks=132)
RING_MAP = RingShape(tile=1024, stages=12, threads=256, blocks=132)


def ring_sum(shape: RingShape = RING_SUM) -> FusionDefinition:
    """Return the fusion ``sum(x)`` of float elements, scheduled as a ring."""
    with FusionDefinition() as fd:
        x = _vector(fd, shape)
        total = fd.ops.sum(x)
        fd.add_output(total)
    _schedule(x.cache_after(shape.load), total, shape)
    return fd


def ring_map(shape: RingShape = RING_MAP) -> FusionDefinition:
    """Return the fusion ``2x + 1`` of float elements, scheduled as a ring with register stores."""
    with FusionDefinition() as fd:
        x = _vector(fd, shape)
        y = x * 2.0 + 1.0
        fd.add_output(y)
    _schedule(x.cache_after(shape.load), y, shape)
    return fd


def _vector(fd: FusionDefinition, shape: RingShape) -> Tensor:
    """Define the input: a vector for bulk copies, rows of a box's width for a tensor map."""
    if shape.load is LoadStoreOpType.bulk:
        return fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float)
    return fd.define_tensor(shape=[-1, BOX], contiguity=[True, True], dtype=DataType.Float)


def _schedule(stage: Tensor, reader: Tensor, shape: RingShape) -> None:
    """Give the reader its threads, and buffer the copies over the trips of each block."""
    stage.set_memory_type(MemoryType.shared)
    for tensor in (stage, reader):
        _tiles(tensor, shape)  # bx, trip, tile...
        tensor.axis(0).parallelize(ParallelType.grid_x)
    for axis in stage.loop_axes[2:]:
        axis.parallelize(ParallelType.tma)
    if len(reader.loop_axes) > 3:
        reader.merge(2, 3)
    reader.split(2, VECTOR)
    reader.split(2, shape.threads)
    reader.axis(3).parallelize(ParallelType.block_x)
    reader.axis(4).parallelize(ParallelType.vectorize)
    stage.inline_at(reader, 2)
    stage.circular_buffer(shape.stages, type=shape.type)


def _tiles(tensor: Tensor, shape: RingShape) -> None:
    """Cut the elements into tiles, dealt out to the blocks in turn."""
    tensor.split(0, shape.tile if shape.load is LoadStoreOpType.bulk else shape.tile // BOX)
    tensor.split(0, shape.blocks)
    tensor.reorder({0: 1, 1: 0})
