"""Integer index expressions shared by every IR: extents, indices, predicates.

A closed set of frozen records; pyright's ``assert_never`` points at every ``match`` that a new
node must extend. Values are non-negative wherever ``/`` and ``%`` are applied, so floor and
truncating division agree; comparisons and ``and``/``or`` yield 0 or 1, and the operands of
``and``/``or`` are such conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from numbers import Integral
from typing import Any, Literal, TypeAlias, assert_never

import numpy as np

BinOpKind: TypeAlias = Literal[
    "+", "-", "*", "/", "%", "^", "min", "max", "<", "<=", "==", "!=", "and", "or"
]


class Arithmetic:
    """Python operators that build expressions, folding constants on the way."""

    __slots__ = ()

    def __add__(self, other: Expr | int) -> Expr:
        return binop("+", self, other)

    def __radd__(self, other: int) -> Expr:
        return binop("+", other, self)

    def __sub__(self, other: Expr | int) -> Expr:
        return binop("-", self, other)

    def __rsub__(self, other: int) -> Expr:
        return binop("-", other, self)

    def __mul__(self, other: Expr | int) -> Expr:
        return binop("*", self, other)

    def __rmul__(self, other: int) -> Expr:
        return binop("*", other, self)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return binop("/", self, other)

    def __rfloordiv__(self, other: int) -> Expr:
        return binop("/", other, self)

    def __mod__(self, other: Expr | int) -> Expr:
        return binop("%", self, other)

    def __rmod__(self, other: int) -> Expr:
        return binop("%", other, self)

    def __xor__(self, other: Expr | int) -> Expr:
        return binop("^", self, other)


@dataclass(frozen=True, slots=True)
class Const(Arithmetic):
    """Integer literal (``bool`` is rejected: ``Const(True) == Const(1)`` in Python)."""

    value: int

    def __post_init__(self) -> None:
        if type(self.value) is not int:
            raise TypeError(f"Const wants an int, got {self.value!r}")

    def __repr__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Var(Arithmetic):
    """A loop index, thread index, size or stride, identified by name."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class BinOp(Arithmetic):
    """``lhs op rhs``."""

    op: BinOpKind
    lhs: Expr
    rhs: Expr
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.op, self.lhs, self.rhs)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return BinOp, (self.op, self.lhs, self.rhs)  # another process hashes otherwise

    def __repr__(self) -> str:
        return to_c(self)


@dataclass(frozen=True, slots=True)
class Select(Arithmetic):
    """``if_true`` where ``cond`` is non-zero, else ``if_false``."""

    cond: Expr
    if_true: Expr
    if_false: Expr
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.cond, self.if_true, self.if_false)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Select, (self.cond, self.if_true, self.if_false)

    def __repr__(self) -> str:
        return to_c(self)


Expr: TypeAlias = Const | Var | BinOp | Select

_NODES = (Const, Var, BinOp, Select)
ZERO, ONE = Const(0), Const(1)
TRUE, FALSE = ONE, ZERO

_FOLD: dict[BinOpKind, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "^": lambda a, b: a ^ b,
    "min": min,
    "max": max,
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "and": lambda a, b: int(bool(a) and bool(b)),
    "or": lambda a, b: int(bool(a) or bool(b)),
}

_VECTOR: dict[BinOpKind, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.floor_divide,
    "%": np.remainder,
    "^": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
    "<": np.less,
    "<=": np.less_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
}
_WHERE: Callable[[Any, Any, Any], Any] = np.where


def as_expr(value: object) -> Expr:
    """Turn an int (or an expression) into an expression; raise ``TypeError`` otherwise."""
    if isinstance(value, _NODES):
        return value
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"index expressions are made of ints, got {value!r}")
    return Const(int(value))


def binop(op: BinOpKind, lhs: object, rhs: object) -> Expr:
    """Build ``lhs op rhs``, folding constants and the neutral elements of ``+ - * / % and or``."""
    a, b = as_expr(lhs), as_expr(rhs)
    if isinstance(a, Const) and isinstance(b, Const) and not (op in "/%" and b.value == 0):
        return Const(_FOLD[op](a.value, b.value))
    return _neutral(op, a, b) or _shared(BinOp, op, a, b)


@lru_cache(maxsize=1 << 16)
def _shared(node: Callable[..., Expr], *parts: Any) -> Expr:
    """Build a node once: what is equal is then the same object, and cheap to compare."""
    return node(*parts)


def _neutral(op: BinOpKind, a: Expr, b: Expr) -> Expr | None:
    left = a.value if isinstance(a, Const) else None
    right = b.value if isinstance(b, Const) else None
    match op:
        case "and" | "or":
            return _neutral_bool(op, a, b)
        case _ if left is None and right is None:
            return None
        case "+" | "-" | "^" if right == 0:
            return a
        case "+" | "^" if left == 0:
            return b
        case "*" if left == 0 or right == 0:
            return ZERO
        case "*" | "/" if right == 1:
            return a
        case "*" if left == 1:
            return b
        case "/" | "%" if left == 0 and right != 0:
            return ZERO
        case "%" if right == 1:
            return ZERO
        case _:
            return None


def _neutral_bool(op: BinOpKind, a: Expr, b: Expr) -> Expr | None:
    absorbing, neutral = (FALSE, TRUE) if op == "and" else (TRUE, FALSE)
    if absorbing in (a, b):
        return absorbing
    if a == neutral:
        return b
    return a if b == neutral or a == b else None


def ceil_div(a: Expr | int, b: Expr | int) -> Expr:
    """Return the smallest integer not below ``a / b``."""
    a, b = as_expr(a), as_expr(b)
    if b == ONE:
        return a
    return (a + (b - 1)) // b


def minimum(a: Expr | int, b: Expr | int) -> Expr:
    """Return the smaller of both."""
    return binop("min", a, b)


def maximum(a: Expr | int, b: Expr | int) -> Expr:
    """Return the larger of both."""
    return binop("max", a, b)


def less(a: Expr | int, b: Expr | int) -> Expr:
    """Return ``a < b`` as 0 or 1."""
    return binop("<", a, b)


def less_equal(a: Expr | int, b: Expr | int) -> Expr:
    """Return ``a <= b`` as 0 or 1."""
    return binop("<=", a, b)


def equal(a: Expr | int, b: Expr | int) -> Expr:
    """Return ``a == b`` as 0 or 1."""
    return binop("==", a, b)


def select(cond: Expr, if_true: Expr | int, if_false: Expr | int) -> Expr:
    """Return ``cond ? if_true : if_false``, folded when `cond` is constant."""
    if isinstance(cond, Const):
        return as_expr(if_true if cond.value else if_false)
    a, b = as_expr(if_true), as_expr(if_false)
    return a if a == b else _shared(Select, cond, a, b)


def all_of(*conditions: Expr) -> Expr:
    """Return the conjunction; true when there is none."""
    result: Expr = TRUE
    for condition in conditions:
        result = binop("and", result, condition)
    return result


def conjuncts(e: Expr) -> Iterator[Expr]:
    """Yield the terms of a conjunction; nothing for TRUE."""
    match e:
        case BinOp("and", lhs, rhs):
            yield from conjuncts(lhs)
            yield from conjuncts(rhs)
        case Const(1):
            return
        case _:
            yield e


def product(factors: tuple[Expr, ...]) -> Expr:
    """Return the product of `factors`; 1 when there is none."""
    result: Expr = ONE
    for factor in factors:
        result = result * factor
    return result


def evaluate(e: Expr, env: Mapping[str, Any]) -> Any:
    """Evaluate with ints or NumPy integer arrays from `env`; raise ``KeyError`` on a free Var.

    Like C, a branch or condition that an int decides against is not evaluated. Comparisons of
    arrays are bool arrays, so that they can be used as masks; arithmetic widens them.
    """
    match e:
        case Const(value):
            return value
        case Var(name):
            return env[name]
        case BinOp(op, lhs, rhs):
            a = evaluate(lhs, env)
            if op in ("and", "or") and isinstance(a, int) and bool(a) == (op == "or"):
                return int(bool(a))
            return combine(op)(a, evaluate(rhs, env))
        case Select(cond, if_true, if_false):
            c = evaluate(cond, env)
            if np.ndim(c) == 0:
                return evaluate(if_true if c else if_false, env)
            return _WHERE(c, evaluate(if_true, env), evaluate(if_false, env))
        case _:
            assert_never(e)


def combine(op: BinOpKind) -> Callable[[Any, Any], Any]:
    """Return what computes ``a op b`` of ints and NumPy integer arrays."""
    return _COMBINE[op]


def _combining(op: BinOpKind) -> Callable[[Any, Any], Any]:
    fold, vector = _FOLD[op], _VECTOR[op]

    def arithmetic(a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int):
            return fold(a, b)
        return vector(_widen(a), _widen(b))

    def logic(a: Any, b: Any) -> Any:
        if isinstance(a, int) and bool(a) == (op == "or"):
            return int(bool(a))
        return comparison(a, b)

    def comparison(a: Any, b: Any) -> Any:
        return fold(a, b) if isinstance(a, int) and isinstance(b, int) else vector(a, b)

    if op in ("+", "-", "*", "/", "%", "^"):
        return arithmetic
    return logic if op in ("and", "or") else comparison


_COMBINE = {op: _combining(op) for op in _FOLD}
_BOOL = np.dtype(np.bool_)


def _widen(value: Any) -> Any:
    """Make integers of NumPy bools: their ``+`` is ``or``, and they have no ``-``."""
    return value.astype(np.int64) if getattr(value, "dtype", None) is _BOOL else value


def children(e: Expr) -> tuple[Expr, ...]:
    """Return the direct subexpressions."""
    match e:
        case Const() | Var():
            return ()
        case BinOp(_, lhs, rhs):
            return lhs, rhs
        case Select(cond, if_true, if_false):
            return cond, if_true, if_false
        case _:
            assert_never(e)


@lru_cache(maxsize=1 << 16)
def variables(e: Expr) -> frozenset[str]:
    """Return the names of all variables in `e`."""
    if isinstance(e, Var):
        return frozenset((e.name,))
    return frozenset[str]().union(*map(variables, children(e)))


def substitute(e: Expr, env: Mapping[str, Expr]) -> Expr:
    """Replace variables by expressions, folding constants on the way.

    An expression that occurs in several places is visited once: extents of chained slices name
    those before them more than once each.
    """
    done: dict[Expr, Expr] = {}

    def replaced(e: Expr) -> Expr:
        if variables(e).isdisjoint(env):
            return _folded(e)
        if isinstance(e, Var):
            return env[e.name]
        known = done.get(e)
        if known is None:
            known = done[e] = _rebuilt(e, replaced)
        return known

    return replaced(e)


def _rebuilt(e: Expr, of: Callable[[Expr], Expr]) -> Expr:
    """Return `e` made of what `of` says of its subexpressions, with constants folded."""
    match e:
        case Const() | Var():
            return e
        case BinOp(op, lhs, rhs):
            return binop(op, of(lhs), of(rhs))
        case Select(cond, if_true, if_false):
            return select(of(cond), of(if_true), of(if_false))
        case _:
            assert_never(e)


@lru_cache(maxsize=1 << 15)
def _folded(e: Expr) -> Expr:
    """Return `e` with its constants folded, the same object where there are none."""
    folded = _rebuilt(e, _folded)
    return e if folded == e else folded


_PRECEDENCE: dict[BinOpKind, int] = {
    "or": 1, "and": 2, "^": 3, "==": 4, "!=": 4, "<": 5, "<=": 5, "+": 6, "-": 6,
    "*": 7, "/": 7, "%": 7, "min": 9, "max": 9,
}  # fmt: skip
_SPELLING = {"and": "&&", "or": "||"}


def to_c(e: Expr, context: int = 0) -> str:
    """Print as C with the parentheses C needs and no others (``^`` always gets them)."""
    match e:
        case Const(value):
            return str(value) if -(2**31) < value < 2**31 else f"{value}ll"
        case Var(name):
            return name
        case BinOp("min" | "max" as op, lhs, rhs):
            return f"{op}({to_c(lhs)}, {to_c(rhs)})"
        case BinOp(op, lhs, rhs):
            level = _PRECEDENCE[op]
            right = level + (op in ("-", "/", "%", "*", "<", "<=", "==", "!="))
            text = f"{to_c(lhs, level)} {_SPELLING.get(op, op)} {to_c(rhs, right)}"
            return f"({text})" if level < context or (op == "^" and context) else text
        case Select(cond, if_true, if_false):
            text = f"{to_c(cond, 1)} ? {to_c(if_true, 1)} : {to_c(if_false, 1)}"
            return f"({text})" if context else text
        case _:
            assert_never(e)
