"""Reductions and shared memory among the threads of a warp role: its named barrier, no other."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from ring_kernels import mutant
from rings import interpret
from rings.cells import Cell, L
from role_fusions import FUSIONS, Options, kernel_of

from fuser import DataType
from fuser.api.execute import bind, program_of
from fuser.core.errors import ProtocolError, VerifyError
from fuser.core.expr import Const, Var, less
from fuser.core.thread_box import ThreadBox
from fuser.interp.checked import check_kernel
from fuser.interp.functional import allocate
from fuser.kir.core import walk_stmts
from fuser.kir.stmts import BlockReduce, If, NamedBarrier, SyncThreads
from fuser.kir.verify import verify_kernel

pytestmark = pytest.mark.protocol

COUNTS = {
    "0": lambda s: 0, "1": lambda s: 1, "S-1": lambda s: s - 1, "S": lambda s: s,
    "S+1": lambda s: s + 1, "3S+1": lambda s: 3 * s + 1,
}  # fmt: skip
KINDS = ("ws", "ws-regs")
SEEDS = range(4)


def check(name: str, o: Options, trips: int, seeds=range(2), shift: int = 0) -> None:
    """Both modes give the float64 reference exactly, and checked mode finds nothing.

    Inputs begin `shift` elements behind an aligned address.
    """
    fusion = FUSIONS[name]
    fd, inputs = fusion.build(o), [shifted(x, shift) for x in fusion.inputs(o, trips)]
    expected = fusion.reference(o, inputs[0].astype("f8"))
    (got,) = fd.manual_execute(inputs, backend="interpret")
    np.testing.assert_array_equal(got.astype("f8"), expected)
    if not trips:
        return  # nothing is launched
    for seed in seeds:
        got = checked(fd, inputs, seed=seed)
        np.testing.assert_array_equal(got.reshape(expected.shape).astype("f8"), expected)


def shifted(x: np.ndarray, elements: int) -> np.ndarray:
    """Return a copy of `x` that begins so many elements behind a multiple of 64 bytes."""
    raw = np.zeros(x.nbytes + 128, np.uint8)
    first = -raw.ctypes.data % 64 + elements * x.itemsize
    copy = raw[first : first + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


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


@pytest.mark.parametrize("columns", [36, 260, 704])
@pytest.mark.filterwarnings("ignore::fuser.core.errors.FallbackWarning")
def test_rows_that_the_engine_cannot_copy(columns):
    """They begin at no multiple of 16 bytes: the producer warp copies by its threads."""
    check("centred", Options(2, columns=columns), 5, shift=1)


@pytest.mark.parametrize("registers", [False, True], ids=KINDS)
@pytest.mark.parametrize("over", [(1,), (2,), (1, 2)], ids=str)
def test_threads_along_two_axes(over, registers):
    """Producers follow along y: rows of 16 threads, no whole warps."""
    check("planes", Options(3, registers, over=over), 7)


# ---- the kernels -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "box"), [
    ("centred", ThreadBox((0, 0, 0), (64, 1, 1), 1)),
    ("planes", ThreadBox((0, 0, 0), (16, 4, 1), 1)),
])  # fmt: skip
def test_reductions_are_over_the_threads_of_the_role(name, box):
    o = Options()
    kernel = kernel_of(FUSIONS[name].build(o), FUSIONS[name].inputs(o, 3))
    verify_kernel(kernel)
    boxes = {s.box for s in walk_stmts(kernel.body) if isinstance(s, BlockReduce)}
    assert boxes == {box}
    assert [s.name for s in kernel.shared if s.name.startswith("scratch")] == ["scratch_f32_role1"]


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
    (lambda s: replace(s, box=ThreadBox((0, 0, 0), (32, 1, 1), 1)),
     r"is over \(32, 1, 1\) threads from \(0, 0, 0\) on; the role has threads 0 to 63"),
    (lambda s: replace(s, box=ThreadBox((32, 0, 0), (64, 1, 1), 1)),
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
    box = ThreadBox((0, 0, 0), (threads, 1, 1), barrier)
    text = f"BlockReduce of v: {threads} threads meet at barrier {barrier}; needs whole warps of 32"
    with pytest.raises(VerifyError, match=re.escape(text)):
        BlockReduce("v", "sum", DataType.Float, ("x",), "s", box)


@pytest.mark.parametrize(("box", "block", "expected"), [
    (ThreadBox((32, 0, 0), (64, 1, 1), 1), (96, 1, 1), range(32, 96)),
    (ThreadBox((0, 4, 0), (16, 2, 1), 1), (16, 6, 1), range(64, 96)),
    (ThreadBox((0, 0, 2), (16, 2, 4), 1), (16, 2, 6), range(64, 192)),
    (ThreadBox((0, 0, 0), (16, 2, 1), 1), (32, 2, 1), None),
    (ThreadBox((0, 1, 0), (16, 2, 2), 1), (16, 3, 2), None),
])  # fmt: skip
def test_the_threads_of_a_box(box, block, expected):
    assert box.range(block) == expected


# ---- mutants -----------------------------------------------------------------------------------


def _box(**changes):
    return lambda s: (replace(s, box=replace(s.box, **changes)),)


def _apart(s):
    """Warps meet at barriers of their own."""
    other = replace(s, box=replace(s.box, barrier=3))
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
        "centred", BlockReduce, _box(first=(32, 0, 0)), r"64 threads from \(32, 0, 0\) on reduce"),
    "a barrier a warp": ("centred", BlockReduce, _apart, r"deadlock:(.|\n)*with 32 of 64 threads"),
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


@pytest.mark.parametrize("what", MUTANTS)
def test_mutants(what):
    """Every interleaving tried fails, and for the reason that there is."""
    name, wanted, change, text = MUTANTS[what]
    o = Options()
    fd, inputs = FUSIONS[name].build(o), FUSIONS[name].inputs(o, 4)
    kernel = kernel_of(fd, inputs)
    if isinstance(wanted, type):
        wrong = mutant(kernel, wanted, change)
    else:
        wrong = mutant(kernel, NamedBarrier, lambda s: change(s) if wanted(s) else (s,))
    assert wrong != kernel
    for seed in SEEDS:
        checked(fd, inputs, kernel, seed)
        with pytest.raises(ProtocolError, match=text):
            checked(fd, inputs, wrong, seed)
