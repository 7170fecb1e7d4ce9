"""Unrolled loops on the interpreter: trips around the copies, and checked pipelines."""

from __future__ import annotations

import pytest
from unroll_cases import ALL, IDS, RUNS, directed, kernel, ring, run

from fuser import LoadStoreOpType, Pipelined, WarpSpecialized
from fuser.protocol.verdict import check

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
        (2, WarpSpecialized(), LoadStoreOpType.tma, "proved"),
    ],
    ids=["stages", "cp_async", "roles"],
)
def test_unrolled_rings(copies, kind, load, reach):
    """Rounds of copies, remainders, and branches that a trip begins in: nothing is wrong."""
    fd = ring(directed(copies, ALL), kind=kind, load=load)
    assert check(kernel(fd, 2, 2560), most=2000).reach == reach
