"""Products of tensor cores among other computations: schedules, inputs and references."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from product_schedules import PIPELINED, D, L, M, P, Product

from fuser import FusionDefinition, Pipelined, WarpSpecialized
from fuser.schedule.circular import CircularBufferType

BF16 = D.BFloat16
ROLES = WarpSpecialized(P.block_x)
Reference = Callable[..., "np.ndarray | tuple[np.ndarray, ...]"]


@dataclass(frozen=True)
class Case:
    """A schedule, the shapes of its inputs, and its outputs in float64."""

    build: Callable[[], FusionDefinition]
    shapes: tuple[tuple[int, ...], ...]
    reference: Reference

    def inputs(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Return small integers, of which sums are exact."""
        return [rng.integers(-4, 5, shape).astype(BF16.np) for shape in self.shapes]

    def require(self, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        """Raise `AssertionError` unless every output is the reference, exactly."""
        expected = self.reference(*(x.astype("f8") for x in inputs))
        each = expected if isinstance(expected, tuple) else (expected,)
        for got, wanted in zip(outputs, each, strict=True):
            np.testing.assert_array_equal(got.astype("f8"), wanted)


# ---- pieces ------------------------------------------------------------------------------------


def matrix(fd: FusionDefinition, *shape: int) -> Any:
    """Define a contiguous tensor of bf16; two symbolic extents by default."""
    extents = list(shape or (-1, -1))
    return fd.define_tensor(shape=extents, contiguity=[True] * len(extents), dtype=BF16)


def factor(fd: FusionDefinition, x: Any, every: list[Any], dims: list[int]) -> Any:
    """Return an operand of a product, broadcast and cast to Float."""
    return fd.ops.cast(fd.ops.broadcast_in_dim(x, every, dims), dtype=D.Float)


def summed(fd: FusionDefinition, a: Any, b: Any, n: Any = None) -> Any:
    """Return ``a b^T`` of a (m, k) and b (n, k)."""
    every = [fd.ops.size(a, 0), fd.ops.size(b, 0) if n is None else n, fd.ops.size(a, 1)]
    return fd.ops.sum(fd.ops.mul(factor(fd, a, every, [0, 2]), factor(fd, b, every, [1, 2])), [2])


def in_shared(*given: Any) -> list[Any]:
    """Return tiles of tensors in shared memory."""
    tiles = [t.cache_after(L.tma) for t in given]
    for t in tiles:
        t.set_memory_type(M.shared)
    return tiles


def boxes(*tiles: Any) -> None:
    """Load (row, 64 of k), the last two axes of each tile, by one box."""
    for t in tiles:
        for axis in (-2, -1):
            t.axis(axis).parallelize(P.tma)
        t.set_swizzle("128B")


def bound(kinds: dict[int, P], *tensors: Any) -> None:
    """Bind the same axes of several tensors."""
    for t in tensors:
        for axis, kind in kinds.items():
            t.axis(axis).parallelize(kind)


# ---- two products ------------------------------------------------------------------------------


def side_by_side(
    kind: CircularBufferType | None = PIPELINED,
    stages: int = 3,
    rings: tuple[int, ...] = (0, 1, 2),
    gated: bool = False,
) -> FusionDefinition:
    """``a b^T`` and ``a d^T`` in one loop over k, which share the tiles of a."""  # fmt: skip
    with FusionDefinition() as fd:
        a, b, d = matrix(fd), matrix(fd, 72, -1), matrix(fd, 72, -1)
        products = [summed(fd, a, other, 72) for other in (b, d)]
        out = fd.ops.mul(products[0], fd.ops.relu(products[1])) if gated else None
        for output in products if out is None else [out]:
            fd.add_output(output)
    tiles = in_shared(a, b, d)
    for c in products:
        c.split(0, 64)
        c.split(3, 64)
        c.reorder({3: 1, 1: 2, 2: 3})  # block of rows, trip, row, column, k
    fd.sched.transform_like(products[0], tiles[:2])
    fd.sched.transform_like(products[1], tiles[2:])
    for t, axis in zip(tiles, (3, 2, 2), strict=True):
        t.once(axis)
    boxes(*tiles)
    for c in products:
        c.split(4, 16)
        c.wgmma(2, 3, 5)
    bound({0: P.grid_x}, *products, *tiles)
    if out is not None:
        fd.sched.transform_like(products[0], [out])
        fd.sched.parallelize_like(products[0], -1, [out])
        for c in products:
            c.inline_at(out, 1)
    for t, c in zip(tiles, (products[0], *products), strict=True):
        t.inline_at(c, 2)
    for i in rings:
        tiles[i].circular_buffer(stages, None, kind or PIPELINED)
    return fd


def by_itself(m: int, stages: int) -> FusionDefinition:
    """``a a^T`` of m rows: one tile is both operands."""
    with FusionDefinition() as fd:
        a = matrix(fd, m, -1)
        every = [m, m, fd.ops.size(a, 1)]
        product = fd.ops.mul(factor(fd, a, every, [0, 2]), factor(fd, a, every, [1, 2]))
        c = fd.ops.sum(product, [2])
        fd.add_output(c)
    (tile,) = in_shared(a)
    c.split(0, 64)
    c.split(3, 64)
    c.reorder({3: 0, 0: 1, 1: 2, 2: 3})  # trip, tile of rows, row, column, k
    tile.split(1, 64)
    tile.reorder({1: 0})
    boxes(tile)
    c.split(4, 16)
    c.wgmma(2, 3, 5)
    tile.inline_at(c, 1)
    tile.circular_buffer(stages)
    return fd


def with_sum(stages: int, kind: CircularBufferType = PIPELINED) -> FusionDefinition:
    """``a b^T`` plus the sum of ``a + b``, which threads add up out of the same tiles."""
    product = Product(stages=stages, kind=kind)
    with FusionDefinition() as fd:
        a, b = product.given = [matrix(fd), matrix(fd)]
        every = [fd.ops.size(a, 0), fd.ops.size(b, 0), fd.ops.size(a, 1)]
        x, y = factor(fd, a, every, [0, 2]), factor(fd, b, every, [1, 2])
        product.c, plain = fd.ops.sum(fd.ops.mul(x, y), [2]), fd.ops.sum(fd.ops.add(x, y), [2])
        product.out = fd.ops.add(product.c, plain)
        fd.add_output(product.out)
    product.fd = fd

    def multiplied(self: Product) -> None:
        self.c.split(5, 16)
        fd.sched.transform_like(self.c, [plain])
        self.c.wgmma(3, 4, 6)
        as_an_instruction(plain)
        plain.reorder({7: 3, 8: 4})  # .., trip, step, k, thread, n / 8, half, pair
        for axis in (3, 4):
            plain.axis(axis).rolled()
        bound({0: P.grid_y, 1: P.grid_x}, plain)

    product.schedule(multiplied=multiplied)
    plain.inline_at(product.out, 2)
    return fd


def as_an_instruction(t: Any) -> None:
    """Give rows and columns, axes 3 and 4, to threads and registers as an instruction does."""
    t.split(3, 16)
    t.split(4, 8)
    t.split(6, 8)
    t.split(7, 2)  # .., warp, half, 8, n / 8, 4, pair
    t.reorder({5: 4, 7: 5, 4: 6, 6: 7})  # .., warp, 8, 4, half, n / 8, pair
    t.merge(3, 4)
    t.merge(3, 4)
    t.reorder({5: 4})
    t.axis(3).parallelize(P.block_x)
    for axis in (4, 5, 6):
        t.axis(axis).parallelize(P.unroll)


# ---- more dimensions, more blocks --------------------------------------------------------------


def batched(both: bool, stages: int) -> FusionDefinition:
    """A product a batch, or the sum of them: k of two dimensions, whose trips are one loop."""
    with FusionDefinition() as fd:
        a, b = matrix(fd, -1, -1, -1), matrix(fd, -1, -1, -1)
        every = [fd.ops.size(a, 0), fd.ops.size(a, 1), fd.ops.size(b, 1), fd.ops.size(a, 2)]
        product = fd.ops.mul(factor(fd, a, every, [0, 1, 3]), factor(fd, b, every, [0, 2, 3]))
        c = fd.ops.sum(product, [0, 3] if both else [3])
        fd.add_output(c)
    tiles = in_shared(a, b)
    c.split(1, 64)
    c.split(3, 64)
    c.split(5, 64)  # z, block, row, block, column, trip, k
    c.reorder({1: 0, 3: 1, 0: 2, 5: 3, 2: 4, 4: 5} if both else {2: 4, 3: 2, 5: 3, 4: 5})
    fd.sched.transform_like(c, tiles)
    tiles[0].once(5)
    tiles[1].once(4)
    if both:
        for t in (c, *tiles):
            t.merge(2, 3)
    first = 3 if both else 4
    boxes(*tiles)
    c.split(first + 2, 16)
    c.wgmma(first, first + 1, first + 3)
    kinds = {0: P.grid_y, 1: P.grid_x}
    bound(kinds if both else {0: P.grid_z, 1: P.grid_y, 2: P.grid_x}, c, *tiles)
    for t in tiles:
        t.inline_at(c, first)
        t.circular_buffer(stages)
    return fd


def in_cluster(along: str, blocks: int, kind: CircularBufferType) -> FusionDefinition:
    """Blocks of a cluster share the tiles of one operand: neighbours along rows, or columns."""

    def split(self: Product) -> None:
        self.c.split(0, 64)
        self.c.split(2, 64)
        self.c.split(4, 64)
        self.c.reorder({1: 3, 2: 1, 4: 2})
        self.c.split(0 if along == "m" else 1, blocks)

    def shared_out(self: Product) -> None:
        self.fd.sched.transform_like(self.c, self.tiles)
        self.tiles[0].once(5)
        self.tiles[1].once(4)

    def multiplied(self: Product) -> None:
        self.c.split(6, 16)
        self.c.wgmma(4, 5, 7)

    def placed(self: Product) -> None:
        columns = {0: P.grid_y, 1: P.grid_x, 2: P.cluster_x}
        rows = {0: P.grid_y, 1: P.cluster_y, 2: P.grid_x}
        bound(rows if along == "m" else columns, self.c, *self.tiles)

    def buffered(self: Product) -> None:
        for t in self.tiles:
            t.inline_at(self.c, 4)
            t.circular_buffer(3, None, kind)

    return Product().schedule(
        split=split, shared_out=shared_out, boxed=lambda p: boxes(*p.tiles), multiplied=multiplied,
        placed=placed, buffered=buffered,
    ).fd  # fmt: skip


def steps_shared(kind: P) -> FusionDefinition:
    """Warp groups that each multiply one step of 16 of a trip, and combine their sums."""

    def multiplied(self: Product) -> None:
        Product.multiplied(self)
        self.c.axis(3).parallelize(kind)

    return Product().schedule(multiplied=multiplied).fd


def groups_of_rows(kind: P, rows: int) -> FusionDefinition:
    """A warp group for every 64 rows of a block."""

    def multiplied(self: Product) -> None:
        Product.multiplied(self)
        self.c.axis(3).parallelize(kind)

    return Product(tile=(rows, 64, 64)).schedule(multiplied=multiplied).fd


def groups_of_columns(kind: P, ring: CircularBufferType) -> FusionDefinition:
    """Two products of 64 columns a block, of one warp group or of two."""

    def multiplied(self: Product) -> None:
        self.c.split(4, 64)
        self.c.split(6, 16)
        self.c.reorder({4: 3, 3: 4})  # .., trip, columns of a product, row, column, step, k
        self.c.wgmma(4, 5, 7)
        self.c.axis(3).parallelize(kind)

    return Product(tile=(64, 128, 64), kind=ring).schedule(multiplied=multiplied).fd


def resident() -> FusionDefinition:
    """All of k of a in one tile, through which the trips of b go."""
    product = Product()
    with FusionDefinition() as product.fd:
        a, b = product.given = [matrix(product.fd, -1, 128) for _ in range(2)]
        product.c = product.out = summed(product.fd, a, b)
        product.fd.add_output(product.c)

    def buffered(self: Product) -> None:
        self.tiles[0].inline_at(self.c, 2)
        self.tiles[1].inline_at(self.c, 3)
        self.tiles[1].circular_buffer(3)

    return product.schedule(buffered=buffered).fd


def beside(threads: int, kind: P, ring: CircularBufferType) -> FusionDefinition:
    """A product, and a map that other threads of the same block compute."""
    others: list[Any] = []

    def epilogue(fd: FusionDefinition, c: Any) -> Any:
        others.append(fd.ops.mul(fd.define_tensor(shape=[-1], contiguity=True, dtype=BF16), 2.0))
        fd.add_output(others[0])
        return c

    product = Product(epilogue=epilogue, kind=ring).schedule()
    others[0].split(0, threads)
    others[0].axis(1).parallelize(kind)
    return product.fd


# ---- behind the product ------------------------------------------------------------------------


def through_shared() -> FusionDefinition:
    """The result goes through shared memory, and is stored a row at a time."""

    def finished(self: Product) -> None:
        cache, out = self.c.cache_after(), self.out
        cache.set_memory_type(M.shared)
        self.fd.sched.transform_like(self.c, [cache])
        self.fd.sched.parallelize_like(self.c, -1, [cache])
        out.split(0, 64)
        out.split(2, 64)
        out.reorder({2: 1})
        bound({0: P.grid_y, 1: P.grid_x, 3: P.block_x}, out)
        self.c.inline_at(cache, 2)
        cache.inline_at(out, 2)

    return Product(epilogue=relu).schedule(finished=finished).fd


def relu(fd: FusionDefinition, c: Any) -> Any:
    """Positive part."""
    return fd.ops.relu(c)


def twice_out() -> FusionDefinition:
    """Two outputs out of the same registers."""

    def epilogue(fd: FusionDefinition, c: Any) -> Any:
        fd.add_output(c)
        return fd.ops.relu(c)

    return Product(epilogue=epilogue, kind=ROLES).schedule().fd


def otherwise_stored(position: int, change: Callable[[Any], None]) -> FusionDefinition:
    """An epilogue in the product's registers, whose loops are changed."""

    def finished(self: Product) -> None:
        self.fd.sched.transform_like(self.c, [self.out])
        self.fd.sched.parallelize_like(self.c, -1, [self.out])
        change(self.out)
        self.c.inline_at(self.out, position)

    return Product(epilogue=relu).schedule(finished=finished).fd


def unchanged(_out: Any) -> None:
    """Leave it."""


def in_pairs(out: Any) -> None:
    """Store two columns at once."""
    out.axis(-1).parallelize(P.vectorize)


def turned_round(out: Any) -> None:
    """Store the registers in another order."""
    out.reorder({-1: -2, -2: -1})


AB = ((70, 136), (72, 136))
SHORT = ((40, 72), (64, 72))
THREE = ((70, 136), (72, 136), (72, 136))


def ab(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a b^T``."""
    return a @ b.T


def both(a: np.ndarray, b: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, ...]:
    """Two products."""
    return a @ b.T, a @ d.T


def gate(a: np.ndarray, b: np.ndarray, d: np.ndarray) -> np.ndarray:
    """A product by the positive part of another."""
    return (a @ b.T) * np.maximum(a @ d.T, 0)


def positive(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Positive part of a product."""
    return np.maximum(a @ b.T, 0)


def with_sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A product and the sums of its operands."""
    return a @ b.T + a.sum(1)[:, None] + b.sum(1)


def doubled(a: np.ndarray, b: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """A map and a product."""
    return 2 * x, a @ b.T


def square(a: np.ndarray) -> np.ndarray:
    """``a a^T``."""
    return a @ a.T


BATCH = ((3, 70, 136), (3, 72, 136))
TOKEN, BARRIER = Pipelined("token", "mbarrier"), Pipelined(war="barrier")

CASES: dict[str, Case] = {
    "two": Case(side_by_side, THREE, both),
    "two_roles": Case(partial(side_by_side, ROLES), THREE, both),
    "two_one_stage": Case(partial(side_by_side, stages=1), THREE, both),
    "two_token": Case(partial(side_by_side, TOKEN, 2), THREE, both),
    "two_barrier": Case(partial(side_by_side, BARRIER), THREE, both),
    "two_plain_a": Case(partial(side_by_side, rings=(1, 2)), THREE, both),
    "two_ring_of_a": Case(partial(side_by_side, rings=(0,)), THREE, both),
    "gated": Case(partial(side_by_side, gated=True), THREE, gate),
    "gated_roles": Case(partial(side_by_side, ROLES, gated=True), THREE, gate),
    "by_itself_64": Case(partial(by_itself, 64, 3), ((64, 136),), square),
    "by_itself_128": Case(partial(by_itself, 128, 2), ((128, 136),), square),
    "with_sum": Case(partial(with_sum, 3), SHORT, with_sums),
    "with_sum_one_stage": Case(partial(with_sum, 1), SHORT, with_sums),
    "with_sum_roles": Case(partial(with_sum, 3, ROLES), SHORT, with_sums),
    "batch": Case(partial(batched, False, 3), BATCH, lambda a, b: a @ b.swapaxes(1, 2)),
    "sum_of_batch": Case(
        partial(batched, True, 3), BATCH, lambda a, b: (a @ b.swapaxes(1, 2)).sum(0)
    ),
    "cluster_columns": Case(partial(in_cluster, "n", 2, PIPELINED), ((70, 136), (264, 136)), ab),
    "cluster_rows": Case(partial(in_cluster, "m", 2, PIPELINED), ((264, 136), (72, 136)), ab),
    "cluster_token": Case(partial(in_cluster, "n", 2, TOKEN), ((70, 136), (264, 136)), ab),
    "cluster_barrier": Case(partial(in_cluster, "m", 2, BARRIER), ((264, 136), (72, 136)), ab),
    "cluster_roles": Case(partial(in_cluster, "n", 4, ROLES), ((70, 136), (264, 136)), ab),
    "steps_block_y": Case(partial(steps_shared, P.block_y), AB, ab),
    "rows_block_y": Case(partial(groups_of_rows, P.block_y, 128), ((200, 136), (72, 136)), ab),
    "rows_block_z": Case(partial(groups_of_rows, P.block_z, 192), ((200, 136), (72, 136)), ab),
    "columns_serial": Case(
        partial(groups_of_columns, P.serial, ROLES), ((70, 136), (200, 136)), ab
    ),
    "columns_block_y": Case(
        partial(groups_of_columns, P.block_y, PIPELINED), ((70, 136), (200, 136)), ab
    ),
    "resident": Case(resident, ((70, 128), (72, 128)), ab),
    "beside_96": Case(partial(beside, 96, P.block_x, PIPELINED), (*AB, (1000,)), doubled),
    "beside_256_roles": Case(partial(beside, 256, P.block_x, ROLES), (*AB, (1000,)), doubled),
    "beside_block_y": Case(partial(beside, 3, P.block_y, PIPELINED), (*AB, (1000,)), doubled),
    "twice_out": Case(twice_out, AB, lambda a, b: (a @ b.T, np.maximum(a @ b.T, 0))),
    "through_shared": Case(through_shared, AB, positive),
    "further_out": Case(partial(otherwise_stored, 1, unchanged), AB, positive),
    "in_pairs": Case(partial(otherwise_stored, 2, in_pairs), AB, positive),
    "turned_round": Case(partial(otherwise_stored, 2, turned_round), AB, positive),
}
