"""Checked mode: clean kernels stay clean under every interleaving, broken ones are caught."""

import re
from dataclasses import replace

import numpy as np
import pytest

from fuser.core.dtypes import DataType
from fuser.core.errors import ProtocolError
from fuser.core.expr import ONE, ZERO, Const, Var, equal, less, select
from fuser.interp.checked import check_kernel
from fuser.kir.core import Kernel, SharedArray, TensorParam
from fuser.kir.scalar import Apply, Cast, Element, FromIndex, Literal, Ref
from fuser.kir.stmts import (
    Assign,
    BlockReduce,
    DeclareRegisters,
    DeclareScalar,
    Define,
    For,
    GridReduce,
    If,
    Let,
    Store,
    SyncThreads,
    WarpReduce,
)

pytestmark = pytest.mark.protocol

F32, INT = DataType.Float, DataType.Int
TX, TY, BX, BY, IV = (Var(n) for n in ("tx", "ty", "bx", "by", "i"))
SEEDS = range(20)
SYNC = SyncThreads("the tile is complete")


def _x(index):
    return Element("x", index, F32)


def _tile(index):
    return Element("tile", index, F32)


def _kernel(body, *, numel=1024, block=(32, 4, 1), grid=(1, 1, 1), shared=1024, out=None):
    params = (
        TensorParam("x", F32, "in", Const(numel)),
        TensorParam("y", F32, "out", Const(out or numel)),
    )
    arrays = (SharedArray("tile", F32, shared), SharedArray("scratch", F32, 256))
    grid, block = (tuple(Const(e) for e in extents) for extents in (grid, block))
    return Kernel("k", params, arrays, grid, block, "i32", tuple(body))


def _failures(kernel, arrays, seeds=SEEDS, **options):
    messages = []
    for seed in seeds:
        try:
            check_kernel(kernel, {}, arrays, seed=seed, **options)
        except ProtocolError as error:
            messages.append(str(error))
    return messages


def _transpose(*between):
    """A 64 x 64 transpose in 32 x 32 tiles of 33 elements per row, 32 x 4 threads."""
    row = TY + IV * 4
    return _kernel(
        [
            For("i", Const(8), (
                Store("tile", row * 33 + TX, _x((BY * 32 + row) * 64 + BX * 32 + TX)),)),
            *between,
            For("i", Const(8), (
                Store("y", (BX * 32 + row) * 64 + BY * 32 + TX, _tile(TX * 33 + row)),)),
        ],
        numel=4096, grid=(2, 2, 1), shared=32 * 33,
    )  # fmt: skip


def _arrays(numel=1024, out=None):
    x = np.random.default_rng(5).standard_normal(numel).astype(np.float32)
    return {"x": x, "y": np.full(out or numel, np.nan, np.float32)}


@pytest.mark.parametrize("seed", SEEDS)
def test_transpose_is_clean(seed):
    arrays = _arrays(4096)
    result = check_kernel(_transpose(SYNC), {}, arrays, seed=seed)
    np.testing.assert_array_equal(result["y"].reshape(64, 64), arrays["x"].reshape(64, 64).T)
    assert np.isnan(arrays["y"]).all(), "the caller's arrays are not touched"


def test_transpose_without_sync_is_caught():
    messages = _failures(_transpose(), _arrays(4096))
    assert len(messages) == len(SEEDS)
    for seed, message in zip(SEEDS, messages, strict=True):
        assert message.endswith(f"(seed {seed})")
        assert re.search(r"tile\[\d+\]", message)
        assert "race on" in message or "before it is written" in message


def test_race_names_array_element_statements_and_threads():
    # the warp-1 element is written and read without order; both warps' values exist up front
    body = [
        Store("tile", TX, _x(TX)),
        SYNC,
        Store("y", TX, _tile(63 - TX)),
        Store("tile", TX, Literal(1.0, F32)),
    ]
    messages = _failures(_kernel(body, block=(64, 1, 1)), _arrays())
    pattern = (
        r"^kernel k: race on tile\[\d+\]: the (read|write) by block \(0, 0, 0\) "
        r"thread \(\d+, 0, 0\) at Store\(memory=(y|tile)\) is not ordered after the "
        r"(read|write) by block \(0, 0, 0\) thread \(\d+, 0, 0\) at Store\(memory=(y|tile)\); "
        r"a __syncthreads between them is missing "
        r"\(seed \d+\)$"
    )
    assert len(messages) == len(SEEDS)
    assert all(re.match(pattern, m) for m in messages), messages


def _rounds(*tail):
    """Two rounds through one tile: the second write must wait for the first round's reads."""
    loop = For("i", Const(2), (
        Store("tile", TX, _x(IV * 128 + TX)),
        SYNC,
        Store("y", IV * 128 + TX, _tile(127 - TX)),
        *tail,
    ))  # fmt: skip
    return _kernel([loop], block=(128, 1, 1))


def test_write_after_read_race_is_caught():
    assert _failures(_rounds(SyncThreads("the tile is free")), _arrays()) == []
    messages = _failures(_rounds(), _arrays())
    assert len(messages) == len(SEEDS)
    assert all("race on tile[" in m for m in messages)


def test_sync_in_divergent_lanes_is_a_deadlock():
    kernel = _kernel([If(less(TX, 40), (SYNC,))], block=(64, 1, 1))
    messages = _failures(kernel, _arrays())
    assert len(messages) == len(SEEDS)
    for message in messages:
        assert "in divergent code, a deadlock" in message
        assert "thread (40, 0, 0) does not arrive" in message


def test_sync_that_a_whole_warp_skips_is_a_deadlock():
    kernel = _kernel([If(less(TX, 32), (SYNC,))], block=(64, 1, 1))
    messages = _failures(kernel, _arrays())
    assert len(messages) == len(SEEDS)
    for message in messages:
        assert "deadlock" in message
        assert "block 0 warp 0 waits at __syncthreads (the tile is complete)" in message
        assert "finished: block 0 warp 1" in message


def test_two_different_barriers_never_meet():
    kernel = _kernel([If(less(TX, 32), (SYNC,), (SyncThreads("another"),))], block=(64, 1, 1))
    messages = _failures(kernel, _arrays())
    assert len(messages) == len(SEEDS)
    assert all("meets another barrier" in m for m in messages)


def test_lanes_of_a_warp_that_write_one_element_must_agree():
    clash = _kernel([Store("tile", TX // 2, _x(TX))], block=(32, 1, 1))
    messages = _failures(clash, _arrays(), seeds=range(2))
    assert len(messages) == 2
    assert all("of one warp write different values; only one may write" in m for m in messages)
    agree = _kernel([Store("tile", TX // 2, _x(TX // 2))], block=(32, 1, 1))
    assert _failures(agree, _arrays(), seeds=range(2)) == []


def test_uninitialised_shared_and_register_reads_are_caught():
    shared = _kernel([Store("y", TX, _tile(TX))], block=(32, 1, 1))
    assert all("reads tile[0] before it is written" in m for m in _failures(shared, _arrays()))
    registers = _kernel(
        [
            DeclareRegisters("r", F32, 2),
            Store("r", ZERO, _x(TX)),
            Store("y", TX, Element("r", select(less(TX, 7), 0, 1), F32)),
        ],
        block=(32, 1, 1),
    )
    messages = _failures(registers, _arrays(), seeds=range(2))
    assert len(messages) == 2
    assert all("reads r before it is written, in block (0, 0, 0) thread (7," in m for m in messages)


def test_blocks_that_write_one_element_race():
    kernel = _kernel([If(equal(TX, 0), (Store("y", ZERO, _x(BX)),))], grid=(3, 1, 1))
    messages = _failures(replace(kernel, block=(Const(32), ONE, ONE)), _arrays())
    assert len(messages) == len(SEEDS)
    assert all("race on y[0]" in m and "a barrier or an atomic" in m for m in messages)


def _block_sum(block, axes):
    x, y, _z = block
    tid = TX + x * (TY + y * Var("tz"))
    return _kernel(
        [
            DeclareScalar("v", F32, _x(tid)),
            BlockReduce("v", "sum", F32, axes, "scratch"),
            Store("y", tid, Ref("v", F32)),
            Assign("v", _x(tid)),
            BlockReduce("v", "max", F32, axes, "scratch"),
            Assign("v", Apply("add", (Ref("v", F32), Element("y", tid, F32)), F32)),
            Store("y", tid, Ref("v", F32)),
        ],
        block=block,
    )


@pytest.mark.parametrize(
    ("block", "axes"),
    [
        ((64, 1, 1), ("x",)),
        ((32, 4, 1), ("x",)),
        ((32, 4, 1), ("y",)),
        ((32, 2, 4), ("z", "x")),
        ((20, 3, 2), ("x", "y", "z")),
        ((5, 7, 3), ("y",)),
    ],
)
def test_block_reduce(block, axes):
    kernel, arrays = _block_sum(block, axes), _arrays()
    x, y, z = block
    threads = x * y * z
    cube = arrays["x"][:threads].reshape(z, y, x).astype(np.float64)
    over = tuple("zyx".index(a) for a in axes)
    want = cube.sum(over, keepdims=True) + cube.max(over, keepdims=True)
    want = np.broadcast_to(want, cube.shape).reshape(-1)
    for seed in range(5):
        result = check_kernel(kernel, {}, arrays, seed=seed)["y"]
        np.testing.assert_allclose(result[:threads], want, rtol=2e-6, atol=1e-5)


def test_scratch_that_is_still_read_may_not_be_reused():
    body = [
        DeclareScalar("v", F32, _x(TX)),
        BlockReduce("v", "sum", F32, ("x",), "scratch"),
        Store("scratch", TX, _x(TX)),
        Store("y", TX, Element("scratch", 63 - TX, F32)),
    ]
    messages = _failures(_kernel(body, block=(64, 1, 1)), _arrays())
    assert len(messages) == len(SEEDS)
    assert all("scratch[" in m for m in messages)


def test_warp_reduce_needs_whole_groups():
    body = [
        DeclareScalar("v", F32, _x(TX)),
        If(less(TX, 5), (WarpReduce("v", "sum", F32, 8),)),
        Store("y", TX, Ref("v", F32)),
    ]
    messages = _failures(_kernel(body, block=(32, 1, 1)), _arrays(), seeds=range(2))
    assert len(messages) == 2
    assert all("only some lanes of a group of 8 arrive" in m for m in messages)


def _grid_sum(ranks=6, threads=64):
    """Column sums: block `bx` owns `rank` rows of a (2 * ranks, threads) matrix, two segments."""
    rank, segment = BX % ranks, BX // ranks
    body = [
        DeclareScalar("v", F32, _x(BX * threads + TX)),
        GridReduce(
            "v", "sum", F32, "partials", "tickets", rank, Const(ranks), segment, TX,
            Const(threads), "is_last",
        ),
        If(Var("is_last"), (Store("y", segment * threads + TX, Ref("v", F32)),)),
    ]  # fmt: skip
    kernel = _kernel(
        body, numel=2 * ranks * threads, out=2 * threads, block=(threads, 1, 1),
        grid=(2 * ranks, 1, 1),
    )  # fmt: skip
    extra = (
        TensorParam("partials", F32, "workspace", Const(2 * ranks * threads)),
        TensorParam("tickets", DataType.Int32, "workspace", Const(2)),
    )
    return replace(kernel, params=kernel.params + extra)


@pytest.mark.parametrize("seed", SEEDS)
def test_grid_reduce(seed):
    ranks, threads = 6, 64
    arrays = _arrays(2 * ranks * threads, 2 * threads)
    arrays["partials"] = np.full(2 * ranks * threads, np.nan, np.float32)
    arrays["tickets"] = np.zeros(2, np.int32)
    result = check_kernel(_grid_sum(ranks, threads), {}, arrays, blocks=2 * ranks, seed=seed)
    rows = arrays["x"].reshape(2, ranks, threads)
    want = rows[:, 0].copy()
    for r in range(1, ranks):
        want += rows[:, r]  # rank order, in f32: the result does not depend on arrival
    np.testing.assert_array_equal(result["y"].reshape(2, threads), want)
    np.testing.assert_array_equal(result["tickets"], 0)


def test_index_overflow_of_a_32_bit_kernel():
    body = [
        Let("far", (TX + 70000) * 40000 % 7),
        Store("y", TX, Cast(FromIndex(Var("far"), INT), F32)),
    ]
    messages = _failures(_kernel(body, block=(32, 1, 1)), _arrays(), seeds=range(1))
    assert len(messages) == 1
    assert "the kernel's 32-bit index type ends at 2147483647" in messages[0]
    wide = replace(_kernel(body, block=(32, 1, 1)), index="i64")
    assert _failures(wide, _arrays(), seeds=range(1)) == []


def test_divergent_loops_stay_exact():
    body = [
        DeclareScalar("n", F32, Literal(0.0, F32)),
        For("i", TX % 5, (
            Define("one", F32, Literal(1.0, F32)),
            Assign("n", Apply("add", (Ref("n", F32), Ref("one", F32)), F32)),
        ), start=ZERO),
        Store("y", TX, Ref("n", F32)),
    ]  # fmt: skip
    result = check_kernel(_kernel(body, block=(64, 1, 1)), {}, _arrays())["y"]
    np.testing.assert_array_equal(result[:64], np.arange(64) % 5)
