"""What a refused unroll directive says: the axis, its tensor, and what to write instead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.core.errors import ScheduleError
from fuser.core.expr import ONE, ZERO, Const, Expr, Var
from fuser.core.unroll import Unroll
from fuser.fusion.graph import FusionGraph
from fuser.kir.core import GRID_1, Kernel
from fuser.kir.scalar import Literal
from fuser.kir.stmts import Assign, DeclareScalar, For, Stmt
from fuser.nest.nodes import Loop, LoopNest
from fuser.passes.lower import check_directives
from fuser.passes.unroll import SplitPartial
from fuser.passes.unroll_copies import UnrollCopies
from fuser.schedule.propagate import NO_FACTS
from fuser.schedule.schedule import Schedule

pytestmark = pytest.mark.unit

P, L, F32 = ParallelType, LoadStoreOpType, DataType.Float
AXIS = "y: axis 1"


def refused(text: str, fd: FusionDefinition, *shape: int) -> None:
    """Check the whole text of a refusal of a schedule, and that it names this file."""
    with pytest.raises(ScheduleError) as caught:
        program_of(fd, bind(fd, [np.ones(shape, "f4")], True), True)
    location = caught.value.location
    assert location is not None
    assert Path(location.file).name == Path(__file__).name
    assert str(caught.value) == f"{location}: {text}"


# ---- loops of a kernel that no schedule makes today --------------------------------------------


def looped(
    unroll: Unroll, extent: Expr, start: Expr = ZERO, step: Expr = ONE, *more: Stmt
) -> Kernel:
    body = (Assign("a", Literal(1.0, F32)), *more)
    loop = For("i", extent, body, unroll, start, step)
    scalar = DeclareScalar("a", F32, Literal(0.0, F32))
    return Kernel("k", (), (), GRID_1, GRID_1, "i32", (scalar, loop))


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (
            looped(Unroll("partial", 4, AXIS), Const(64), ZERO, Const(32)),
            "y: axis 1 has the directive unroll(4), and its loop has step 32; needed 1: rolled(), "
            "or an axis that no threads share",
        ),
        (
            looped(Unroll("full", origin=AXIS), Var("n")),
            "y: axis 1 has the directive unroll(), and its loop runs from 0 to n; needed "
            "constants: split it, or unroll(n)",
        ),
        (
            looped(Unroll("full", origin=AXIS), Const(4), Var("g")),
            "y: axis 1 has the directive unroll(), and its loop runs from g to 4; needed "
            "constants: split it, or unroll(n)",
        ),
        (
            looped(Unroll("full", origin=AXIS), Const(1025)),
            "y: axis 1 has the directive unroll() and 1025 trips; needed at most 1024: split it, "
            "or unroll(n)",
        ),
    ],
    ids=["step", "extent", "start", "trips"],
)
def test_loops_that_cannot_be_copied(kernel: Kernel, text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        UnrollCopies(NO_FACTS)(SplitPartial(NO_FACTS)(kernel))
    assert str(caught.value) == text


def test_1024_trips_are_copied() -> None:
    kernel = UnrollCopies(NO_FACTS)(looped(Unroll("full", origin=AXIS), Const(1024)))
    assert len(kernel.body) == 1 + 1024


def nest(*loops: Loop) -> LoopNest:
    return LoopNest("k", FusionGraph(), Schedule({}), (), loops, NO_FACTS)


def axis_loop(unroll: Unroll, outlined: str = "", extent: int = 4) -> Loop:
    return Loop("i", Const(extent), P.serial, unroll, (), outlined=outlined)


@pytest.mark.parametrize(
    ("loop", "text"),
    [
        (
            axis_loop(Unroll("rolled", origin=AXIS)),
            "y: axis 1 has the directive rolled(), and no loop came of it: nothing is computed "
            "there; needed a directive on the axis that computes",
        ),
        (
            axis_loop(Unroll("partial", 2, AXIS)),
            "y: axis 1 has the directive unroll(2), and no loop came of it: nothing is computed "
            "there; needed a directive on the axis that computes",
        ),
        (
            axis_loop(Unroll(), AXIS),
            "y: axis 1 has the directive outlined(), and no loop that computes came of it; needed "
            "a directive on the axis of a tensor that threads compute",
        ),
    ],
    ids=["rolled", "partial", "outlined"],
)
def test_an_axis_that_no_loop_came_of(loop: Loop, text: str) -> None:
    """One trip is no loop, and needs none; a loop that somebody shares is enough."""
    with pytest.raises(ScheduleError) as caught:
        check_directives(nest(loop), ())
    assert str(caught.value) == text
    check_directives(nest(replace(loop, extent=ONE)), ())
    made = For("i", Const(4), (), loop.unroll, outlined=loop.outlined)
    check_directives(nest(loop), (made,))


# ---- schedules ---------------------------------------------------------------------------------


def test_loops_that_only_the_copy_engine_runs_are_no_functions() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    part = y.cache_before(L.tma)
    part.set_memory_type(MemoryType.shared)
    for t in (y, part):
        t.split(1, 512)
        t.split(2, 256)
        t.axis(0).parallelize(P.grid_x)
    part.axis(3).parallelize(P.block_x)
    y.axis(3).parallelize(P.tma)
    y.axis(2).outlined()
    part.inline_at(y, 2)
    refused(
        "y: axis 2 has the directive outlined(), and no loop that computes came of it; needed a "
        "directive on the axis of a tensor that threads compute",
        fd, 3, 3000,
    )  # fmt: skip


@pytest.mark.parametrize(("columns", "extent"), [(-1, "x_size1"), (1025, "1025")])
def test_an_axis_bound_to_unroll_has_few_trips(columns: int, extent: str) -> None:
    """Every tensor in the loop is named, with the axis that is the loop."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, columns], contiguity=True)
        y = fd.ops.sin(x)
        z = y * 2.0
        fd.add_output(z)
    y.set_memory_type(MemoryType.shared)
    z.axis(0).parallelize(P.grid_x)
    z.axis(1).parallelize(P.unroll)
    fd.sched.parallelize_like(z)
    y.inline_at(z, 2)
    refused(
        f"y: axis 1, z: axis 1 of extent {extent} is bound to unroll; needed a constant of at most "
        "1024: split it, or its directive unroll(n)",
        fd, 3, 1025,
    )  # fmt: skip


@pytest.mark.parametrize("factor", [None, 2])
def test_trips_of_a_ring_in_registers(factor: int | None) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
    ahead = x.cache_after()
    for t in (y, ahead):
        t.split(1, 64)
        t.axis(0).parallelize(P.grid_x)
        t.axis(2).parallelize(P.block_x)
    ahead.inline_at(y, 2)
    ahead.circular_buffer(3)
    y.axis(1).rolled() if factor is None else y.axis(1).unroll(factor)
    directive = "rolled()" if factor is None else f"unroll({factor})"
    refused(
        f"y_acc: axis 1 has the directive {directive}, and x_cache runs ahead of its trips in 3 "
        "slots of registers, which have no addresses; needed no directive or unroll(3), rounds of "
        "a trip a slot, or unroll()",
        fd, 3, 4000,
    )  # fmt: skip
