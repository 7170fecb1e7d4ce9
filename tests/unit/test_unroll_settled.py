"""What copies of a loop know: their index, and with it conditions, bounds and inner loops."""

from __future__ import annotations

from typing import Literal as OneOf

import pytest

from fuser import DataType
from fuser.core.expr import ONE, Const, Expr, Var, evaluate, less
from fuser.core.unroll import Unroll
from fuser.kir.core import GRID_1, Kernel, Stmt, TensorParam, walk_stmts
from fuser.kir.scalar import Choose, Element, Literal, Value
from fuser.kir.stmts import Assign, DeclareRegisters, DeclareScalar, For, If, Outlined, Store
from fuser.kir.stmts.outlined import Argument
from fuser.passes.outline import OutlineLoops
from fuser.passes.unroll import SplitPartial
from fuser.passes.unroll_copies import UnrollCopies
from fuser.schedule.propagate import NO_FACTS

pytestmark = pytest.mark.unit

F32 = DataType.Float
AXIS = "y: axis 1"
FULL, PARTIAL = Unroll("full", origin=AXIS), Unroll("partial", 4, AXIS)
A, B, ADD = Literal(1.0, F32), Literal(2.0, F32), Assign("a", Literal(1.0, F32))
AT, J, N = Var("i"), Var("j"), Var("n")
TWO = Const(2)


def kernel(*body: Stmt) -> Kernel:
    return Kernel("k", (), (), GRID_1, GRID_1, "i32", (*scalars("a"), *body))


def scalars(*names: str) -> tuple[DeclareScalar, ...]:
    return tuple(DeclareScalar(name, F32, Literal(0.0, F32)) for name in names)


def loop(*body: Stmt, extent: Expr = TWO, var: str = "i", unroll: Unroll = FULL) -> For:
    return For(var, extent, body, unroll)


def copied(*body: Stmt) -> tuple[Stmt, ...]:
    """Return what two copies of a body are."""
    return UnrollCopies(NO_FACTS)(kernel(loop(*body))).body[1:]


def element(guard: Expr, fill: Value | None = B) -> Element:
    return Element("x", AT, F32, guard, fill)


@pytest.mark.parametrize(
    ("value", "first", "second"),
    [
        (Choose(less(AT, ONE), A, B, F32), A, B),
        (element(less(AT, ONE)), Element("x", Const(0), F32), B),
        (element(less(AT, ONE), None), Element("x", Const(0), F32), Literal(0, F32)),
        (
            element(less(AT, N)),  # sizes are at least 1
            Element("x", Const(0), F32),
            Element("x", Const(1), F32, less(ONE, N), B),
        ),
    ],
    ids=["choose", "filled", "unfilled", "unknown"],
)
def test_conditions_on_the_index_are_decided(value: Value, first: Value, second: Value) -> None:
    assert copied(Assign("a", value)) == (Assign("a", first), Assign("a", second))


def test_branches_on_the_index_are_decided() -> None:
    other = Assign("a", B)
    assert copied(If(less(AT, ONE), (ADD,), (other,))) == (ADD, other)


def test_inner_loops_without_trips_are_left_out() -> None:
    first, second = copied(loop(ADD, extent=AT + 2, var="j", unroll=Unroll("rolled"))), (ADD,)
    assert [s.trip() for s in first if isinstance(s, For)] == [2, 3]
    (left,) = copied(loop(*second, extent=AT, var="j", unroll=Unroll("rolled")))
    assert isinstance(left, For)
    assert left.trip() == 1


def test_copies_know_what_guards_around_them_say() -> None:
    """Where n < 4, so is it below 4 + i."""
    inside = loop(If(less(N, AT + 4), (ADD,)))
    (guard,) = UnrollCopies(NO_FACTS)(kernel(If(less(N, Const(4)), (inside,)))).body[1:]
    assert guard == If(less(N, Const(4)), (ADD, ADD))


# ---- trips -------------------------------------------------------------------------------------


def trips(stmts: tuple[Stmt, ...], n: int) -> int:
    """Return how often the body of a loop without others around it runs."""
    count = 0
    for stmt in stmts:
        if isinstance(stmt, For):
            start, end = (int(evaluate(e, {"n": n})) for e in (stmt.start, stmt.extent))
            count += max(0, end - start) * max(1, trips(stmt.body, n))
        count += isinstance(stmt, Assign)
    return count


def test_bounds_that_cross_run_nothing() -> None:
    made = SplitPartial(NO_FACTS)(kernel(loop(ADD, extent=N - 5, unroll=PARTIAL)))
    assert [trips(made.body, n) for n in range(1, 18)] == [max(0, n - 5) for n in range(1, 18)]


def test_bounds_that_depend_on_a_loop_around_need_no_comparison() -> None:
    inner = loop(ADD, extent=Const(9) - J, unroll=PARTIAL)
    around = loop(inner, extent=Const(4), var="j", unroll=Unroll("rolled"))
    made = SplitPartial(NO_FACTS)(kernel(around))
    (main,) = (s for s in walk_stmts(made.body) if isinstance(s, For) and s.var == "i_round")
    assert "max" not in repr(main.extent)


# ---- functions ---------------------------------------------------------------------------------


def outlined(*body: Stmt, around: tuple[str, ...] = ("a",)) -> Outlined:
    loop = For("i", Const(4), body, Unroll("rolled"), outlined=AXIS)
    made = OutlineLoops()(Kernel("k", (), (), GRID_1, GRID_1, "i32", (*scalars(*around), loop)))
    (function,) = (s for s in made.body if isinstance(s, Outlined))
    return function


def test_a_function_has_scalars_and_registers_of_its_own() -> None:
    """Of names that are declared inside, nothing is passed and nothing returned."""
    own = (*scalars("b"), DeclareRegisters("r", F32, 4))
    made = outlined(*own, Assign("b", A), Store("r", ONE, A), ADD, around=("a", "b"))
    assert made.scalar == "a"
    assert [a.name for a in made.arguments] == ["a"]


def test_names_of_functions_are_free() -> None:
    assert outlined(ADD).name == "k_i_0"
    taken = outlined(ADD, around=("a", "k_i_0"))
    assert taken.name != "k_i_0"


def test_a_function_has_no_function_inside() -> None:
    inner = For("j", Const(4), (ADD,), Unroll("rolled"), outlined="y: axis 2")
    made = outlined(inner)
    assert not any(isinstance(s, Outlined) for s in walk_stmts(made.body))
    assert all(s.outlined == "" for s in made.body if isinstance(s, For))


@pytest.mark.parametrize(
    ("mode", "aliased", "wanted"),
    [
        ("in", False, "const float* __restrict__"), ("in", True, "const float*"),
        ("out", False, "float* __restrict__"), ("out", True, "float*"),
    ],
)  # fmt: skip
def test_pointers_are_passed_as_the_kernel_has_them(
    mode: OneOf["in", "out"], aliased: bool, wanted: str
) -> None:
    x = TensorParam("x", F32, mode, Const(4), aliased=aliased)
    loop = For("i", Const(4), (Store("x", AT, A),), Unroll("rolled"), outlined=AXIS)
    (made,) = OutlineLoops()(Kernel("k", (x,), (), GRID_1, GRID_1, "i32", (loop,))).body
    assert isinstance(made, Outlined)
    assert made.arguments == (Argument(wanted, "x"),)
