"""Rebuilding statements and scalar values with parts replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, assert_never, cast

from fuser.core.expr import BinOp, Const, Expr, Select, Var, substitute
from fuser.kir.core import Stmt
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
        case Apply(args=args):
            return leaf(replace(value, args=tuple(map_scalar(a, leaf) for a in args)))
        case Cast(arg=arg):
            return leaf(replace(value, arg=map_scalar(arg, leaf)))
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
    for f in fields(stmt):  # type: ignore[arg-type]
        item = getattr(stmt, f.name)
        if isinstance(item, _EXPR):
            changes[f.name] = expr(item)
        elif isinstance(item, _SCALAR):
            changes[f.name] = map_scalar(item, scalar)
        elif isinstance(item, tuple) and item and isinstance(item[0], _EXPR):
            changes[f.name] = tuple(expr(e) for e in cast("tuple[Expr, ...]", item))
    rebuilt: Any = stmt  # any of the frozen records
    changed: Stmt = replace(rebuilt, **changes)
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
            case Element():
                return replace(value, index=expr(value.index), guard=expr(value.guard))
            case FromIndex():
                return replace(value, expr=expr(value.expr))
            case Choose():
                return replace(value, cond=expr(value.cond))
            case _:
                return value

    return map_body(body, scalar, expr)


def substitute_body(body: tuple[Stmt, ...], env: Mapping[str, Expr]) -> tuple[Stmt, ...]:
    """Replace index variables in a body."""
    return map_exprs(body, lambda e: substitute(e, env))
