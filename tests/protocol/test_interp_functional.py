"""Functional mode against NumPy: exact moves, masks, strides, bounds, chunks, whole programs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuser.interp.functional as functional
from fuser.core.dtypes import DataType
from fuser.core.errors import InputError, ProtocolError
from fuser.core.expr import ONE, ZERO, Const, Var, all_of, ceil_div, equal, less, less_equal
from fuser.interp.functional import run_kernel, run_program
from fuser.kir.core import Kernel, ScalarParam, SharedArray, SizeParam, TensorParam
from fuser.kir.program import Buffer, OutputBinding, Program
from fuser.kir.scalar import Apply, Cast, Choose, Element, FromIndex, Literal, Ref
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
    VectorLoad,
    VectorStore,
    WarpReduce,
)
from fuser.sim.memory import poison

pytestmark = pytest.mark.protocol

F32, BF16 = DataType.Float, DataType.BFloat16
TX, BX, IV, N, BASE = (Var(n) for n in ("tx", "bx", "i", "n", "base"))
CHUNKS = (1 << 18, 1)


@pytest.fixture(params=CHUNKS, ids=("one chunk", "a block per chunk"))
def chunks(request, monkeypatch):
    monkeypatch.setattr(functional, "LIVE_ELEMENTS", request.param)


def _kernel(body, params, *, grid=ONE, block=128, shared=(), sizes=("n",)):
    params = (*params, *(SizeParam(s) for s in sizes))
    return Kernel("k", params, shared, (grid, ONE, ONE), (Const(block), ONE, ONE), "i32", body)


def _io(dtype, numel=N):
    return TensorParam("x", dtype, "in", numel), TensorParam("y", dtype, "out", numel)


def _copy(dtype, width, block=32):
    """Vectors while they fit, single elements in the tail."""
    at = BASE + IV
    body = (
        Let("base", (BX * block + TX) * width),
        DeclareRegisters("r", dtype, width),
        If(
            less_equal(BASE + width, N),
            (
                VectorLoad("r", ZERO, "x", BASE, width, dtype),
                VectorStore("y", BASE, "r", ZERO, width, dtype),
            ),
            (
                For("i", Const(width), (
                    If(less(at, N), (Store("y", at, Element("x", at, dtype)),)),
                )),
            ),
        ),
    )  # fmt: skip
    return _kernel(body, _io(dtype), grid=ceil_div(N, block * width), block=block)


def _random(rng, n, dtype):
    return rng.integers(0, 256, n * dtype.nbytes, np.uint8).view(dtype.np)


@pytest.mark.parametrize("dtype", list(DataType), ids=lambda d: d.short)
@pytest.mark.parametrize("n", [0, 1, 7, 31, 4096, 5003])
def test_copies_move_every_bit(rng, dtype, n, chunks):
    x = _random(rng, n, dtype) if dtype is not DataType.Bool else rng.random(n) < 0.5
    for width in (w for w in (1, 2, 4, 8, 16) if w * dtype.nbytes <= 16):
        y = poison(n, dtype.np)
        run_kernel(_copy(dtype, width), {"n": n}, {"x": x, "y": y})
        np.testing.assert_array_equal(y.view(np.uint8), x.view(np.uint8))


@given(st.data())
@settings(max_examples=60)
def test_strided_inputs_are_read_where_they_lie(data):
    rows, columns = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    step, transposed = data.draw(st.integers(1, 3)), data.draw(st.booleans())
    expanded = data.draw(st.booleans())
    base = np.arange(rows * columns * step, dtype=np.float32).reshape(rows, columns * step)
    x = base[:, ::step]
    x = x.T if transposed else x
    x = np.broadcast_to(x[:, :1], x.shape) if expanded else x
    m, n = x.shape
    index = (BX * 32 + TX) // N, (BX * 32 + TX) % N
    load = Element("x", index[0] * Var("s0") + index[1] * Var("s1"), F32)
    flat = BX * 32 + TX
    numel = (Var("m") - 1) * Var("s0") + (N - 1) * Var("s1") + 1
    params = TensorParam("x", F32, "in", numel), TensorParam("y", F32, "out", Var("m") * N)
    body = (If(less(flat, Var("m") * N), (Store("y", flat, load),)),)
    kernel = _kernel(body, params, grid=ceil_div(Var("m") * N, 32), block=32,
                     sizes=("m", "n", "s0", "s1"))  # fmt: skip
    s0, s1 = (s // 4 if size > 1 else 0 for s, size in zip(x.strides, x.shape, strict=True))
    y = np.full(m * n, np.nan, np.float32)
    run_kernel(kernel, {"m": m, "n": n, "s0": s0, "s1": s1}, {"x": x, "y": y})
    np.testing.assert_array_equal(y.reshape(m, n), x)


def test_negative_strides_are_refused():
    x, y = np.zeros(8, np.float32)[::-1], np.zeros(8, np.float32)
    with pytest.raises(InputError, match=r"^x: strides \(-4,\) in bytes; needs non-negative multi"):
        run_kernel(_copy(F32, 1), {"n": 8}, {"x": x, "y": y})


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.zeros(8, np.float32)}, r"^kernel k, tensor x: no array; got \['y'\]$"),
        (
            {"x": np.zeros(8), "y": np.zeros(8, np.float32)},
            r"^kernel k, tensor x: dtype float64; needs float32$",
        ),
        (
            {"x": np.zeros(7, np.float32), "y": np.zeros(8, np.float32)},
            r"^kernel k, tensor x: spans 7 elements; the kernel may touch 8$",
        ),
    ],
)
def test_wrong_arrays_are_named(arrays, message):
    with pytest.raises(InputError, match=message):
        run_kernel(_copy(F32, 1), {"n": 8}, arrays)


def _store(index, value=None):
    value = Literal(1.0, F32) if value is None else value
    return (Store("y", index, value),)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            _store(TX + BX * 64 - 3),
            r"^kernel k, Store\(memory=y\): y\[-3\] is outside its 100 elements, in "
            r"block \(0, 0, 0\) thread \(0, 0, 0\)$",
        ),
        (
            _store(TX + BX * 64),
            r"^kernel k, Store\(memory=y\): y\[100\] is outside its 100 elements, in "
            r"block \(1, 0, 0\) thread \(36, 0, 0\)$",
        ),
        (
            _store(ZERO, Element("x", TX * 2, F32)),
            r"x\[100\] is outside its 100 elements, in block \(0, 0, 0\) thread \(50, 0, 0\)$",
        ),
        (
            (Store("x", ZERO, Literal(1.0, F32)),),
            r"^kernel k, Store\(memory=x\): writes x, an input of the kernel$",
        ),
        (
            (DeclareRegisters("r", F32, 4), VectorLoad("r", ZERO, "x", TX, 4, F32)),
            r"^kernel k, VectorLoad\(dst=r, memory=x, width=4\): x\[1\] starts a vector of 4 "
            r"elements; needs a multiple of 4, in block \(0, 0, 0\) thread \(1, 0, 0\)$",
        ),
        (
            (DeclareRegisters("r", F32, 4), Store("r", TX, Literal(1.0, F32))),
            r"r\[4\] is outside its 4 elements, in block \(0, 0, 0\) thread \(4, 0, 0\)$",
        ),
        (
            (If(less(TX, 5), (SyncThreads("half of it"),)),),
            r"^kernel k, SyncThreads\(why=half of it\): __syncthreads \(half of it\) in divergent "
            r"code, a deadlock; block \(0, 0, 0\) thread \(5, 0, 0\) does not arrive$",
        ),
    ],
)
def test_illegal_actions_name_kernel_statement_tensor_and_thread(body, message):
    kernel = _kernel(body, _io(F32), grid=Const(2), block=64)
    arrays = {"x": np.zeros(100, np.float32), "y": np.zeros(100, np.float32)}
    with pytest.raises(ProtocolError, match=message):
        run_kernel(kernel, {"n": 100}, arrays)


def test_a_pointer_that_promises_little_refuses_wide_vectors():
    kernel = _copy(F32, 4)
    params = tuple(replace(p, aligned_bytes=8) if p.name == "x" else p for p in kernel.params)
    arrays = {"x": np.zeros(128, np.float32), "y": np.zeros(128, np.float32)}
    with pytest.raises(ProtocolError, match=r"moves 16 bytes at once, but x is aligned to 8 only$"):
        run_kernel(replace(kernel, params=params), {"n": 128}, arrays)


def test_guards_and_choices_touch_only_what_they_may(rng, chunks):
    """A three-point stencil with zero padding; the neighbours outside would be out of bounds."""
    n, flat = 1000, BX * 128 + TX
    left = Element("x", flat - 1, F32, less(0, flat), Literal(0.0, F32))
    right = Element("x", flat + 1, F32, less(flat + 1, N), Literal(0.0, F32))
    middle = Choose(less(flat, 500), Element("x", flat, F32), Literal(7.0, F32), F32)
    total = Apply("add", (Apply("add", (left, right), F32), middle), F32)
    kernel = _kernel((If(less(flat, N), (Store("y", flat, total),)),), _io(F32),
                     grid=ceil_div(N, 128))  # fmt: skip
    x, y = rng.standard_normal(n).astype(np.float32), np.full(n, np.nan, np.float32)
    run_kernel(kernel, {"n": n}, {"x": x, "y": y})
    padded = np.pad(x, 1)
    want = padded[:-2] + padded[2:] + np.where(np.arange(n) < 500, x, np.float32(7))
    np.testing.assert_array_equal(y, want)


@given(n=st.integers(1, 3000), m=st.integers(1, 9))
@settings(max_examples=25)
def test_rounding_where_casts_say(n, m):
    """(x + bias[i % m]) * 0.5 in f32 from and to bf16."""
    rng = np.random.default_rng(n * 10 + m)
    x, bias = (rng.standard_normal(k).astype(BF16.np) for k in (n, m))
    flat = BX * 64 + TX
    load = [Cast(Element(t, i, BF16), F32) for t, i in (("x", flat), ("bias", flat % Var("m")))]
    body = (
        If(less(flat, N), (
            Define("h", F32, Apply("add", tuple(load), F32)),
            Define("g", F32, Apply("mul", (Ref("h", F32), Literal(0.5, F32)), F32)),
            Store("y", flat, Cast(Ref("g", F32), BF16)),
        )),
    )  # fmt: skip
    params = (*_io(BF16), TensorParam("bias", BF16, "in", Var("m")))
    kernel = _kernel(body, params, grid=ceil_div(N, 64), block=64, sizes=("n", "m"))
    y = poison(n, BF16.np)
    run_kernel(kernel, {"n": n, "m": m}, {"x": x, "bias": bias, "y": y}, check_index=True)
    wide = x.astype(np.float32) + np.resize(bias, n).astype(np.float32)
    np.testing.assert_array_equal(y.view(np.uint16), (wide * 0.5).astype(BF16.np).view(np.uint16))


@pytest.mark.parametrize("short", ["f32", "f64", "bf16", "f16", "f8e4m3", "i64", "u8", "bool"])
def test_scalars_and_uniform_values(rng, short, chunks):
    """Where a guard holds x, else a scalar of the fusion, else a literal; in every kind of type."""
    dtype, flat = DataType.from_short(short), BX * 32 + TX
    guarded = Element("x", flat, dtype, less(flat, Const(70)), Ref("s", dtype))
    body = (
        Store("y", flat, Choose(less(flat, Const(90)), guarded, Literal(1, dtype), dtype)),
        If(equal(N, 96), (Store("z", ZERO, Ref("s", dtype)),), (Store("z", ZERO, guarded),)),
    )
    z = TensorParam("z", dtype, "out", ONE)
    params = (*_io(dtype), z, ScalarParam("s", dtype))
    x = _random(rng, 96, dtype) if short != "bool" else rng.random(96) < 0.5
    y, z = poison(96, dtype.np), poison(1, dtype.np)
    kernel = _kernel(body, params, grid=Const(3), block=32)
    run_kernel(kernel, {"n": 96}, {"x": x, "y": y, "z": z}, {"s": 3})
    want = x.copy()
    want[70:90], want[90:] = np.asarray(3).astype(dtype.np), np.asarray(1).astype(dtype.np)
    np.testing.assert_array_equal(y.view(np.uint8), want.view(np.uint8))
    np.testing.assert_array_equal(z.view(np.uint8), want[70:71].view(np.uint8))


def test_three_dimensional_grids_and_blocks(chunks):
    """Every thread of every block writes its own coordinates once."""
    grid, block = (2, 3, 4), (5, 2, 3)
    names = ("bx", "by", "bz", "tx", "ty", "tz")
    flat, code = ZERO, ZERO
    for name, extent in zip(names, (*grid, *block), strict=True):
        flat, code = flat * extent + Var(name), code * 10 + Var(name)
    body = (Store("y", flat, FromIndex(code, DataType.Int)),)
    params = (TensorParam("y", DataType.Int, "out", Const(720)),)
    dims = (tuple(Const(e) for e in extents) for extents in (grid, block))
    kernel = replace(_kernel(body, params), **dict(zip(("grid", "block"), dims, strict=True)))
    y = poison(720, np.dtype(np.int64))
    run_kernel(kernel, {"n": 0}, {"y": y})
    digits = np.indices((*grid, *block)).reshape(6, -1)
    np.testing.assert_array_equal(y, digits.T @ 10 ** np.arange(5, -1, -1))


def test_nested_divergence(rng, chunks):
    """Per-thread trip counts, branches inside, an accumulator that masked lanes must keep."""
    flat, j = BX * 32 + TX, Var("j")
    add = Assign("v", Apply("add", (Ref("v", F32), Element("x", j, F32)), F32))
    body = (
        DeclareScalar("v", F32, Literal(0.0, F32)),
        For("j", flat % 7, (If(less(j % 2, TX % 2), (add,), (add, add)),), start=TX % 3),
        Store("y", flat, Ref("v", F32)),
    )
    x, y = rng.integers(0, 9, 96).astype(np.float32), np.full(96, np.nan, np.float32)
    run_kernel(_kernel(body, _io(F32), grid=Const(3), block=32), {"n": 96}, {"x": x, "y": y})
    want = [
        sum(x[k] * (1 if k % 2 < t % 32 % 2 else 2) for k in range(t % 32 % 3, t % 7))
        for t in range(96)
    ]
    np.testing.assert_array_equal(y, want)


def test_thread_strided_loops_and_reductions(rng, chunks):
    """Row sums: a block per row, a strided loop per thread, one block reduction."""
    rows, n = 5, 1000
    body = (
        DeclareScalar("v", F32, Literal(0.0, F32)),
        For("i", N, (
            Assign("v", Apply("add", (Ref("v", F32), Element("x", BX * N + IV, F32)), F32)),
        ), start=TX, step=Const(96)),
        BlockReduce("v", "sum", F32, ("x",), "scratch"),
        If(less(TX, 1), (Store("y", BX, Ref("v", F32)),)),
    )  # fmt: skip
    params = TensorParam("x", F32, "in", N * rows), TensorParam("y", F32, "out", Const(rows))
    kernel = _kernel(body, params, grid=Const(rows), block=96,
                     shared=(SharedArray("scratch", F32, 3),))  # fmt: skip
    x, y = rng.standard_normal((rows, n)).astype(np.float32), np.full(rows, np.nan, np.float32)
    run_kernel(kernel, {"n": n}, {"x": x, "y": y})
    np.testing.assert_allclose(y, x.astype(np.float64).sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [2, 4, 8, 16, 32])
def test_warp_reduce(rng, width, chunks):
    body = (
        DeclareScalar("v", F32, Element("x", BX * 64 + TX, F32)),
        WarpReduce("v", "max", F32, width),
        Store("y", BX * 64 + TX, Ref("v", F32)),
    )
    x, y = rng.standard_normal(256).astype(np.float32), np.full(256, np.nan, np.float32)
    x[77] = np.nan
    run_kernel(_kernel(body, _io(F32), grid=Const(4), block=64), {"n": 256}, {"x": x, "y": y})
    want = np.repeat(x.reshape(-1, width).max(1), width)
    np.testing.assert_array_equal(y, want)


def _grid_sum_program(ranks, threads):
    rank, segment = BX % ranks, BX // ranks
    body = (
        DeclareScalar("v", F32, Element("x", BX * threads + TX, F32)),
        GridReduce("v", "sum", F32, "partials", "tickets", rank, Const(ranks), segment, TX,
                   Const(threads), "is_last", when=all_of(less(TX, threads - 1))),
        If(all_of(Var("is_last"), less(TX, threads - 1)),
           (Store("y", segment * threads + TX, Ref("v", F32)),)),
    )  # fmt: skip
    segments = 3
    sizes = {"x": segments * ranks * threads, "y": segments * threads,
             "partials": segments * ranks * threads, "tickets": segments}  # fmt: skip
    modes = {"x": "in", "y": "out", "partials": "workspace", "tickets": "workspace"}
    params = tuple(
        TensorParam(n, F32 if n != "tickets" else DataType.Int32, modes[n], Const(sizes[n]))
        for n in sizes
    )
    kernel = _kernel(body, params, grid=Const(segments * ranks), block=threads, sizes=())
    buffers = tuple(
        Buffer(p.name, p.dtype, (p.numel,), (ONE,), p.numel, p.name == "tickets")
        for p in params[1:]
    )
    return Program("sums", ("x",), buffers, (kernel, kernel), (OutputBinding("y"),))


def test_grid_reduce_across_chunks(rng, chunks):
    """Twice in a row: the counters must be back at zero; the last slot belongs to nobody."""
    ranks, threads = 4, 32
    x = rng.standard_normal((3, ranks, threads)).astype(np.float32)
    result = run_program(_grid_sum_program(ranks, threads), {}, {"x": x})
    want = x[:, 0] + x[:, 1] + x[:, 2] + x[:, 3]
    y = result["y"].reshape(3, threads)
    np.testing.assert_array_equal(y[:, :-1], want[:, :-1])
    assert np.isnan(y[:, -1]).all(), "outputs start poisoned"
    assert (result["tickets"] == 0).all()


def test_a_program_with_a_temporary_and_an_alias(rng):
    def doubling(src, dst):
        x = Element(src, TX, F32)
        body = (If(less(TX, N), (
            Store(dst, TX, Apply("add", (x, x), F32)),)),)  # fmt: skip
        params = TensorParam(src, F32, "in", N), TensorParam(dst, F32, "out", N)
        return _kernel(body, params)

    buffers = tuple(Buffer(b, F32, (N,), (ONE,), N) for b in ("t", "y"))
    alias = OutputBinding("y", copy_into="x", returned=False)
    bindings = OutputBinding("y"), OutputBinding("w"), alias
    program = Program("p", ("x",), buffers, (doubling("x", "t"), doubling("t", "y")), bindings)
    x = rng.standard_normal(100).astype(np.float32)
    before = x.copy()
    w = np.zeros(3)
    result = run_program(program, {"n": 100}, {"x": x, "w": w})
    assert result["w"] is w, "an input that is an output is returned as it is"
    np.testing.assert_array_equal(result["y"], before * 4)
    np.testing.assert_array_equal(x, before * 4)


def test_buffers_keep_their_shape_and_strides():
    shape, strides = (Const(3), N), (ONE, Const(3))
    buffer = Buffer("y", F32, shape, strides, N * 3)
    body = (If(less(TX, N * 3), (Store("y", TX, Cast(Literal(2, DataType.Int), F32)),)),)
    kernel = _kernel(body, (TensorParam("y", F32, "out", N * 3),))
    program = Program("p", (), (buffer,), (kernel,), (OutputBinding("y"),))
    y = run_program(program, {"n": 4}, {})["y"]
    assert (y.shape, y.strides) == ((3, 4), (4, 12))
    assert (y == 2).all()
    assert run_program(program, {"n": 0}, {})["y"].shape == (3, 0)
