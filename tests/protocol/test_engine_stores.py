"""Stores by the copy engine: right on the interpreter, proved, and every mistake in them found."""

import re
from dataclasses import replace

import engine_stores as made
import numpy as np
import pytest
from manual_schedules import run_checked

from fuser import FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.core.errors import FallbackWarning, ProtocolError
from fuser.core.expr import Var, less
from fuser.interp.checked import check_kernel
from fuser.interp.functional import allocate
from fuser.kir.core import walk_stmts
from fuser.kir.stmts import (
    BulkCommit,
    BulkStore,
    BulkWaitRead,
    FenceProxyAsync,
    If,
    SyncThreads,
    TensorStore,
)
from fuser.protocol.mutants import mutants, variants
from fuser.protocol.story import tell
from fuser.protocol.verdict import check
from fuser.schedule.circular import Pipelined, WarpSpecialized

pytestmark = [
    pytest.mark.protocol,
    pytest.mark.filterwarnings("ignore::fuser.core.errors.FallbackWarning"),
]

L, P = LoadStoreOpType, ParallelType
TILE = made.TILE
SIZES = [1, 100, TILE, TILE + 4, 3 * TILE, 5 * TILE - 1, 8 * TILE]
BARRIER = Pipelined(war="barrier")
PROVED = {
    "alone": lambda: made.stream(1, 0),
    "alone, stages": lambda: made.stream(3, 0),
    "in a ring": lambda: made.stream(1, 2),
    "in a ring, stages": lambda: made.stream(2, 3),
    "in a ring by bulk": lambda: made.stream(2, 2, BARRIER, L.bulk),
    "by consumers": lambda: made.stream(2, 2, WarpSpecialized()),
    "two outputs": lambda: made.two_outputs(2),
    "rows": lambda: made.rows(2, Pipelined(war="mbarrier")),
    "rows by consumers": lambda: made.rows(2, WarpSpecialized()),
    "copy": made.copy,
    "copy, barrier": lambda: made.copy(BARRIER, 3),
    "copy by bulk": lambda: made.copy(load=L.bulk),
    "copy without a ring": lambda: made.copy(ring=0),
    "copy and map": lambda: made.copy_and_map(Pipelined(war="mbarrier"), 2),
    "copy and map by consumers": lambda: made.copy_and_map(WarpSpecialized(), 2),
}


def kernel(fd, n=4 * TILE):
    inputs = [np.zeros(v.shape and (n,) * len(v.shape), "f4") for v in fd.hand.graph.inputs]
    (only,) = program_of(fd, bind(fd, inputs, True), True).kernels
    return only


def runs(fd, x, seeds=1):
    """Yield the outputs of functional and of checked execution."""
    yield [np.asarray(out) for out in fd.manual_execute([x], backend="interpret")]
    call = bind(fd, [x], True)
    program = program_of(fd, call, True)
    (only,) = program.kernels
    for seed in range(seeds):
        memory = {name: view.numpy() for name, view in call.views.items()}
        for buffer in program.buffers:
            flat, view = allocate(buffer, call.env)
            memory[buffer.name] = view if view.ndim else flat
        done = check_kernel(only, call.env, memory, seed=seed)
        yield [np.asarray(done[buffer.name]).reshape(x.shape) for buffer in program.buffers]


def numbers(*shape):
    return np.random.default_rng(sum(shape)).integers(-40, 41, shape).astype("f4")


# ---- results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("ring", [0, 2])
@pytest.mark.parametrize("stages", [1, 2])
def test_two_outputs(stages, ring, n):
    """In one loop and in two: groups of a thread end in order, whatever they store."""
    x = numbers(n)
    for y, z in runs(made.two_outputs(stages, ring), x):
        np.testing.assert_array_equal(y, x.astype("f8") * 2)
        np.testing.assert_array_equal(z, x.astype("f8") + 1)


@pytest.mark.parametrize("kind", [Pipelined(war="mbarrier"), BARRIER, WarpSpecialized()], ids=str)
@pytest.mark.parametrize("shape", [(1, 256), (3, 256), (5, 700), (2, 1021), (4, 1024)])
@pytest.mark.parametrize("stages", [2, 3])
def test_stages_go_on_across_rows(stages, shape, kind):
    """With one tile a row, a stage counted in the inner loop would always be the same."""
    x = numbers(*shape)
    for (y,) in runs(made.rows(stages, kind), x):
        np.testing.assert_array_equal(y, x.astype("f8") * 2)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", [Pipelined(war="mbarrier"), BARRIER, WarpSpecialized()], ids=str)
def test_threads_read_the_stage_that_is_stored_out_of(kind, n):
    x = numbers(n)
    for y, z in runs(made.copy_and_map(kind), x):
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(z, x.astype("f8") * 2)


@pytest.mark.parametrize("wider", [False, True])
@pytest.mark.parametrize(
    ("n", "whole"), [(96, False), (92, False), (90, False), (96, True), (92, True)]
)
@pytest.mark.parametrize("load", [L.tma, L.bulk], ids=lambda load: load.name)
def test_boxes_dealt_out_to_blocks(load, n, whole, wider):
    """Each block stores its own box; all have the `whole` tile, or their part; some have none."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[n if whole else -1], contiguity=True)
        y = x + 1.0
        fd.add_output(y)
        if wider:
            z = fd.define_tensor(shape=[-1], contiguity=True) * 2.0
            fd.add_output(z)
            z.axis(0).parallelize(P.grid_x)
    tile = y.cache_before(load)
    tile.set_memory_type(MemoryType.shared)
    for t in (y, tile):
        t.split(0, 32)
    for t in (y,) if whole else (y, tile):
        t.axis(0).parallelize(P.grid_x)
    y.axis(1).parallelize(P.tma)
    tile.axis(1).parallelize(P.block_x)
    values = [numbers(n)] * (1 + wider)
    outputs = fd.manual_execute(values, backend="interpret"), run_checked(fd, values, 0)
    for got, *_ in outputs:
        np.testing.assert_array_equal(got, values[0] + 1)


@pytest.mark.parametrize("n", SIZES)
def test_a_copy_without_a_ring(n):
    x = numbers(n)
    for (y,) in runs(made.copy(ring=0), x):
        np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("n", SIZES)
def test_a_tile_is_stored_and_read_by_other_threads(n):
    x = numbers(n)
    for y, z in runs(made.read_again(), x):
        np.testing.assert_array_equal(y, x.astype("f8") * 2)
        np.testing.assert_array_equal(z, x.astype("f8") * 2 + 1)
    assert len(statements(made.read_again(), SyncThreads)) == 2


# ---- what is generated -------------------------------------------------------------------------


def statements(fd, kind, n=4 * TILE):
    return [s for s in walk_stmts(kernel(fd, n).body) if isinstance(s, kind)]


def test_two_outputs_share_fence_barrier_and_group():
    fd = made.two_outputs()
    loops = 2  # main and epilogue
    assert len(statements(fd, TensorStore)) == 2 * loops
    assert len(statements(fd, BulkCommit)) == len(statements(fd, FenceProxyAsync)) == loops
    assert [s.pending for s in statements(fd, BulkWaitRead)] == [1, 1, 0]


@pytest.mark.parametrize(
    ("store", "n", "reason"),
    [
        (L.tma, 1021, "the last dimension of y is x_size0 * 4 bytes"),
        (L.bulk, 1021, "the length of a box of y is not always a multiple of 16 bytes"),
    ],
)
def test_threads_store_what_the_engine_cannot_and_the_header_says_why(store, n, reason):
    """The engine writes whole 16 bytes: what lies behind the output would be overwritten."""
    fd = made.stream(2, 2, Pipelined(war="mbarrier"), store)
    only = kernel(fd, n)
    assert any(f"y: stored by threads, not TMA: {reason}" in line for line in only.header)
    with pytest.warns(FallbackWarning, match="y: threads store it, element by element"):
        fd.manual_execute([np.ones(n, "f4")], backend="interpret")
    engine = (TensorStore, BulkStore, BulkCommit, BulkWaitRead, FenceProxyAsync)
    assert not any(isinstance(s, engine) for s in walk_stmts(only.body))
    assert not any("stored by threads" in line for line in kernel(fd, 1024).header)


@pytest.mark.parametrize(("rows", "engine"), [(2**28, True), (2**31, False)])
def test_rows_beyond_the_reach_of_coordinates_are_stored_by_threads(rows, engine):
    """The output has more than 2^31 elements in both cases; only a dimension of them matters."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 16], contiguity=[None, True])
        y = x * 2.0
        fd.add_output(y)
    tile = made.tile_of(y)
    y.split(0, 16)
    for axis in (1, 2):
        y.axis(axis).parallelize(made.P.tma)
    tile.split(0, 16)
    tile.axis(2).parallelize(made.P.block_x)
    tile.inline_at(y, 1)
    wide = np.broadcast_to(np.zeros(16, "f4"), (rows, 16))
    (only,) = program_of(fd, bind(fd, [wide], True), True).kernels
    assert any(isinstance(s, TensorStore) for s in walk_stmts(only.body)) is engine


def test_a_tile_that_threads_load_is_stored_by_threads():
    only = kernel(made.copy(load=L.bulk), 1021)
    assert any("y: stored by threads, not TMA: x_cache is filled by threads" in line
               for line in only.header)  # fmt: skip


# ---- mistakes ----------------------------------------------------------------------------------

STORE_KINDS = {"store wait dropped", "commit dropped", "proxy fence dropped", "groups changed"}
REDUNDANT = {
    "acquire dropped", "convergence dropped", "barrier dropped", "wait moved behind the use",
}  # fmt: skip
"""Right where the barriers around a tile say what an mbarrier says too, or one thread is alone."""


@pytest.mark.parametrize("name", PROVED)
def test_kernels_are_proved_for_every_trip_count(name):
    verdict = check(kernel(PROVED[name]()))
    assert (verdict.reach, verdict.note) == ("proved", "")
    assert verdict.rings


@pytest.mark.parametrize("name", PROVED)
def test_mutants_of_stores_are_wrong_by_proof(name):
    original = kernel(PROVED[name]())
    kinds = {}
    for mutant in mutants(original):
        if mutant.kind not in STORE_KINDS and "Store" not in mutant.where:
            continue
        verdict = check(mutant.kernel)
        assert verdict.reach == "wrong", (mutant.kind, mutant.where, verdict.note)
        assert verdict.trips
        kinds.setdefault(mutant.kind, set()).add(verdict.fault.kind)
        assert tell(verdict.model, verdict.fault)
    in_ring = name.startswith("copy")
    assert kinds.keys() >= (STORE_KINDS - {"proxy fence dropped"} if in_ring else STORE_KINDS)
    assert kinds["store wait dropped"] <= {"WAR", "exit"}
    assert in_ring or kinds["proxy fence dropped"] == {"fence"}


@pytest.mark.parametrize("name", ["alone", "alone, stages", "by consumers"])
def test_all_other_mutants_are_wrong_too_or_redundant(name):
    for mutant in mutants(kernel(PROVED[name]())):
        verdict = check(mutant.kernel)
        redundant = mutant.kind in REDUNDANT and name == "by consumers"
        assert verdict.reach == "wrong" or redundant, (mutant.kind, mutant.where)


def complaint(mutant, x, seeds=range(8)):
    """Return what checked execution says of a kernel of `stream`, under one of few seeds."""
    for seed in seeds:
        try:
            memory = {"x": x, "y": np.zeros_like(x)}
            check_kernel(mutant, {"x_size0": x.size}, memory, seed=seed)
        except ProtocolError as error:
            return str(error)
    return ""


def without(original, kind, nth):
    """Return a kernel without its nth statement of a kind."""

    def drop(body, at):
        if isinstance(body[at], kind):
            yield "dropped", (*body[:at], *body[at + 1 :])

    return replace(original, body=[body for _, _, body in variants(original.body, drop)][nth])


@pytest.mark.parametrize(
    ("kind", "nth", "text"),
    [
        (FenceProxyAsync, 0, r"a FenceProxyAsync of that thread is missing"),
        (SyncThreads, 1, r"race on y_cache|need not see"),
        (SyncThreads, 0, r"race on y_cache"),
        (BulkWaitRead, 0, r"race on y_cache"),
        (BulkWaitRead, 1, r"ends with TensorStore"),
        (BulkCommit, 0, r"race on y_cache|ends with TensorStore"),
    ],
    ids=["fence", "barrier before the store", "barrier before the refill",
         "wait before the refill", "wait before the exit", "commit"],
)  # fmt: skip
@pytest.mark.parametrize("stages", [1, 2])
def test_checked_execution_finds_what_is_missing(kind, nth, text, stages):
    original = kernel(made.stream(stages, 0))
    x = np.ones(5 * TILE, "f4")
    assert complaint(original, x) == ""
    assert re.search(text, complaint(without(original, kind, nth), x))


@pytest.mark.parametrize(
    ("cond", "text", "story"),
    [
        (less(Var("thread"), 2), "is stored by 2 of 2 threads at once", "2 threads of warp 0"),
        (less(Var("thread") % 32, 1), "race on y", "store a stage of y_cache"),
    ],
    ids=["two lanes", "two warps"],
)  # fmt: skip
def test_a_store_by_two_threads_is_found(cond, text, story):
    def widen(body, at):
        if isinstance(body[at], If) and any(isinstance(s, TensorStore) for s in body[at].body):
            yield "widened", (*body[:at], replace(body[at], cond=cond), *body[at + 1 :])

    original = kernel(made.stream(1, 0))
    ((_, _, body),) = variants(original.body, widen)
    wrong = replace(original, body=body)
    assert text in complaint(wrong, np.ones(3 * TILE, "f4"))
    verdict = check(wrong)
    assert verdict.reach == "wrong"
    assert story in verdict.fault.text


def test_a_box_that_overhangs_rows_of_odd_length_is_refused():
    """Public report: 16 bytes at a time are written, whatever the tensor map says."""
    only = kernel(made.stream(1, 0))
    x = np.ones(TILE + 1, "f4")
    assert "needed a multiple of 16" in complaint(only, x)
