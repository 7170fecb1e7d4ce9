"""Consumer groups: what is refused and why, the kernel's text, and who owns which stage."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from rings.families import DEPTH, Choices, groups_map

from fuser import FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.core.errors import ScheduleError
from fuser.schedule.circular import WarpSpecialized

pytestmark = pytest.mark.unit

P, L = ParallelType, LoadStoreOpType
OWN, TURNS = WarpSpecialized(P.block_y, None, 3), WarpSpecialized(P.block_y, None, 3, True)


def text_of(fd: FusionDefinition, *shape: int) -> str:
    """Return the CUDA of a fusion of one input."""
    x = np.zeros(shape, np.float32)
    (kernel,) = program_of(fd, bind(fd, [x], True), True).kernels
    return emit(kernel)


def refused(text: str, fd: FusionDefinition, *shape: int) -> None:
    with pytest.raises(ScheduleError, match=re.escape(text)):
        text_of(fd, *shape)


def rows(kind: WarpSpecialized, axes: tuple[int, ...] = (0, 1, 2, 3, 4), **bound: Any) -> Any:
    """Sum rows, one a thread; `axes` orders round, group, trip, row and column."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, bound.get("columns", -1)], contiguity=[True] * 2)
        s = fd.ops.sum(x, [1])
        fd.add_output(s)
    cache = x.cache_after(L.tma)
    cache.set_memory_type(MemoryType.shared)
    for t in (s, cache):
        t.split(0, 32)
        t.split(0, bound.get("groups", 2))
        t.split(3, DEPTH)
        t.reorder({3: 2, 2: 3})
        t.reorder({old: new for new, old in enumerate(axes)})
        t.axis(axes.index(1)).parallelize(P.block_y)
    s.axis(3).parallelize(P.block_x)
    for axis in (3, 4):
        cache.axis(axis).parallelize(P.tma)
    if "inner" in bound:
        for t in (s, cache):
            t.split(2, bound["inner"])
    cache.inline_at(s, 3 + ("inner" in bound))
    cache.circular_buffer(bound.get("stages", 4), None, kind)
    return fd


def test_turns_need_groups():
    with pytest.raises(ScheduleError, match="ping_pong is an order of consumer groups; needed a"):
        WarpSpecialized(P.block_y, ping_pong=True)


@pytest.mark.parametrize("position", [0, 4, -1])
def test_slice_positions_lie_inside_the_compute_position(position: int):
    text = f"stage_slice_position {position}; needed 1 to 3, the compute-at position"
    with pytest.raises(ScheduleError, match=re.escape(text)):
        rows(WarpSpecialized(P.block_y, None, position))


def test_groups_that_own_stages_divide_them():
    text = "5 stages for 2 consumer groups that each have stages of their own; needed a multiple"
    refused(text, rows(OWN, stages=5), 100, 64)
    assert "x_cache_turn" in text_of(rows(TURNS, stages=5), 100, 64)


def test_turns_are_taken_around_a_loop():
    fd = rows(WarpSpecialized(P.block_y, None, 3, True), (0, 2, 1, 3, 4))
    refused("ping_pong, and no serial loop lies between axis 2 (block_y) and", fd, 100, 64)


def test_groups_lie_inside_a_loop_that_they_share():
    refused("no serial loop is left of it; needed one over the trips", rows(OWN, (1, 0, 2, 3, 4)),
            100, 64)  # fmt: skip


def test_turns_without_an_axis_of_groups():
    fd = rows(WarpSpecialized(P.block_y, None, 1, True))
    refused("there are no groups to take turns", fd, 100, 64)


def test_hardware_barriers_bound_the_groups():
    refused("16 consumer groups; a block has hardware barriers for 13",
            rows(OWN, groups=16, stages=16), 100, 64)  # fmt: skip


def test_each_group_has_stages_of_its_own():
    text = text_of(rows(OWN), 300, 64)
    assert re.search(r"ty \* 2 \+ at\d;", text), text
    assert re.search(r"g0 \* 2 \+ at\d;", text), text
    assert "x_cache_turn" not in text


def test_turns_pass_from_group_to_group():
    text = text_of(rows(TURNS, groups=3, stages=3), 300, 64)
    assert "mbarrier_wait(x_cache_turn + ty, i0 % 2 ^ (ty == 0 ? 1 : 0));" in text, text
    assert "mbarrier_arrive(x_cache_turn + (ty + 1) % 3);" in text, text


@pytest.mark.parametrize("groups", [2, 3, 4])
@pytest.mark.parametrize("kind", [OWN, TURNS], ids=["own", "turns"])
def test_any_number_of_groups(groups: int, kind: WarpSpecialized):
    fd = rows(kind, groups=groups, stages=groups * 2)
    for shape in ((1, 16), (32 * groups, 16), (32 * groups * 2 + 33, 80), (40, 100)):
        x = np.random.default_rng(0).integers(-9, 10, shape).astype(np.float32)
        (s,) = fd.manual_execute([x], backend="interpret")
        np.testing.assert_array_equal(s, x.sum(1, dtype=np.float64))


def test_producers_may_be_part_of_a_row_of_threads():
    """A row of 64 threads with one producer warp: the other warp has no role."""
    choices = Choices((L.tma,), 2, None, WarpSpecialized(P.block_y, None, 2), threads=128)
    text = text_of(groups_map(choices), 1000)
    assert "__launch_bounds__(192)" in text
    assert "role_thread >= 128 && role_thread < 160" in text


@pytest.mark.parametrize("turns", [False, True])
def test_stages_of_a_slice_hold_inner_loops(turns: bool):
    """A slice left of a serial loop: one stage holds the tiles of all of its trips."""
    if turns:  # a loop of trips inside the group, and one inside the stage
        fd = rows(WarpSpecialized(P.block_y, None, 3, True), columns=64, inner=2)
    else:
        fd = rows(WarpSpecialized(P.block_y, None, 2), columns=64)
    text = text_of(fd, 300, 64)
    nbytes = 32 * DEPTH * 4 * (2 if turns else 4)
    assert "mbarrier_arrive_expect_tx(x_cache_full + " in text
    assert f", {nbytes});" in text, text
    x = np.random.default_rng(0).integers(-9, 10, (300, 64)).astype(np.float32)
    (s,) = fd.manual_execute([x], backend="interpret")
    np.testing.assert_array_equal(s, x.sum(1, dtype=np.float64))


def test_reductions_over_threads_of_a_group():
    """Columns over threads: each group would have to meet in the middle of its trips."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 64], contiguity=[True] * 2)
        s = fd.ops.sum(x, [1])
        fd.add_output(s)
    cache = x.cache_after(L.tma)
    cache.set_memory_type(MemoryType.shared)
    for t in (s, cache):
        t.split(0, 2)  # round, group, column
        t.axis(1).parallelize(P.block_y)
    s.axis(2).parallelize(P.block_x)
    cache.axis(2).parallelize(P.tma)
    cache.inline_at(s, 2)
    cache.circular_buffer(2, None, WarpSpecialized(P.block_y, None, 2))
    refused("is reduced over block_x inside a consumer group; needed a ring without", fd, 100, 64)
