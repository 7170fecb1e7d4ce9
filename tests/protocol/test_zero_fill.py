"""Copies by ``cp.async`` at the end of a tensor: no branch, fewer bytes, zeros behind them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from long_tiles import KINDS, kernel_of, numbers, vectors
from rings.interpret import exact

from fuser import DataType
from fuser.codegen.emit import emit
from fuser.core.errors import ProtocolError
from fuser.core.expr import TRUE, ZERO, Const, Expr, Var, less
from fuser.interp.checked import check_kernel
from fuser.kir.core import Kernel, SharedArray, Stmt, TensorParam
from fuser.kir.scalar import Element
from fuser.kir.stmts import CpAsync, CpAsyncCommit, CpAsyncWait, For, If, Store, SyncThreads
from fuser.passes.rewrite import map_bodies
from fuser.protocol.verdict import check

pytestmark = pytest.mark.protocol

D = DataType
THREAD = Var("thread")
N = 64


def copies(body, around=()):
    """Yield each copy of a body with the statements around it."""
    for stmt in body:
        if isinstance(stmt, CpAsync):
            yield stmt, around
        roles = tuple(role.body for role in getattr(stmt, "roles", ()))
        for inner in (getattr(stmt, "body", ()), getattr(stmt, "orelse", ()), *roles):
            yield from copies(inner, (*around, stmt))


# ---- the statement -------------------------------------------------------------------------------


def tile_of(copy: CpAsync, numel: int) -> Kernel:
    """Return a kernel whose threads copy into a tile of 256, all of which goes to `y`."""
    width = copy.width
    out = Store("y", THREAD * width + Var("k"), Element("t", THREAD * width + Var("k"), D.Float))
    return Kernel(
        name="k", params=(TensorParam("x", D.Float, "in", Const(numel)),
                          TensorParam("y", D.Float, "out", Const(N * width))),
        shared=(SharedArray("t", D.Float, N * width),), grid=(Const(1),) * 3,
        block=(Const(N), Const(1), Const(1)), index="i32",
        body=(copy, CpAsyncCommit(), CpAsyncWait(0), SyncThreads("landed"),
              For("k", Const(width), (out,))),
    )  # fmt: skip


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("numel", [1, 3, 64, 65, 127, 128, 254, 255, 256])
def test_what_lies_behind_the_end_is_zero(width, numel, rng):
    at = THREAD * width
    copy = CpAsync("t", at, "x", at, width, D.Float, TRUE, Const(numel) - at)
    x = numbers(rng, numel) + 20
    whole = np.zeros(N * width)
    whole[: min(numel, whole.size)] = x[: whole.size]
    for seed in range(2):
        arrays = {"x": x, "y": np.full(N * width, np.nan, "f4")}
        done = check_kernel(tile_of(copy, numel), {}, arrays, seed=seed)
        np.testing.assert_array_equal(done["y"], whole)


def test_a_guard_and_a_limit(rng):
    """Threads from 10 on read nothing, the others what there is."""
    at = THREAD * 4
    copy = CpAsync("t", at, "x", at, 4, D.Float, less(THREAD, 10), Const(38) - at)
    x = numbers(rng, 38) + 20
    done = check_kernel(tile_of(copy, 38), {}, {"x": x, "y": np.zeros(256, "f4")}, seed=1)
    np.testing.assert_array_equal(done["y"], np.r_[x, np.zeros(218)])
    assert repr(copy.whole) == "thread < 10 && 4 <= 38 - thread * 4"


@pytest.mark.parametrize("limit", [None, Const(255) - THREAD * 4, Const(254) - THREAD * 4])
def test_more_than_there_is(limit: Expr | None, rng):
    """The source size of the last thread is 4, 3 and 2 elements; 253 are there."""
    copy = CpAsync("t", THREAD * 4, "x", THREAD * 4, 4, D.Float, TRUE, limit)
    arrays = {"x": numbers(rng, 253), "y": np.zeros(256, "f4")}
    with pytest.raises(ProtocolError, match=r"CpAsync.*x\[25[345]\] is outside its 253 elements"):
        check_kernel(tile_of(copy, 253), {}, arrays, seed=1)


def test_both_sides_are_aligned(rng):
    copy = CpAsync("t", THREAD * 4, "x", THREAD * 4 + 2, 4, D.Float, TRUE, Const(7) - THREAD * 4)
    with pytest.raises(ProtocolError, match="CpAsync"):
        check_kernel(tile_of(copy, 9), {}, {"x": numbers(rng, 9), "y": np.zeros(256, "f4")}, seed=1)


def test_as_it_is_printed():
    copy = CpAsync("t", ZERO, "x", Var("i"), 4, D.Float, less(Var("i"), Var("n")))
    assert printed(copy) == "cp_async<16>(t, x + (i < n ? i : 0), i < n);"
    part = replace(copy, guard=TRUE, limit=Var("n") - Var("i"))
    assert printed(part) == "cp_async_part<16, 4>(t, x + (0 < n - i ? i : 0), n - i);"
    assert printed(replace(copy, guard=TRUE)) == "cp_async<16>(t, x + i);"


def printed(stmt: Stmt) -> str:
    kernel = replace(tile_of(CpAsync("t", ZERO, "x", ZERO, 4, D.Float), 4), body=(stmt,))
    body = emit(kernel).partition('extern "C"')[2]
    return next(line.strip() for line in body.splitlines() if line.startswith("  cp_async"))


# ---- rings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, *KINDS], ids=str)
@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16, D.Int8], ids=lambda d: d.short)
def test_vectors_end_anywhere(dtype, each, kind, rng):
    fd, tile = vectors(1, each, kind, dtype), 64 * 16 // dtype.nbytes * each
    for n in (1, tile - 1, 3 * tile + tile // 2 + 3):
        x = numbers(rng, n, dtype=dtype)
        exact((dtype, each, kind, n), fd, [x], 2 * x.astype("f8"), 1)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("n", [3000, 3001])
def test_no_size_decides_whether_a_copy_is_made(n, kind, rng):
    found = list(copies(kernel_of(vectors(kind=kind), numbers(rng, n)).body))
    assert found
    for copy, around in found:
        assert copy.whole != TRUE
        assert not any(isinstance(s, If) and "size" in repr(s.cond) for s in around)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("each", [1, 2])
def test_rows_with_gaps_end_anywhere(each, kind, rng):
    """Rows of 1037 elements, 1040 apart: the last vector of each has one element of its row."""
    fd, wide = vectors(2, each, kind, contiguity=[False, True]), numbers(rng, 3, 1040)
    for columns in (1037, 3, 1038):
        x = wide[:, :columns]
        exact((each, kind, columns), fd, [x], 2 * x.astype("f8"), 1)


def test_whole_vectors_need_no_size(rng):
    """Of a multiple of four, a vector is there or it is not: a condition, no number of elements."""
    for each in (1, 4):
        (kernel,) = {kernel_of(vectors(1, each), numbers(rng, 3000))}
        found = [copy for copy, _ in copies(kernel.body)]
        assert found
        assert all(copy.limit is None for copy in found)
    assert all(
        c.limit is not None for c, _ in copies(kernel_of(vectors(), numbers(rng, 3001)).body)
    )


@pytest.mark.parametrize("n", [3000, 3001])
def test_tiles_inside_of_the_tensor_have_no_condition(n, rng):
    """Several vectors a thread: one question for all of them, and copies without any behind it."""
    found = list(copies(kernel_of(vectors(1, 4), numbers(rng, n)).body))
    free = [copy for copy, _ in found if copy.whole == TRUE]
    assert len(free) * 2 == len(found)
    for copy, around in found:
        loop = next(s for s in reversed(around) if isinstance(s, For))
        assert loop.is_unrolled() == (copy.whole == TRUE)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_trip_count_is_proved(kind, rng):
    for each, n in ((1, 3001), (4, 3000)):
        assert check(kernel_of(vectors(1, each, kind), numbers(rng, n))).reach == "proved"


# ---- mistakes ------------------------------------------------------------------------------------

TOO_MUCH = {
    "one element too many": lambda c: replace(c, limit=c.limit + 1),
    "a whole vector": lambda c: replace(c, limit=None),
    "bytes for elements": lambda c: replace(c, limit=c.limit * 4),
}
TOO_LITTLE = {
    "one element too few": lambda c: replace(c, limit=c.limit - 1),
    "nothing is read": lambda c: replace(c, limit=ZERO),
    "a vector too early": lambda c: replace(c, limit=c.limit - 4),
}


def run(change, x):
    """Return what comes of a kernel with every copy changed."""

    def changed(stmt):
        if isinstance(stmt, CpAsync):
            return change(stmt)
        return map_bodies(stmt, lambda body: tuple(map(changed, body)))

    kernel = kernel_of(vectors(), x)
    kernel = replace(kernel, body=tuple(map(changed, kernel.body)))
    arrays = {"x": x, "y": np.full_like(x, np.nan)}
    return check_kernel(kernel, {"x_size0": x.size}, arrays, seed=1)["y"]


@pytest.mark.parametrize("mistake", TOO_MUCH)
def test_more_bytes_than_there_are(mistake, rng):
    with pytest.raises(ProtocolError, match=r"CpAsync.* is outside its 1029 elements"):
        run(TOO_MUCH[mistake], numbers(rng, 1029))


@pytest.mark.parametrize("mistake", TOO_LITTLE)
def test_fewer_bytes_than_there_are(mistake, rng):
    """Zeros where there are numbers."""
    x = numbers(rng, 1029) + 20
    np.testing.assert_array_equal(run(lambda copy: copy, x), 2 * x)
    wrong = run(TOO_LITTLE[mistake], x)
    assert (wrong != 2 * x).any()
    assert (wrong[wrong != 2 * x] == 0).all()
