"""Unrolled loops on the interpreter: trips around the copies, and checked pipelines."""

from __future__ import annotations

import numpy as np
import pytest
from rings import interpret
from rings.interpret import run_by_hand
from unroll_cases import (
    ALL,
    IDS,
    PARTS,
    RUNS,
    TILE,
    columns_of,
    directed,
    in_parts,
    kernel,
    ring,
    run,
    trips_around,
)

from fuser import LoadStoreOpType, Pipelined, WarpSpecialized
from fuser.protocol.verdict import check
from fuser.timeline.record import record

pytestmark = pytest.mark.protocol


@pytest.mark.parametrize(("case", "copies"), RUNS, ids=IDS)
def test_trips_around_the_copies(case, copies, rng):
    """No trip, one, one less than a round, a round, one more, two rounds and three left over."""
    run(case, copies, rng, backend="interpret")


@pytest.mark.parametrize(
    ("case", "copies"), [(c, n) for c in PARTS for n in c.copies if c.shape is columns_of], ids=str
)
def test_rings_of_few_trips_and_of_none(case, copies, rng):
    """One interleaving of all threads in checked mode, each: barriers, stages, what is read."""
    fd = case.build(copies)
    for trips in trips_around(copies):
        x, part = case.inputs(trips, copies, rng)
        x = rng.integers(-9, 10, x.shape).astype(np.float32)
        (y,) = run_by_hand(fd, [x, part], seed=trips)
        np.testing.assert_array_equal(y, x[:, :part].sum(1, dtype=np.float64))


def test_a_ring_without_loops_is_proved():
    found = check(kernel(ring(directed(ALL, ALL), extent=1280), 2, 1280))
    assert found.reach == "proved"


@pytest.mark.parametrize(
    ("copies", "kind", "load", "reach"),
    [
        (3, Pipelined(war="mbarrier"), LoadStoreOpType.tma, "explored"),
        (2, Pipelined(war="mbarrier"), LoadStoreOpType.cp_async, "explored"),
        (2, WarpSpecialized(), LoadStoreOpType.tma, "explored"),
    ],
    ids=["stages", "cp_async", "roles"],
)
def test_unrolled_rings(copies, kind, load, reach):
    """Rounds of copies, remainders, and branches that a trip begins in: nothing is wrong."""
    fd = ring(directed(copies, ALL), kind=kind, load=load)
    assert check(kernel(fd, 2, 2560), most=2000).reach == reach


@pytest.mark.parametrize("trips", ["rolled", 2, 3])
@pytest.mark.parametrize("war", ["mbarrier", "barrier"])
def test_tokens_are_those_of_the_stage(trips, war):
    """In checked mode, with stages that are constants and with those that follow from the trip."""
    x = np.random.default_rng(11).integers(-40, 41, (2, 5 * TILE - 4)).astype("f4")
    fd = ring(directed(trips, ALL), kind=Pipelined("token", war))
    interpret.exact((trips, war), fd, [x], x.sum(1, dtype="f4"))


def test_a_ring_with_directives_loop_by_loop():
    assert check(kernel(in_parts(3), 2, 2560), most=2000).reach == "explored"


def test_copies_of_trips_on_a_timeline():
    """A warp issues and computes in each copy, and stages are as without copies."""
    rolled, unrolled = (
        record(kernel(ring(directed(n, ALL)), 2, 2560), {"x_size0": 2, "x_size1": 2560})
        for n in ("rolled", 3)
    )
    assert rolled.rings == unrolled.rings
    for timeline in (rolled, unrolled):
        spans = [s for row in timeline.warps for s in row.spans]
        assert {s.trip for s in spans if s.what == "issue"} == set(range(10))
        assert {s.trip for s in spans if s.what == "compute"} >= set(range(10))
