"""Every statement compiles for every architecture, and the SASS holds what was asked for."""

import re

import pytest

from fuser.codegen.emit import emit
from fuser.core.dtypes import DataType
from fuser.core.expr import ONE, ZERO, Const, Var, less, maximum, minimum, select
from fuser.kir.core import Kernel, SharedArray, SizeParam, TensorParam, Unroll
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
    VectorLoad,
    VectorStore,
    WarpReduce,
)
from fuser.runtime.nvrtc import REAL_ARCHS, compile_cubin
from fuser.runtime.sass import disassemble

pytestmark = pytest.mark.nvrtc

F32, BF16, INT = DataType.Float, DataType.BFloat16, DataType.Int
TX, BX, IV, N, BASE = (Var(n) for n in ("tx", "bx", "i", "n", "base"))
ACCUMULATORS = tuple(
    DataType.from_short(s) for s in ("f32", "f64", "i32", "i64", "i8", "u8", "bool")
)


def _kernel(body, params, *, block=(128, 1, 1), shared=(), index="i32"):
    block = tuple(e if isinstance(e, Var) else Const(e) for e in block)
    params = (*params, SizeParam("n"))
    return Kernel("k", params, shared, (N, ONE, ONE), block, index, tuple(body))


def _sass(kernel, arch="sm_90a"):
    cubin = compile_cubin(emit(kernel), kernel.name, arch)
    assert cubin.log.spill_store_bytes == cubin.log.stack_bytes == 0
    return disassemble(cubin.image)


def _count(pattern, sass):
    return len(re.findall(pattern, sass))


def _tensors(dtype, x="in"):
    return TensorParam("x", dtype, x, N), TensorParam("y", dtype, "out", N)


def _io(dtype, width, compute, hint_in="", hint_out=""):
    return (
        Let("base", (BX * 128 + TX) * width),
        If(less(BASE, N), (
            DeclareRegisters("x_v", dtype, width),
            DeclareRegisters("y_v", dtype, width),
            VectorLoad("x_v", ZERO, "x", BASE, width, dtype, hint_in),
            For("i", Const(width), (Store("y_v", IV, compute),)),
            VectorStore("y", BASE, "y_v", ZERO, width, dtype, hint_out),
        )),
    )  # fmt: skip


def test_bf16_vectors_move_16_bytes_and_convert_in_pairs():
    x = Cast(Element("x_v", IV, BF16), F32)
    compute = Cast(Apply("add", (x, Literal(1.0, F32)), F32), BF16)
    sass = _sass(_kernel(_io(BF16, 8, compute), _tensors(BF16)))
    assert _count(r"LDG\.E\.128", sass) == 1
    assert _count(r"STG\.E\.128", sass) == 1
    assert _count(r"F2FP\.BF16\.F32\.PACK_AB", sass) == 4
    assert _count(r"LDL|STL", sass) == 0


@pytest.mark.parametrize(
    ("hint_in", "hint_out", "load", "store"),
    [
        ("cs", "cs", r"LDG\.E\.EF\.128", r"STG\.E\.EF\.128"),
        ("cg", "cg", r"LDG\.E\.128\.STRONG\.GPU", r"STG\.E\.128\.STRONG\.GPU"),
        ("nc", "", r"LDG\.E\.128\.CONSTANT", r"STG\.E\.128"),
        ("ca", "ca", r"LDG\.E\.128", r"STG\.E\.128"),
    ],
)
def test_cache_hints_reach_the_sass(hint_in, hint_out, load, store):
    compute = Element("x_v", IV, F32)
    sass = _sass(_kernel(_io(F32, 4, compute, hint_in, hint_out), _tensors(F32)))
    assert _count(load, sass) == 1
    assert _count(store, sass) == 1


@pytest.mark.parametrize("dtype", list(DataType), ids=lambda d: d.short)
def test_every_width_of_every_dtype(dtype):
    """One access per vector, whatever its width; NVRTC warnings would be errors here."""
    widths = [w for w in (1, 2, 4, 8, 16) if w * dtype.nbytes <= 16]
    body = []
    for w in widths:
        body += [
            DeclareRegisters(f"r{w}", dtype, w),
            VectorLoad(f"r{w}", ZERO, "x", TX * w, w, dtype),
            VectorStore("y", (N + TX) * w, f"r{w}", ZERO, w, dtype),
        ]
    sass = _sass(_kernel(body, _tensors(dtype)))
    assert _count(r"\bLDG\.", sass) == len(widths)
    assert _count(r"\bSTG\.", sass) == len(widths)


def test_loops_are_unrolled_as_told():
    def loop(extent, unroll):
        add = Apply("add", (Ref("v", F32), Element("x", IV * N + TX, F32)), F32)
        body = [
            DeclareScalar("v", F32, Literal(0.0, F32)),
            For("i", extent, (Assign("v", add),), unroll),
            Store("y", TX, Ref("v", F32)),
        ]
        return _count(r"\bLDG\.", _sass(_kernel(body, _tensors(F32))))

    assert loop(Const(16), Unroll()) == 16
    assert loop(Const(17), Unroll()) == 1
    assert loop(Const(17), Unroll("full")) == 17
    assert loop(Const(8), Unroll("rolled")) == 1
    assert loop(N, Unroll()) == 1
    assert loop(N, Unroll("partial", 4)) == 5


REDUCED = {
    "sum": ACCUMULATORS[:4],
    "prod": ACCUMULATORS[:4],
    "max": ACCUMULATORS,
    "min": ACCUMULATORS,
}


def _every_reduction(op):
    """All accumulation dtypes of one reduction, in a warp, a block and the grid."""
    body, params, shared = [], [], []
    for dtype in REDUCED[op]:
        key = f"v_{dtype.short}"
        x, scratch, partials, counter = (f"{n}_{key}" for n in "xspc")
        body += [
            DeclareScalar(key, dtype, Element(x, TX, dtype)),
            WarpReduce(key, op, dtype, 8),
            BlockReduce(key, op, dtype, ("x",), scratch),
            GridReduce(key, op, dtype, partials, counter, BX, N, ZERO, TX, Const(64),
                       f"last_{key}", less(TX, 60)),
            If(Var(f"last_{key}"), (Store(x, TX, Ref(key, dtype)),)),
        ]  # fmt: skip
        params.append(TensorParam(counter, DataType.Int32, "workspace", ONE))
        params += [TensorParam(name, dtype, "inout", N) for name in (x, partials)]
        shared.append(SharedArray(scratch, dtype, 64))
    return _kernel(body, params, block=(64, 1, 1), shared=tuple(shared))


@pytest.mark.parametrize(
    ("op", "arch"),
    [*((op, "sm_90a") for op in REDUCED if op != "max"), *(("max", arch) for arch in REAL_ARCHS)],
)
def test_every_reduction_compiles(op, arch):
    cubin = compile_cubin(emit(_every_reduction(op)), "k", arch)
    assert cubin.log.warnings == ()
    assert cubin.log.spill_store_bytes == cubin.log.stack_bytes == 0


@pytest.mark.parametrize("index", ["i32", "i64"])
@pytest.mark.parametrize(
    ("block", "axes", "shuffles", "barriers"),
    [
        ((128, 1, 1), ("x",), 5, 2),
        ((64, 4, 1), ("x", "y"), 5, 2),
        ((32, 8, 1), ("y",), 0, 2),
        ((20, 3, 2), ("x", "z"), 0, 2),
        ((Var("n"), 1, 1), ("x",), 5, 2),
    ],
)
def test_block_reduction_uses_shuffles_where_rows_are_warps(block, axes, shuffles, barriers, index):
    body = (
        DeclareScalar("v", F32, Element("x", TX, F32)),
        BlockReduce("v", "sum", F32, axes, "s"),
        Store("y", TX, Ref("v", F32)),
    )
    kernel = _kernel(body, _tensors(F32), block=block, shared=(SharedArray("s", F32, 1024),),
                     index=index)  # fmt: skip
    sass = _sass(kernel)
    assert _count(r"SHFL\.BFLY", sass) == shuffles
    assert _count(r"BAR\.SYNC", sass) == barriers


@pytest.mark.parametrize("index", ["i32", "i64"])
def test_index_arithmetic_mixes_literals_and_variables(index):
    at = select(less(TX, 3), minimum(N, 7), maximum(3, TX % 5)) // 2 ^ 1
    body = (Let("at", at), Store("y", Var("at"), Element("x", minimum(Var("at"), TX), F32)))
    sass = _sass(_kernel(body, _tensors(F32), index=index))
    assert _count(r"\bSTG\.", sass) == 1


def test_grid_reduction_fences_around_its_ticket():
    body = (
        DeclareScalar("v", F32, Element("x", TX, F32)),
        GridReduce("v", "sum", F32, "p", "c", BX, N, ZERO, TX, Const(128), "last"),
        If(Var("last"), (Store("y", TX, Ref("v", F32)),)),
    )
    params = (
        *_tensors(F32),
        TensorParam("p", F32, "workspace", N),
        TensorParam("c", DataType.Int32, "workspace", ONE),
    )
    sass = _sass(_kernel(body, params))
    order = re.findall(r"MEMBAR\.SC\.GPU|MEMBAR\.ALL\.GPU|ATOMG\.E\.INC|CCTL\.IVALL", sass)
    ticket = next(i for i, name in enumerate(order) if name.startswith("ATOMG"))
    assert any(name.startswith("MEMBAR") for name in order[:ticket]), order
    assert any(name.startswith(("MEMBAR", "CCTL")) for name in order[ticket + 1 :]), order


@pytest.mark.parametrize("arch", REAL_ARCHS)
def test_a_kernel_of_all_other_statements(arch):
    """A tile through shared memory with guards, flags, choices and index values."""
    body = (
        Let("flat", BX * 128 + TX),
        Store("tile", TX, Element("x", Var("flat"), BF16, less(Var("flat"), N))),
        SyncThreads("the tile is complete"),
        Define("position", F32, Cast(FromIndex(Var("flat"), INT), F32)),
        DeclareScalar("v", F32, Cast(Element("tile", TX ^ 1, BF16), F32)),
        If(less(TX, N), (Assign("v", Literal(float("-inf"), F32)),),
           (Assign("v", Apply("mul", (Ref("v", F32), Ref("position", F32)), F32)),)),
        Store("y", Var("flat"), Cast(Ref("v", F32), BF16)),
    )  # fmt: skip
    kernel = _kernel(body, _tensors(BF16), shared=(SharedArray("tile", BF16, 128),))
    assert compile_cubin(emit(kernel), "k", arch).log.warnings == ()
