"""Name index expressions that occur more than once, at the innermost body that holds them all.

rewrite::

    if (bx * 128 + tx < n) y[bx * 128 + tx] = x[bx * 128 + tx] + b[(bx * 128 + tx) % m];
    ->
    const idx at0 = bx * 128 + tx;
    if (at0 < n) y[at0] = x[at0] + b[at0 % m];

Divisions inside a loop whose variable they do not mention count as repeated, so they move out.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
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
    here = _Body(scope)
    for stmt in body:
        here.add(stmt)
    while (chosen := here.largest()) is not None:
        # Chosen from large to small: a later, smaller expression may be part of an earlier one.
        here.name(chosen, names.fresh())
    body, lets = tuple(here.stmts[: len(body)]), tuple(reversed(here.stmts[len(body) :]))
    scope = here.scope
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


@dataclass(slots=True)
class _Body:
    """A body while its expressions get names; a name costs what the statements with it do.

    Attributes
    ----------
    scope
        Names that expressions may mention.
    stmts
        Its statements, then the names so far.
    weights
        Per statement how often each expression counts as used in it.
    users, total
        Per expression the statements that it is in, and its weight in all of them.
    worth
        Expressions of weights above 1, from small to large; of some the weight sank since.
    """

    scope: frozenset[str]
    stmts: list[Stmt] = field(default_factory=list[Stmt])
    weights: list[dict[Expr, int]] = field(default_factory=list[dict[Expr, int]])
    users: dict[Expr, set[int]] = field(default_factory=dict[Expr, set[int]])
    total: dict[Expr, int] = field(default_factory=dict[Expr, int])
    worth: list[Expr] = field(default_factory=list[Expr])

    def add(self, stmt: Stmt) -> None:
        """Append a statement."""
        self.stmts.append(stmt)
        self.weights.append({})
        self._count(len(self.stmts) - 1)

    def largest(self) -> Expr | None:
        """Return the largest expression worth a name, or None."""
        while self.worth:
            e = self.worth.pop()
            if self.total[e] > 1:
                return e
        return None

    def name(self, e: Expr, name: str) -> None:
        """Put a name in the place of an expression everywhere."""
        self.scope |= {name}
        for at in tuple(self.users[e]):
            for part, weight in self.weights[at].items():
                self.total[part] -= weight
                self.users[part].discard(at)
            (self.stmts[at],) = map_exprs((self.stmts[at],), partial(_replace, old=e, new=name))
            self._count(at)
        self.add(Let(name, e))

    def _count(self, at: int) -> None:
        self.weights[at] = weights = _weights(self.stmts[at], self.scope)
        for e, weight in weights.items():
            before = self.total.get(e, 0)
            self.total[e] = before + weight
            self.users.setdefault(e, set()).add(at)
            if before <= 1 < before + weight:
                insort(self.worth, e, key=_rank)


def _weights(stmt: Stmt, scope: frozenset[str]) -> dict[Expr, int]:
    """Return how often each expression counts as used in a statement."""
    inside: dict[Expr, int] = {}
    for e, weight in _occurrences(stmt, scope):
        inside[e] = inside.get(e, 0) + weight
    own = set(_subexpressions(stmt_exprs(stmt)))
    for e, weight in inside.items():
        # Inside one nested body only: leave the name to that body, unless a loop repeats it.
        here = weight if e in own or not stmt.bodies() else min(weight, 1)
        inside[e] = 2 if _repeated_by_loop(stmt, e) else here
    return inside


@lru_cache(maxsize=1 << 14)
def _rank(e: Expr) -> tuple[int, str]:
    return _size(e), repr(e)


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
