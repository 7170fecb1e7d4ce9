"""Rings in registers on the loop of a ring with barriers: numbers, and what the checker says."""

from __future__ import annotations

import re

import numpy as np
import pytest
from manual_schedules import program, run_checked
from shared_trips import CASES, THREADS, TILE, Case, L, P

from fuser import FusionDefinition, MemoryType, Pipelined, WarpSpecialized
from fuser.core.errors import ScheduleError
from fuser.kir.core import Kernel, walk_stmts
from fuser.kir.stmts import MbarrierArrive, MbarrierWait
from fuser.protocol.model import analyse
from fuser.protocol.mutants import mutants
from fuser.protocol.verdict import check, prove
from fuser.schedule.circular import CircularBufferType

pytestmark = pytest.mark.protocol


def odd(case: Case) -> tuple[int, ...]:
    """Return the numbers of trips at which something changes; those that are known."""
    s = case.stages
    return (0, 1, s - 1, s, s + 1, 3 * s + 1) if case.trips < 0 else (case.trips,)


def kernel_of(case: Case) -> Kernel:
    trips = 4 if case.trips < 0 else case.trips
    (kernel,) = program(case.fusion(), case.inputs(np.random.default_rng(0), trips)).kernels
    return kernel


@pytest.mark.parametrize("case", CASES, ids=str)
def test_numbers_of_every_count_of_trips(case: Case, rng):
    fd = case.fusion()
    for trips in odd(case):
        x, z = case.inputs(rng, trips)
        expected = case.expected(x, z).tolist()
        (found,) = fd.manual_execute([x, z], backend="interpret")
        assert found.tolist() == expected, trips
        if trips:
            (found,) = run_checked(fd, [x, z], seed=trips)
            assert np.ravel(found).tolist() == expected, trips


def is_whole(case: Case) -> bool:
    """Whether a trip of the loop is one trip to whoever fills the stages."""
    return isinstance(case.type, Pipelined) or case.slots == 1 or case.trips >= 0


@pytest.mark.parametrize("case", [c for c in CASES if is_whole(c)][::2], ids=str)
def test_what_is_proved(case: Case):
    """For every number of trips: rounds and their slots are two levels that count as one."""
    verdict = check(kernel_of(case))
    assert verdict.reach == "proved", verdict.note


def test_rounds_of_consumers_are_explored():
    """The producer makes one trip at a time, and consumers a round of them."""
    verdict = check(kernel_of(Case(WarpSpecialized())))
    assert verdict.reach == "explored"
    assert "several trips at a time" in verdict.note


def is_wrong(kernel: Kernel) -> bool:
    return prove(analyse(kernel))[0].fault is not None


FREED_BY_TOKENS = "convergence dropped", "acquire dropped"
"""Of two stages, where trip l + 1 is awaited as soon as it is loaded: who refills the stage of l
has waited for all threads, which arrive for l + 1 behind their reads of l."""


@pytest.mark.parametrize("sync", ["parity", "token"])
def test_mutants_are_caught(sync):
    """The epilogue is in the code twice, and what a round cut short never reaches is harmless."""
    made = mutants(kernel_of(Case(Pipelined(sync, "mbarrier"), 2, 1)))
    late = [m for m in made if "(epilogue)" in m.where]
    early = [m for m in made if m not in late]
    harmless = [m for m in early if sync == "token" and m.kind in FREED_BY_TOKENS]
    sample = [m for m in early if m not in harmless][::2]
    assert len(sample) > 10
    assert [(m.kind, m.where) for m in sample if not is_wrong(m.kernel)] == []
    assert [(m.kind, m.where) for m in harmless if is_wrong(m.kernel)] == []
    for what in ("wait dropped", "arrive dropped"):
        assert any(is_wrong(m.kernel) for m in late if m.kind == what), what


def test_the_stage_is_free_behind_the_load():
    """The stage of trip l + 1 is awaited, loaded and released, then l is used without a wait."""
    body = kernel_of(Case()).body
    (main,) = (s for s in walk_stmts(body) if getattr(s, "label", "") == "main")
    inside = [s for s in walk_stmts(main.body)]
    waits = [s for s in inside if isinstance(s, MbarrierWait)]
    assert [s.barrier for s in waits] == ["x_cache_empty", "x_cache_full"]
    (release,) = (s for s in inside if isinstance(s, MbarrierArrive))
    assert release.barrier == "x_cache_empty"
    assert release.index == waits[1].index
    assert inside.index(release) < len(inside) - 1, "the use of the registers comes behind it"


# ---- inside of rows ----------------------------------------------------------------------------


def in_rows(kind: CircularBufferType, stages: int) -> FusionDefinition:
    """``y = 2 x`` of rows."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        y = x * 2.0
        fd.add_output(y)
    tile = x.cache_after(L.tma)
    tile.set_memory_type(MemoryType.shared)
    part = tile.cache_after()
    for t in (y, part, tile):
        t.split(1, TILE)
    for t in (y, part):
        t.split(2, THREADS)
        t.axis(3).parallelize(P.block_x)
    tile.axis(2).parallelize(P.tma)
    part.inline_at(y, 2)
    tile.inline_at(part, 2)
    tile.circular_buffer(stages, type=kind)
    part.circular_buffer(2)
    return fd


@pytest.mark.parametrize(
    "kind", [Pipelined(war="mbarrier"), WarpSpecialized()], ids=["pipelined", "roles"]
)
def test_a_ring_that_begins_anew_or_goes_on_in_each_row(kind, rng):
    fd = in_rows(kind, 3)
    for rows, columns in ((1, 4), (1, 3 * TILE), (4, TILE), (3, 5 * TILE + 4)):
        a = rng.integers(-99, 100, (rows, columns)).astype("f4")
        for (found,) in (
            fd.manual_execute([a], backend="interpret"),
            run_checked(fd, [a], seed=rows),
        ):
            assert np.reshape(found, a.shape).tolist() == (a.astype("f8") * 2).tolist()


def test_a_ring_that_begins_anew_in_each_row_is_proved():
    """Rows and rounds are the levels of trips; the slots of a round are as if they were copies."""
    (kernel,) = program(in_rows(Pipelined(war="mbarrier"), 2), [np.ones((4, 512), "f4")]).kernels
    assert check(kernel).reach == "proved"
    made = [m for m in mutants(kernel) if "(main)" in m.where and "cache_full" in m.where]
    assert len(made) > 5
    assert [(m.kind, m.where) for m in made[::2] if not is_wrong(m.kernel)] == []


# ---- what is refused ---------------------------------------------------------------------------


def refused(case: Case, text: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(text)):
        case.fusion().manual_execute(case.inputs(np.random.default_rng(0), 4), backend="interpret")


def test_registers_do_not_run_ahead_of_what_is_filled():
    refused(
        Case(distance=1, slots=3, ahead=2),
        "loaded into registers 2 trips ahead, out of stages of ring x_cache that are filled 1 "
        "ahead; needed a prefetch distance of at most 1, or a larger one of the ring",
    )


@pytest.mark.parametrize(
    "kind", [Pipelined(war="mbarrier"), WarpSpecialized()], ids=["pipelined", "roles"]
)
def test_nobody_reads_a_stage_behind_the_load_that_gives_it_back(kind):
    refused(
        Case(kind, source="shared"),
        "loaded into registers 1 trips ahead out of the stages of ring x_cache, whose load gives "
        "them back, and y reads them 1 trips later; needed a reader of copy instead, prefetch "
        "distance 0, or registers buffered over a loop inside of the ring's",
    )
