"""Single statements of pipelines: what they do, the rules they obey, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser.core.dtypes import DataType
from fuser.core.errors import ProtocolError, VerifyError
from fuser.core.expr import ONE, ZERO, Const, Var, equal, less
from fuser.interp.checked import check_kernel
from fuser.interp.functional import run_kernel
from fuser.kir.core import BarrierArray, Kernel, SharedArray, TensorMapParam, TensorParam
from fuser.kir.scalar import Apply, Element, Literal, Ref
from fuser.kir.stmts import (
    Assign,
    BulkCommit,
    BulkLoad,
    BulkStore,
    BulkWait,
    BulkWaitRead,
    CpAsync,
    CpAsyncCommit,
    CpAsyncWait,
    DeclareScalar,
    FenceProxyAsync,
    If,
    MbarrierArrive,
    MbarrierArriveExpectTx,
    MbarrierArriveToken,
    MbarrierInit,
    MbarrierInitFence,
    MbarrierInval,
    MbarrierWait,
    NamedBarrier,
    Role,
    Roles,
    SetMaxRegisters,
    Store,
    SyncThreads,
    SyncWarp,
    TensorLoad,
    TensorStore,
)
from fuser.kir.verify import verify_kernel

pytestmark = pytest.mark.protocol

F32 = DataType.Float
THREAD = Var("thread")
SEEDS = range(6)


def _copy_kernel(*body, params=(), tile=64, align=128, numel=256, barriers=1, block=64, more=()):
    """x to y through shared memory; `full` has `barriers` barriers of one arrival each."""
    tensors = (
        TensorParam("x", F32, "in", Const(numel)),
        TensorParam("y", F32, "out", Const(numel)),
    )
    init = tuple(MbarrierInit("full", Const(i), ONE) for i in range(barriers))
    head = (If(equal(THREAD, 0), (*init, MbarrierInitFence())), SyncThreads("the barriers exist"))
    return Kernel(
        "k", (*tensors, *params), (SharedArray("t", F32, tile, align), *more), (ONE, ONE, ONE),
        (Const(block), ONE, ONE), "i32", (*head, *body) if barriers else body,
        barriers=(BarrierArray("full", barriers),) if barriers else (),
    )  # fmt: skip


def _elected(*body):
    return If(equal(THREAD, 0), body)


WAIT = MbarrierWait("full", ZERO, ZERO, "the tile is full")
OUT = Store("y", THREAD, Element("t", THREAD, F32))


def _both(kernel, arrays, seeds=SEEDS):
    """Run in both modes; return y of the functional one, which every seed must equal."""
    verify_kernel(kernel)
    copy = {n: a.copy() for n, a in arrays.items()}
    run_kernel(kernel, {}, copy)
    for seed in seeds:
        result = check_kernel(kernel, {}, arrays, seed=seed)
        np.testing.assert_array_equal(result["y"], copy["y"])
    return copy["y"]


def _xy(numel=256):
    x = np.random.default_rng(3).standard_normal(numel).astype(np.float32)
    return {"x": x, "y": np.full(numel, np.nan, np.float32)}


def _map(swizzle="none", box=(16, 4), dims=(16, 16), steps=(), offset=0, tensor="x", stride=64):
    return TensorMapParam(
        "map", tensor, F32, tuple(map(Const, dims)), (Const(stride),), box, steps, swizzle,
        Const(offset),
    )  # fmt: skip


def _load_box(tensor_map, x, y, **options):
    nbytes = Const(tensor_map.box_bytes)
    load = TensorLoad("t", ZERO, "map", (Const(x), Const(y)), "full", ZERO)
    return _copy_kernel(
        _elected(MbarrierArriveExpectTx("full", ZERO, nbytes), load), WAIT, OUT,
        params=(tensor_map,), **options,
    )  # fmt: skip


@pytest.mark.parametrize(("x", "y"), [(0, 0), (0, 4), (-4, 0), (12, 14), (0, -2), (40, 0)])
def test_boxes_are_filled_with_zeros_outside_the_tensor(x, y):
    arrays = _xy()
    got = _both(_load_box(_map(), x, y), arrays, range(2))[:64].reshape(4, 16)
    padded = np.pad(arrays["x"].reshape(16, 16), 48)
    np.testing.assert_array_equal(got, padded[48 + y : 52 + y, 48 + x : 64 + x])


def test_boxes_begin_at_multiples_of_16_bytes():
    with pytest.raises(ProtocolError, match=r"coordinate -3 along dimension 0 of x is no multiple"):
        run_kernel(_load_box(_map(), -3, 0), {}, _xy())


@pytest.mark.parametrize(("swizzle", "span"), [("32B", 32), ("64B", 64), ("128B", 128)])
def test_swizzled_boxes_permute_pieces_of_16_bytes(swizzle, span):
    """By the rule of the tensor-map chapter: bits 4.. of the address ^= bits 7.. of it."""
    width = span // 4
    tensor_map = _map(swizzle, (width, 256 // width), (width, 256 // width), stride=span)
    arrays = _xy()
    kernel = _load_box(tensor_map, 0, 0, tile=256, align=1024, block=256)
    got = _both(kernel, arrays, range(1)).view(np.uint32)
    want = np.empty(256, np.uint32)
    for element in range(256):
        address = element * 4
        mask = {32: 1, 64: 3, 128: 7}[span]
        want[(address ^ ((address // 128 & mask) * 16)) // 4] = arrays["x"].view(np.uint32)[element]
    np.testing.assert_array_equal(got, want)


def test_element_strides_and_offset_of_a_map():
    tensor_map = _map(box=(16, 8), dims=(16, 12), steps=(1, 2), offset=32)
    arrays = _xy()
    got = _both(_load_box(tensor_map, 0, 2), arrays, range(1))[:64].reshape(4, 16)
    np.testing.assert_array_equal(got, arrays["x"].reshape(16, 16)[4:12:2])


def test_tensor_stores_drop_what_lies_outside():
    kernel = _copy_kernel(
        Store("t", THREAD, Element("x", THREAD, F32)),
        FenceProxyAsync("the copy engine reads the tile"),
        SyncThreads("the tile is complete"),
        _elected(TensorStore("map", (Const(4), Const(14)), "t", ZERO), BulkCommit(), BulkWait(0)),
        params=(_map(tensor="y"),), barriers=0,
    )  # fmt: skip
    arrays = _xy()
    got = _both(kernel, arrays, range(3)).reshape(16, 16)
    tile = arrays["x"][:64].reshape(4, 16)
    np.testing.assert_array_equal(got[14:, 4:], tile[:2, :12])
    assert np.isnan(got[:14]).all()
    assert np.isnan(got[:, :4]).all()


def test_guarded_cp_async_fills_with_zeros_and_does_not_read():
    copy = CpAsync("t", THREAD * 2, "x", THREAD * 2 + 250, 2, F32, less(THREAD, 3))
    read = Store("y", THREAD, Element("t", Const(127) - THREAD, F32))
    body = (copy, CpAsyncCommit(), CpAsyncWait(0), SyncThreads("landed"), read)
    arrays = _xy()
    got = _both(_copy_kernel(*body, tile=128, barriers=0), arrays)
    assert (got[:64] == 0).all()
    kernel = _copy_kernel(*body[:-1], OUT, tile=128, barriers=0)
    got = _both(kernel, arrays)[:64]
    np.testing.assert_array_equal(got, np.r_[arrays["x"][250:], np.zeros(58, np.float32)])


@pytest.mark.parametrize("pending", [0, 1])
def test_groups_of_cp_async_complete_in_order(pending):
    def copy(at):
        return CpAsync("t", THREAD + at, "x", THREAD + at, 1, F32)

    body = (copy(0), CpAsyncCommit(), copy(64), CpAsyncCommit(), CpAsyncWait(pending),
            SyncThreads("landed"))  # fmt: skip
    reverse = Const(63) - THREAD
    first = _copy_kernel(
        *body, Store("y", THREAD, Element("t", reverse, F32)), CpAsyncWait(0),
        tile=128, barriers=0,
    )  # fmt: skip
    np.testing.assert_array_equal(_both(first, _xy())[:64], _xy()["x"][63::-1])
    second = _copy_kernel(
        *body, Store("y", THREAD, Element("t", reverse + 64, F32)), CpAsyncWait(0),
        tile=128, barriers=0,
    )  # fmt: skip
    if pending == 0:
        np.testing.assert_array_equal(_both(second, _xy())[:64], _xy()["x"][127:63:-1])
    else:
        for seed in SEEDS:
            with pytest.raises(ProtocolError, match=r"t\[\d+\].*(CpAsync|before it is written)"):
                check_kernel(second, {}, _xy(), seed=seed)


def test_cp_async_without_any_wait_is_in_flight_at_the_end():
    kernel = _copy_kernel(CpAsync("t", THREAD, "x", THREAD, 1, F32), barriers=0)
    for seed in SEEDS:
        with pytest.raises(ProtocolError, match=r"ends with CpAsync\(.*in flight; a wait for it"):
            check_kernel(kernel, {}, _xy(), seed=seed)


def _bulk(nbytes=256, dst=0, src=0):
    return _elected(
        MbarrierArriveExpectTx("full", ZERO, Const(256)),
        BulkLoad("t", THREAD + dst, "x", THREAD + src, THREAD + nbytes, "full", ZERO),
    )


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (_bulk(nbytes=248), r"BulkLoad\(.*\): 248 bytes; needed a positive multiple of 16"),
        (_bulk(nbytes=0), r": 0 bytes; needed a positive multiple of 16"),
        (_bulk(src=2), r"x\[2\] of a memory aligned to 16 bytes; needed an address .* of 16"),
        (_bulk(dst=1), r"t\[1\] of a memory aligned to 128 bytes; needed an address .* of 16"),
        (_bulk(src=224), r"x\[224:288\] is outside its 256 elements"),
        (_bulk(dst=32), r"t\[32:96\] is outside its 64 elements"),
    ],
)  # fmt: skip
def test_bulk_copies_obey_the_rule_of_16(load, text):
    kernel = _copy_kernel(load, WAIT, OUT)
    with pytest.raises(ProtocolError, match=text):
        check_kernel(kernel, {}, _xy())
    with pytest.raises(ProtocolError, match=text):
        run_kernel(kernel, {}, _xy())


def test_inval_under_a_waiter():
    kernel = _copy_kernel(
        If(less(THREAD, 32), (_elected(MbarrierInval("full", ZERO)),), (WAIT,)),
    )
    texts = set()
    for seed in range(12):
        with pytest.raises(ProtocolError) as error:
            check_kernel(kernel, {}, _xy(), seed=seed)
        texts.add(str(error.value).split(" (seed")[0])
    assert any("needed nobody inside a wait on it" in t for t in texts), texts
    assert any("is no barrier: not initialised, or invalidated" in t for t in texts), texts


def test_barriers_can_be_made_again():
    again = (
        _bulk(), WAIT, SyncThreads("read"), _elected(MbarrierInval("full", ZERO)),
        _elected(MbarrierInit("full", ZERO, ONE), MbarrierInitFence()), SyncThreads("again"),
        _bulk(), WAIT, OUT,
    )  # fmt: skip
    np.testing.assert_array_equal(_both(_copy_kernel(*again), _xy())[:64], _xy()["x"][:64])
    twice = _copy_kernel(_elected(MbarrierInit("full", ZERO, ONE)), _bulk(), WAIT, OUT)
    with pytest.raises(ProtocolError, match="needed an inval before it is initialised again"):
        run_kernel(twice, {}, _xy())


def test_groups_belong_to_the_thread_that_issued_them():
    def body(waiter):
        return (
            Store("t", THREAD, Element("x", THREAD, F32)),
            FenceProxyAsync("the copy engine reads the tile"),
            SyncThreads("the tile is complete"),
            _elected(BulkStore("y", ZERO, "t", ZERO, Const(256)), BulkCommit()),
            If(equal(THREAD, waiter), (BulkWaitRead(0),)),
        )

    _both(_copy_kernel(*body(0), barriers=0), _xy())
    with pytest.raises(
        ProtocolError, match=r"were issued by .* thread \(0, 0, 0\), which does not"
    ):
        check_kernel(_copy_kernel(*body(1), barriers=0), {}, _xy())


def test_a_role_keeps_what_threads_knew_before():
    kernel = _copy_kernel(
        DeclareScalar("v", F32, Literal(1.0, F32)),
        Roles((
            Role("a", 0, 32, (Assign("v", Literal(2.0, F32)),)),
            Role("b", 32, 32, (Assign("v", Apply("add", (Ref("v", F32), Ref("v", F32)), F32)),
                               Assign("v", Apply("neg", (Ref("v", F32),), F32)))),
        )),
        Store("y", THREAD, Ref("v", F32)), barriers=0,
    )  # fmt: skip
    got = _both(kernel, _xy())[:64]
    np.testing.assert_array_equal(got, np.repeat(np.float32([2, -2]), 32))


# ---- what is refused before it runs ------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: CpAsync("t", ZERO, "x", ZERO, 3, F32), "12 bytes; one copy moves 4, 8 or 16"),
        (lambda: NamedBarrier(Const(0), 64, "w"), r"id 0; needs 1 to 15"),
        (lambda: NamedBarrier(Const(1), 40, "w"), r"40 threads; needs whole warps of 32"),
        (lambda: SetMaxRegisters(20, True), r"20 registers; needs a multiple of 8 from 24 to 256"),
        (lambda: Roles((Role("r", 0, 40, ()),)), r"role r: threads 0 to 39; needs whole warps"),
        (lambda: Roles((Role("a", 0, 64, ()), Role("b", 32, 32, ()))), r"role b: begins at thr"),
        (lambda: _load_box(_map("128B", (32, 2)), 0, 0), r"aligned to 128 bytes; swizzle 128B nee"),
        (lambda: _load_box(replace(_map(), name="other"), 0, 0), r"names tensor map map; needed"),
        (lambda: _copy_kernel(MbarrierWait("full", Const(2), ZERO, "w")), r"names full\[2\]; nee"),
        (lambda: _copy_kernel(MbarrierWait("empty", ZERO, ZERO, "w")), r"names barrier empty; ne"),
        (lambda: _copy_kernel(BulkLoad("t", ZERO, "x", ONE, Const(16), "full", ZERO)),
         r"copies from or to byte 4 of x; needed a multiple of 16"),
        (lambda: _copy_kernel(BulkLoad("t", ZERO, "x", ZERO, Const(8), "full", ZERO)),
         r"copies 8 bytes; needed a positive multiple of 16"),
        (lambda: _copy_kernel(BulkLoad("x", ZERO, "t", ZERO, Const(16), "full", ZERO)),
         r"copies to or from x; needed a shared array"),
        (lambda: _copy_kernel(MbarrierArriveToken("tk", ZERO, "full", ZERO)),
         r"keeps tokens in tk; needed a register array of i64"),
        (lambda: _copy_kernel(Roles((Role("r", 0, 128, ()),))), r"r ends at thread 128; the block"),
        (lambda: _copy_kernel(Roles((Role("r", 0, 64, (SetMaxRegisters(40, False),)),))),
         r"r: threads 0 to 63 change their registers; needed whole warp groups of 128"),
        (lambda: _copy_kernel(Roles((Role("r", 0, 128, (SetMaxRegisters(232, True),)),
                                     Role("q", 128, 256, (SetMaxRegisters(232, True),)))),
                              block=384),
         r"hands out 89088 registers; the block begins with 64512, 168 a thread"),
        (lambda: _copy_kernel(Roles((Role("r", 0, 128, (SetMaxRegisters(128, True),)),)),
                              block=384),
         r"r: increases its registers to 128; the kernel begins with 168"),
        (lambda: _copy_kernel(more=(SharedArray("big", F32, 60000),)),
         r"240\d{3} bytes of shared memory; at most 232448 are available"),
    ],
)  # fmt: skip
def test_refused(make, text):
    with pytest.raises(VerifyError, match=text):
        verify_kernel(make())


@pytest.mark.parametrize("converged", [True, False])
@pytest.mark.parametrize("lane", [0, 3])
def test_a_lane_speaks_for_its_warp_behind_its_convergence_only(converged, lane):
    """Warp 0 reads a tile and has one lane arrive; warp 1 waits, and writes the tile anew."""
    everybody = (SyncWarp("all lanes have read"),) if converged else ()
    arrive = If(equal(THREAD, lane), (MbarrierArrive("full", ZERO),))
    reader = (
        Store("y", THREAD, Element("t", THREAD, F32)), *everybody, arrive,
    )  # fmt: skip
    writer = (WAIT, Store("t", Const(63) - THREAD, Literal(2.0, F32)))
    body = (
        Store("t", THREAD, Element("x", THREAD, F32)), SyncThreads("the tile is there"),
        If(less(THREAD, 32), reader, writer),
    )  # fmt: skip
    kernel = _copy_kernel(*body)
    for seed in SEEDS:
        if converged:
            check_kernel(kernel, {}, _xy(), seed=seed)
            continue
        with pytest.raises(ProtocolError, match=r"race on t\[.*not ordered after the read by"):
            check_kernel(kernel, {}, _xy(), seed=seed)


@pytest.mark.parametrize("other", [False, True])
def test_a_lane_that_reads_alone_speaks_for_itself(other):
    """No convergence is needed for what the arriving lane has done, however the others go on."""
    element = Const(5) if not other else Const(6)
    reader = (
        If(less(THREAD, 1), (Store("y", ZERO, Element("t", Const(5), F32)),)),
        If(less(ZERO, THREAD), (Store("y", THREAD, Element("t", Const(6), F32)),)),
        If(equal(THREAD, 0), (MbarrierArrive("full", ZERO),)),
    )
    writer = (WAIT, If(equal(THREAD, 32), (Store("t", element, Literal(2.0, F32)),)))
    body = (
        Store("t", THREAD, Element("x", THREAD, F32)), SyncThreads("the tile is there"),
        If(less(THREAD, 32), reader, writer),
    )  # fmt: skip
    kernel = _copy_kernel(*body)
    for seed in SEEDS:
        if not other:
            check_kernel(kernel, {}, _xy(), seed=seed)
            continue
        with pytest.raises(ProtocolError, match=r"race on t\[6\].*not ordered after the read by"):
            check_kernel(kernel, {}, _xy(), seed=seed)
