"""Loops that the generator unrolls by its own choice, or because of what they are bound to.

In all of them the loops of the machine code are those that have a mark; registers stay registers.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from sass_loops import require_marked_loops

from fuser import FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.api.tensor import Tensor
from fuser.core.errors import ScheduleError
from fuser.kir.core import Kernel, walk_stmts
from fuser.kir.stmts import For

pytestmark = pytest.mark.nvrtc

P, L = ParallelType, LoadStoreOpType
ARCHITECTURES = ("sm_80", "sm_90a", "sm_120a")


def kernel_of(fd: FusionDefinition, *shape: int) -> Kernel:
    (kernel,) = program_of(fd, bind(fd, [np.ones(shape, "f4")], True), True).kernels
    return kernel


def sums(*extents: int) -> tuple[FusionDefinition, Tensor, Tensor]:
    """``y = sum(x)`` over all dimensions but the first."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, *extents], contiguity=True)
        y = fd.ops.sum(x, list(range(1, len(extents) + 1)))
        fd.add_output(y)
    return fd, x, y


@pytest.mark.parametrize(
    ("extents", "arch"),
    [
        *itertools.product([(16, 16, 16), (16, 16), (8, 8, 8, 2)], ARCHITECTURES),
        # Of two loops around the copies ptxas makes one of as many trips for sm_80.
        *itertools.product([(4, 16, 16, 16), (16, 16, 16, 20)], ARCHITECTURES[1:]),
    ],
    ids=str,
)
def test_short_loops_in_short_loops_are_not_unrolled_without_end(
    extents: tuple[int, ...], arch: str
) -> None:
    """Copies of a nest are limited; what is left is a loop with a mark, not one by accident."""
    fd, _, y = sums(*extents)
    y.axis(0).parallelize(P.grid_x)
    report = require_marked_loops(extents, kernel_of(fd, 3, *extents), arch)
    assert report.loads <= 1024
    assert report.loads > 15


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("inner", ["rolled", "by 2", "nothing"])
@pytest.mark.parametrize("columns", [-1, 6000])
def test_loops_bound_to_unswitch_of_unknown_or_many_trips(
    columns: int, inner: str, arch: str
) -> None:
    fd, _, y = sums(columns)
    y.split(1, 4)
    y.axis(1).parallelize(P.unswitch)
    if inner == "rolled":
        y.axis(2).rolled()
    elif inner == "by 2":
        y.axis(2).unroll(2)
    require_marked_loops((columns, inner), kernel_of(fd, 3, 6000), arch)


@pytest.mark.parametrize(("columns", "extent"), [(-1, "x_size1"), (6000, "6000")])
def test_only_constants_can_be_bound_to_unroll(columns: int, extent: str) -> None:
    fd, _, y = sums(columns)
    y.axis(1).parallelize(P.unroll)
    with pytest.raises(ScheduleError, match=f"y_acc: axis 1 of extent {extent} is bound to unr"):
        kernel_of(fd, 3, 6000)


def test_copies_of_loops_that_the_compiler_unrolls_count() -> None:
    """1024 copies of 256 loads would take NVRTC minutes."""
    fd, _, y = sums(1024, 16, 16)
    y.axis(1).unroll()
    with pytest.raises(ScheduleError, match=r"axis 1 unrolled into 1024 copies makes \d{6} statem"):
        kernel_of(fd, 3, 1024, 16, 16)


@pytest.mark.parametrize("default", ["auto", "rolled"])
def test_long_loops_that_choose_registers_are_unrolled(default: Any) -> None:
    """32 sums of a thread, twice as many trips as a loop unrolls by itself: none in memory."""
    with FusionDefinition(default_unroll=default) as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
    y.split(0, 32)
    y.reorder({1: 2})
    y.axis(0).parallelize(P.grid_x)
    report = require_marked_loops(default, kernel_of(fd, 70, 40))
    assert (report.local_loads, report.local_stores) == (0, 0)


# ---- rings in registers ------------------------------------------------------------------------


def ring(columns: int, slots: int = 3) -> tuple[FusionDefinition, Tensor]:
    fd, x, y = sums(columns)
    ahead = x.cache_after()
    for t in (y, ahead):
        t.split(1, 64)
        t.axis(0).parallelize(P.grid_x)
        t.axis(2).parallelize(P.block_x)
    ahead.inline_at(y, 2)
    ahead.circular_buffer(slots, slots - 1)
    return fd, y


@pytest.mark.parametrize("columns", [400, 4000, -1])
@pytest.mark.parametrize("factor", [None, 2, 4])
def test_slots_of_registers_cannot_be_chosen_by_a_loop(columns: int, factor: int | None) -> None:
    fd, y = ring(columns)
    if factor is None:
        y.axis(1).rolled()
    else:
        y.axis(1).unroll(factor)
    with pytest.raises(ScheduleError, match=r"axis 1 has the directive .* in 3 slots of registers"):
        kernel_of(fd, 3, 400 if columns < 0 else columns)


@pytest.mark.parametrize(
    ("columns", "factor", "loops"), [(4000, None, 0), (400, None, 0), (4000, 3, 1), (-1, 3, 2)]
)
def test_directives_that_a_ring_in_registers_can_obey(
    columns: int, factor: int | None, loops: int
) -> None:
    """All trips, or a round of a trip a slot; the second of two loops are the last rounds."""
    fd, y = ring(columns)
    y.axis(1).unroll() if factor is None else y.axis(1).unroll(factor)
    made = kernel_of(fd, 3, 4000 if columns < 0 else columns)
    assert require_marked_loops((columns, factor), made).rolled_loops == loops


# ---- directives that are copied, or lost -------------------------------------------------------


def test_a_tensor_keeps_its_own_directive() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1, 12], contiguity=True)
        y = x * 2.0
        z = y + 1.0
        fd.add_output(z)
    y.axis(1).rolled()
    z.axis(1).unroll(4)
    z.axis(2).outlined()
    fd.sched.parallelize_like(z)
    kinds = [[axis.unroll.kind for axis in t.schedule.domain.loop] for t in (y, z)]
    assert kinds == [["auto", "rolled", "auto"], ["auto", "partial", "auto"]]
    assert y.schedule.domain.loop[2].outlined


def test_boxes_cannot_be_outlined() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    tile = x.cache_after(L.tma)
    tile.set_memory_type(MemoryType.shared)
    for t in (y, tile):
        t.split(0, 512)
    y.split(1, 64)
    y.axis(2).parallelize(P.block_x)
    tile.split(1, 256)
    tile.axis(2).parallelize(P.tma)
    tile.axis(1).outlined()
    tile.inline_at(y, 1)
    with pytest.raises(ScheduleError, match=r"x_cache: axis 1 has the directive outlined\(\), and"):
        kernel_of(fd, 3000)


def test_a_loop_of_the_kernel_says_why_it_is_unrolled() -> None:
    """Nothing is left to whoever reads the kernel: each loop is full, partial or rolled."""
    fd, _, y = sums(16, 16, 16)
    y.axis(0).parallelize(P.grid_x)
    loops = [s for s in walk_stmts(kernel_of(fd, 3, 16, 16, 16).body) if isinstance(s, For)]
    assert sorted(loop.unroll.kind for loop in loops) == ["full", "full", "rolled"]
