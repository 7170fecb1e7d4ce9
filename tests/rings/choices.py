"""What varies between the members of a family of streaming fusions, and the pieces they share."""

from __future__ import annotations

from dataclasses import dataclass

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.tensor import Tensor
from fuser.schedule.circular import CircularBufferType, Pipelined, WarpSpecialized

P, L = ParallelType, LoadStoreOpType
ENGINE = (L.tma, L.bulk)
PIPELINED = Pipelined(war="mbarrier")
THREADS = 64
VECTOR_BYTES = 16
ROWS = 4
"""Rows of a box of two dimensions; its columns are the rest of a tile."""
EACH = 2
"""Elements that a thread loads into registers at once."""
BOXES = 3
"""Tiles of a row that stays in one stage."""
SIDE = 16
"""Rows and columns of a matrix product's tile."""
SIDES = 2
"""Extent of a box along each but the last of many dimensions."""
GROUPS = 2
"""Consumer groups."""
TURN = 2
"""Tiles that a group has one after the other."""
DEPTH = 16
"""Columns of a trip of groups that sum."""


@dataclass(frozen=True)
class Choices:
    """What varies between the members of a family.

    Attributes
    ----------
    loads
        How each input gets into shared memory, as many as the family has inputs.
    tile
        Elements of a stage along the streamed dimension.
    variant
        What binds the elements of a thread: serial, unroll or unswitch.
    cluster
        Blocks of a cluster.
    slots, ahead
        Stages and prefetch distance of a second ring, in registers, inside a tile.
    columns
        Extent of a row that is a constant of the kernel; 0: of some tiles.
    """

    loads: tuple[LoadStoreOpType, ...] = (L.tma,)
    stages: int = 3
    prefetch: int | None = None
    type: CircularBufferType = PIPELINED
    dtype: DataType = DataType.Float
    tile: int = 256
    variant: ParallelType = P.serial
    threads: int = THREADS
    cluster: int = 1
    slots: int = 2
    ahead: int | None = None
    columns: int = 0

    @property
    def hands_registers_over(self) -> bool:
        """Whether producers give registers to consumers."""
        return isinstance(self.type, WarpSpecialized) and self.type.num_registers is not None

    @property
    def single(self) -> LoadStoreOpType:
        """The load of a family with one input."""
        (load,) = self.loads
        return load


def tensor(fd: FusionDefinition, rank: int, dtype: DataType) -> Tensor:
    """Define a contiguous tensor of symbolic extents."""
    return fd.define_tensor(shape=[-1] * rank, contiguity=[True] * rank, dtype=dtype)


def affine(rank: int, c: Choices) -> tuple[FusionDefinition, Tensor, Tensor]:
    """Return the definition of ``y = 2 x + 1``, `x` and `y`."""
    with FusionDefinition() as fd:
        x = tensor(fd, rank, c.dtype)
        y = fd.ops.cast(x * 2.0 + 1.0, dtype=c.dtype)
        fd.add_output(y)
    return fd, x, y


def staged(x: Tensor, load: LoadStoreOpType) -> Tensor:
    """Insert a copy into shared memory."""
    cache = x.cache_after(load)
    cache.set_memory_type(MemoryType.shared)
    return cache


def buffered(cache: Tensor, reader: Tensor, position: int, c: Choices) -> None:
    """Buffer a copy inside the first `position` loops of its reader."""
    cache.inline_at(reader, position)
    cache.circular_buffer(c.stages, c.prefetch, c.type)


def shared_out(y: Tensor, axis: int, c: Choices) -> None:
    """Split `axis` into trips, elements of a thread and threads."""
    y.split(axis, c.tile)
    y.split(axis + 1, c.threads)
    y.axis(axis + 2).parallelize(P.block_x)
    if c.variant is not P.serial:
        y.axis(axis + 1).parallelize(c.variant)


def tiled(cache: Tensor, axis: int, load: LoadStoreOpType, c: Choices) -> None:
    """Split `axis` into trips and what loads a tile: boxes of the engine, or vectors of threads."""
    cache.split(axis, c.tile)
    if load in ENGINE:
        cache.axis(axis + 1).parallelize(P.tma)
        return
    width = min(VECTOR_BYTES // c.dtype.nbytes, c.tile // c.threads)
    cache.split(axis + 1, c.threads * width)
    cache.split(axis + 2, width)
    cache.axis(axis + 2).parallelize(P.block_x)
    cache.axis(axis + 3).parallelize(P.vectorize)
