"""Fusions that stream through shared memory, one function a family, with references in NumPy.

A builder takes `Choices` and returns a definition whose schedule is set; sizes are symbolic, so
that one kernel serves every number of trips. Numbers are small integers, so that every dtype,
every order of summation and float64 agree exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from fuser import DataType, FusionDefinition, MemoryType
from fuser.api.tensor import Tensor
from rings.choices import (
    BOXES,
    DEPTH,
    EACH,
    ENGINE,
    ROWS,
    SIDE,
    SIDES,
    Choices,
    L,
    P,
    affine,
    buffered,
    shared_out,
    staged,
    tensor,
    tiled,
)
from rings.groups import groups_map, groups_multicast, groups_stream, groups_sum
from rings.products import (
    COLUMNS,
    depth,
    groups_product,
    product,
    product_rounds,
    product_turned,
)

# ---- maps --------------------------------------------------------------------------------------


def single_dim(c: Choices) -> FusionDefinition:
    """``y = 2 x + 1`` of a vector, a tile a trip."""
    fd, x, y = affine(1, c)
    cache = staged(x, c.single)
    shared_out(y, 0, c)
    tiled(cache, 0, c.single, c)
    buffered(cache, y, 1, c)
    return fd


def multi_dim(c: Choices) -> FusionDefinition:
    """``y = 2 x + 1`` of a matrix: boxes of two dimensions, columns over blocks, rows in trips."""
    fd, x, y = affine(2, c)
    cache = staged(x, c.single)
    columns = c.tile // ROWS
    for t in (y, cache):
        t.split(1, columns)
        t.split(0, ROWS)
        t.reorder({2: 0, 0: 1, 1: 2})  # column tile, row tile, row, column
        t.axis(0).parallelize(P.grid_x)
    y.axis(2).parallelize(P.serial if c.variant is P.serial else c.variant)
    y.axis(3).parallelize(P.block_x)
    for axis in (2, 3):
        cache.axis(axis).parallelize(P.tma)
    buffered(cache, y, 2, c)
    return fd


def many_dim(rank: int, c: Choices) -> FusionDefinition:
    """``y = 2 x + 1`` of a tensor of several dimensions, boxes of as many: the first in trips.

    Two rows of a box, `SIDES` along each dimension between, columns over blocks.
    """
    with FusionDefinition() as fd:
        extents = [-1, *[SIDES] * (rank - 2), -1]
        x = fd.define_tensor(shape=extents, contiguity=[True] * rank, dtype=c.dtype)
        y = fd.ops.cast(x * 2.0 + 1.0, dtype=c.dtype)
        fd.add_output(y)
    cache = staged(x, c.single)
    for t in (y, cache):
        t.split(rank - 1, c.tile // SIDES ** (rank - 1))
        t.split(0, SIDES)
        t.reorder({rank: 0})  # column tile, row tile, row, other dimensions, column
        t.axis(0).parallelize(P.grid_x)
    for _ in range(rank - 1):
        y.merge(2)
    y.split(2, c.threads)
    y.axis(3).parallelize(P.block_x)
    for axis in range(2, rank + 2):
        cache.axis(axis).parallelize(P.tma)
    buffered(cache, y, 2, c)
    return fd


def pointwise(c: Choices) -> FusionDefinition:
    """``y = 2 x + z`` of rows over blocks: each input by a load of its own."""
    with FusionDefinition() as fd:
        x, z = tensor(fd, 2, c.dtype), tensor(fd, 2, c.dtype)
        y = fd.ops.cast(x * 2.0 + z, dtype=c.dtype)
        fd.add_output(y)
    caches = [staged(t, load) for t, load in zip((x, z), c.loads, strict=True)]
    shared_out(y, 1, c)
    y.axis(0).parallelize(P.grid_x)
    for cache, load in zip(caches, c.loads, strict=True):
        tiled(cache, 1, load, c)
        cache.axis(0).parallelize(P.grid_x)
        buffered(cache, y, 2, c)
    return fd


# ---- stores by the copy engine -----------------------------------------------------------------


def staged_out(y: Tensor, c: Choices) -> Tensor:
    """Make an output the copy of a tile in shared memory, by the engine that loads or by boxes."""
    tile = y.cache_before(c.single if c.single in ENGINE else L.tma)
    tile.set_memory_type(MemoryType.shared)
    return tile


def store(c: Choices) -> FusionDefinition:
    """``y = 2 x + 1`` of a vector: a ring of loads, and a ring of tiles that are stored."""
    fd, x, y = affine(1, c)
    cache, tile = staged(x, c.single), staged_out(y, c)
    shared_out(tile, 0, c)
    tiled(y, 0, c.single if c.single in ENGINE else L.tma, c)
    tile.inline_at(y, 1)
    tile.circular_buffer(c.stages)
    tiled(cache, 0, c.single, c)
    buffered(cache, tile, 1, c)
    return fd


def store_boxes(c: Choices) -> FusionDefinition:
    """As `store` of a matrix: boxes of two dimensions, columns over blocks, rows in trips."""
    fd, x, y = affine(2, c)
    cache, tile = staged(x, c.single), staged_out(y, c)
    for t in (y, tile, cache):
        t.split(1, c.tile // ROWS)
        t.split(0, ROWS)
        t.reorder({2: 0, 0: 1, 1: 2})  # column tile, row tile, row, column
        t.axis(0).parallelize(P.grid_x)
    tile.axis(3).parallelize(P.block_x)
    for t in (y, cache):
        for axis in (2, 3):
            t.axis(axis).parallelize(P.tma)
    tile.inline_at(y, 2)
    tile.circular_buffer(c.stages)
    buffered(cache, tile, 2, c)
    return fd


def store_alone(c: Choices) -> FusionDefinition:
    """As `store` of rows over blocks, without a ring of loads."""
    fd, _, y = affine(2, c)
    tile = staged_out(y, c)
    shared_out(tile, 1, c)
    tiled(y, 1, c.single, c)
    for t in (y, tile):
        t.axis(0).parallelize(P.grid_x)
    tile.inline_at(y, 2)
    tile.circular_buffer(c.stages)
    return fd


def copy(c: Choices) -> FusionDefinition:
    """``y = x``: tiles are stored out of the stage that they were loaded into."""
    with FusionDefinition() as fd:
        x = tensor(fd, 1, c.dtype)
        y = fd.ops.set(x)
        fd.add_output(y)
    cache = staged(x, c.single)
    tiled(y, 0, c.single, c)
    through = y.cache_before(c.single)
    through.inline_at(y)
    tiled(cache, 0, c.single, c)
    buffered(cache, through, 1, c)
    return fd


def multicast(c: Choices) -> FusionDefinition:
    """``y = 2 x + b`` of rows over the blocks of clusters: `b`, the same for all, is multicast.

    If it is loaded by boxes; each block loads its own rows of `x`.
    """
    with FusionDefinition() as fd:
        x, b = tensor(fd, 2, c.dtype), tensor(fd, 1, c.dtype)
        y = fd.ops.add(x * 2.0, fd.ops.broadcast_in_dim(b, fd.ops.shape(x), [1]))
        y = fd.ops.cast(y, dtype=c.dtype)
        fd.add_output(y)
    caches = [staged(t, load) for t, load in zip((x, b), c.loads, strict=True)]
    y.split(0, c.cluster)  # cluster, block of it, column
    fd.sched.transform_like(y, caches)
    shared_out(y, 2, c)
    for cache, load in zip(caches, c.loads, strict=True):
        tiled(cache, 2, load, c)
    for t in (y, *caches):
        t.axis(0).parallelize(P.grid_x)
        t.axis(1).parallelize(P.cluster_x)
    for cache in caches:
        buffered(cache, y, 3, c)
    return fd


# ---- registers ---------------------------------------------------------------------------------


def nested(c: Choices) -> FusionDefinition:
    """``y = 2 x + 1``, or ``+ z``, of vectors: tiles through shared memory, parts of `x` through
    registers.
    """
    with FusionDefinition() as fd:
        x, *others = (tensor(fd, 1, c.dtype) for _ in c.loads)
        y = fd.ops.cast(x * 2.0 + (others[0] if others else 1.0), dtype=c.dtype)
        fd.add_output(y)
    cache, *beside = (staged(t, load) for t, load in zip((x, *others), c.loads, strict=True))
    part = cache.cache_after()
    for t in (y, part):
        t.split(0, c.tile)
        t.split(1, EACH * c.threads)
        t.split(2, c.threads)  # tile, part, element of a thread, thread
        t.axis(3).parallelize(P.block_x)
    for t, load in zip((cache, *beside), c.loads, strict=True):
        tiled(t, 0, load, c)
    part.inline_at(y, 2)
    part.circular_buffer(c.slots, c.ahead)
    buffered(cache, part, 1, c)
    for t in beside:
        buffered(t, y, 1, c)
    return fd


def registers(c: Choices) -> FusionDefinition:
    """``y = 2 x + 1`` of a vector, straight into registers, a tile a trip."""
    fd, x, y = affine(1, c)
    part = x.cache_after(c.single)
    for t in (y, part):
        shared_out(t, 0, c)
    buffered(part, y, 1, c)
    return fd


# ---- reductions --------------------------------------------------------------------------------


def reduction_inner(c: Choices) -> FusionDefinition:
    """``s = sum(x, 1)``: a row a block, partial sums of a thread over all tiles, then the block."""
    with FusionDefinition() as fd:
        x = tensor(fd, 2, c.dtype)
        s = fd.ops.sum(fd.ops.cast(x, dtype=DataType.Float), [1])
        fd.add_output(s)
    cache = staged(x, c.single)
    s.split(1, c.tile)
    s.split(2, c.threads)
    partial = s.rfactor([1, 2])
    for t in (s, partial):
        t.axis(0).parallelize(P.grid_x)
        t.axis(-1).parallelize(P.block_x)
    if c.variant is not P.serial:
        partial.axis(2).parallelize(c.variant)
    tiled(cache, 1, c.single, c)
    cache.axis(0).parallelize(P.grid_x)
    buffered(cache, partial, 2, c)
    if c.hands_registers_over:  # the consumers go on alone, in the loop that the ring is in
        partial.inline_at(s, 1)
    return fd


def reduction_outer(c: Choices) -> FusionDefinition:
    """``s = sum(x, 0)``: columns over blocks and threads, rows in trips."""
    with FusionDefinition() as fd:
        x = tensor(fd, 2, c.dtype)
        s = fd.ops.sum(fd.ops.cast(x, dtype=DataType.Float), [0])
        fd.add_output(s)
    cache = staged(x, c.single)
    for t in (s, cache):
        t.split(1, c.tile // ROWS)
        t.split(0, ROWS)
        t.reorder({2: 0, 0: 1, 1: 2 if t is cache else 3, 3: 3 if t is cache else 2})
        t.axis(0).parallelize(P.grid_x)
    s.axis(2).parallelize(P.block_x)
    for axis in (2, 3):
        cache.axis(axis).parallelize(P.tma)
    buffered(cache, s, 2, c)
    return fd


def inner_persistent(c: Choices) -> FusionDefinition:
    """``y = x + sum(x, 1)`` of rows that stay in a stage: a row a trip, several boxes a row."""
    with FusionDefinition() as fd:
        columns = c.columns or BOXES * c.tile
        x = fd.define_tensor(shape=[-1, columns], contiguity=[True] * 2, dtype=c.dtype)
        wide = fd.ops.cast(x, dtype=DataType.Float)
        s = fd.ops.sum(wide, [1])
        y = fd.ops.add(wide, fd.ops.broadcast_in_dim(s, fd.ops.shape(x), [0]))
        fd.add_output(y)
    cache = staged(x, c.single)
    for t in (y, s):
        t.split(1, c.threads)
        t.axis(2).parallelize(P.block_x)
    s.inline_at(y, 1)
    tiled(cache, 1, c.single, c)
    buffered(cache, y, 1, c)
    return fd


# ---- products ----------------------------------------------------------------------------------


def matmul(c: Choices) -> FusionDefinition:
    """``c = a b``, a small product a block: both operands by boxes, K in trips of `tile` / 16."""
    depth = c.tile // SIDE
    with FusionDefinition() as fd:
        a = fd.define_tensor(shape=[-1, SIDE, -1], contiguity=[True] * 3, dtype=c.dtype)
        b = fd.define_tensor(shape=[-1, -1, SIDE], contiguity=[True] * 3, dtype=c.dtype)
        shape = [fd.ops.size(a, 0), SIDE, SIDE, fd.ops.size(a, 2)]
        rows = fd.ops.broadcast_in_dim(fd.ops.cast(a, dtype=DataType.Float), shape, [0, 1, 3])
        turned = fd.ops.permute(fd.ops.cast(b, dtype=DataType.Float), [0, 2, 1])
        columns = fd.ops.broadcast_in_dim(turned, shape, [0, 2, 3])
        s = fd.ops.sum(fd.ops.mul(rows, columns), [3])
        fd.add_output(s)
    left, right = (staged(t, load) for t, load in zip((a, b), c.loads, strict=True))
    s.split(3, depth)
    s.reorder({3: 1})
    s.axis(2).parallelize(P.block_y)
    s.axis(3).parallelize(P.block_x)
    left.split(2, depth)
    left.reorder({2: 1})
    right.split(1, depth)
    for t in (s, left, right):
        t.axis(0).parallelize(P.grid_x)
    for cache in (left, right):
        cache.axis(2).parallelize(P.tma)
        cache.axis(3).parallelize(P.tma)
        buffered(cache, s, 2, c)
    return fd


# ---- sizes and references ----------------------------------------------------------------------

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Family:
    """A builder with what is needed to feed and to judge it.

    Attributes
    ----------
    inputs
        How many.
    shapes
        Input shapes for a length of the streamed dimension, an extent of the other and the tile.
    unit
        Length of the streamed dimension in one trip, of a tile.
    reference
        The result in float64.
    columns
        The other dimension is the columns of a box; else it is over blocks.
    rows
        Extent of the other dimension where threads of one block have it, whole and cut rounds; 0:
        they have not.
    row
        Extent of the other dimension where it is a constant of the kernel, of a tile.
    outer
        The streamed dimension is the outer one.
    boxes_only
        Every load goes through a tensor map.
    slice
        Stage slice position of consumer groups; 0: the family has none.
    """

    build: Callable[[Choices], FusionDefinition]
    inputs: int
    shapes: Callable[[int, int, int], tuple[tuple[int, ...], ...]]
    unit: Callable[[int], int]
    reference: Callable[[Arrays], np.ndarray]
    columns: bool = False
    rows: int = 0
    row: Callable[[int], int] | None = None
    outer: bool = False
    boxes_only: bool = False
    slice: int = 0


FAMILIES = {
    "single_dim": Family(
        single_dim, 1, lambda n, m, tile: ((n,),), lambda tile: tile, lambda a: a[0] * 2 + 1
    ),
    "multi_dim": Family(
        multi_dim, 1, lambda n, m, tile: ((n, m),), lambda tile: ROWS, lambda a: a[0] * 2 + 1,
        columns=True, outer=True, boxes_only=True,
    ),
    **{
        f"dims_{rank}": Family(
            partial(many_dim, rank), 1,
            lambda n, m, tile, rank=rank: ((n, *[SIDES] * (rank - 2), m),),
            lambda tile: SIDES, lambda a: a[0] * 2 + 1, columns=True, outer=True, boxes_only=True,
        )
        for rank in (3, 4, 5)
    },
    "pointwise": Family(
        pointwise, 2, lambda n, m, tile: ((m, n),) * 2, lambda tile: tile,
        lambda a: a[0] * 2 + a[1],
    ),
    "store": Family(
        store, 1, lambda n, m, tile: ((n,),), lambda tile: tile, lambda a: a[0] * 2 + 1
    ),
    "store_boxes": Family(
        store_boxes, 1, lambda n, m, tile: ((n, m),), lambda tile: ROWS, lambda a: a[0] * 2 + 1,
        columns=True, outer=True, boxes_only=True,
    ),
    "store_alone": Family(
        store_alone, 1, lambda n, m, tile: ((m, n),), lambda tile: tile, lambda a: a[0] * 2 + 1
    ),
    "copy": Family(copy, 1, lambda n, m, tile: ((n,),), lambda tile: tile, lambda a: a[0]),
    "multicast": Family(
        multicast, 2, lambda n, m, tile: ((m, n), (n,)), lambda tile: tile,
        lambda a: a[0] * 2 + a[1],
    ),
    "reduction_inner": Family(
        reduction_inner, 1, lambda n, m, tile: ((m, n),), lambda tile: tile, lambda a: a[0].sum(1)
    ),
    "reduction_outer": Family(
        reduction_outer, 1, lambda n, m, tile: ((n, m),), lambda tile: ROWS,
        lambda a: a[0].sum(0), columns=True, outer=True, boxes_only=True,
    ),
    "inner_persistent": Family(
        inner_persistent, 1, lambda n, m, tile: ((n, m),), lambda tile: 1,
        lambda a: a[0] + a[0].sum(1, keepdims=True), outer=True, row=lambda tile: BOXES * tile,
    ),
    "nested": Family(
        nested, 1, lambda n, m, tile: ((n,),), lambda tile: tile, lambda a: a[0] * 2 + 1
    ),
    "nested_pair": Family(
        nested, 2, lambda n, m, tile: ((n,),) * 2, lambda tile: tile, lambda a: a[0] * 2 + a[1]
    ),
    "registers": Family(
        registers, 1, lambda n, m, tile: ((n,),), lambda tile: tile, lambda a: a[0] * 2 + 1
    ),
    "groups_map": Family(
        groups_map, 1, lambda n, m, tile: ((n,),), lambda tile: tile, lambda a: a[0] * 2 + 1,
        slice=2,
    ),
    "groups_trips": Family(
        groups_stream, 1, lambda n, m, tile: ((n,),), lambda tile: tile, lambda a: a[0] * 2 + 1,
        slice=3,
    ),
    "groups_pair": Family(
        groups_stream, 2, lambda n, m, tile: ((n,),) * 2, lambda tile: tile,
        lambda a: a[0] * 2 + a[1], slice=3,
    ),
    "groups_multicast": Family(
        groups_multicast, 2, lambda n, m, tile: ((m, n), (n,)), lambda tile: tile,
        lambda a: a[0] * 2 + a[1], slice=5,
    ),
    "groups_sum": Family(
        groups_sum, 1, lambda n, m, tile: ((m, n),), lambda tile: DEPTH,
        lambda a: a[0].sum(1), rows=197, boxes_only=True, slice=3,
    ),
    "matmul": Family(
        matmul, 2, lambda n, m, tile: ((m, SIDE, n), (m, n, SIDE)), lambda tile: tile // SIDE,
        lambda a: a[0] @ a[1], boxes_only=True,
    ),
    "product": Family(
        product, 2, lambda n, m, tile: ((m, n), (COLUMNS, n)), depth,
        lambda a: a[0] @ a[1].T, rows=67, boxes_only=True,
    ),
    "product_turned": Family(
        product_turned, 2, lambda n, m, tile: ((n, m), (n, COLUMNS)), depth,
        lambda a: a[0].T @ a[1], rows=67, boxes_only=True,
    ),
    "product_rounds": Family(
        product_rounds, 2, lambda n, m, tile: ((m, n), (COLUMNS, n)), depth,
        lambda a: a[0] @ a[1].T, rows=303, boxes_only=True,
    ),
    "groups_product": Family(
        groups_product, 2, lambda n, m, tile: ((m, n), (COLUMNS, n)), depth,
        lambda a: a[0] @ a[1].T, rows=303, boxes_only=True, slice=3,
    ),
}  # fmt: skip
