"""Matrix products by tensor cores: both operands stream through shared memory, K in trips."""

from __future__ import annotations

from fuser import DataType, FusionDefinition
from fuser.api.tensor import Tensor
from rings.choices import GROUPS, Choices, P, buffered, staged

WARP_GROUP_ROWS = 64
COLUMNS = 72
"""Columns of the result: no power of two, and fewer than two tiles of a block."""
BLOCK_COLUMNS = 40
SPAN = 64
"""Elements of 2 bytes in a swizzle's span of 128."""
HALF_SPAN = 32
STEP = 16
"""K of one instruction."""


def depth(tile: int) -> int:
    """Return how much of K is in a stage."""
    return tile // 4


def defined(c: Choices, turned: bool) -> tuple[FusionDefinition, Tensor, Tensor, Tensor]:
    """Return ``c = a b^T`` of a (m, k) and b (n, k), or of a (k, m) and b (k, n)."""
    with FusionDefinition() as fd:
        shape = [-1, COLUMNS] if turned else [COLUMNS, -1]
        a = fd.define_tensor(shape=[-1, -1], contiguity=[True] * 2, dtype=c.dtype)
        b = fd.define_tensor(shape=shape, contiguity=[True] * 2, dtype=c.dtype)
        left, right = (fd.ops.permute(t, [1, 0]) if turned else t for t in (a, b))
        every = [fd.ops.size(left, 0), COLUMNS, fd.ops.size(left, 1)]
        rows = fd.ops.broadcast_in_dim(fd.ops.cast(left, dtype=DataType.Float), every, [0, 2])
        columns = fd.ops.broadcast_in_dim(fd.ops.cast(right, dtype=DataType.Float), every, [1, 2])
        s = fd.ops.sum(fd.ops.mul(rows, columns), [2])
        fd.add_output(s)
    return fd, a, b, s


def boxed(tile: Tensor, turned: bool) -> None:
    """Split the last two axes of a tile, (row, k), into boxes as wide as the swizzle's span."""
    tile.split(-2 if turned else -1, HALF_SPAN if turned else SPAN)
    if not turned:
        tile.reorder({-2: -3})  # span, row, k
    tile.set_swizzle("64B" if turned else "128B")  # turned: span, row, k; boxes of (k, row)
    for axis in (-2, -1):
        tile.axis(axis).parallelize(P.tma)


def product(c: Choices) -> FusionDefinition:
    """``c = a b^T``: blocks of 64 rows a warp group and 40 columns."""
    return blocks(c, turned=False)


def product_turned(c: Choices) -> FusionDefinition:
    """``c = a^T b``, both operands contiguous along the other dimension than the one summed."""
    return blocks(c, turned=True)


def blocks(c: Choices, *, turned: bool) -> FusionDefinition:
    """Return a product, a tile of the result a block, of one warp group or of two."""
    fd, a, b, s = defined(c, turned)
    tiles = [staged(t, load) for t, load in zip((a, b), c.loads, strict=True)]
    warp_groups = 2 if c.hands_registers_over else 1
    s.split(0, warp_groups * WARP_GROUP_ROWS)
    s.split(2, BLOCK_COLUMNS)
    s.split(4, depth(c.tile))
    s.reorder({1: 3, 2: 1, 4: 2})  # block of rows, of columns, trip, row, column, k
    fd.sched.transform_like(s, tiles)
    tiles[0].once(4)
    tiles[1].once(3)
    s.split(3, WARP_GROUP_ROWS)
    s.split(6, STEP)  # block of rows, of columns, trip, warp group, row, column, step, k
    s.wgmma(4, 5, 7)
    if warp_groups > 1:
        s.axis(3).parallelize(P.block_y)
    for t in (s, *tiles):
        t.axis(0).parallelize(P.grid_x)
        t.axis(1).parallelize(P.grid_y)
    for tile in tiles:
        boxed(tile, turned)
        buffered(tile, s, 3, c)
    return fd


def product_rounds(c: Choices) -> FusionDefinition:
    """``c = a b^T``, rows in rounds: one block goes on from one tile of the result to the next."""
    fd, a, b, s = defined(c, False)
    tiles = [staged(t, load) for t, load in zip((a, b), c.loads, strict=True)]
    s.split(0, WARP_GROUP_ROWS)
    s.split(3, depth(c.tile))
    s.reorder({3: 1, 1: 2, 2: 3})  # round, trip, row, column, k
    return rounds(c, fd, tiles, s, 2)


def groups_product(c: Choices) -> FusionDefinition:
    """``c = a b^T``, rows in rounds of two tiles: each is one consumer group's."""
    fd, a, b, s = defined(c, False)
    tiles = [staged(t, load) for t, load in zip((a, b), c.loads, strict=True)]
    s.split(0, WARP_GROUP_ROWS)
    s.split(0, GROUPS)
    s.split(4, depth(c.tile))
    s.reorder({4: 2, 2: 3, 3: 4})  # round, group, trip, row, column, k
    s.axis(1).parallelize(P.block_y)
    return rounds(c, fd, tiles, s, 3)


def rounds(
    c: Choices, fd: FusionDefinition, tiles: list[Tensor], s: Tensor, row: int
) -> FusionDefinition:
    """Return the schedule of a product whose axes `row`, and two behind, are a tile and a trip."""
    fd.sched.transform_like(s, tiles)
    if row == 3:
        for tile in tiles:
            tile.axis(1).parallelize(P.block_y)
    tiles[0].once(row + 1)
    tiles[1].once(row)
    s.split(row + 2, STEP)
    s.wgmma(row, row + 1, row + 3)
    for tile in tiles:
        boxed(tile, False)
        buffered(tile, s, row, c)
    return fd
