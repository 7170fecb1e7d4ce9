"""The protocol checker on clusters: multicast rings are proved, every mistake in them is found."""

from __future__ import annotations

import numpy as np
import pytest
from rings.cells import Cell, definition
from rings.choices import staged
from rings.families import L, P

from fuser import FusionDefinition, Pipelined
from fuser.api.execute import bind, program_of
from fuser.cli.check_matrix import families, judge
from fuser.kir.core import Kernel
from fuser.protocol.explore import explore
from fuser.protocol.model import analyse, exact_model
from fuser.protocol.mutants import mutants
from fuser.protocol.story import tell
from fuser.protocol.verdict import WALKS, check

pytestmark = pytest.mark.protocol

TYPES = ("parity-mbarrier", "ws")
"""Readers of all blocks arrive on each block's barriers."""
MEETING = "parity-barrier"
"""All threads of the cluster meet at the end of a trip."""
TOKENS = ("token-mbarrier", "token-barrier")
"""More states: every thread arrives."""
FORMS = {
    MEETING: Pipelined(war="barrier"),
    "token-mbarrier": Pipelined("token", "mbarrier"),
    "token-barrier": Pipelined("token", "barrier"),
}
OF_CLUSTERS = {
    "cluster barrier dropped", "barrier of a block alone", "multicast dropped",
    "multicast by every block",
}  # fmt: skip
GONE = "nobody waits on the barriers of x_cache any more"


def kernel_of(kind: str, stages: int, blocks: int = 2) -> Kernel:
    cell = Cell(
        "multicast", (L.tma, L.tma), stages, stages - 1, kind, trips="3S+1", edge="whole",
        cluster=blocks,
    )  # fmt: skip
    fd = definition(cell)
    (kernel,) = program_of(fd, bind(fd, cell.inputs(), True), True).kernels
    return kernel


def rows_of(kind: str, stages: int) -> Kernel:
    """Return a kernel of blocks that share the rows of a matrix, one after the other."""
    with FusionDefinition() as fd:
        x, b = (fd.define_tensor(shape=[-1] * n, contiguity=[True] * n) for n in (3, 2))
        y = x + fd.ops.broadcast_in_dim(b, fd.ops.shape(x), [1, 2])
        fd.add_output(y)
    cache = staged(b, L.tma)
    y.split(0, 2)  # cluster, block of it, row, column
    y.split(3, 256)
    fd.sched.transform_like(y, [cache])
    y.split(4, 32)
    y.axis(5).parallelize(P.block_x)
    for t in (y, cache):
        t.axis(0).parallelize(P.grid_x)
        t.axis(1).parallelize(P.cluster_x)
    cache.axis(4).parallelize(P.tma)
    cache.inline_at(y, 4)
    cache.circular_buffer(stages, None, FORMS[kind])
    inputs = [np.zeros((2, 3, 512), "f4"), np.zeros((3, 512), "f4")]
    (kernel,) = program_of(fd, bind(fd, inputs, True), True).kernels
    return kernel


@pytest.mark.parametrize(
    ("kind", "stages"), [*((k, 1) for k in (*TYPES, *TOKENS)), (MEETING, 1), (MEETING, 3)]
)
def test_few_stages_are_proved_for_every_number_of_trips(kind, stages):
    verdict = check(kernel_of(kind, stages))
    assert (verdict.reach, verdict.note) == ("proved", "")


@pytest.mark.parametrize(
    ("kind", "stages", "trips"),
    [
        *((k, *few) for k in (*TYPES, MEETING) for few in ((2, 0), (2, 1), (2, 2), (3, 2))),
        *((k, *few) for k in TOKENS for few in ((2, 0), (2, 1))),
    ],
)
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
    assert {m.kind for m in made} >= {
        *OF_CLUSTERS, "release dropped", "release to the own block alone", "expect dropped",
    }  # fmt: skip
    for mutant in made:
        verdict = check(mutant.kernel)
        assert verdict.reach == "wrong", (mutant.kind, mutant.where, verdict.note)


def test_every_mutant_of_blocks_that_meet_is_wrong():
    """But for the last meeting, behind which a block sends nothing to others."""
    made = mutants(kernel_of(MEETING, 2))
    assert {m.kind for m in made} >= {
        *OF_CLUSTERS, "cluster barrier moved before the use", "expect dropped",
    }  # fmt: skip
    (last,) = (m for m in made if m.kind == "barrier of a block alone" and GONE in m.where)
    for mutant in made:
        verdict = check(mutant.kernel)
        expected = "proved" if mutant is last else "wrong"
        assert verdict.reach == expected, (mutant.kind, mutant.where, verdict.note)


def test_blocks_that_have_just_met_need_not_meet_again():
    """Without a prefetch the loop ends with a meeting; to leave the next one out is no mistake."""
    found = [m for m in mutants(kernel_of(MEETING, 1)) if "cluster" in m.kind]
    assert found
    assert not any(GONE in m.where for m in found)


@pytest.mark.parametrize("kind", TOKENS)
def test_mutants_of_tokens(kind):
    """Blocks of one warp, two stages: the matrix's own."""
    sync, war = kind.split("-")
    name = f"multicast to two blocks, pipelined, {sync}, war {war}"
    (family,) = (f for f in families() if f.name == name)
    kinds = {m.kind for m in mutants(family.kernel(2, 1))}
    assert kinds >= {*OF_CLUSTERS, "expect dropped", "arrive dropped"}
    result = judge((family, 2, 1))
    assert result.ok
    assert not result.faults
    assert result.mutants == result.caught > 25


@pytest.mark.parametrize("kind", [MEETING, *TOKENS])
def test_blocks_meet_anew_in_every_row(kind):
    """A ring that begins anew in each outer trip: another number of trips in each, and none."""
    verdict = check(rows_of(kind, 2))
    assert (verdict.reach, verdict.note) == ("proved", "")
    kinds = "cluster barrier dropped", "release dropped"
    dropped = [m for m in mutants(rows_of(kind, 2)) if m.kind in kinds and "(main)" in m.where]
    assert [check(m.kernel).reach for m in dropped] == ["wrong"]


def test_the_story_names_blocks():
    (mutant,) = [m for m in mutants(kernel_of("ws", 1)) if m.kind == "release dropped"]
    verdict = check(mutant.kernel)
    assert verdict.model is not None
    assert verdict.fault is not None
    story = "\n".join(tell(verdict.model, verdict.fault))
    assert "warp 2 of block 1 waits on x_cache_empty[0] of block 1" in story
    assert "issues a copy into stage 0 of b_cache of block 1 for trip 0" in story
