"""``wgmma`` and ``once``: the axes they make, and what they refuse, at the user's line."""

from __future__ import annotations

import numpy as np
import pytest
from product_schedules import D, P, Product, refusal

from fuser import FusionDefinition
from fuser.core.errors import ScheduleError
from fuser.core.expr import Const, Var, evaluate
from fuser.core.simplify import Facts
from fuser.schedule.domain import LoopDomain
from fuser.schedule.product import product_domain

pytestmark = pytest.mark.unit

INSTRUCTION = (
    "axes 4 to 8 are those of a matrix instruction, its threads, accumulators and k: needed as "
    "wgmma made them, innermost"
)


def as_float(fd, x):
    return fd.ops.cast(x, dtype=D.Float)


# ---- the axes ----------------------------------------------------------------------------------


def cut(n):
    """Return a schedule up to what ``wgmma`` is given."""
    product = Product(tile=(64, n, 64))
    product.split()
    product.c.split(5, 16)
    return product.c


@pytest.mark.parametrize("n", [8, 24, 256])
def test_axes_of_an_instruction(n):
    c = cut(n)
    before = c.schedule.domain.loop[:3] + c.schedule.domain.loop[5:6]
    c.wgmma(3, 4, 6)
    loop = c.schedule.domain.loop
    assert loop[:4] == before
    assert [d.extent for d in loop[4:]] == [Const(e) for e in (128, n // 8, 2, 2, 16)]
    assert [d.parallel for d in loop[4:]] == [P.block_x, *[P.mma] * 4]
    assert [d.reduction for d in loop[4:]] == [False] * 4 + [True]
    assert c.schedule.is_product


@pytest.mark.parametrize("axes", [(3, 4, 6), (-4, -3, -1)])
def test_elements_are_where_the_instruction_has_them(axes):
    """PTX ISA, wgmma.mma_async, "Register Fragments": D of .f32, and depth in order."""
    n = 40
    c = cut(n)
    c.wgmma(*axes)
    domain = c.schedule.domain
    names = [Var(f"a{j}") for j in range(len(domain.loop))]
    root, _ = domain.backward(names, Facts())
    thread, d, k = np.meshgrid(np.arange(128), np.arange(n // 2), np.arange(16), indexing="ij")
    register = np.unravel_index(d, (n // 8, 2, 2))  # in loop order
    at = dict(zip("a4 a5 a6 a7 a8".split(), (thread, *register, k), strict=True))
    at |= {"a0": np.int64(2), "a1": np.int64(1), "a2": np.int64(3), "a3": np.int64(2)}
    row, column, depth = (np.broadcast_to(evaluate(e, at), d.shape) for e in root)
    warp, lane = thread // 32, thread % 32
    np.testing.assert_array_equal(row, 2 * 64 + 16 * warp + lane // 4 + 8 * (d // 2 % 2))
    np.testing.assert_array_equal(column, n + 8 * (d // 4) + 2 * (lane % 4) + d % 2)
    np.testing.assert_array_equal(depth, 3 * 64 + 2 * 16 + k)


def test_once_leaves_an_axis_out():
    product = Product()
    product.staged()
    product.split()
    product.fd.sched.transform_like(product.c, product.tiles)
    a, b = product.tiles
    assert len(a.schedule.domain.loop) == 6
    a.once(4)
    b.once(-3)
    assert [repr(d.extent) for d in a.schedule.domain.loop[3:]] == ["64", "64"]
    assert a.schedule.domain.left_out
    for tile, axis, text in (
        (a, 3, "left_cache: once: axis 3, and the tensor's elements differ along it; needed an "
               "axis that it is the same along"),
        (b, 0, None),
        (a, 7, "left_cache: once: axis 7; the loop domain has 5 axes"),
    ):  # fmt: skip
        if text is None:
            tile.once(axis)
        else:
            assert refusal(tile.once, axis) == text


def test_once_of_an_axis_that_threads_run_is_refused():
    product = Product()
    product.staged()
    product.split()
    product.fd.sched.transform_like(product.c, product.tiles)
    product.tiles[0].axis(4).parallelize(P.block_x)
    assert refusal(product.tiles[0].once, 4) == (
        "left_cache: once: axis 4 is bound to block_x; transform axes before parallelizing them"
    )


def test_once_of_a_reduction_is_refused():
    domain = LoopDomain.of([Const(8), Const(4)], [1])
    with pytest.raises(ScheduleError, match="once: axis 1 is a reduction; a kept axis is needed"):
        domain.once(1)


# ---- what wgmma is given -----------------------------------------------------------------------


@pytest.mark.parametrize(("axes", "text"), [
    ((3, 3, 6), "axes 3, 3 and 6; three different ones are needed"),
    ((3, 4, 3), "axes 3, 4 and 3; three different ones are needed"),
    ((9, 4, 6), "axis 9; the loop domain has 7 axes"),
    ((3, 4, 5), "axis 5 as k has extent 4; needed 16: split it"),
    ((6, 4, 3), "axis 6 as m has extent 16; needed 64: split it"),
    ((0, 4, 6), "axis 0 as m has extent (left_size0 + 63) / 64; needed 64: split it"),
    ((3, 1, 6), "axis 1 as n has extent (right_size0 + 63) / 64; needed a multiple of 8, at most "
                "256: split it"),
    ((3, 4, 2), "axis 2 as k has extent (left_size1 + 63) / 64; needed 16: split it"),
    (("m", 4, 6), "axis 'm'; an int is needed"),
])  # fmt: skip
def test_axes_that_are_refused(axes, text):
    c = cut(64)
    assert refusal(c.wgmma, *axes) == f"{c.name}: wgmma: {text}"
    assert not c.schedule.is_product


@pytest.mark.parametrize("n", [4, 12, 264])
def test_widths_that_are_refused(n):
    c = cut(n)
    assert refusal(c.wgmma, 3, 4, 6) == (
        f"{c.name}: wgmma: axis 4 as n has extent {n}; needed a multiple of 8, at most 256: "
        "split it"
    )


@pytest.mark.parametrize("m", [32, 128])
def test_rows_that_are_refused(m):
    product = Product(tile=(m, 64, 64))
    product.split()
    product.c.split(5, 16)
    text = f"wgmma: axis 3 as m has extent {m}; needed 64: split it"
    assert refusal(product.c.wgmma, 3, 4, 6) == f"{product.c.name}: {text}"


@pytest.mark.parametrize("k", [8, 32])
def test_depths_that_are_refused(k):
    c = Product()
    c.split()
    c.c.split(5, k)
    text = f"wgmma: axis 6 as k has extent {k}; needed 16: split it"
    assert refusal(c.c.wgmma, 3, 4, 6) == f"{c.c.name}: {text}"


@pytest.mark.parametrize(("tile", "name", "at", "by"), [
    ((96, 64, 64), "m", 4, 64), ((64, 64, 72), "k", 6, 16),
])  # fmt: skip
def test_tiles_of_no_whole_products_are_refused(tile, name, at, by):
    product = Product(tile=tile)
    product.split()
    extent = tile["mnk".index(name)]
    assert refusal(product.multiplied) == (
        f"{product.c.name}: wgmma: axis {at} as {name} is of a split by {by} of {extent}, which "
        "leaves a remainder; needed a tile of whole products"
    )


def test_bound_and_directed_axes_are_refused():
    c = cut(64)
    c.axis(3).parallelize(P.block_x)
    assert refusal(c.wgmma, 3, 4, 6) == (
        f"{c.name}: wgmma: axis 3 as m is bound to block_x; a plain axis is needed"
    )
    c = cut(64)
    c.axis(4).unroll(2)
    assert refusal(c.wgmma, 3, 4, 6) == (
        f"{c.name}: wgmma: axis 4 as n is unroll(2); a plain axis is needed"
    )


def test_kept_and_summed_axes_are_told_apart():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[64, 64, 16, 64], contiguity=True)
        c = fd.ops.sum(x, [1, 3])
        fd.add_output(c)
    text = "wgmma: axis 1 as n is summed over; one that is kept is needed"
    assert refusal(c.wgmma, 0, 1, 2) == f"{c.name}: {text}"
    text = "wgmma: axis 2 as k is kept; one that is summed over is needed"
    assert refusal(c.wgmma, 0, 1, 2).startswith(c.name)
    c.split(1, 8)  # 64, 8, 8, 16, 64
    assert refusal(c.wgmma, 0, 4, 3) == (
        f"{c.name}: wgmma: axis 4 as n is summed over; one that is kept is needed"
    )


def test_a_sum_of_one_instruction_is_refused():
    with FusionDefinition() as fd:
        c = fd.ops.sum(fd.define_tensor(shape=[64, 64, 16], contiguity=True), [2])
        fd.add_output(c)
    assert refusal(c.wgmma, 0, 1, 2) == (
        f"{c.name}: wgmma: axis 2 is all that is summed over; needed a loop of instructions "
        "outside: split the axis by 16"
    )


@pytest.mark.parametrize("op", ["max", "prod"])
def test_what_is_no_sum_is_refused(op):
    with FusionDefinition() as fd:
        c = getattr(fd.ops, op)(fd.define_tensor(shape=[64, 64, 64], contiguity=True), [2])
        fd.add_output(c)
    c.split(2, 16)
    text = f"wgmma: it is a {op}; a sum of products is needed"
    assert refusal(c.wgmma, 0, 1, 3) == f"{c.name}: {text}"


@pytest.mark.parametrize(("dtype", "short"), [(D.Double, "f64"), (D.BFloat16, "bf16")])
def test_sums_of_another_dtype_are_refused(dtype, short):
    """They would be rounded otherwise than the definition says."""

    def summand(fd, x, y):
        return fd.ops.cast(fd.ops.mul(as_float(fd, x), as_float(fd, y)), dtype=dtype)

    product = Product(summand=summand)
    product.split()
    assert refusal(product.multiplied) == (
        f"{product.c.name}: wgmma: it is {short}; tensor cores sum in f32: needed a sum of "
        "operands cast to Float, and a cast of that"
    )


# ---- its axes afterwards -----------------------------------------------------------------------


@pytest.mark.parametrize("moves", [{-1: -2}, {-2: -3}, {4: 5}, {3: 4}, {8: 3}, {4: 0}])
def test_axes_of_an_instruction_stay_innermost(moves):
    c = cut(64)
    c.wgmma(3, 4, 6)
    before = c.schedule.domain
    assert refusal(c.reorder, moves) == f"{c.name}: reorder; {INSTRUCTION}"
    assert c.schedule.domain == before
    c.reorder({0: 1})
    assert c.schedule.domain.instruction == before.instruction


@pytest.mark.parametrize(("axis", "kind"), [
    (8, P.serial), (7, P.serial), (7, P.block_y), (6, P.unroll), (5, P.grid_z), (4, P.serial),
    (4, P.block_y),
])  # fmt: skip
def test_axes_of_an_instruction_stay_bound(axis, kind):
    c = cut(64)
    c.wgmma(3, 4, 6)
    assert refusal(c.axis(axis).parallelize, kind) == (
        f"{c.name}: parallelize: axis {axis} to {kind.name}; {INSTRUCTION}"
    )
    c.axis(4).parallelize(P.block_x)  # which it is


def test_other_changes_of_its_axes():
    c = cut(64)
    c.wgmma(3, 4, 6)
    name = c.name
    bound = "is bound to mma; transform axes before parallelizing them"
    assert refusal(c.split, -1, 2) == f"{name}: split: axis -1 {bound}"
    assert refusal(c.merge, -3, -2) == f"{name}: merge: axis -3 {bound}"
    assert refusal(c.swizzle, -4, -2) == f"{name}: swizzle; {INSTRUCTION}"
    assert refusal(c.wgmma, 4, 5, 8) == (
        f"{name}: wgmma: axis 4 as m has extent 128; needed 64: split it"
    )
    assert refusal(c.set_allocation_domain, [0, 1, 2, 3, 4, 6, 5, 7, 8]) == (
        f"{name}: set_allocation_domain: [0, 1, 2, 3, 4, 6, 5, 7, 8]; a matrix instruction has "
        "its accumulators in the order of its axes: needed 4 to 8 last"
    )
    assert refusal(c.axis(5).rolled).startswith(f"{name}: rolled: axis 5 is bound to mma;")


def test_mma_is_not_bound_by_hand():
    c = cut(64)
    assert refusal(c.axis(3).parallelize, P.mma) == (
        f"{c.name}: parallelize: axis 3 to mma; grid, cluster, block, vectorize, unroll, unswitch "
        "or serial is needed"
    )


def test_the_domain_says_so_itself():
    """Recipes would call it without the directive."""
    product = Product()
    value = product.fd.fusion.value(product.c.name)
    domain = product.c.schedule.domain
    with pytest.raises(ScheduleError, match=r"^wgmma: axis 0 as m has extent"):
        product_domain(value, domain, 0, 1, 2)
