"""Directives that something copies: replayed transforms, copies of a loop, kernels of recipes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.api.listen import listening
from fuser.api.tensor import Tensor
from fuser.core.errors import ScheduleError
from fuser.core.expr import ONE, ZERO, Const, Expr, Var, maximum, minimum
from fuser.core.unroll import Unroll
from fuser.kir.core import GRID_1, Kernel, walk_stmts
from fuser.kir.scalar import Literal
from fuser.kir.stmts import Assign, For
from fuser.passes.unroll import SplitPartial
from fuser.schedule.propagate import NO_FACTS

pytestmark = pytest.mark.unit

P = ParallelType
AXIS = "y: axis 1"


class Listener:
    """Hears of everything and does nothing."""

    def building(self, fd: Any, sizes: Any) -> Any:
        return lambda *args: None

    def built(self, *args: Any) -> None:
        pass


@pytest.mark.parametrize("listened", [False, True])
@pytest.mark.parametrize(("default", "kind"), [("auto", "full"), ("rolled", "rolled")])
def test_the_default_is_that_of_automatic_schedules_too(
    default: Any, kind: str, listened: bool
) -> None:
    with FusionDefinition(default_unroll=default) as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(fd.ops.sum(fd.ops.unfold(x, 0, 4), [1]))
    call = bind(fd, [np.ones(99, "f4")])
    with listening(Listener()) if listened else nullcontext():
        (kernel,) = program_of(fd, call).kernels
    taps = [s for s in walk_stmts(kernel.body) if isinstance(s, For) and s.trip() == 4]
    assert [loop.unroll for loop in taps] == [Unroll(kind)]


# ---- transforms --------------------------------------------------------------------------------


def directed() -> tuple[FusionDefinition, Tensor, Tensor]:
    """``z = sin(x) * 2`` in loops [N, n / 4, 4], of which `z` has three directives."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.sin(x)
        z = y * 2.0
        fd.add_output(z)
    y.set_memory_type(MemoryType.local)
    z.split(1, 4)
    z.axis(0).rolled()
    z.axis(1).unroll(3)
    z.axis(2).rolled()
    z.axis(2).outlined()
    return fd, y, z


def directives(tensor: Tensor) -> list[str]:
    return [axis.directives for axis in tensor.schedule.domain.loop]


@pytest.mark.parametrize("bound", [False, True])
def test_replayed_transforms_come_with_their_directives_if_the_bindings_do(bound: bool) -> None:
    fd, y, z = directed()
    fd.sched.bounded_transform_backward(z, propagate_parallel_type=bound)
    asked = ["rolled()", "unroll(3)", "rolled() and outlined()"]
    assert directives(z) == asked
    assert directives(y) == (asked if bound else [""] * 3)
    assert len(y.loop_axes) == 3


def test_the_result_of_a_reduction_has_the_directives_of_its_kept_axes() -> None:
    """And its readers, to which they are replayed from there."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.sum(x, [1])
        z = y * 2.0
        fd.add_output(z)
    y.split(0, 4)
    y.axis(0).unroll(3)
    y.axis(1).rolled()
    y.axis(1).outlined()
    y.axis(2).rolled()
    fd.sched.transform_like(y, [z])
    fd.sched.parallelize_like(y, selected_tensors=[z])
    assert directives(z) == ["unroll(3)", "rolled() and outlined()"]


@pytest.mark.parametrize("selected", [False, True])
def test_transforms_do_not_replace_loops_that_have_directives(selected: bool) -> None:
    fd, y, z = directed()
    y.axis(1).rolled()
    text = (
        r"z: axis 1 of y has the directive rolled\(\), and its loops would be replaced; transform "
    )
    with pytest.raises(ScheduleError, match=text):
        fd.sched.transform_like(z, [y] if selected else ())
    assert directives(y) == ["", "rolled()"]


def test_loops_that_begin_and_end_a_reduction_have_the_directive_of_its_axis() -> None:
    """Eight sums of a thread: each is set, added to and stored by itself, without a loop."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1, 8], contiguity=True)
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
    y.axis(0).parallelize(P.grid_x)
    y.axis(2).unroll()
    call = bind(fd, [np.ones((3, 5, 8), "f4")], True)
    (kernel,) = program_of(fd, call, True).kernels
    assert [s.trip() for s in walk_stmts(kernel.body) if isinstance(s, For)] == [None]


# ---- copies of a loop --------------------------------------------------------------------------


def split(loop: For) -> list[For]:
    """Return the loops that are made of one, in a kernel without other statements."""
    kernel = Kernel("k", (), (), GRID_1, GRID_1, "i32", (loop,))
    made = SplitPartial(NO_FACTS)(kernel)
    return [s for s in made.body if isinstance(s, For)]


def loop(extent: Expr | int, start: Expr = ZERO) -> For:
    body = (Assign("a", Literal(1.0, DataType.Float)),)
    end = Const(extent) if isinstance(extent, int) else extent
    return For("i", end, body, Unroll("partial", 4, AXIS), start, ONE, "main", AXIS)


@pytest.mark.parametrize(
    ("made", "factors"),
    [
        (loop(Var("n")), [4, 4]),
        (loop(11), [4, 4]),
        (loop(minimum(Var("n"), Const(3))), [1]),
        (loop(Var("n"), maximum(Var("n") - Const(3), 0)), [1]),
    ],
    ids=["run time", "constant", "at most 3", "the last 3"],
)
def test_rounds_and_remainder_are_what_the_loop_was(made: For, factors: list[int]) -> None:
    """Each is the loop of the pipeline that it was, a function if it was, and rolled.

    `factor` says by what trips are divided: of fewer than a round, by nothing.
    """
    loops = split(made)
    assert [s.unroll for s in loops] == [Unroll("rolled", n, AXIS) for n in factors]
    assert {(s.label, s.outlined) for s in loops} == {("main", AXIS)}
