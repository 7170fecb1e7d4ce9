"""Index expressions: printing, evaluation and folding agree with each other and with C."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fuser.core.expr import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    BinOp,
    Const,
    Expr,
    Select,
    Var,
    all_of,
    as_expr,
    binop,
    ceil_div,
    children,
    conjuncts,
    equal,
    evaluate,
    less,
    less_equal,
    maximum,
    minimum,
    product,
    select,
    substitute,
    to_c,
    variables,
)

pytestmark = pytest.mark.unit

INDICES, SIZES = ("i", "j", "tid_x"), ("n", "x_size0")
x, y, z = Var("x"), Var("y"), Var("z")

# --- An independent reading of C: precedence climbing over the printed text ----------------------

C_LEVELS = (("||",), ("&&",), ("^",), ("==", "!="), ("<", "<="), ("+", "-"), ("*", "/", "%"))


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


C_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(a != 0 or b != 0),
    "&&": lambda a, b: int(a != 0 and b != 0),
    "^": operator.xor,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": truncated,
    "%": lambda a, b: a - truncated(a, b) * b,
}


class CExpression:
    """Evaluates one C expression of integers, ``min``, ``max`` and ``?:``."""

    def __init__(self, text: str, env: dict[str, int]) -> None:
        self.tokens = re.findall(r"\d+(?:ll)?|\w+|<=|==|!=|&&|\|\||\S", text)
        self.env = env

    def value(self) -> int:
        result = self.ternary()
        assert not self.tokens, f"left over: {self.tokens}"
        return result

    def peek(self) -> str:
        return self.tokens[0] if self.tokens else ""

    def take(self, expected: str | None = None) -> str:
        token = self.tokens.pop(0)
        assert expected in (None, token), f"wanted {expected}, got {token}"
        return token

    def ternary(self) -> int:
        cond = self.binary(0)
        if self.peek() != "?":
            return cond
        self.take("?")
        if_true = self.ternary()
        self.take(":")
        if_false = self.ternary()
        return if_true if cond else if_false

    def binary(self, level: int) -> int:
        if level == len(C_LEVELS):
            return self.primary()
        result = self.binary(level + 1)
        while self.peek() in C_LEVELS[level]:
            op = self.take()
            result = C_OPERATORS[op](result, self.binary(level + 1))
        return result

    def primary(self) -> int:
        token = self.take()
        if token == "-":
            return -self.primary()
        if token == "(":
            result = self.ternary()
            self.take(")")
            return result
        if token in ("min", "max"):
            self.take("(")
            a = self.ternary()
            self.take(",")
            b = self.ternary()
            self.take(")")
            return min(a, b) if token == "min" else max(a, b)
        if token[0].isdigit():
            return int(token.removesuffix("ll"))
        return self.env[token]


# --- Random expressions by sort: naturals, positives, integers, conditions ------------------------


def grow(depth: int) -> tuple[st.SearchStrategy[Expr], ...]:
    """Strategies ``(natural, positive, integer, condition)`` of unfolded trees of that depth."""
    natural = st.one_of(
        st.integers(0, 9).map(Const),
        st.sampled_from((*INDICES, *SIZES)).map(Var),
        st.sampled_from((2**31 - 1, 2**31, 2**40)).map(Const),
    )
    positive = st.one_of(st.integers(1, 9).map(Const), st.sampled_from(SIZES).map(Var))
    integer = st.one_of(natural, st.integers(-9, -1).map(Const), st.just(Const(-(2**31))))
    condition = st.one_of(st.sampled_from((TRUE, FALSE)), _binary(("<",), natural, natural))
    for _ in range(depth):
        natural, positive, integer, condition = (
            st.one_of(
                natural,
                condition,
                _binary(("+", "*", "min", "max", "^"), natural, natural),
                _binary(("/", "%"), natural, positive),
                st.builds(Select, condition, natural, natural),
            ),
            st.one_of(positive, _binary(("+", "max"), natural, positive)),
            st.one_of(
                integer,
                _binary(("+", "-", "*", "min", "max"), integer, integer),
                st.builds(Select, condition, integer, integer),
            ),
            st.one_of(
                condition,
                _binary(("<", "<=", "==", "!="), integer, integer),
                _binary(("and", "or"), condition, condition),
            ),
        )
    return natural, positive, integer, condition


def _binary(
    ops: tuple[str, ...], lhs: st.SearchStrategy[Expr], rhs: st.SearchStrategy[Expr]
) -> st.SearchStrategy[Expr]:
    return st.builds(BinOp, st.sampled_from(ops), lhs, rhs)


_natural, _positive, _integer, _condition = grow(4)
expressions = st.one_of(_natural, _integer, _condition)
environments = st.fixed_dictionaries(
    {name: st.integers(0, 50) for name in INDICES} | {name: st.integers(1, 50) for name in SIZES}
)


@settings(max_examples=400)
@given(expressions, environments)
@example(BinOp("-", Var("i"), BinOp("-", Var("j"), Var("n"))), {"i": 1, "j": 2, "n": 3})
@example(BinOp("/", Var("i"), BinOp("*", Var("j"), Var("n"))), {"i": 9, "j": 2, "n": 3})
@example(BinOp("*", Var("i"), BinOp("/", Var("j"), Var("n"))), {"i": 3, "j": 2, "n": 3})
@example(BinOp("==", Var("i"), BinOp("==", Var("j"), Var("n"))), {"i": 0, "j": 2, "n": 3})
@example(BinOp("-", Var("i"), Const(-3)), {"i": 1})
def test_printed_c_has_the_value_of_the_expression(e: Expr, env: dict[str, int]):
    assert CExpression(to_c(e), env).value() == evaluate(e, env)


@settings(max_examples=400)
@given(expressions, environments)
def test_folding_never_changes_the_value(e: Expr, env: dict[str, int]):
    folded = substitute(e, {})
    assert evaluate(folded, env) == evaluate(e, env)
    assert variables(folded) <= variables(e)


@given(expressions, environments)
def test_constants_fold_to_a_constant(e: Expr, env: dict[str, int]):
    constant = substitute(e, {name: Const(value) for name, value in env.items()})
    assert constant == Const(evaluate(e, env))


@given(expressions, environments, st.sampled_from(INDICES), _natural)
def test_substitution_is_evaluation_of_the_replacement(
    e: Expr, env: dict[str, int], name: str, replacement: Expr
):
    value = evaluate(replacement, env)
    assert evaluate(substitute(e, {name: replacement}), env) == evaluate(e, {**env, name: value})


@given(
    expressions, st.lists(environments, min_size=1, max_size=4), st.sets(st.sampled_from(INDICES))
)
def test_arrays_evaluate_like_each_element(e: Expr, envs: list[dict[str, int]], vectors: set[str]):
    """Any mix of ints and arrays gives the value that the ints of each element give."""
    envs = [{**envs[0], **{name: env[name] for name in vectors}} for env in envs]
    arrays = {name: np.array([env[name] for env in envs], np.int64) for name in vectors}
    actual = evaluate(e, {**envs[0], **arrays})
    expected = np.array([evaluate(e, env) for env in envs], object)
    exact = expected.astype(np.int64) if all(abs(v) < 2**63 for v in expected) else None
    if exact is None or largest_intermediate(e, envs) >= 2**63:
        return  # outside int64, which is documented to wrap in NumPy and in C alike
    np.testing.assert_array_equal(np.broadcast_to(actual, exact.shape), exact)


def largest_intermediate(e: Expr, envs: list[dict[str, int]]) -> int:
    own = max(abs(int(evaluate(e, env))) for env in envs)
    return max([own, *(largest_intermediate(child, envs) for child in children(e))])


OPS = ("+", "-", "*", "/", "%", "^", "min", "max", "<", "<=", "==", "!=", "and", "or")
SMALL = (0, 1, 2, 3, 7)


def defined(op: str, a: int, b: int) -> bool:
    """Whether ``a op b`` has a meaning: see the first lines of ``fuser.core.expr``."""
    if op in ("/", "%"):
        return a >= 0 and b > 0
    return op not in ("and", "or") or {a, b} <= {0, 1}


@pytest.mark.parametrize("op", OPS)
def test_every_neutral_element_of_every_operator(op: str):
    """Exhaustive: variables against constants and themselves, all small values."""
    values = (-7, -2, -1, *SMALL)
    for a in filter(lambda a: any(defined(op, a, b) for b in values), values):
        env = {"x": a, "y": a}
        for b in filter(lambda b: defined(op, a, b), values):
            expected = evaluate(BinOp(op, Const(a), Const(b)), {})
            assert evaluate(binop(op, x, b), env) == expected, (a, b)
            assert evaluate(binop(op, a, y), {"y": b}) == expected, (a, b)
            assert evaluate(binop(op, x, y), {"x": a, "y": b}) == expected, (a, b)
        if defined(op, a, a):
            assert evaluate(binop(op, x, x), env) == evaluate(BinOp(op, x, y), env)


@pytest.mark.parametrize("inner", [*OPS, "?"])
@pytest.mark.parametrize("outer", [*OPS, "?"])
def test_every_operator_inside_every_other_prints_right(outer: str, inner: str):
    within = Select(x, y, z) if inner == "?" else BinOp(inner, x, y)
    if outer == "?":
        shapes = [Select(within, y, z), Select(x, within, z), Select(x, y, within)]
    else:
        shapes = [BinOp(outer, within, z), BinOp(outer, z, within)]
    for e in shapes:
        text = to_c(e)
        for a, b, c in itertools.product(SMALL, repeat=3):
            env = {"x": a, "y": b, "z": c}
            if b == 0 and inner in ("/", "%"):
                continue  # the parser above evaluates what C would not
            if inner == "-" and a < b and outer in ("/", "%"):
                continue  # floor and truncation differ below zero
            try:
                expected = evaluate(e, env)
            except ZeroDivisionError:
                continue
            assert CExpression(text, env).value() == expected, (text, env)


@pytest.mark.parametrize("shapes", [((4, 1), (1, 3)), ((), (5,)), ((0,), ()), ((2, 1, 3), (4, 1))])
def test_arrays_broadcast(shapes: tuple[tuple[int, ...], ...], rng: np.random.Generator):
    a, b = (rng.integers(0, 100, shape) for shape in shapes)
    e = select(less(x, y), x * 3 + y // 7, (x - y) % 5)
    expected = np.where(a < b, a * 3 + b // 7, np.abs(a - b) % 5)
    np.testing.assert_array_equal(evaluate(e, {"x": a, "y": b}), expected)


def test_comparisons_of_arrays_are_masks_and_count_as_integers():
    i = np.arange(6)
    below, even = less(x, 3), equal(x % 2, 0)
    assert evaluate(below, {"x": i}).dtype == np.bool_
    np.testing.assert_array_equal(evaluate(below + even, {"x": i}), [2, 1, 2, 0, 1, 0])
    np.testing.assert_array_equal(evaluate(below - even, {"x": i}), [0, 1, 0, 0, -1, 0])
    np.testing.assert_array_equal(evaluate(below // (even + 1) + 300, {"x": i})[:2], [300, 301])


def test_what_an_int_decides_against_is_not_evaluated():
    env = {"x": 7, "n": 0}
    n = Var("n")
    assert evaluate(Select(equal(n, 0), Const(5), x // n), env) == 5
    assert evaluate(BinOp("and", BinOp("!=", n, ZERO), less(x // n, 3)), env) == 0
    assert evaluate(BinOp("or", equal(n, 0), less(x // n, 3)), env) == 1


# --- Building -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (x + 0, x), (0 + x, x), (x - 0, x), (x * 1, x), (1 * x, x), (x * 0, ZERO), (0 * x, ZERO),
        (x // 1, x), (x % 1, ZERO), (0 // x, ZERO), (0 % x, ZERO), (x ^ 0, x),
        (Const(7) // 2, Const(3)), (Const(7) % 2, ONE), (7 - Const(2), Const(5)),
        (binop("and", x, TRUE), x), (binop("and", FALSE, x), FALSE), (binop("and", x, x), x),
        (binop("or", x, FALSE), x), (binop("or", x, TRUE), TRUE), (binop("or", x, x), x),
        (select(TRUE, x, y), x), (select(FALSE, x, y), y), (select(x, y, y), y),
        (ceil_div(x, 1), x), (ceil_div(9, 4), Const(3)), (ceil_div(8, 4), Const(2)),
        (minimum(3, 5), Const(3)), (maximum(3, 5), Const(5)), (less(3, 3), FALSE),
        (less_equal(3, 3), TRUE), (equal(3, 4), FALSE), (all_of(), TRUE), (all_of(x, TRUE), x),
        (product(()), ONE), (product((x, ONE, y)), BinOp("*", x, y)),
    ],
)  # fmt: skip
def test_neutral_elements_fold(built: Expr, expected: Expr):
    assert built == expected


@pytest.mark.parametrize("op", ["/", "%"])
def test_division_by_a_constant_zero_is_kept(op: str):
    assert binop(op, 7, 0) == BinOp(op, Const(7), ZERO)
    assert binop(op, 0, 0) == BinOp(op, ZERO, ZERO)


@pytest.mark.parametrize("value", [True, 1.0, "x", None, np.float32(1), np.True_])
def test_only_integers_become_expressions(value: object):
    with pytest.raises(TypeError, match="index expressions are made of ints, got"):
        as_expr(value)
    with pytest.raises(TypeError, match="Const wants an int, got"):
        Const(value)


def test_numpy_integers_become_constants():
    assert as_expr(np.int32(7)) == Const(7)
    assert type((x + np.int64(3)).rhs.value) is int


def test_a_free_variable_is_an_error():
    with pytest.raises(KeyError, match="'y'"):
        evaluate(x + y, {"x": 1})


def nested(levels: int, name: str) -> Expr:
    """An extent as that of chained slices: every level names the one below four times."""
    e: Expr = Var(name)
    for _ in range(levels):
        e = select(less(e, 3), maximum(e + e - 3, 0), e - 3)
    return e


def test_shared_subexpressions_are_visited_once():
    """The tree of 60 levels has more nodes than could ever be visited."""
    a, b = nested(60, "a"), nested(60, "b")
    assert variables(a) == {"a"}
    assert nested(60, "a") is a
    assert substitute(a, {"a": Var("b")}) is b
    assert substitute(a, {"c": Var("b")}) is a
    assert substitute(a, {"a": Const(500)}) == Const(500 - 3 * 60)
    assert evaluate(nested(5, "a"), {"a": 17}) == 2


def test_conjuncts_undo_all_of():
    terms = (less(x, 1), less(y, 2), BinOp("or", less(x, y), less(y, x)), less(z, 3))
    assert tuple(conjuncts(all_of(*terms))) == terms
    assert tuple(conjuncts(binop("and", terms[0], all_of(*terms[1:])))) == terms
    assert tuple(conjuncts(TRUE)) == ()
    assert tuple(conjuncts(FALSE)) == (FALSE,)


def test_variables_and_children():
    e = select(less(x, y), x + 1, Const(3))
    assert variables(e) == {"x", "y"}
    assert children(e) == (less(x, y), x + 1, Const(3))
    assert variables(Const(3)) == frozenset()


# --- Printing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("e", "text"),
    [
        ((x + y) * z, "(x + y) * z"),
        (x + y * z, "x + y * z"),
        (x - (y - z), "x - (y - z)"),
        (x - y - z, "x - y - z"),
        (x // (y * z), "x / (y * z)"),
        (x * y % z, "x * y % z"),
        (x - Const(-3), "x - -3"),
        (all_of(less(x, y), less(y + 1, z)), "x < y && y + 1 < z"),
        (BinOp("and", BinOp("or", x, y), z), "(x || y) && z"),
        ((x ^ y) + 1, "(x ^ y) + 1"),
        (minimum(x + 1, y) * 2, "min(x + 1, y) * 2"),
        (select(less(x, y), x, y), "x < y ? x : y"),
        (select(less(x, y), x, y) + 1, "(x < y ? x : y) + 1"),
        (Const(2**31 - 1), "2147483647"),
        (Const(2**31), "2147483648ll"),
        (Const(-(2**31)), "-2147483648ll"),
    ],
)
def test_c_has_the_parentheses_it_needs(e: Expr, text: str):
    assert to_c(e) == text
    if not isinstance(e, Const):
        assert repr(e) == text
