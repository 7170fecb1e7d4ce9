"""Tiles loaded inside the loop of another ring: every copy is waited for, and judged so."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from manual_schedules import program, run_checked
from nested_rings import CASES, COLS, LOADS, ONCE, OUTER, ROLES, Case, Once

from fuser import FusionDefinition, LoadStoreOpType, MemoryType, ParallelType, WarpSpecialized
from fuser.core.errors import ScheduleError
from fuser.core.expr import Const
from fuser.kir.core import walk_stmts
from fuser.kir.stmts import NamedBarrier, Roles, SyncThreads
from fuser.protocol.explore import explore
from fuser.protocol.model import analyse, exact_model
from fuser.protocol.mutants import mutants
from fuser.protocol.verdict import check

pytestmark = pytest.mark.protocol

P, L = ParallelType, LoadStoreOpType


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


# ---- run by the consumers of a ring with roles ---------------------------------------------------


def odd(stages: int) -> tuple[int, ...]:
    """Return the numbers of trips at which something changes."""
    return tuple(dict.fromkeys((0, 1, stages - 1, stages, stages + 1, 3 * stages + 1)))


@pytest.mark.parametrize("load", LOADS)
def test_odd_numbers_of_trips_of_either_ring(load, rng):
    """One kernel for all of them."""
    fd = Case(load, ROLES, 3, 2).fusion()
    for trips, inner in (*product(odd(3), (1, 5)), *product((2,), odd(2))):
        case = Case(load, ROLES, 3, 2)
        x, w = case.inputs(rng, trips, inner)
        expected = (x.astype("f8") + w[:, None]).tolist()
        (found,) = fd.manual_execute([x, w], backend="interpret")
        assert found.tolist() == expected, (trips, inner)
        if x.size:
            (found,) = run_checked(fd, [x, w], seed=trips)
            assert found.tolist() == expected, (trips, inner)


PROVED = [Case(L.tma, ROLES, 2, 0), Case(L.tma, ROLES, 2, 0, True), Case(L.set, ROLES, 1, 2)]


@pytest.mark.parametrize("case", PROVED, ids=str)
def test_tiles_that_consumers_load_are_proved(case, rng):
    """For every number of trips; others are explored above."""
    (kernel,) = program(case.fusion(), case.inputs(rng, 2, 2)).kernels
    assert check(kernel).reach == "proved"


@pytest.mark.parametrize("inner", [0, 2])
def test_only_the_threads_of_the_role_take_part(inner, rng):
    """The block has 32 more: no barrier of it stands inside of the roles."""
    (kernel,) = program(Case(L.tma, ROLES, 2, inner).fusion(), [*inputs_of(rng)]).kernels
    (roles,) = (s for s in kernel.body if isinstance(s, Roles))
    inside = [s for s in walk_stmts(roles.roles[0].body) if isinstance(s, NamedBarrier)]
    assert [(s.id, s.threads) for s in inside] == [(Const(1), COLS)] * len(inside)
    assert len(inside) >= 2
    assert not [s for s in walk_stmts((roles,)) if isinstance(s, SyncThreads)]


def inputs_of(rng):
    return Case(L.tma, ROLES, 2, 2).inputs(rng, 2, 2)


@pytest.mark.parametrize("inner", [0, 2])
def test_mutants_of_a_consumers_ring_are_caught(inner, rng):
    case = Case(L.tma, ROLES, 2, inner)
    (kernel,) = program(case.fusion(), case.inputs(rng, 2, 2)).kernels
    made = [m for m in mutants(kernel) if "x_cache" in m.where]
    assert len(made) >= (18 if inner == 0 else 36)
    made = made[:: 1 if inner == 0 else 3]
    found = [any(explored(m.kernel, trips) for trips in ((2, 3), (1, 5))) for m in made]
    assert [(m.kind, m.where) for m, wrong in zip(made, found, strict=True) if not wrong] == []


@pytest.mark.parametrize("once", ONCE, ids=str)
def test_a_tile_that_is_loaded_before_the_roles_part(once: Once, rng):
    """By all threads of the block, or by the one that issues copies; the block meets behind it."""
    fd = once.fusion()
    for trips in odd(2):
        x, b = once.inputs(rng, trips)
        (found,) = fd.manual_execute([x, b], backend="interpret")
        assert found.tolist() == (x.astype("f8") + b).tolist()
        if trips:
            (found,) = run_checked(fd, [x, b], seed=trips)
            assert found.tolist() == (x.astype("f8") + b).tolist()
    if once.load is L.bulk and once.outer == ROLES:
        (kernel,) = program(fd, once.inputs(rng, 2)).kernels
        assert check(kernel).reach == "proved"


def test_tiles_of_consumer_groups_are_refused():
    """Each would need barriers of its own."""
    with FusionDefinition() as fd:
        x, z = (fd.define_tensor([-1], True) for _ in range(2))
        y = x + z
        fd.add_output(y)
    tile, other = x.cache_after(L.bulk), z.cache_after(L.cp_async)
    for t in (y, tile, other):
        t.split(0, 256)
        t.split(0, 2)
        t.axis(1).parallelize(P.block_y)
    for t in (y, other):
        t.split(2, 32)
        t.axis(3).parallelize(P.block_x)
    tile.axis(2).parallelize(P.tma)
    for t in (tile, other):
        t.set_memory_type(MemoryType.shared)
        t.inline_at(y, 2)
    tile.circular_buffer(4, type=WarpSpecialized(P.block_y, stage_slice_position=2))
    text = "z_cache: loaded by a ring of barriers inside of consumer groups, which would need"
    with pytest.raises(ScheduleError, match=text):
        fd.manual_execute([np.ones(1024, "f4")] * 2)


def test_a_tile_that_blocks_share_is_refused_inside_of_roles():
    with FusionDefinition() as fd:
        x, b = fd.define_tensor([-1, -1], True), fd.define_tensor([-1], True)
        y = x + fd.ops.broadcast_in_dim(b, fd.ops.shape(x), [1])
        fd.add_output(y)
    tiles = [t.cache_after(L.tma) for t in (x, b)]
    y.split(0, 2)
    y.split(2, 256)
    fd.sched.transform_like(y, tiles)
    for t in (y, *tiles):
        t.axis(0).parallelize(P.grid_x)
        t.axis(1).parallelize(P.cluster_x)
    y.axis(3).parallelize(P.block_x)
    for tile in tiles:
        tile.set_memory_type(MemoryType.shared)
        tile.axis(3).parallelize(P.tma)
        tile.inline_at(y, 3)
    tiles[0].circular_buffer(3, type=WarpSpecialized())
    text = "b_cache: multicast in a cluster inside of a warp role, and a cluster meets with all"
    with pytest.raises(ScheduleError, match=text):
        fd.manual_execute([np.ones((4, 1024), "f4"), np.ones(1024, "f4")])
