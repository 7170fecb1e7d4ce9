"""Tiles loaded inside the loop of another ring: every copy is waited for, and judged so."""

from __future__ import annotations

import numpy as np
import pytest
from manual_schedules import program, run_checked
from nested_rings import CASES, LOADS, OUTER, Case

from fuser import LoadStoreOpType, WarpSpecialized
from fuser.core.errors import ScheduleError
from fuser.protocol.explore import explore
from fuser.protocol.model import analyse, exact_model
from fuser.protocol.mutants import mutants
from fuser.protocol.verdict import check

pytestmark = pytest.mark.protocol


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tiles_inside_of_a_ring(case: Case, rng):
    fd = case.fusion()
    for trips in (1, 2, 5):
        x, w = case.inputs(rng, trips, 3)
        expected = (x.astype("f8") + w[:, None]).tolist()
        (found,) = fd.manual_execute([x, w], backend="interpret")
        assert found.tolist() == expected
        (found,) = run_checked(fd, [x, w], seed=trips)
        assert found.tolist() == expected


def explored(kernel, trips):
    """Return what is wrong with a kernel that makes so many trips of each loop."""
    analysis = analyse(kernel)
    assert analysis is not None
    return explore(exact_model(analysis, trips)).fault


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_checker_finds_nothing_wrong(case: Case, rng):
    (kernel,) = program(case.fusion(), case.inputs(rng, 2, 2)).kernels
    for trips in ((0, 0), (1, 1), (2, 1), (1, 2), (2, 2), (3, 2)):
        fault = explored(kernel, trips)
        assert fault is None, (trips, fault.text)


def test_a_ring_of_one_stage_inside_of_another_is_proved(rng):
    case = Case(LoadStoreOpType.set, OUTER[0], 1, 1)
    (kernel,) = program(case.fusion(), case.inputs(rng, 2, 2)).kernels
    assert check(kernel).reach == "proved"


@pytest.mark.parametrize("inner", [0, 2])
def test_mutants_of_the_inner_ring_are_caught(inner, rng):
    """The barriers of the block around it make those of the outer ring more than is needed."""
    case = Case(LoadStoreOpType.tma, OUTER[0], 2, inner)
    (kernel,) = program(case.fusion(), case.inputs(rng, 2, 2)).kernels
    made = [m for m in mutants(kernel) if m.kind.endswith("dropped") and "(x_cache" in m.where]
    assert len(made) >= (2 if inner == 0 else 6)
    assert [m.where for m in made if not explored(m.kernel, (2, 3))] == []


@pytest.mark.parametrize("load", [load for load in LOADS if load is not LoadStoreOpType.set])
@pytest.mark.parametrize("inner", [0, 2])
def test_a_tile_that_consumers_would_load_is_refused(load, inner):
    """Its barriers are made by all threads of the block, and producers do not come by."""
    case = Case(load, WarpSpecialized(), 3, inner)
    with pytest.raises(ScheduleError, match="x_cache: loaded by a ring inside the roles of"):
        case.fusion().manual_execute([np.ones((8, 256), "f4"), np.ones(8, "f4")])
