"""Statements of pipelines compile for sm_90a; the SASS holds the instructions they stand for."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from machine_code import MachineCode
from ring_kernels import Ring, mutant
from rings import matrix
from rings.cells import Cell, L, definition

from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.core.dtypes import DataType
from fuser.core.expr import ONE, ZERO, Const, Expr, Var, equal
from fuser.kir.core import BarrierArray, Kernel, SharedArray, Stmt, TensorMapParam, TensorParam
from fuser.kir.scalar import Element, Literal
from fuser.kir.stmts import (
    BulkWait,
    CpAsync,
    CpAsyncCommit,
    CpAsyncWait,
    DeclareRegisters,
    If,
    MbarrierArriveToken,
    MbarrierInit,
    MbarrierInitFence,
    MbarrierWait,
    MbarrierWaitToken,
    Role,
    Roles,
    SetMaxRegisters,
    Store,
    SyncThreads,
    SyncWarp,
    TensorLoad,
    TensorStore,
)
from fuser.runtime.nvrtc import compile_cubin
from fuser.runtime.sass import disassemble

pytestmark = pytest.mark.nvrtc

F32 = DataType.Float
THREAD = Var("thread")


def _sass(kernel: Kernel) -> str:
    cubin = compile_cubin(emit(kernel), kernel.name, "sm_90a", on_spill="raise")
    assert cubin.log.warnings == ()
    return disassemble(cubin.image)


def _count(pattern: str, sass: str) -> int:
    return len(re.findall(pattern, sass))


INSTRUCTION = {"bulk": r"UBLKCP(?!\.)|UBLKCP\.S\.G", "tensor": r"UTMALDG\.2D",
               "cp.async": r"LDGSTS", "set": r"STS"}  # fmt: skip


LOADS = [*((k,) for k in INSTRUCTION), ("bulk", "cp.async"), ("tensor", "set")]
KINDS = {
    "pipelined-mbarrier": (False, "mbarrier"),
    "pipelined-barrier": (False, "barrier"),
    "roles": (True, "mbarrier"),  # no block barrier between roles
}
RINGS = MachineCode(
    [Ring(3, loads, roles=roles, war=war) for roles, war in KINDS.values() for loads in LOADS],
    Ring.kernel,
)


@pytest.mark.parametrize("loads", LOADS, ids="+".join)
@pytest.mark.parametrize(("roles", "war"), KINDS.values(), ids=KINDS)
def test_rings(loads, roles, war):
    sass = RINGS[Ring(3, loads, roles=roles, war=war)]
    for kind in loads:
        assert _count(INSTRUCTION[kind], sass) >= 1, kind
    assert _count(r"SYNCS\.PHASECHK\.TRANS64\.TRYWAIT", sass) >= 1
    assert _count(r"SYNCS\.EXCH\.64", sass) >= 1, "mbarrier.init"
    assert _count(r"\b(LDL|STL)\b", sass) == 0


@pytest.mark.parametrize("store", ["bulk", "tensor"])
@pytest.mark.parametrize("roles", [False, True], ids=["pipelined", "roles"])
def test_stores(store, roles):
    sass = _sass(Ring(2, store=store, roles=roles).kernel())
    assert _count({"bulk": r"UBLKCP", "tensor": r"UTMASTG\.2D"}[store], sass) >= 1
    assert _count(r"UTMACMDFLUSH", sass) >= 1, "commit_group"
    assert _count(r"DEPBAR", sass) >= 1, "wait_group"
    assert _count(r"FENCE\.VIEW\.ASYNC", sass) >= 1


STORED = [
    cell
    for base in matrix.STORES
    for kind in ("parity-mbarrier", "ws", "ws-regs")
    if (cell := replace(base, type=kind, tile=1024, edge="whole")).is_legal()
]


def _scheduled(cell: Cell) -> Kernel:
    fd = definition(cell)
    (only,) = program_of(fd, bind(fd, cell.inputs(), True), True).kernels
    return only


SCHEDULED = MachineCode(STORED, _scheduled)


@pytest.mark.parametrize("cell", STORED, ids=str)
def test_schedules_with_stores(cell):
    sass = SCHEDULED[cell]
    assert _count(r"UBLKCP" if cell.loads == (L.bulk,) else r"UTMASTG\.[12]D", sass) >= 1
    assert _count(r"UTMACMDFLUSH", sass) >= 1, "commit_group"
    assert _count(r"DEPBAR", sass) >= 1, "wait_group"
    assert _count(r"FENCE\.VIEW\.ASYNC", sass) >= (cell.family != "copy")


def test_tokens_stay_in_registers_when_the_stage_is_constant():
    assert _count(r"\b(LDL|STL)\b", _sass(Ring(1, sync="token").kernel())) == 0


def _loops(sass: str) -> int:
    """Count conditional branches back to an earlier label."""
    seen, loops = set(), 0
    for line in sass.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line.strip()):
            seen.add(label[1])
        jump = re.search(r"@\S+ +BRA\b.*`\((\.L_x_\d+)\)", line)
        loops += bool(jump and jump[1] in seen)
    return loops


@pytest.mark.parametrize("token", [False, True], ids=["parity", "token"])
def test_a_wait_is_one_spin_loop(token):
    """A first try, and a loop that ptxas may test once in line and spin out of line."""
    wait: tuple[Stmt, ...] = (MbarrierWait("full", ZERO, ZERO, "the tile is full"),)
    if token:
        wait = (
            DeclareRegisters("tokens", DataType.Int, 1),
            MbarrierArriveToken("tokens", ZERO, "full", ZERO),
            MbarrierWaitToken("full", ZERO, "tokens", ZERO, "the tile is full"),
        )
    init = If(equal(THREAD, 0), (MbarrierInit("full", ZERO, Const(128)), MbarrierInitFence()))
    store = Store("y", THREAD, Literal(1.0, F32))
    kernel = Kernel(
        "k", (TensorParam("y", F32, "out", Const(128)),), (), (ONE, ONE, ONE),
        (Const(128), ONE, ONE), "i32", (init, SyncThreads("it exists"), *wait, store),
        barriers=(BarrierArray("full", 1),),
    )  # fmt: skip
    with_wait, without = (_sass(k) for k in (kernel, replace(kernel, body=kernel.body[:2])))
    assert 2 <= _count(r"SYNCS\.PHASECHK\.TRANS64\.TRYWAIT", with_wait) <= 3
    assert _loops(with_wait) - _loops(without) == 1


def _copying(rank: int) -> Kernel:
    dims: tuple[Expr, ...] = (Const(32), *(Const(4),) * (rank - 1))
    strides = tuple(Const(128 * 4**i) for i in range(rank - 1))
    box = (32, *(1,) * (rank - 1))
    maps = [TensorMapParam(f"{n}_map", n, F32, dims, strides, box) for n in ("x", "y")]
    coords = (ZERO, *(Var("bx"),) * (rank - 1))
    tensors = (TensorParam("x", F32, "in", Const(8192)), TensorParam("y", F32, "out", Const(8192)))
    return Kernel(
        "k", (*tensors, *maps), (SharedArray("t", F32, 32, 128),), (ONE, ONE, ONE),
        (Const(32), ONE, ONE), "i32",
        (TensorLoad("t", ZERO, "x_map", coords, "full", ZERO),
         TensorStore("y_map", coords, "t", ZERO), BulkWait(0)),
        barriers=(BarrierArray("full", 1),),
    )  # fmt: skip


COPYING = MachineCode(range(1, 6), _copying)


@pytest.mark.parametrize("rank", COPYING.items)
def test_tensor_copies_of_every_rank(rank):
    sass = COPYING[rank]
    assert _count(rf"UTMALDG\.{rank}D", sass) == 1
    assert _count(rf"UTMASTG\.{rank}D", sass) == 1


def test_registers_change_hands():
    ring = Ring(2, roles=True, consumers=256, tile=256)
    kernel = ring.kernel()
    wider = {"consumer": (256, 232, True), "producer": (128, 40, False)}

    def change(stmt):
        roles = []
        for role in stmt.roles:
            threads, count, increase = wider[role.name]
            body = (SetMaxRegisters(count, increase), *role.body)
            roles.append(Role(role.name, role.first_thread, threads, body))
        return (Roles(tuple(roles)),)

    kernel = mutant(replace(kernel, block=(Const(384), ONE, ONE)), Roles, change)
    kernel = mutant(kernel, MbarrierWait, lambda s: (s, SyncWarp("all lanes")), barrier="full")
    source = emit(kernel)
    assert "const int role_thread = __shfl_sync(~0u, thread, 0);" in source
    assert re.search(r"if \(role_thread < 256\) \{  // consumer\n", source)
    assert re.search(r"\} else if \(role_thread >= 256 && role_thread < 384\) \{  // prod", source)
    cubin = compile_cubin(source, kernel.name, "sm_90a", on_spill="raise")
    assert "C7508" not in str(cubin.log)
    sass = disassemble(cubin.image)
    assert _count(r"USETMAXREG\.DEALLOC\.CTAPOOL 0x28", sass) == 1
    assert _count(r"USETMAXREG\.TRY_ALLOC\.CTAPOOL \w+, 0xe8|USETMAXREG.*0xe8", sass) >= 1


@pytest.mark.parametrize(("width", "text"), [(1, "LDGSTS.E "), (2, "LDGSTS.E.64 "),
                                             (4, "LDGSTS.E.BYPASS.128 ")])  # fmt: skip
def test_cp_async_of_every_size(width, text):
    tensors = (TensorParam("x", F32, "in", Const(512)), TensorParam("y", F32, "out", Const(512)))
    kernel = Kernel(
        "k", tensors, (SharedArray("t", F32, 128 * width),), (ONE, ONE, ONE),
        (Const(128), ONE, ONE), "i32",
        (CpAsync("t", THREAD * width, "x", THREAD * width, width, F32), CpAsyncCommit(),
         CpAsyncWait(0), SyncThreads("the tile is complete"),
         Store("y", THREAD, Element("t", Const(127) - THREAD, F32))),
    )  # fmt: skip
    sass = _sass(kernel)
    assert text in sass
    assert _count(r"LDGDEPBAR", sass) == 1


def test_large_shared_memory_is_carved_from_what_the_launch_gives():
    ring = Ring(3, ("tensor",), consumers=128, tile=128)
    kernel = ring.kernel()
    big = (SharedArray("pad", F32, 12345), *kernel.shared, SharedArray("swz", F32, 8, 1024))
    kernel = replace(kernel, shared=big)
    offsets = kernel.shared_offsets()
    assert offsets == {"pad": 0, "t0": 49408, "swz": 51200, "full": 51232, "empty": 51256}
    assert kernel.dynamic_shared_bytes == 51280
    source = emit(kernel)
    assert "  extern __shared__ __align__(1024) u8 smem_raw[];\n" in source
    assert "  float* const t0 = reinterpret_cast<float*>(smem_raw + 49408);\n" in source
    assert "  u64* const full = reinterpret_cast<u64*>(smem_raw + 51232);\n" in source
    cubin = compile_cubin(source, "ring", "sm_90a")
    assert cubin.log.shared_bytes == 0, "nothing is static"
    assert _count(r"UTMALDG\.2D", disassemble(cubin.image)) >= 1
    small = ring.kernel()
    assert small.dynamic_shared_bytes == 0
    assert "  __shared__ u64 full[3];\n" in emit(small)


def test_thread_is_the_linear_index():
    kernel = Ring(1).kernel()
    assert "  const idx thread = tx;\n" in emit(kernel)
    source = emit(replace(kernel, block=(Const(8), Const(4), Const(2))))
    assert "  const idx thread = tx + block_x * (ty + block_y * tz);\n" in source
    compile_cubin(source, "ring", "sm_90a")
