"""Unrolled loops on the interpreter: trips around the copies, and checked pipelines."""

from __future__ import annotations

import numpy as np
import pytest
from rings import interpret
from unroll_cases import ALL, IDS, RUNS, TILE, directed, in_parts, kernel, ring, run

from fuser import LoadStoreOpType, Pipelined, WarpSpecialized
from fuser.protocol.verdict import check
from fuser.timeline.record import record

pytestmark = pytest.mark.protocol


@pytest.mark.parametrize(("case", "copies"), RUNS, ids=IDS)
def test_trips_around_the_copies(case, copies, rng):
    """No trip, one, one less than a round, a round, one more, two rounds and three left over."""
    run(case, copies, rng, backend="interpret")


def test_a_ring_without_loops_is_proved():
    found = check(kernel(ring(directed(ALL, ALL), columns=1280), 2, 1280))
    assert found.reach == "proved"


@pytest.mark.parametrize(
    ("copies", "kind", "load", "reach"),
    [
        (3, Pipelined(), LoadStoreOpType.tma, "explored"),
        (2, Pipelined(), LoadStoreOpType.cp_async, "explored"),
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
