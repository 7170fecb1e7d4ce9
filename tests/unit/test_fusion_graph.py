"""The graph: edges by operand index, order, identity, renaming, verification."""

from __future__ import annotations

import time

import pytest

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import Const, Var
from fuser.fusion.attrs import (
    ConstantAttrs,
    InputAttrs,
    PermuteAttrs,
    ReduceAttrs,
    ScalarAttrs,
    SizeAttrs,
)
from fuser.fusion.graph import FusionGraph
from fuser.fusion.names import is_valid_name

pytestmark = pytest.mark.unit

F32 = DataType.Float


def graph_with_input(name="x") -> FusionGraph:
    g = FusionGraph()
    shape = (Var(f"{name}_size0"), Const(4))
    g.add("input", (), F32, shape, InputAttrs((True, True), (1, 0)), name=name)
    return g


def chain(name="x", length=10) -> FusionGraph:
    g = graph_with_input(name)
    value = g.value(name)
    for _ in range(length):
        value = g.add("mul", (value, name), F32, value.shape)
    g.add_output(value)
    return g


def test_the_same_operand_twice_is_two_edges():
    g = graph_with_input()
    y = g.add("mul", ("x", "x"), F32, g.value("x").shape)
    assert [o.name for o in g.operands(y)] == ["x", "x"]
    assert g.uses("x") == ((y, 0), (y, 1))


def test_values_are_in_topological_order_after_replace_operand():
    g = graph_with_input()
    a = g.add("neg", ("x",), F32, g.value("x").shape, name="a")
    late = g.add("abs", ("x",), F32, a.shape, name="late")
    g.replace_operand("a", 0, late)
    order = [v.name for v in g.values]
    assert order.index("late") < order.index("a")
    assert g.operands("a") == (late,)
    with pytest.raises(VerifyError, match="operand a is computed from it; a cycle"):
        g.replace_operand("late", 0, "a")


def test_structure_ignores_names_locations_and_dead_values():
    a, b = chain("x"), chain("other")
    assert a == b
    assert hash(a) == hash(b)
    b.add("neg", ("other",), F32, b.value("other").shape)
    assert a == b


@pytest.mark.parametrize(
    "change",
    [
        lambda g: g.add_output("x"),
        lambda g: g.set_outputs([]),
        lambda g: g.replace_operand(g.values[-1], 1, g.values[-2]),
        lambda g: g.constrain(Var("x_size0"), Const(8), "why"),
        lambda g: g.add("scalar", (), F32, (), ScalarAttrs()),
    ],
)
def test_structure_sees_every_change(change):
    a, b = chain(), chain()
    assert hash(a) == hash(b)
    change(b)
    assert a != b


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (0.0, -0.0), (1.0, 2.0)])
def test_structure_tells_constants_apart(one, other):
    def build(number):
        g = graph_with_input()
        c = g.add("constant", (), DataType.Double, (), ConstantAttrs(number))
        g.add_output(g.add("mul", ("x", c), F32, g.value("x").shape))
        return g

    assert build(one) == build(one)
    assert build(float("nan")) == build(float("nan"))
    assert build(one) != build(other)


def test_rename_takes_sizes_and_attributes_along():
    g = graph_with_input()
    n = g.add("size", (), DataType.Int, (), SizeAttrs(Var("x_size0") * 2))
    y = g.add("neg", ("x",), F32, g.value("x").shape)
    g.add_output(y, "x")
    g.constrain(Var("x_size0"), Const(3), "neg: dimension 0 of x")
    before = g.copy()
    g.rename_all({"x": y.name, y.name: "x"})
    assert g == before
    assert g.value(n.name).attrs == SizeAttrs(Var(f"{y.name}_size0") * 2)
    assert g.value("x").shape == (Var(f"{y.name}_size0"), Const(4))
    assert g.constraints[0].why == f"neg: dimension 0 of {y.name}"
    assert (g.outputs[0].value, g.outputs[0].alias_of) == ("x", y.name)
    assert g.operand_names("x") == (y.name,)
    g.verify()


def test_copies_are_independent():
    g = chain()
    other = g.copy()
    other.add_output("x")
    other.replace_operand(other.values[-1], 0, "x")
    assert g != other
    assert g == chain()


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda g: g.value("y"), "no value called 'y'; it has x"),
        (lambda g: g.add("neg", ("y",), F32, ()), "neg t1: operand 'y' is not in the fusion"),
        (lambda g: g.add("neg", ("x",), F32, (), name="x"), "a second value called 'x'"),
        (lambda g: g.add("neg", ("x",), F32, (), name="int"), "'int' cannot name a value"),
        (lambda g: g.rename("x", "for"), "x cannot be renamed 'for'; taken or reserved"),
        (lambda g: (g.add_output("x"), g.remove("x")), "x is used; only unused"),
        (lambda g: g.replace_operand("x", 0, "x"), "x: has 0 operands; operand 0 was asked"),
    ],
)
def test_errors(act, text):
    with pytest.raises(VerifyError, match=text):
        act(graph_with_input())


SHAPE = (Var("x_size0"), Const(4))


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda g: g.add("add", ("x",), F32, SHAPE), r"t1 \(add\): has 1 operands; it takes 2"),
        (lambda g: g.add("neg", ("x",), F32, (Const(4),)), "operand x has rank 2; 0 or 1"),
        (lambda g: g.add("neg", ("x",), F32, (SHAPE[0], Const(1))), "dimension 1 is 1 but operand"),
        (lambda g: g.add("neg", ("x",), F32, SHAPE, PermuteAttrs((1, 0))), "have no attributes"),
        (lambda g: g.add("scalar", ("x",), F32, ()), r"s1 \(scalar\): has 1 operands; a leaf"),
        (lambda g: g.add("sum", ("x",), F32, SHAPE, ReduceAttrs((0,))), "does not fit ReduceAttrs"),
        (lambda g: g.add("permute", ("x",), F32, SHAPE, PermuteAttrs((1, 1))), "does not fit"),
        (lambda g: g.add("neg", ("x",), F32, (Var("y_size0"), Const(4))), "extents name y_size0"),
        (lambda g: g.add_output("x", "y"), "alias y is not an input"),
    ],
)
def test_verify(act, text):
    g = graph_with_input()
    g.verify()
    act(g)
    with pytest.raises(VerifyError, match=text):
        g.verify()


@pytest.mark.parametrize("name", ["x", "bias", "t12", "Total", "my_x2", "s0"])
def test_good_names(name):
    assert is_valid_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "", "1x", "a-b", "_x", "a__b", "é", "int", "half", "float4", "uint2", "template", "tx",
        "bz", "min", "cast", "vec", "i8", "threadIdx", "x_size0", "x_stride12", "exp", "expf",
        "add", "max_nan", "fabsf", "x\n",
    ],
)  # fmt: skip
def test_bad_names(name):
    assert not is_valid_name(name)


def test_text():
    g = chain(length=1)
    g.constrain(Var("x_size0"), Const(3), "because")
    assert str(g).splitlines() == [
        "x: f32[x_size0, 4] = input(contiguity=[True, True])",
        "t1: f32[x_size0, 4] = mul(x, x)",
        "constraint x_size0 == 3  (because)",
        "return t1",
    ]


def test_a_long_chain_is_linear():
    chain(length=10)
    start = time.process_time()
    g = chain(length=2000)
    hash(g)
    g.copy()
    g.rename_all({"x": "z"})
    g.verify()
    assert [v.name for v in g.values][:2] == ["z", "t1"]
    assert time.process_time() - start < 2.0
