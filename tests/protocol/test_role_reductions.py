"""Reductions and shared memory among the threads of a warp role: its named barrier, no other."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from ring_kernels import mutant
from rings import interpret
from rings.cells import Cell, L
from role_fusions import FUSIONS, GROUPED, Options, kernel_of

from fuser import DataType, FusionDefinition, MemoryType, ParallelType, WarpSpecialized
from fuser.api.execute import bind, program_of
from fuser.core.errors import FallbackWarning, ProtocolError, VerifyError
from fuser.core.expr import ZERO, Const, Var, less
from fuser.core.thread_box import ThreadBox
from fuser.interp.checked import check_kernel
from fuser.interp.functional import allocate
from fuser.kir.core import walk_stmts
from fuser.kir.stmts import BlockReduce, If, NamedBarrier, SyncThreads, SyncWarp
from fuser.kir.team_box import TeamBox
from fuser.kir.verify import verify_kernel
from fuser.protocol.mutants import mutants
from fuser.protocol.verdict import check as prove

pytestmark = pytest.mark.protocol

COUNTS = {
    "0": lambda s: 0, "1": lambda s: 1, "S-1": lambda s: s - 1, "S": lambda s: s,
    "S+1": lambda s: s + 1, "3S+1": lambda s: 3 * s + 1,
}  # fmt: skip
KINDS = ("ws", "ws-regs")
SEEDS = range(4)


def box(first, extents, barrier) -> TeamBox:
    x, y, z = map(Const, first)
    return TeamBox((x, y, z), extents, Const(barrier))


def check(name: str, o: Options, trips: int, seeds=range(1)) -> None:
    """Both modes give the float64 reference exactly, and checked mode finds nothing."""
    fusion = GROUPED if name == "grouped" else FUSIONS[name]
    fd, inputs = fusion.build(o), fusion.inputs(o, trips)
    expected = fusion.reference(o, inputs[0].astype("f8"))
    (got,) = fd.manual_execute(inputs, backend="interpret")
    np.testing.assert_array_equal(got.astype("f8"), expected)
    if not trips:
        return  # nothing is launched
    for seed in seeds:
        got = checked(fd, inputs, seed=seed)
        np.testing.assert_array_equal(got.reshape(expected.shape).astype("f8"), expected)


def checked(fd, inputs, kernel=None, seed=0) -> np.ndarray:
    """Run a kernel, or the definition's own, in checked mode on a poisoned output."""
    call = bind(fd, inputs, True)
    program = program_of(fd, call, True)
    (own,), (buffer,) = program.kernels, program.buffers
    flat, view = allocate(buffer, call.env)
    arrays = {name: view.numpy() for name, view in call.views.items()}
    arrays[buffer.name] = view if view.ndim else flat
    done = check_kernel(kernel or own, call.env, arrays, seed=seed)
    return np.asarray(done[buffer.name])


# ---- what is right -----------------------------------------------------------------------------


CELLS = [
    Cell("inner_persistent", (L.tma,), stages, stages - 1, kind, trips=trips, edge="whole",
         tile=256 if kind == "ws" else 512)
    for stages in (1, 2, 3, 4) for kind in KINDS for trips in COUNTS
    if trips != "S-1" or stages > 2  # else 0 and 1 again
]  # fmt: skip


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_rows_reduced_in_the_ring(cell):
    """The matrix's family; test_circular_buffer.py and the GPU run more of its cells."""
    assert cell.is_legal()
    interpret.check(cell)


@pytest.mark.parametrize("name", FUSIONS)
@pytest.mark.parametrize("registers", [False, True], ids=KINDS)
@pytest.mark.parametrize("trips", COUNTS)
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_trips(stages, trips, registers, name):
    check(name, Options(stages, registers), COUNTS[trips](stages), range(1))


@pytest.mark.parametrize("name", ["centred", "turned"])
@pytest.mark.parametrize(
    "dtype", [DataType.BFloat16, DataType.Half, DataType.Int8, DataType.Float8_e4m3fn],
    ids=lambda d: d.short,
)  # fmt: skip
def test_dtypes(dtype, name):
    columns = 704 if dtype.nbytes == 1 else 696
    check(name, Options(2, dtype=dtype, columns=columns), 5)


@pytest.mark.parametrize("registers", [False, True], ids=KINDS)
@pytest.mark.parametrize("columns", [4, 60, 64, 256, 260, 1000])
def test_ragged_rows(columns, registers):
    """Rows shorter than the threads, and boxes that overhang the row."""
    check("centred", Options(3, registers, columns=columns), 7)


@pytest.mark.parametrize("name", FUSIONS)
def test_rows_that_the_engine_cannot_copy(name):
    """An address that is no multiple of 16 bytes: the producer warp copies by its threads."""
    o = Options(2)
    fd, (aligned,) = FUSIONS[name].build(o), FUSIONS[name].inputs(o, 5)
    flat = np.empty(aligned.size + 8, aligned.dtype)
    first = (1 - flat.ctypes.data // 4) % 4
    x = flat[first : first + aligned.size].reshape(aligned.shape)
    x[...] = aligned
    assert x.ctypes.data % 16 == 4
    expected = FUSIONS[name].reference(o, x.astype("f8"))
    with pytest.warns(FallbackWarning):
        (got,) = fd.manual_execute([x], backend="interpret")
    np.testing.assert_array_equal(got.astype("f8"), expected)
    for seed in range(2):
        np.testing.assert_array_equal(checked(fd, [x], seed=seed).reshape(got.shape), expected)


@pytest.mark.parametrize("registers", [False, True], ids=KINDS)
@pytest.mark.parametrize("over", [(1,), (2,), (1, 2)], ids=str)
def test_threads_along_two_axes(over, registers):
    """Producers follow along y: rows of 16 threads, no whole warps."""
    check("planes", Options(3, registers, over=over), 7)


@pytest.mark.parametrize("registers", [False, True], ids=KINDS)
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 4, 5, 13])
@pytest.mark.parametrize("stages", [2, 4])
def test_consumer_groups(stages, trips, registers):
    """Each group has a barrier, a tile and scratch of its own; the last round may be short."""
    check("grouped", Options(stages, registers, columns=80), trips)


# ---- the kernels -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "expected"), [
    ("centred", box((0, 0, 0), (64, 1, 1), 1)),
    ("planes", box((0, 0, 0), (16, 4, 1), 1)),
])  # fmt: skip
def test_reductions_are_over_the_threads_of_the_role(name, expected):
    o = Options()
    kernel = kernel_of(FUSIONS[name].build(o), FUSIONS[name].inputs(o, 3))
    verify_kernel(kernel)
    boxes = {s.box for s in walk_stmts(kernel.body) if isinstance(s, BlockReduce)}
    assert boxes == {expected}
    assert [s.name for s in kernel.shared if s.name.startswith("scratch")] == ["scratch_f32"]


def test_a_tile_of_a_role_is_guarded_by_its_barrier():
    kernel = kernel_of(FUSIONS["turned"].build(Options()), FUSIONS["turned"].inputs(Options(), 3))
    found = [s for s in walk_stmts(kernel.body) if isinstance(s, NamedBarrier)]
    assert {(s.id, s.threads) for s in found} == {(Const(1), 64)}
    assert any("read by other threads" in s.why for s in found)
    assert any("still read" in s.why for s in found)
    blocks = [s.why for s in walk_stmts(kernel.body) if isinstance(s, SyncThreads)]
    assert len(blocks) == 2, blocks  # behind the init and before the inval


@pytest.mark.parametrize(("change", "text"), [
    (lambda s: replace(s, box=None), r"consumer of x_cache: BlockReduce waits for all threads"),
    (lambda s: replace(s, box=box((0, 0, 0), (32, 1, 1), 1)),
     r"is over \(32, 1, 1\) threads from \(0, 0, 0\) on; the role has threads 0 to 63"),
    (lambda s: replace(s, box=box((32, 0, 0), (64, 1, 1), 1)),
     r"is over \(64, 1, 1\) threads from \(32, 0, 0\) on; the role has threads 0 to 63"),
    (lambda s: SyncThreads("all"), r"consumer of x_cache: SyncThreads waits for all threads"),
])  # fmt: skip
def test_what_no_role_may_wait_for(change, text):
    o = Options()
    kernel = kernel_of(FUSIONS["centred"].build(o), FUSIONS["centred"].inputs(o, 3))
    with pytest.raises(VerifyError, match=text):
        verify_kernel(mutant(kernel, BlockReduce, lambda s: (change(s),)))


@pytest.mark.parametrize(("barrier", "threads"), [(0, 64), (16, 64), (1, 40)])
def test_boxes_are_whole_warps_at_a_barrier_of_their_own(barrier, threads):
    text = f"BlockReduce of v: {threads} threads meet at barrier {barrier}; needs whole warps of 32"
    with pytest.raises(VerifyError, match=re.escape(text)):
        BlockReduce(
            "v", "sum", DataType.Float, ("x",), "s", box((0, 0, 0), (threads, 1, 1), barrier)
        )


@pytest.mark.parametrize(("threads", "block", "expected"), [
    (ThreadBox((32, 0, 0), (64, 1, 1), 1), (96, 1, 1), range(32, 96)),
    (ThreadBox((0, 4, 0), (16, 2, 1), 1), (16, 6, 1), range(64, 96)),
    (ThreadBox((0, 0, 2), (16, 2, 4), 1), (16, 2, 6), range(64, 192)),
    (ThreadBox((0, 0, 0), (16, 2, 1), 1), (32, 2, 1), None),
    (ThreadBox((0, 1, 0), (16, 2, 2), 1), (16, 3, 2), None),
])  # fmt: skip
def test_the_threads_of_a_box(threads, block, expected):
    assert threads.range(block) == expected


# ---- mutants -----------------------------------------------------------------------------------


def _box(**changes):
    return lambda s: (replace(s, box=replace(s.box, **changes)),)


def _apart(s):
    """Warps meet at barriers of their own."""
    other = replace(s, box=replace(s.box, barrier=Const(3)))
    return (If(less(Var("thread"), 32), (s,), (other,)),)


MUTANTS = {
    "the block's barrier": (
        "centred", BlockReduce, lambda s: (replace(s, box=None),),
        r"deadlock|meets another barrier"),
    "too many threads": (
        "centred", BlockReduce, _box(extents=(96, 1, 1)),
        r"deadlock:(.|\n)*bar.sync 1 \(the (exchange|end) of a block reduction\) with 64 of 96"),
    "too few threads": (
        "centred", BlockReduce, _box(extents=(32, 1, 1)),
        r"32 threads from \(0, 0, 0\) on reduce, and .* thread \(\d+, 0, 0\) is none of them"),
    "threads of another role": (
        "centred", BlockReduce, _box(first=(Const(32), ZERO, ZERO)),
        r"64 threads from \(32, 0, 0\) on reduce"),
    "a barrier a warp": ("centred", BlockReduce, _apart, r"deadlock:(.|\n)*with 32 of 64 threads"),
    "warps that count differently": (
        "turned", lambda s: "is read by" in s.why,
        lambda s: (If(less(Var("thread"), 32), (s,), (replace(s, threads=96),)),),
        r"bar.sync 1 \(.*\) of (64|96) threads meets one of (64|96); all must name the same"),
    "one warp of two": (
        "planes", BlockReduce, lambda s: (If(less(Var("thread"), 32), (s,)),),
        r"deadlock:(.|\n)*bar.sync 1 .* with 32 of 64 threads"),
    "no barrier behind the writes": (
        "turned", lambda s: "is read by" in s.why, lambda s: (),
        r"race on twice_cache|before it is"),
    "no barrier behind the reads": (
        "turned", lambda s: "still read" in s.why, lambda s: (), r"race on twice_cache"),
    "a barrier of the block": (
        "turned", lambda s: "is read by" in s.why, lambda s: (SyncThreads(s.why),),
        r"deadlock|meets another barrier"),
    "a barrier of too many": (
        "turned", lambda s: "is read by" in s.why, lambda s: (replace(s, threads=96),),
        r"deadlock:(.|\n)*bar.sync 1 .* with 64 of 96 threads"),
    "a barrier of one warp": (
        "turned", lambda s: "is read by" in s.why, lambda s: (replace(s, threads=32),),
        r"race on twice_cache|before it is|64 threads arrive at"),
}  # fmt: skip


def mutated(kernel, wanted, change):
    """Change the reductions, or the barriers of threads that `wanted` picks."""
    if isinstance(wanted, type):
        return mutant(kernel, wanted, change)
    wrong = mutant(kernel, NamedBarrier, lambda s: change(s) if wanted(s) else (s,))
    assert wrong != kernel
    return wrong


@pytest.mark.parametrize("what", MUTANTS)
def test_mutants(what):
    """Every interleaving tried fails, and for the reason that there is."""
    name, wanted, change, text = MUTANTS[what]
    o = Options()
    fd, inputs = FUSIONS[name].build(o), FUSIONS[name].inputs(o, 4)
    kernel = kernel_of(fd, inputs)
    wrong = mutated(kernel, wanted, change)
    for seed in SEEDS:
        checked(fd, inputs, kernel, seed)
        with pytest.raises(ProtocolError, match=text):
            checked(fd, inputs, wrong, seed)


# ---- the protocol checker ----------------------------------------------------------------------

PROVABLE = Options(2, columns=256)
PROTOCOL = {
    "the block's barrier": "deadlock", "too many threads": "deadlock", "too few threads": "sync",
    "a barrier a warp": "deadlock", "one warp of two": "deadlock",
    "a barrier of the block": "deadlock", "a barrier of too many": "deadlock",
    "a barrier of one warp": "sync", "warps that count differently": "sync",
}  # fmt: skip


@pytest.mark.parametrize("name", FUSIONS)
def test_the_protocol_is_proved(name):
    kernel = kernel_of(FUSIONS[name].build(PROVABLE), FUSIONS[name].inputs(PROVABLE, 3))
    verdict = prove(kernel)
    assert (verdict.reach, verdict.note) == ("proved", "")
    assert verdict.states > 10


@pytest.mark.parametrize("what", PROTOCOL)
def test_the_protocol_finds(what):
    name, wanted, change, _ = MUTANTS[what]
    kernel = kernel_of(FUSIONS[name].build(PROVABLE), FUSIONS[name].inputs(PROVABLE, 3))
    verdict = prove(mutated(kernel, wanted, change))
    assert verdict.reach == "wrong", verdict.note
    assert verdict.fault.kind == PROTOCOL[what], verdict.fault
    assert verdict.trips == (1,)


@pytest.mark.parametrize("name", FUSIONS)
def test_every_mutant_of_the_protocol_is_wrong(name):
    kernel = kernel_of(FUSIONS[name].build(PROVABLE), FUSIONS[name].inputs(PROVABLE, 3))
    made = mutants(kernel)
    added = {"turned": "threads changed"}.get(name, "reduction of the block")
    assert added in {m.kind for m in made}
    for wrong in made:
        if name == "turned" and wrong.kind == "convergence dropped":
            continue  # see below
        assert prove(wrong.kernel).reach == "wrong", (wrong.kind, wrong.where)


def test_a_barrier_of_the_role_hands_stages_over():
    """Where one lies between the reads and the release, no lane of a warp can be behind."""
    kernel = kernel_of(FUSIONS["turned"].build(PROVABLE), FUSIONS["turned"].inputs(PROVABLE, 3))
    alone = mutant(kernel, SyncWarp, lambda s: ())
    assert prove(alone).reach == "proved"
    neither = mutant(alone, NamedBarrier, lambda s: () if "is read by" in s.why else (s,))
    assert prove(neither).fault.kind in ("WAR", "RAW")


def test_groups_meet_at_their_own_barriers():
    o = Options(2, columns=80)
    kernel = kernel_of(GROUPED.build(o), GROUPED.inputs(o, 3))
    verify_kernel(kernel)
    found = [s for s in walk_stmts(kernel.body) if isinstance(s, NamedBarrier)]
    assert {(s.id, s.threads) for s in found} == {(Var("ty") + 3, 32)}
    (reduce,) = (s for s in walk_stmts(kernel.body) if isinstance(s, BlockReduce))
    assert reduce.box == TeamBox((ZERO, Var("ty"), ZERO), (32, 1, 1), Var("ty") + 3)
    assert reduce.scratch_at == Var("ty") * 32
    assert prove(kernel).reach == "proved"


SHARED = {
    "scratch": lambda s: (replace(s, scratch_at=ZERO),),
    "barrier": _box(barrier=Const(3)),
}


@pytest.mark.parametrize("what", SHARED)
def test_groups_that_share_what_is_their_own(what):
    """Of several warps: a group of one meets at any barrier."""
    o = Options(2, registers=True, columns=80)
    fd, inputs = GROUPED.build(o), GROUPED.inputs(o, 8)
    wrong = mutant(kernel_of(fd, inputs), BlockReduce, SHARED[what])
    found = list[str]()
    for seed in range(8):
        try:
            checked(fd, inputs, wrong, seed)
        except ProtocolError as error:
            found.append(str(error))
    assert found
    assert all(re.search(r"scratch_f32\[|bar.sync 3", text) for text in found), found


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_a_reduction_across_groups_meets_at_the_barrier_of_the_role(rows):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 2, 64], contiguity=True)
        s = fd.ops.sum(x, [1, 2])
        fd.add_output(s)
    cache = x.cache_after(L.tma)
    cache.set_memory_type(MemoryType.shared)
    s.split(2, 32)
    for t in (s, cache):
        t.axis(1).parallelize(ParallelType.block_y)
    s.axis(3).parallelize(ParallelType.block_x)
    cache.axis(2).parallelize(ParallelType.tma)
    cache.inline_at(s, 2)
    cache.circular_buffer(2, None, WarpSpecialized(ParallelType.block_y, None, 2))
    inputs = [np.random.default_rng(0).integers(-9, 10, (rows, 2, 64)).astype("f4")]
    kernel = kernel_of(fd, inputs)
    verify_kernel(kernel)
    (reduce,) = (s for s in walk_stmts(kernel.body) if isinstance(s, BlockReduce))
    assert reduce.box == box((0, 0, 0), (32, 2, 1), 1)
    assert prove(kernel).reach == "proved"
    for seed in range(3):
        got = checked(fd, inputs, seed=seed)
        np.testing.assert_array_equal(got, inputs[0].astype("f8").sum((1, 2)))
