"""Rings whose stages matrix products read: proved, explored, and every mistake in them found.

``FUSER_MUTANTS=all`` takes every form, not a sample.
"""

import os
from dataclasses import dataclass, replace

import pytest
from product_rings import BF16, THREAD, TILE, L, Products
from ring_kernels import mutant

from fuser.cli import harmless
from fuser.cli.check_matrix import families, judge
from fuser.core.expr import ZERO, all_of, less
from fuser.kir.scalar import Literal
from fuser.kir.stmts import (
    FenceProxyAsync,
    If,
    MbarrierArrive,
    MbarrierWait,
    Store,
    WgmmaCommit,
    WgmmaWait,
)
from fuser.protocol.explore import explore
from fuser.protocol.model import analyse, exact_model
from fuser.protocol.mutants import mutants
from fuser.protocol.story import tell
from fuser.protocol.verdict import check, explore_few

pytestmark = pytest.mark.protocol

ALL = os.environ.get("FUSER_MUTANTS") == "all"
PIPELINED = [
    Products(stages, prefetch, sync, war)
    for stages in range(1, 5 if ALL else 3)
    for prefetch in range(stages)
    for sync in ("parity", "token")
    for war in ("mbarrier", "barrier")
]
SPECIAL = [
    Products(stages, stages - 1, groups=groups, roles=True)
    for stages in range(1, 5 if ALL else 3)
    for groups in (1, 2)
]
OUTER = [
    Products(1, outer="anew"), Products(2, 1, outer="anew"),
    Products(1, roles=True, outer="anew"), Products(1, roles=True, outer="carried"),
]  # fmt: skip
if ALL:
    OUTER += [Products(2, 1, roles=True, outer="carried"), Products(3, 2, outer="anew")]
FORMS = ({}, {"roles": True}, {"roles": True, "groups": 2}, {"outer": "anew"})
DEEP = [Products(s, s - 1, **form) for form in FORMS for s in range(5, 9)] if ALL else []
"""Up to 364,498 states each."""
MUTATED = [Products(2, 1, war="barrier")]
if ALL:
    MUTATED = [f for f in (*PIPELINED, *SPECIAL, *OUTER) if f.prefetch == f.stages - 1]
FAMILIES = ["products, warp-specialised"]
ABOUT = ("product", "groups", "commit", "convergence")
"""How mistakes begin of which the sample consists."""
LAST = "of the consumer"
"""Behind the loop of consumers, where trips are not counted on: nobody fills a stage any more."""
HARMLESS_AT_THE_END = {
    "release dropped": "MbarrierArrive(empty)",
    "stage changed": "MbarrierArrive(empty)",
    "product wait moved behind the release": "WgmmaWait(the sums are complete)",
}


@pytest.mark.parametrize("form", [*PIPELINED, *SPECIAL, *OUTER, *DEEP], ids=str)
def test_proved_for_every_trip_count_and_explored_for_few(form):
    kernel = form.kernel()
    verdict = check(kernel)
    assert (verdict.reach, verdict.note) == ("proved", "")
    assert dict(verdict.rings) == {"a_tile": form.stages, "b_tile": form.stages}
    analysis = analyse(kernel)
    for trips in range(5):
        outcome = explore(exact_model(analysis, (2, trips) if form.outer else (trips,)))
        assert outcome.complete
        assert outcome.fault is None, (trips, outcome.fault)


def is_harmless(form, found):
    """Whether a mutant of a form is right, and what it leaves out is said by something else."""
    if found.kind == "convergence dropped":
        return True  # all lanes of a warp wait for its products together
    if form.stages == 1 and "the sums are complete" in found.where:
        return found.kind in ("product wait dropped", "groups changed")  # waited for in each trip
    ends = form.roles and form.outer != "carried"
    at = f"{HARMLESS_AT_THE_END.get(found.kind)} {LAST}"
    return ends and found.where.partition(" in loop t")[0] == at


@pytest.mark.parametrize("form", MUTATED, ids=str)
def test_every_mutant_is_wrong_or_shown_to_be_harmless(form):
    made = mutants(form.kernel())
    kinds = {m.kind for m in made}
    assert kinds >= {"product wait dropped", "commit dropped", "groups changed"}
    assert kinds >= {"product's stage changed", "product wait moved behind the release"}
    for found in made if ALL else [m for m in made if m.kind.startswith(ABOUT)]:
        verdict = check(found.kernel)
        where = found.kind, found.where, verdict.note
        if is_harmless(form, found):
            assert verdict.reach == "proved", where
            assert explore_few(analyse(found.kernel), "").reach == "explored", where
            continue
        assert verdict.reach == "wrong", where
        assert verdict.trips, where


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_of_the_matrix_and_its_harmless_mutants(name):
    """Kernels that are generated: the same mistakes, and those that another statement outweighs."""
    (family,) = (f for f in families() if f.name == name)
    result = judge((family, 2, 1))
    assert result.faults == ()
    assert (result.ok, result.caught) == (True, result.mutants)
    assert {h.said_by for h in result.harmless} == {harmless.TOGETHER, harmless.BEHIND}


def wrong(kernel, kind):
    verdict = check(kernel)
    assert verdict.reach == "wrong"
    assert verdict.fault.kind == kind
    return "\n".join(tell(verdict.model, verdict.fault))


def test_a_stage_that_a_product_may_read_is_not_filled():
    """The wait that leaves one group pending is left out: nothing else ends a product."""
    kernel = Products(2, 1).kernel()
    story = wrong(mutant(kernel, WgmmaWait, lambda _: (), pending=1), "WAR")
    assert "a stage is written while a matrix product out of it may still read it" in story


def test_two_groups_left_pending_are_one_too_many():
    kernel = Products(3, 2).kernel()
    wrong(mutant(kernel, WgmmaWait, lambda s: (replace(s, pending=2),), pending=1), "WAR")


def test_a_block_does_not_end_while_a_product_may_read():
    kernel = Products(2, 1).kernel()
    story = wrong(mutant(kernel, WgmmaWait, lambda _: (), pending=0), "exit")
    assert "the block ends with a matrix product that may still read its stage" in story


def test_products_without_a_commit_are_in_no_group():
    wrong(mutant(Products(1).kernel(), WgmmaCommit, lambda _: ()), "exit")


def test_the_stage_of_this_trip_is_not_given_back_yet():
    """The release of trip l instead of l - 1, under a condition that folds: trip 0 has none."""
    kernel = Products(3, 2).kernel()
    moved = mutant(kernel, MbarrierArrive, lambda s: (replace(s, index=(s.index + 1) % 3),))
    assert check(moved).reach == "wrong"


@dataclass(frozen=True)
class FilledByThreads(Products):
    """Operands that threads write, one element each, and show to the products or do not."""

    shown: bool = True

    @property
    def arrivals(self):
        return self.consumers

    def fill(self, trip, *, first=False):
        stage = trip % self.stages
        free = MbarrierWait("empty", stage, (trip // self.stages % 2) ^ 1, "the stage is free")
        at = stage * TILE + THREAD
        stores = [Store(tile, at, Literal(1.0, BF16)) for tile in ("a_tile", "b_tile")]
        fence = (FenceProxyAsync("the products read the tiles"),) if self.shown else ()
        return (free, *stores, *fence, MbarrierArrive("full", stage))


@pytest.mark.parametrize("stages", [1, 2])
def test_what_threads_write_must_be_shown_to_the_products(stages):
    """Products read by the asynchronous proxy, which need not see what threads wrote."""
    assert check(FilledByThreads(stages, stages - 1).kernel()).reach == "proved"
    story = wrong(FilledByThreads(stages, stages - 1, shown=False).kernel(), "fence")
    assert "multiplies a_tile, of which a matrix product need not see what warp 0 wrote" in story


def released_until(trip):
    """Return a kernel whose consumers release a stage up to some trip."""
    kernel, cond = Products(2, 1, roles=True).kernel(), less(ZERO, L)
    until = all_of(cond, less(L, trip))
    return mutant(kernel, If, lambda s: (replace(s, cond=until),), cond=cond)


@pytest.mark.parametrize(("until", "trips"), [(1, (3,)), (4, (6,)), (5, ())])
def test_a_condition_on_the_trip_is_not_folded_away(until, trips):
    """In trip `until`, that of the trip before is not released: two trips later it is missed.

    Of the last one only the proof can tell: 7 trips are more than are explored.
    """
    verdict = check(released_until(until))
    assert (verdict.reach, verdict.fault.kind) == ("wrong", "deadlock")
    assert verdict.trips == trips


@pytest.mark.parametrize("until", [50, 777, 1000])
def test_a_condition_that_changes_late_is_explored(until):
    """It is right for few trips, which is all that is said."""
    verdict = check(released_until(until))
    assert (verdict.reach, verdict.trips) == ("explored", (6,))
    assert verdict.note == "what its loops do depends on the trip beyond stage and parity"
