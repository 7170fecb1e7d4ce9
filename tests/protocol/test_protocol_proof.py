"""Pipelines this package generates are proved right for every number of trips."""

from dataclasses import replace

import numpy as np
import pytest
from pipelines import kernel, ring_map, ring_persistent, ring_rows, ring_sum

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.kir.stmts import For, SyncThreads
from fuser.protocol.explore import explore
from fuser.protocol.model import analyse, exact_model
from fuser.protocol.mutants import mutants
from fuser.protocol.verdict import LAST_TILE_CUT, check, explore_few, prove
from fuser.schedule.circular import Pipelined, WarpSpecialized

pytestmark = pytest.mark.protocol

L = LoadStoreOpType
FORMS = [Pipelined(sync, war) for sync in ("parity", "token") for war in ("mbarrier", "barrier")]
RINGS = [(1, 0), (2, 0), (2, 1), (3, 1), (4, 3)]


def assert_proved(case):
    verdict = check(kernel(case))
    assert (verdict.reach, verdict.note) == ("proved", "")
    assert verdict.rings
    assert verdict.states > 10


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(("S", "P"), RINGS)
def test_pipelined_rings_are_proved_for_every_trip_count(form, S, P):
    for load in (L.bulk, L.cp_async, L.set):
        assert_proved(ring_map(load, S, P, form))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_two_loads_of_different_kinds_share_their_barriers(form):
    for second in (L.tma, L.cp_async, L.set):
        assert_proved(ring_map(L.bulk, 2, 1, form, second=second))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_ring_made_anew_in_every_row_is_proved(form):
    assert_proved(ring_rows(L.bulk, 3, 2, form))


@pytest.mark.parametrize("S", [1, 2, 4])
def test_warp_specialised_rings_are_proved(S):
    assert_proved(ring_map(L.tma, S, None, WarpSpecialized()))
    assert_proved(ring_sum(L.bulk, S, None, WarpSpecialized()))


def test_many_consumer_warps_are_proved():
    assert_proved(ring_map(L.bulk, 2, 1, WarpSpecialized(), threads=128))


@pytest.mark.parametrize("S", [1, 2, 3])
def test_reductions_among_the_consumers_are_proved(S):
    """Producers do not come by; the consumers meet at their own barrier in every trip."""
    assert_proved(ring_persistent(L.bulk, S, None, WarpSpecialized()))
    assert_proved(ring_persistent(L.bulk, S, None, WarpSpecialized(), threads=128))


@pytest.mark.parametrize("S", [1, 2])
def test_stages_carried_over_an_outer_loop_are_proved(S):
    assert_proved(ring_rows(L.bulk, S, None, WarpSpecialized()))


def test_eight_stages_are_proved():
    assert_proved(ring_map(L.bulk, 8, 7, Pipelined(war="mbarrier")))


@pytest.mark.parametrize("form", [*FORMS, WarpSpecialized()], ids=str)
def test_exploration_agrees_with_the_proof(form):
    analysis = analyse(kernel(ring_map(L.bulk, 3, 2, form)))
    for trips in range(7):
        for cut in (0, LAST_TILE_CUT) if trips else (0,):
            outcome = explore(exact_model(analysis, (trips,), cut))
            assert outcome.complete
            assert outcome.fault is None, (trips, cut, outcome.fault)


def test_more_trips_have_more_states_until_they_repeat():
    analysis = analyse(kernel(ring_map(L.bulk, 2, 1, Pipelined(war="mbarrier"))))
    counts = [explore(exact_model(analysis, (trips,))).states for trips in (1, 2, 4, 8, 16)]
    assert counts == sorted(set(counts))
    assert check(analysis.kernel).states < 2 * counts[-1]


def test_a_kernel_without_barriers_has_no_pipeline():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float)
        fd.add_output(x + 1.0)
    (only,) = program_of(fd, bind(fd, [np.ones(100, "f4")])).kernels
    assert check(only).reach == "no pipeline"
    assert analyse(only) is None


@pytest.mark.parametrize("n", [256, 512, 700, 5120])
@pytest.mark.parametrize(("S", "P"), [(1, 0), (2, 1), (3, 1)])
def test_loops_of_one_trip_are_no_loops_and_still_count(n, S, P):
    """Constant sizes: prologue and epilogue of one trip are straight lines."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[n], contiguity=[True], dtype=DataType.Float)
        y = x * 2.0
        fd.add_output(y)
    cache = x.cache_after(L.bulk)
    cache.set_memory_type(MemoryType.shared)
    y.split(0, 256)
    y.split(1, 64)
    y.axis(2).parallelize(ParallelType.block_x)
    cache.split(0, 256)
    cache.axis(1).parallelize(ParallelType.tma)
    cache.inline_at(y, 1)
    cache.circular_buffer(S, P, Pipelined(war="mbarrier"))
    (only,) = program_of(fd, bind(fd, [np.ones(n, "f4")], True), True).kernels
    assert check(only).reach == "proved"


def parted(body):
    """Let the block meet between the main loop and the epilogue."""
    for stmt in body:
        if isinstance(stmt, For):
            if stmt.label == "epilogue":
                yield SyncThreads("something else is read by other threads")
            stmt = replace(stmt, body=tuple(parted(stmt.body)))
        yield stmt


@pytest.mark.parametrize("build", [ring_map, ring_rows])
def test_the_trip_count_is_known_until_the_epilogue_has_begun(build):
    """Nobody is inside of a loop there, but how many trips are left follows from it."""
    original = kernel(build(L.bulk, 2, 1, Pipelined("token", "barrier")))
    between = replace(original, body=tuple(parted(original.body)))
    assert between != original
    assert check(between).reach == "proved"
    found = [m for m in mutants(between) if "(epilogue)" in m.where]
    assert found
    for mutant in found:
        analysis = analyse(mutant.kernel)
        proof, few = prove(analysis)[0], explore_few(analysis, "")
        assert (proof.fault is None) == (few.fault is None), (mutant.kind, mutant.where)
