"""Guards of statements: put around them, and moved outward as far as they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuser.core.expr import FALSE, TRUE, Expr, all_of, conjuncts, variables
from fuser.core.simplify import Facts, guard_of
from fuser.kir.core import Stmt
from fuser.kir.stmts import DeclareRegisters, DeclareScalar, For, If, Let
from fuser.passes.rewrite import map_bodies


def guarded(guard: Expr, stmts: tuple[Stmt, ...], facts: Facts) -> tuple[Stmt, ...]:
    """Return `stmts` under the part of `guard` that is not provable."""
    needed = guard_of(guard, facts)
    if needed == FALSE or not stmts:
        return ()
    return stmts if needed == TRUE else (If(needed, stmts),)


def split_guard(guard: Expr, names: frozenset[str]) -> tuple[Expr, Expr]:
    """Return ``(outer, inner)``: the conjuncts without and with any of the variables `names`."""
    terms = list(conjuncts(guard))
    outer = [t for t in terms if not variables(t) & names]
    inner = [t for t in terms if variables(t) & names]
    return all_of(*outer), all_of(*inner)


def hoist_guards(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """Merge neighbouring guards and move loop-invariant ones out of loops.

    rewrite::

        if (c) a; if (c) b;            ->  if (c) { a; b; }
        for i: if (c && d(i)) a;       ->  if (c) for i: if (d(i)) a;
    """
    return _merge([part for stmt in body for part in _hoist(stmt)])


def _hoist(stmt: Stmt) -> tuple[Stmt, ...]:
    match stmt:
        case For(var=var, body=inner):
            body = hoist_guards(inner)
            if len(body) == 1 and isinstance(body[0], If) and not body[0].orelse:
                outer, rest = split_guard(body[0].cond, frozenset((var,)))
                if outer != TRUE:
                    kept = body[0].body if rest == TRUE else (If(rest, body[0].body),)
                    return (If(outer, (replace(stmt, body=kept),)),)
            return (replace(stmt, body=body),)
        case _:
            return (map_bodies(stmt, hoist_guards),)


def _is_declaration(stmt: Stmt) -> bool:
    return isinstance(stmt, DeclareRegisters | DeclareScalar | Let)


def _merge(body: list[Stmt]) -> tuple[Stmt, ...]:
    """Join neighbouring branches that share conjuncts."""
    result: list[Stmt] = []
    for stmt in body:
        last = result[-1] if result else None
        if (
            isinstance(stmt, If)
            and isinstance(last, If)
            and not (stmt.orelse or last.orelse)
            and (common := _common(last.cond, stmt.cond)) != TRUE
        ):
            inner = (*_under(last, common), *_under(stmt, common))
            result[-1] = If(common, _merge(list(inner)))
        else:
            result.append(stmt)
    return _around_declarations(result)


def _around_declarations(body: list[Stmt]) -> tuple[Stmt, ...]:
    """Move declarations into the only branch that follows them.

    rewrite::

        T a[8]; if (c) { .. a .. }   ->   if (c) { T a[8]; .. a .. }
    """
    last = body[-1] if body else None
    declarations = body[:-1]
    if (
        isinstance(last, If)
        and not last.orelse
        and declarations
        and all(_is_declaration(s) for s in declarations)
        and not any(isinstance(s, Let) for s in declarations)
    ):
        return (If(last.cond, (*declarations, *last.body)),)
    return tuple(body)


def _common(a: Expr, b: Expr) -> Expr:
    right = set(conjuncts(b))
    return all_of(*(term for term in conjuncts(a) if term in right))


def _under(branch: If, common: Expr) -> tuple[Stmt, ...]:
    shared = set(conjuncts(common))
    rest = all_of(*(term for term in conjuncts(branch.cond) if term not in shared))
    return branch.body if rest == TRUE else (If(rest, branch.body),)
