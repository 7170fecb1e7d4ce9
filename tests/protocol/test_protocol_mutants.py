"""Every mistake a person might make in a pipeline is found: by proof, exploration and execution."""

from dataclasses import replace

import numpy as np
import pytest
from pipelines import kernel, ring_map, ring_rows

from fuser import LoadStoreOpType
from fuser.core.errors import ProtocolError
from fuser.interp.checked import check_kernel
from fuser.protocol.explore import explore
from fuser.protocol.model import analyse, exact_model, open_model
from fuser.protocol.mutants import mutants
from fuser.protocol.story import tell
from fuser.protocol.verdict import check
from fuser.schedule.circular import Pipelined, WarpSpecialized

pytestmark = pytest.mark.protocol

L = LoadStoreOpType
TILE = 256
FORMS = [
    Pipelined(war="mbarrier"), Pipelined(war="barrier"), Pipelined(sync="token"), WarpSpecialized(),
]  # fmt: skip
ALWAYS = {
    "wait dropped", "arrive dropped", "fence dropped", "count changed", "bytes changed",
    "stage changed", "wait moved behind the use", "barrier dropped",
}  # fmt: skip
SEEDS = range(4)


def runs_wrong(mutant, trips):
    """Whether checked execution of so many trips complains under one of a few interleavings."""
    x = np.ones(TILE * trips, "f4")
    for seed in SEEDS:
        try:
            arrays = {"x": x, "y": np.zeros_like(x)}
            check_kernel(mutant, {"x_size0": x.size}, arrays, seed=seed)
        except ProtocolError:
            return True
    return False


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("S", [2])
def test_every_mutant_is_wrong_by_proof_and_by_exploration(form, S):
    made = mutants(kernel(ring_map(L.bulk, S, S - 1, form)))
    assert {m.kind for m in made} >= ALWAYS
    for mutant in made:
        verdict = check(mutant.kernel)
        assert verdict.reach == "wrong", (mutant.kind, mutant.where, verdict.note)
        assert verdict.trips, (mutant.kind, mutant.where)
        assert f"     {verdict.fault.kind}: {verdict.fault.text}" in tell(
            verdict.model, verdict.fault
        )


@pytest.mark.parametrize("load", [L.cp_async, L.set], ids=lambda load: load.name)
def test_mutants_of_loads_by_threads_are_caught(load):
    for mutant in mutants(kernel(ring_map(load, 2, 1, Pipelined(war="mbarrier")))):
        assert check(mutant.kernel).reach == "wrong", (mutant.kind, mutant.where)


def test_a_phase_that_is_not_carried_over_rows_is_found_in_the_second_row():
    made = mutants(kernel(ring_rows(L.tma, 2, 1, WarpSpecialized())))
    kinds = [m for m in made if m.kind == "phase not carried over the outer loop"]
    assert len(kinds) == 2
    for mutant in kinds:
        verdict = check(mutant.kernel)
        assert verdict.reach == "wrong"
        assert verdict.trips == (2, 1)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_checked_execution_agrees(form):
    """It is a sample: what it sees is wrong is wrong, and what is right it never blames."""
    original = kernel(ring_map(L.bulk, 2, 1, form))
    assert not any(runs_wrong(original, trips) for trips in (0, 1, 2, 5))
    seen = total = 0
    for mutant in mutants(original):
        verdict = check(mutant.kernel)
        wrong = any(runs_wrong(mutant.kernel, n) for n in dict.fromkeys((*verdict.trips, 7)))
        assert verdict.reach == "wrong" or not wrong
        seen, total = seen + wrong, total + 1
    assert seen >= total - 2, f"{seen} of {total}"  # a rare interleaving may be missed


def test_the_shortest_story_ends_with_who_waits_for_what():
    original = kernel(ring_map(L.bulk, 2, 1, Pipelined(war="mbarrier")))
    mutant = next(m for m in mutants(original) if m.kind == "bytes changed")
    verdict = check(mutant.kernel)
    assert verdict.trips == (1,)
    lines = tell(verdict.model, verdict.fault)
    assert lines[0].endswith("the barriers are initialised")
    assert any("announces 1040 bytes" in line for line in lines)
    assert "     deadlock: nobody can go on" in lines
    assert "     warp 1 waits on x_cache_full[0] for parity 0, trip 0" in lines
    assert "     x_cache_full[0]: 0 of 1 arrivals and 16 bytes pending" in lines


def test_a_fault_beyond_the_first_period_is_found():
    """Folding keeps what happens late: a wait that is right for one round only."""
    original = kernel(ring_map(L.bulk, 2, 1, Pipelined(war="mbarrier")))
    kinds = [m for m in mutants(original) if m.kind == "phase not carried"]
    assert kinds
    for mutant in kinds:
        analysis = analyse(mutant.kernel)
        fault = explore(open_model(analysis)).fault
        assert fault is not None
        assert explore(exact_model(analysis, (1,))).fault is None


def test_mutants_change_one_place_and_keep_the_rest():
    original = kernel(ring_map(L.bulk, 2, 1, Pipelined(war="mbarrier")))
    made = mutants(original)
    assert len({(m.kind, repr(m.kernel.body)) for m in made}) == len(made)
    for mutant in made:
        assert mutant.kernel.body != original.body
        assert replace(mutant.kernel, body=original.body) == original
