"""Proofs by one run agree with all interleavings: of kernels, of mistakes in them, of two at once.

``FUSER_MUTANTS=all`` takes more of them.
"""

from __future__ import annotations

import os
import random

import pytest
from product_rings import Products

from fuser.cli.check_matrix import Family, families
from fuser.kir.core import Kernel
from fuser.protocol.errors import Undecided, Unsupported
from fuser.protocol.model import analyse
from fuser.protocol.mutants import mutants
from fuser.protocol.verdict import check, prove

pytestmark = pytest.mark.protocol

ALL = os.environ.get("FUSER_MUTANTS") == "all"
PAIRS = 200 if ALL else 12
"""Pairs of mistakes of each kernel."""
AGREE = (
    "pipelined, parity, war mbarrier, bulk", "pipelined, token, war barrier, cp_async",
    "pipelined, token, war mbarrier, bulk and set", "warp-specialised, bulk and tma",
    "warp-specialised, reduced in every trip", "two consumer groups, ping-pong, rounds of 2 trips",
    "pipelined, parity, war barrier, inside a loop over rows",
    "stores out of tiles, token, war barrier, bulk", "stores out of the ring, specialised, tma",
    "products, warp-specialised, stages carried over rows",
)  # fmt: skip
"""One of each kind."""
BROKEN = AGREE if ALL else AGREE[:2] + AGREE[3:6:2] + AGREE[7:9]


def family(name: str) -> Family:
    return next(f for f in families() if f.name == name)


def by(kernel: Kernel, *, one_run: bool) -> tuple[bool, bool, int]:
    """Return whether a kernel is proved, whether by one run, and by how many states."""
    analysis = analyse(kernel)
    assert analysis is not None
    outcome, _ = prove(analysis, one_run=one_run)
    return outcome.complete and outcome.fault is None, outcome.one_run, outcome.states


@pytest.mark.parametrize("name", AGREE)
def test_one_run_and_all_interleavings_agree(name: str) -> None:
    stages = 1 if "carried" in name and not ALL else 2
    kernel = family(name).kernel(stages, stages - 1)
    assert by(kernel, one_run=True)[:2] == (True, True)
    assert by(kernel, one_run=False)[:2] == (True, False)


@pytest.mark.parametrize("name", BROKEN)
def test_two_mistakes_at_once_are_never_proved_by_one_run_alone(name: str) -> None:
    """What one run proves is proved by all interleavings, or explored where that has no rule."""
    rng, kernel = random.Random(name), family(name).kernel(2, 1)
    first = mutants(kernel)
    for _ in range(PAIRS):
        one = rng.choice(first)
        two = rng.choice(mutants(one.kernel))
        what = one.kind, one.where, two.kind, two.where
        try:
            if by(two.kernel, one_run=True)[:2] != (True, True):
                continue
        except (Unsupported, Undecided):
            continue
        assert by(two.kernel, one_run=False)[0], what


def test_mistakes_that_one_run_does_not_show_are_found() -> None:
    """Each agent goes on as far as it can, the first one first: much is right by chance."""
    kernel = family("warp-specialised, bulk").kernel(2, 1)
    (found,) = (m for m in mutants(kernel) if m.kind == "convergence dropped")
    verdict = check(found.kernel)
    assert (verdict.reach, verdict.one_run) == ("wrong", False)
    assert verdict.fault is not None
    assert verdict.fault.kind == "WAR"


@pytest.mark.parametrize(
    "form",
    [
        Products(8, 7, sync="token"), Products(8, 7, war="barrier"), Products(8, 7, roles=True),
        Products(8, 7, roles=True, groups=2), Products(8, 7, outer="anew"),
        Products(8, 7, roles=True, outer="anew"),
        Products(8 if ALL else 3, 2, roles=True, outer="carried"),
    ],
    ids=str,
)  # fmt: skip
def test_eight_stages_of_products_are_proved(form: Products) -> None:
    verdict = check(form.kernel())
    assert (verdict.reach, verdict.note, verdict.one_run) == ("proved", "", True)


def test_more_stages_are_as_many_states_more() -> None:
    """Not exponentially many: 16 stages are proved as well."""
    states = [
        check(Products(stages, stages - 1, roles=True).kernel()).states for stages in (4, 8, 16)
    ]
    assert states[1] < 4 * states[0]
    assert states[2] < 4 * states[1]


def test_what_is_not_one_run_is_still_explored() -> None:
    """A mutant whose other order is right as well: two ways to come by, both of them allowed."""
    listed = family("products, warp-specialised")
    kernel = listed.kernel(2, 1)
    right = [m for m in mutants(kernel) if any(h.is_about(m) for h in listed.harmless)]
    verdicts = [check(m.kernel) for m in right]
    assert {v.reach for v in verdicts} == {"proved"}
    assert {v.one_run for v in verdicts} == {True, False}
