"""Index expressions on lanes: int64, powers of two by shift, optional 32-bit overflow check.

A kernel evaluates few expressions very often, so each is compiled once into nested closures.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias, assert_never

import numpy as np

from fuser.core.expr import BinOp, BinOpKind, Const, Expr, Select, Var, combine, to_c
from fuser.sim.agent import Mask

INT32_MAX = 2**31 - 1
_WHERE: Callable[[Any, Any, Any], Any] = np.where

Env: TypeAlias = Mapping[str, Any]
Evaluate: TypeAlias = Callable[[Env], Any]
Checked: TypeAlias = Callable[[Env, Mask], Any]


class Int32OverflowError(Exception):
    """A value that the kernel's 32-bit index type cannot hold."""


def evaluate_index(e: Expr, env: Env) -> Any:
    """Evaluate like `core.expr.evaluate`, with shifts and masks for power-of-two divisors."""
    return _compiled(e)(env)


@lru_cache(maxsize=1 << 16)
def _compiled(e: Expr) -> Evaluate:
    match e:
        case Const(value):
            return lambda env: value
        case Var(name):
            return operator.itemgetter(name)
        case BinOp(op, lhs, rhs):
            a, b, apply = _compiled(lhs), _compiled(rhs), _operation(op, rhs)
            return lambda env: apply(a(env), b(env))
        case Select(cond, if_true, if_false):
            c, a, b = _compiled(cond), _compiled(if_true), _compiled(if_false)
            return lambda env: _select(c(env), a(env), b(env))
        case _:
            assert_never(e)


def evaluate_checked(e: Expr, env: Env, mask: Mask) -> Any:
    """Evaluate; raise `Int32OverflowError` if `e` or a part of it overflows in an active lane."""
    return _checked(e)(env, mask)


@lru_cache(maxsize=1 << 16)
def _checked(e: Expr) -> Checked:
    match e:
        case Const() | Var():
            plain = _compiled(e)
            return lambda env, mask: plain(env)
        case BinOp(op, lhs, rhs):
            a, b, apply = _checked(lhs), _checked(rhs), _operation(op, rhs)

            def operation(env: Env, mask: Mask) -> Any:
                return apply(a(env, mask), b(env, mask))

            return operation if _is_narrow(e) else _guarded(e, operation)
        case Select(cond, if_true, if_false):
            c, x, y = _compiled(cond), _checked(if_true), _checked(if_false)
            return _guarded(e, lambda env, mask: _select(c(env), x(env, mask), y(env, mask)))
        case _:
            assert_never(e)


def _is_narrow(e: BinOp) -> bool:
    """Whether `e` is no larger than a part of it that is checked, or 0 or 1."""
    if e.op in ("/", "%") and isinstance(e.rhs, Const) and e.rhs.value > 0:
        return isinstance(e.lhs, BinOp | Select) and (e.op == "/" or e.rhs.value <= INT32_MAX)
    return e.op in ("<", "<=", "==", "!=", "and", "or")


def _guarded(e: Expr, value_of: Checked) -> Checked:
    def guarded(env: Env, mask: Mask) -> Any:
        value = value_of(env, mask)
        if isinstance(value, int):
            if not -INT32_MAX <= value <= INT32_MAX:
                raise _overflow(e, value)
            return value
        array = np.asarray(value)
        if not _fits(array):  # in whatever lanes; now look at those that count
            active = array[mask] if mask is not None and array.ndim else array
            if active.size and not _fits(active):
                raise _overflow(e, int(active.max()))
        return value

    return guarded


def _fits(array: Any) -> bool:
    flat = array.reshape(-1)
    least, most = np.minimum.reduce(flat, initial=0), np.maximum.reduce(flat, initial=0)
    return bool(least >= -INT32_MAX and most <= INT32_MAX)


def _overflow(e: Expr, value: int) -> Int32OverflowError:
    return Int32OverflowError(
        f"{to_c(e)} reaches {value}; the kernel's 32-bit index type ends at {INT32_MAX}"
    )


def _operation(op: BinOpKind, rhs: Expr) -> Callable[[Any, Any], Any]:
    """Return what `op` does to the values of its operands; `rhs` may be a known divisor."""
    divisor = rhs.value if isinstance(rhs, Const) else 0
    if op in ("/", "%") and divisor & (divisor - 1) == 0 < divisor:
        shift, rest = divisor.bit_length() - 1, divisor - 1
        if op == "%":
            return lambda a, b: a & rest
        return lambda a, b: a >> shift
    return combine(op)


def _select(cond: Any, if_true: Any, if_false: Any) -> Any:
    if np.ndim(cond) == 0:
        return if_true if cond else if_false
    return _WHERE(cond, if_true, if_false)
