"""Name index expressions that occur more than once, at the innermost body that holds them all.

rewrite::

    if (bx * 128 + tx < n) y[bx * 128 + tx] = x[bx * 128 + tx] + b[(bx * 128 + tx) % m];
    ->
    const idx at0 = bx * 128 + tx;
    if (at0 < n) y[at0] = x[at0] + b[at0 % m];

Divisions inside a loop whose variable they do not mention count as repeated, so they move out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import ClassVar

from fuser.core.expr import BinOp, Const, Expr, Select, Var, children, variables
from fuser.kir.core import Kernel, SizeParam, Stmt, walk_stmts
from fuser.kir.stmts import For, GridReduce, Let
from fuser.passes.mentions import HARDWARE, declared, stmt_exprs
from fuser.passes.rewrite import map_bodies, map_exprs, substitute_body

ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "^", "min", "max"})


@dataclass(slots=True)
class _Names:
    taken: frozenset[str]
    count: int = 0

    def fresh(self) -> str:
        """Return an unused name."""
        while (name := f"at{self.count}") in self.taken:
            self.count += 1
        self.count += 1
        return name


@dataclass(frozen=True, slots=True)
class NameIndices:
    """See the module."""

    name: ClassVar[str] = "name-indices"

    def __call__(self, kernel: Kernel) -> Kernel:
        """Rewrite the kernel's body."""
        sizes = {p.name for p in kernel.params if isinstance(p, SizeParam)}
        taken = declared(kernel)
        body = _name_body(kernel.body, frozenset(sizes) | HARDWARE, _Names(taken))
        if body == kernel.body:
            return kernel
        return replace(kernel, body=_renumbered(body, _Names(taken)))


def _name_body(body: tuple[Stmt, ...], scope: frozenset[str], names: _Names) -> tuple[Stmt, ...]:
    lets: tuple[Stmt, ...] = ()
    while (chosen := _choose((*lets, *body), scope)) is not None:
        name = names.fresh()
        # Chosen from large to small: a later, smaller expression may be part of an earlier one.
        lets, body = (
            map_exprs(part, partial(_replace, old=chosen, new=name)) for part in (lets, body)
        )
        lets = (Let(name, chosen), *lets)
        scope |= {name}
    inner: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For(var=var, body=nested):
                inner.append(replace(stmt, body=_name_body(nested, scope | {var}, names)))
            case Let(name, _):
                scope |= {name}
                inner.append(stmt)
            case GridReduce():
                scope |= {stmt.is_last}
                inner.append(stmt)
            case _:
                inner.append(map_bodies(stmt, partial(_name_body, scope=scope, names=names)))
    return (*lets, *inner)


def _renumbered(body: tuple[Stmt, ...], names: _Names) -> tuple[Stmt, ...]:
    """Number the names in the order in which a reader meets them."""
    lets = [s for s in walk_stmts(body) if isinstance(s, Let)]
    new = {let.name: names.fresh() for let in lets}
    env: dict[str, Expr] = {old: Var(name) for old, name in new.items()}
    return _rename_lets(substitute_body(body, env), new)


def _rename_lets(body: tuple[Stmt, ...], new: dict[str, str]) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Let(name, _):
                result.append(replace(stmt, name=new[name]))
            case _:
                result.append(map_bodies(stmt, lambda body: _rename_lets(body, new)))
    return tuple(result)


def _choose(body: tuple[Stmt, ...], scope: frozenset[str]) -> Expr | None:
    """Return the largest expression worth a name in this body, or None."""
    seen: dict[Expr, int] = {}
    for stmt in body:
        inside: dict[Expr, int] = {}
        for e, weight in _occurrences(stmt, scope):
            inside[e] = inside.get(e, 0) + weight
        own = set(_subexpressions(stmt_exprs(stmt)))
        for e, weight in inside.items():
            # Inside one nested body only: leave the name to that body, unless a loop repeats it.
            here = weight if e in own or not stmt.bodies() else min(weight, 1)
            if _repeated_by_loop(stmt, e):
                here = 2
            seen[e] = seen.get(e, 0) + here
    worth = [e for e, weight in seen.items() if weight > 1]
    return max(worth, key=lambda e: (_size(e), repr(e)), default=None)


def _repeated_by_loop(stmt: Stmt, e: Expr) -> bool:
    return isinstance(stmt, For) and stmt.trip() != 1 and _has_division(e)


def _occurrences(stmt: Stmt, scope: frozenset[str]) -> Iterator[tuple[Expr, int]]:
    for e in _subexpressions(stmt_exprs(stmt)):
        if variables(e) <= scope and _size(e) >= 2:
            yield e, 1
    for nested in stmt.bodies():
        for inner in nested:
            yield from _occurrences(inner, scope)


def _subexpressions(exprs: list[Expr]) -> Iterator[Expr]:
    for e in reversed(exprs):
        yield from _parts(e)


@lru_cache(maxsize=1 << 14)
def _parts(e: Expr) -> tuple[Expr, ...]:
    """Return what is worth a name in `e`, itself first and then from right to left."""
    named = isinstance(e, Select) or (isinstance(e, BinOp) and e.op in ARITHMETIC)
    inner = (part for c in reversed(children(e)) for part in _parts(c))
    return (e, *inner) if named else tuple(inner)


@lru_cache(maxsize=1 << 14)
def _size(e: Expr) -> int:
    """Return the number of operations, a multiplication by a constant not counted."""
    own = 0 if isinstance(e, Const) or not children(e) else 1
    return own + sum(_size(c) for c in children(e))


@lru_cache(maxsize=1 << 14)
def _has_division(e: Expr) -> bool:
    if isinstance(e, BinOp) and e.op in "/%" and not isinstance(e.rhs, Const):
        return True
    return any(_has_division(c) for c in children(e))


def _replace(e: Expr, old: Expr, new: str) -> Expr:
    if old not in _parts(e):
        return e
    if e == old:
        return Var(new)
    match e:
        case BinOp(op, a, b):
            return BinOp(op, _replace(a, old, new), _replace(b, old, new))
        case Select(c, a, b):
            return Select(_replace(c, old, new), _replace(a, old, new), _replace(b, old, new))
        case _:
            return e
