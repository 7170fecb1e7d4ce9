"""Rebuilding statements and scalar values with parts replaced."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, assert_never, cast

from fuser.core.expr import BinOp, Const, Expr, Select, Var, substitute
from fuser.kir.core import Stmt, field_names
from fuser.kir.scalar import Apply, Cast, Choose, Element, FromIndex, Literal, Ref
from fuser.kir.scalar import Value as Scalar
from fuser.kir.stmts import For, If, Outlined, Roles, Scoped

_EXPR = (Const, Var, BinOp, Select)
_SCALAR = (Literal, Ref, Element, FromIndex, Apply, Cast, Choose)


def map_scalar(value: Scalar, leaf: Callable[[Scalar], Scalar]) -> Scalar:
    """Rebuild `value` bottom-up; `leaf` sees every node after its operands were rebuilt."""
    match value:
        case Literal() | Ref() | FromIndex():
            return leaf(value)
        case Element(fill=fill):
            return leaf(value if fill is None else replace(value, fill=map_scalar(fill, leaf)))
        case Apply(op, args, dtype):
            new = tuple(map_scalar(a, leaf) for a in args)
            same = all(map(operator.is_, new, args))
            return leaf(value if same else Apply(op, new, dtype))
        case Cast(arg, dtype):
            inner = map_scalar(arg, leaf)
            return leaf(value if inner is arg else Cast(inner, dtype))
        case Choose(if_true=a, if_false=b):
            return leaf(replace(value, if_true=map_scalar(a, leaf), if_false=map_scalar(b, leaf)))
        case _:
            assert_never(value)


def map_bodies(stmt: Stmt, change: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Stmt:
    """Rebuild a statement with every body nested in it changed."""
    match stmt:
        case For(body=body) | Scoped(body=body) | Outlined(body=body):
            return replace(stmt, body=change(body))
        case If(cond, body, orelse):
            return If(cond, change(body), change(orelse))
        case Roles(roles):
            return Roles(tuple(replace(r, body=change(r.body)) for r in roles))
        case _:
            return stmt


def map_stmt(stmt: Stmt, scalar: Callable[[Scalar], Scalar], expr: Callable[[Expr], Expr]) -> Stmt:
    """Rebuild a statement and everything nested in it.

    `scalar` sees every scalar node bottom-up, `expr` every index expression outside scalars.
    """
    changes: dict[str, object] = {}
    for name in field_names(stmt):
        item = getattr(stmt, name)
        new: object = item
        if isinstance(item, _EXPR):
            new = expr(item)
        elif isinstance(item, _SCALAR):
            new = map_scalar(item, scalar)
        elif isinstance(item, tuple) and item and isinstance(item[0], _EXPR):
            new = tuple(expr(e) for e in cast("tuple[Expr, ...]", item))
        if new is not item:
            changes[name] = new
    rebuilt: Any = stmt  # any of the frozen records
    changed: Stmt = replace(rebuilt, **changes) if changes else stmt
    return map_bodies(changed, lambda body: tuple(map_stmt(s, scalar, expr) for s in body))


def map_body(
    body: tuple[Stmt, ...], scalar: Callable[[Scalar], Scalar], expr: Callable[[Expr], Expr]
) -> tuple[Stmt, ...]:
    """Apply `map_stmt` to every statement of a body."""
    return tuple(map_stmt(s, scalar, expr) for s in body)


def map_exprs(body: tuple[Stmt, ...], expr: Callable[[Expr], Expr]) -> tuple[Stmt, ...]:
    """Rebuild a body with every index expression, also those inside scalars, mapped."""

    def scalar(value: Scalar) -> Scalar:
        match value:
            case Element(memory, index, dtype, guard, fill):
                at, holds = expr(index), expr(guard)
                same = at is index and holds is guard
                return value if same else Element(memory, at, dtype, holds, fill)
            case FromIndex(e, dtype):
                return FromIndex(expr(e), dtype)
            case Choose(cond, if_true, if_false, dtype):
                return Choose(expr(cond), if_true, if_false, dtype)
            case _:
                return value

    return map_body(body, scalar, expr)


def substitute_body(body: tuple[Stmt, ...], env: Mapping[str, Expr]) -> tuple[Stmt, ...]:
    """Replace index variables in a body."""
    return map_exprs(body, lambda e: substitute(e, env))
