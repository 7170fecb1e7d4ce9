"""The protocol checker on clusters: multicast rings are proved, every mistake in them is found."""

from __future__ import annotations

import pytest
from rings.cells import Cell, definition
from rings.families import L

from fuser.api.execute import bind, program_of
from fuser.kir.core import Kernel
from fuser.protocol.explore import explore
from fuser.protocol.model import analyse, exact_model
from fuser.protocol.mutants import mutants
from fuser.protocol.story import tell
from fuser.protocol.verdict import WALKS, check

pytestmark = pytest.mark.protocol

TYPES = ("parity-mbarrier", "ws")
OF_CLUSTERS = {"cluster barrier dropped", "barrier of a block alone", "release dropped"}


def kernel_of(kind: str, stages: int, blocks: int = 2) -> Kernel:
    cell = Cell(
        "multicast", (L.tma, L.tma), stages, stages - 1, kind, trips="3S+1", edge="whole",
        cluster=blocks,
    )  # fmt: skip
    fd = definition(cell)
    (kernel,) = program_of(fd, bind(fd, cell.inputs(), True), True).kernels
    return kernel


@pytest.mark.parametrize("kind", TYPES)
def test_one_stage_is_proved_for_every_number_of_trips(kind):
    verdict = check(kernel_of(kind, 1))
    assert (verdict.reach, verdict.note) == ("proved", "")


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("stages", "trips"), [(2, 0), (2, 1), (2, 2), (3, 2)])
def test_few_trips_of_several_stages_are_explored(kind, stages, trips):
    analysis = analyse(kernel_of(kind, stages))
    assert analysis is not None
    outcome = explore(exact_model(analysis, (trips,)))
    assert outcome.complete
    assert outcome.fault is None


@pytest.mark.parametrize("kind", TYPES)
def test_larger_clusters_are_sampled(kind):
    kernel = kernel_of(kind, 2, blocks=4)
    verdict = check(kernel)
    assert (verdict.reach, verdict.walks) == ("sampled", WALKS)
    assert verdict.trips == (6,)
    assert verdict.note.startswith("a cluster of 4 blocks; states of at most 2")
    for mutant in mutants(kernel):
        if mutant.kind in ("release dropped", "acquire dropped", "parity flipped"):
            assert check(mutant.kernel).reach == "wrong", (mutant.kind, mutant.where)


@pytest.mark.parametrize("kind", TYPES)
def test_every_mutant_is_wrong(kind):
    made = mutants(kernel_of(kind, 1))
    assert {m.kind for m in made} >= OF_CLUSTERS
    for mutant in made:
        verdict = check(mutant.kernel)
        assert verdict.reach == "wrong", (mutant.kind, mutant.where, verdict.note)


def test_the_story_names_blocks():
    (mutant,) = [m for m in mutants(kernel_of("ws", 1)) if m.kind == "release dropped"]
    verdict = check(mutant.kernel)
    assert verdict.model is not None
    assert verdict.fault is not None
    story = "\n".join(tell(verdict.model, verdict.fault))
    assert "warp 2 of block 1 waits on x_cache_empty[0] of block 1" in story
    assert "issues a copy into stage 0 of b_cache of block 1 for trip 0" in story
