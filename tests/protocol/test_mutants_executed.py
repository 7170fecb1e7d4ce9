"""Proof, exploration and checked execution agree on every mutant of ``check --matrix``.

A sample; ``FUSER_MUTANTS=all pytest tests/protocol/test_mutants_executed.py`` takes them all.
"""

import os

import mutant_runs as runs
import pytest

from fuser.cli.check_matrix import MUTATED, families
from fuser.protocol.mutants import mutants
from fuser.protocol.verdict import LAST_TILE_CUT, check

ALL = os.environ.get("FUSER_MUTANTS") == "all"
pytestmark = [pytest.mark.protocol, *([pytest.mark.slow] if ALL else [])]

MANY = (3,)
SEEDS = range(24)
"""Each gives one random and one greedy interleaving."""
CLEAN_SEEDS = range(12 if ALL else 2)
EVERY = 1 if ALL else 23
"""Of the mutants that are caught, so many-th are run."""
SAMPLED = (
    "stores out of tiles", "stores out of the ring", "ping-pong, rounds of 1 trip",
    "multicast to two blocks, pipelined",
)  # fmt: skip
FAMILIES = [
    family for family in families()
    if ALL or (family.load.name == "tma" and any(name in family.name for name in SAMPLED))
]  # fmt: skip
KERNELS = [
    (family, stages, prefetch)
    for family in FAMILIES
    for stages, prefetch in (MUTATED if ALL else MUTATED[:1])
    if (stages, prefetch) in family.configurations()
]


def trips_of(family, trips):
    """Return the number of trips by level that a family takes apart."""
    return (2, *trips) if "rows" in family.name else trips


@pytest.mark.parametrize(
    ("family", "stages", "prefetch"), KERNELS, ids=[f"{f.name}, {s} stages" for f, s, _ in KERNELS]
)
def test_execution_agrees(family, stages, prefetch):
    fd = family.build(family.load, stages, prefetch, family.form)
    listed = [h for h in family.harmless if stages in h.stages]
    made = mutants(family.kernel(stages, prefetch))
    right = [m for m in made if any(h.is_about(m) for h in listed)]
    few = [trips_of(family, (n,)) for n in (1, stages, 2 * stages + 1)]
    clean = [runs.shape(family, trips, cut) for trips in few for cut in (0, LAST_TILE_CUT)]
    for kernel in (family.kernel(stages, prefetch), *(m.kernel for m in right)):
        assert not any(runs.complaints(family, fd, kernel, clean, CLEAN_SEEDS))
    wrong = [m for m in made if m not in right]
    for mutant in wrong[stages % EVERY :: EVERY]:
        trips = check(mutant.kernel).trips
        cases = [(trips, 0), (trips, LAST_TILE_CUT), (trips_of(family, MANY), 0), (few[-1], 0)]
        shapes = list(dict.fromkeys(runs.shape(family, *case) for case in cases))
        said = any(runs.complaints(family, fd, mutant.kernel, shapes, SEEDS))
        assert said, (mutant.kind, mutant.where, trips)


def test_greedy_consumers_overtake_the_producer():
    """Readers that release the wrong stage: turns at every statement hardly ever show it."""
    (family,) = (f for f in families() if f.name == "warp-specialised, sum")
    (mutant,) = (
        m for m in mutants(family.kernel(2, 1))
        if m.kind == "stage changed" and m.where.startswith("MbarrierArrive(x_cache_empty)")
    )  # fmt: skip
    fd, extents = family.build(family.load, 2, 1, family.form), (runs.TILE * 2,)
    seeds = range(5)
    alone = [runs.complaint(family, fd, mutant.kernel, extents, n) for n in seeds]
    far = [runs.complaint(family, fd, mutant.kernel, extents, n, runs.greedy) for n in seeds]
    assert not any(alone)
    assert any("x_cache_empty" in text for text in far)
