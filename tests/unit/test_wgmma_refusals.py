"""Products that cannot be what their schedule asks for: refused, at the user's line."""

from __future__ import annotations

import numpy as np
import pytest
from product_schedules import D, L, M, P, Product, as_it_is, refusal

from fuser import FusionDefinition

pytestmark = pytest.mark.unit

SHAPE = (70, 72, 136)
OPERANDS = (
    "needed a product of two tensors cast to Float, one that is the same along n and one that is "
    "the same along m"
)
TILES = "needed tiles of bf16 or f16, cast to Float and multiplied"


def executed(product, rng, shape=SHAPE):
    return product.fd.manual_execute(product.arrays(rng, *shape), backend="interpret")


def lowering(product, rng, shape=SHAPE):
    """Return the text with which a finished schedule is refused."""
    return refusal(executed, product, rng, shape)


def multiplied(change):
    """Return a step that changes the product behind ``wgmma``."""

    def step(product):
        Product.multiplied(product)
        change(product.c)

    return {"multiplied": step}


def as_float(fd, x):
    return fd.ops.cast(x, dtype=D.Float)


# ---- what is multiplied ------------------------------------------------------------------------


@pytest.mark.parametrize(("summand", "text"), [
    (lambda fd, x, y: fd.ops.add(as_float(fd, x), as_float(fd, y)),
     f"t10_acc: wgmma, and it sums t9 (add, f32); {OPERANDS}"),
    (lambda fd, x, y: fd.ops.mul(fd.ops.mul(as_float(fd, x), as_float(fd, y)), as_float(fd, y)),
     f"t12_acc: wgmma, and an operand is computed, not read; {TILES}"),
    (lambda fd, x, y: fd.ops.mul(fd.ops.relu(as_float(fd, x)), as_float(fd, y)),
     f"t11_acc: wgmma, and an operand is computed, not read; {TILES}"),
    (lambda fd, x, y: fd.ops.mul(fd.ops.mul(as_float(fd, x), as_float(fd, y)), 2.0),
     f"t12_acc: wgmma, and an operand is computed, not read; {TILES}"),
    (lambda fd, x, y: fd.ops.mul(as_float(fd, fd.ops.cast(x, dtype=D.Half)), as_float(fd, y)),
     f"t11_acc: wgmma, and an operand is computed, not read; {TILES}"),
], ids=["sum", "three", "relu", "scaled", "rounded"])  # fmt: skip
def test_other_summands_are_refused(summand, text, rng):
    assert lowering(Product(summand=summand).schedule(), rng) == text


@pytest.mark.parametrize(("dtype", "short"), [
    (D.Float, "f32"), (D.Int8, "i8"), (D.Float8_e4m3fn, "f8e4m3"),
])  # fmt: skip
def test_other_operands_are_refused(dtype, short, rng):
    def boxed(product):
        for t in product.tiles:
            for axis in (-2, -1):
                t.axis(axis).parallelize(P.tma)

    product = Product(dtype=dtype).schedule(boxed=boxed)
    assert lowering(product, rng) == f"t10_acc: wgmma, and an operand is {short}; {TILES}"


def staged(load, memory=M.shared):
    def step(product):
        product.tiles = [t.cache_after(load) for t in product.given]
        for t in product.tiles:
            t.set_memory_type(memory)

    return step


def threads(product):
    for t in product.tiles:
        t.axis(-2).parallelize(P.block_x)


def nothing(product):
    pass


def in_place(product):
    for t in product.tiles:
        t.inline_at(product.c, 3)


@pytest.mark.parametrize("steps", [
    {"staged": staged(L.set), "boxed": threads},
    {"staged": staged(L.cp_async), "boxed": threads},
    {"staged": staged(L.set, M.local), "boxed": nothing, "buffered": in_place},
], ids=["set", "cp_async", "registers"])  # fmt: skip
def test_operands_that_threads_copy_are_refused(steps, rng):
    assert lowering(Product().schedule(**steps), rng) == (
        "t10_acc: wgmma reads left_cache; needed a tile in shared memory that LoadStoreOpType.tma "
        "loads: cache_after"
    )


def test_operands_that_are_in_no_tile_are_refused(rng):
    def staged(product):
        product.tiles = []

    steps = {"staged": staged, "shared_out": nothing, "boxed": nothing, "buffered": nothing}
    assert lowering(Product().schedule(**steps), rng) == (
        "t10_acc: wgmma reads left; needed a tile in shared memory that LoadStoreOpType.tma "
        "loads: cache_after"
    )


# ---- tiles -------------------------------------------------------------------------------------


@pytest.mark.parametrize("swizzle", [None, "none"])
def test_boxes_of_the_wrong_width_are_refused(swizzle, rng):
    def boxed(product):
        for t in product.tiles:
            for axis in (-2, -1):
                t.axis(axis).parallelize(P.tma)
            if swizzle:
                t.set_swizzle(swizzle)

    assert lowering(Product().schedule(boxed=boxed), rng) == (
        "left_cache: read by wgmma of t10_acc, and no matrix descriptor says how its tile lies in "
        "shared memory (swizzle none); needed boxes whose innermost axis has 16 bytes, with rows "
        "of 8 or more behind each other: split and reorder the tile, or set_swizzle"
    )


@pytest.mark.parametrize("k", [16, 32])
def test_tiles_narrower_than_their_swizzle_are_refused(k, rng):
    text = lowering(Product(tile=(64, 64, k)).schedule(), rng)
    assert text.startswith(
        "left_cache: loaded by tma, and left is contiguous along dimension 1, where a box has "
        f"{2 * k} bytes; needed 128, the span of its swizzle;"
    )


def test_threads_that_are_no_warp_groups_are_refused(rng):
    others = []

    def epilogue(fd, c):
        others.append(fd.ops.mul(fd.define_tensor(shape=[-1], contiguity=[True]), 2.0))
        fd.add_output(others[0])
        return c

    product = Product(epilogue=epilogue).schedule()
    others[0].split(0, 160)
    others[0].axis(1).parallelize(P.block_x)
    arrays = [*product.arrays(rng, *SHAPE), np.zeros(1000, "f4")]
    text = refusal(product.fd.manual_execute, arrays, backend="interpret")
    assert text == (
        "t10_acc: products of warp groups, and block_x has 160 threads; needed a multiple of 128"
    )


def test_rows_that_are_no_neighbours_are_refused(rng):
    """Every second row of a tile of 128; a descriptor could say that, the registers' rows not."""
    with FusionDefinition() as fd:
        a = fd.define_tensor(shape=[128, -1], contiguity=[True] * 2, dtype=D.BFloat16)
        b = fd.define_tensor(shape=[64, -1], contiguity=[True] * 2, dtype=D.BFloat16)
        every = [128, 64, fd.ops.size(a, 1)]
        x = as_float(fd, fd.ops.broadcast_in_dim(a, every, [0, 2]))
        y = as_float(fd, fd.ops.broadcast_in_dim(b, every, [1, 2]))
        c = fd.ops.sum(fd.ops.mul(x, y), [2])
        fd.add_output(c)
    tiles = [t.cache_after(L.tma) for t in (a, b)]
    for t in tiles:
        t.set_memory_type(M.shared)
        t.split(1, 64)
        t.reorder({1: 0})
        for axis in (-2, -1):
            t.axis(axis).parallelize(P.tma)
        t.set_swizzle("128B")
    c.split(0, 64, inner_split=False)  # 64, 2, n, k
    c.split(3, 64)
    c.split(4, 16)
    c.reorder({3: 0, 0: 2, 1: 1, 2: 3})  # trip, 2, 64, n, step, k
    c.wgmma(2, 3, 5)
    for t in tiles:
        t.inline_at(c, 1)
    arrays = [rng.integers(-4, 5, (m, 136)).astype(D.BFloat16.np) for m in (128, 64)]
    assert refusal(fd.manual_execute, arrays, backend="interpret") == (
        f"{c.name}_acc: the rows of its products are not neighbours along one dimension; needed "
        "axes m, n and k that are inner parts of splits"
    )


# ---- where a sum ends --------------------------------------------------------------------------


def sliced(first, last):
    """Return ``a[:, first:last] b[:, first:last]^T``, whose tiles are of all of a and b."""
    product = Product()
    with FusionDefinition() as fd:
        given = [fd.define_tensor(shape=[rows, 136], contiguity=[True] * 2, dtype=D.BFloat16)
                 for rows in (70, 72)]  # fmt: skip
        every = [70, 72, last - first]
        parts = [fd.ops.slice(t, [0, first], [rows, last])
                 for t, rows in zip(given, (70, 72), strict=True)]  # fmt: skip
        x, y = (as_float(fd, fd.ops.broadcast_in_dim(t, every, dims))
                for t, dims in zip(parts, ([0, 2], [1, 2]), strict=True))  # fmt: skip
        product.c = fd.ops.sum(fd.ops.mul(x, y), [2])
        product.out = as_it_is(fd, product.c)
        fd.add_output(product.out)
    product.fd, product.given = fd, given
    return product.schedule()


def test_what_is_behind_a_slice_is_not_summed(rng):
    """The copy engine has zeros only where the tensor ends."""
    assert lowering(sliced(8, 108), rng) == (
        "t9_acc: wgmma sums over 100 elements, whose last tile may be cut short, and t0_cache of "
        "shape (70, 136) goes on where the sum ends, as behind a slice; needed a sum over all of "
        "it, or over whole tiles"
    )


@pytest.mark.parametrize(("first", "last"), [(8, 72), (64, 136)])
def test_slices_of_whole_tiles_or_up_to_the_end(first, last, rng):
    product = sliced(first, last)
    a, b = product.arrays(rng, *SHAPE)
    (got,) = product.fd.manual_execute([a, b], backend="interpret")
    part = slice(first, last)
    expected = a[:, part].astype("f8") @ b[:, part].astype("f8").T
    np.testing.assert_array_equal(got, expected)


# ---- around the product ------------------------------------------------------------------------


@pytest.mark.parametrize(("position", "text"), [
    (3, "t10: inlined at position 3, inside its own reduction axis 2; at most 2 is possible"),
    (-1, "t10: inlined at position 9, inside its own reduction axis 2; at most 2 is possible"),
])  # fmt: skip
def test_epilogues_inside_the_sum_are_refused(position, text):
    def finished(product):
        product.fd.sched.transform_like(product.c, [product.out])
        product.fd.sched.parallelize_like(product.c, -1, [product.out])
        product.c.inline_at(product.out, position)

    product = Product(epilogue=lambda fd, c: fd.ops.relu(c))
    assert refusal(product.schedule, finished=finished) == text


def test_loops_that_choose_accumulators_are_unrolled(rng):
    product = Product(tile=(128, 64, 64)).schedule(**multiplied(lambda c: c.axis(3).rolled()))
    assert lowering(product, rng) == (
        "t10_acc: axis 3 is a loop in the code and chooses elements of t10_acc, which is in "
        "registers; registers have no addresses: needed unroll()"
    )


def test_sums_shared_by_blocks_are_refused(rng):
    product = Product().schedule(**multiplied(lambda c: c.axis(3).parallelize(P.grid_z)))
    assert lowering(product, rng) == (
        "t10_acc: is reduced over grid_z in every iteration of its axis 5, of extent 8; bind all "
        "kept axes to blocks and threads"
    )


def test_operands_of_two_dtypes_are_refused(rng):
    product = Product()
    with FusionDefinition() as fd:
        product.given = [
            fd.define_tensor(shape=[-1, -1], contiguity=[True] * 2, dtype=dtype)
            for dtype in (D.BFloat16, D.Half)
        ]
        a, b = product.given
        every = [fd.ops.size(a, 0), fd.ops.size(b, 0), fd.ops.size(a, 1)]
        x = fd.ops.broadcast_in_dim(a, every, [0, 2])
        y = fd.ops.broadcast_in_dim(b, every, [1, 2])
        product.c = product.out = fd.ops.sum(fd.ops.mul(as_float(fd, x), as_float(fd, y)), [2])
        fd.add_output(product.c)
    product.fd = fd
    a, b = product.schedule().arrays(rng, *SHAPE)
    text = refusal(fd.manual_execute, [a, b.astype("f2")], backend="interpret")
    assert text.endswith("wgmma of a_cache and b_cache, which have different dtypes; needed one")
