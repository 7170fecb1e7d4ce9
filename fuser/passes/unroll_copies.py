"""Repeat the bodies of loops that the user wants unrolled, innermost first.

rewrite::

    for i in [0, 2) unrolled: { t = x[4 r + i]; y[i] = t; }
    ->
    { t = x[4 r]; y[0] = t; }
    { t = x[4 r + 1]; y[1] = t; }

Copies are scopes of their own, so that each has names of its own. Loops inside of them keep their
directives. What the generator unrolls by itself is left to the compiler: there nothing depends on
it but speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from fuser.core.errors import ScheduleError
from fuser.core.expr import FALSE, TRUE, Const, Expr, substitute, variables
from fuser.core.simplify import Facts, guard_of, simplify
from fuser.kir.core import Kernel, Stmt, walk_stmts
from fuser.kir.scalar import Choose, Element, FromIndex, Literal
from fuser.kir.scalar import Value as Scalar
from fuser.kir.stmts import (
    DeclareRegisters,
    DeclareScalar,
    Define,
    For,
    GridReduce,
    If,
    Let,
    Scoped,
    Wgmma,
)
from fuser.passes.loops import hardware_facts, loop_facts
from fuser.passes.register_slots import chosen_in_a_loop
from fuser.passes.rewrite import map_bodies, map_stmt
from fuser.passes.unroll import MAX_COPIES, chosen_registers, register_arrays

MAX_STATEMENTS = 1 << 16
DEFINITIONS = (Define, Let, DeclareScalar, DeclareRegisters, GridReduce)

Body = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class UnrollCopies:
    """See the module."""

    facts: Facts

    name: ClassVar[str] = "unroll-copies"

    def __call__(self, kernel: Kernel) -> Kernel:
        """Rewrite the kernel's body."""
        loops = [s for s in walk_stmts(kernel.body) if isinstance(s, For) and s.unroll.origin]
        if not loops:
            return kernel
        body = _unrolled(kernel.body, hardware_facts(kernel, self.facts))
        check_registers(body)
        return replace(kernel, body=body)


def check_registers(body: Body) -> None:
    """Raise `ScheduleError` where a loop that the user wants rolled chooses registers."""
    registers = register_arrays(body)
    for loop in walk_stmts(body):
        if not isinstance(loop, For) or loop.unroll.kind != "rolled" or not loop.unroll.origin:
            continue
        array = chosen_registers(loop, registers)
        if array is not None:
            raise chosen_in_a_loop(loop, array)


def _unrolled(body: Body, facts: Facts) -> Body:
    return tuple(part for stmt in body for part in _unroll(stmt, facts))


def _unroll(stmt: Stmt, facts: Facts) -> Body:
    """Rewrite one statement, inner loops first."""
    match stmt:
        case For():
            inner = loop_facts(stmt, stmt.extent, facts)
            loop = replace(stmt, body=_unrolled(stmt.body, inner))
            return copies(loop, facts) if loop.unroll.kind == "full" else (loop,)
        case If(cond, body, orelse):
            held = facts.with_guard(cond)
            return (If(cond, _unrolled(body, held), _unrolled(orelse, facts)),)
        case _:
            return (map_bodies(stmt, lambda body: _unrolled(body, facts)),)


def copies(loop: For, facts: Facts) -> Body:
    """Return the body of a loop once a trip, if the user wants that."""
    origin, trips = loop.unroll.origin, loop.trip()
    if not origin:
        return (loop,)
    if trips is None or not isinstance(loop.start, Const) or not isinstance(loop.step, Const):
        raise ScheduleError(
            f"{origin} has the directive unroll(), and its loop runs from {loop.start!r} to "
            f"{loop.extent!r}; needed constants: split it, or unroll(n)"
        )
    if loop.outlined:
        raise ScheduleError(
            f"{origin} is outlined and has the directive unroll(); no loop is left of it: needed "
            "rolled(), or an outer axis outlined"
        )
    if trips > MAX_COPIES:
        raise ScheduleError(
            f"{origin} has the directive unroll() and {trips} trips; needed at most {MAX_COPIES}: "
            "split it, or unroll(n)"
        )
    statements = trips * statements_in(loop.body)
    if statements > MAX_STATEMENTS:
        raise ScheduleError(
            f"{origin} unrolled into {trips} copies makes {statements} statements; needed at most "
            f"{MAX_STATEMENTS}: unroll it or a loop inside of it less"
        )
    products = trips * products_in(loop.body)
    if products > loop.unroll.most_products:
        raise ScheduleError(
            f"{origin} unrolled into {trips} copies makes {products} matrix products; needed at "
            f"most {loop.unroll.most_products}, or the compiler takes long: unroll it less, or "
            f"raise most_products"
        )
    stmts: list[Stmt] = []
    for trip in range(trips):
        index = Const(loop.start.value + trip * loop.step.value)
        stmts += scoped(settled(loop.body, {loop.var: index}, facts))
    return tuple(stmts)


def statements_in(body: Body) -> int:
    """Return the statements of a body, when the compiler has unrolled its short loops."""
    count = 0
    for stmt in body:
        times = stmt.trip() if isinstance(stmt, For) and stmt.unroll.kind == "full" else None
        inside = sum(statements_in(nested) for nested in stmt.bodies())
        count += 1 + inside * (1 if times is None else times)
    return count


def products_in(body: Body) -> int:
    """Return the matrix instructions of a body, when the compiler has unrolled its short loops."""
    count = 0
    for stmt in body:
        times = stmt.trip() if isinstance(stmt, For) and stmt.unroll.kind == "full" else None
        inside = sum(products_in(nested) for nested in stmt.bodies())
        count += isinstance(stmt, Wgmma) + inside * (1 if times is None else times)
    return count


def scoped(body: Body) -> Body:
    """Return a body in braces if it defines names."""
    if len(body) == 1 and isinstance(body[0], Scoped):
        return body
    return (Scoped(body),) if any(isinstance(s, DEFINITIONS) for s in body) else body


def _bare(body: Body) -> Body:
    """Return a body that has braces already without its own."""
    return body[0].body if len(body) == 1 and isinstance(body[0], Scoped) else body


# ---- constant indices ----------------------------------------------------------------------------


def settled(body: Body, env: Mapping[str, Expr], facts: Facts) -> Body:
    """Return a copy with index variables replaced and everything decided that now is known."""
    return tuple(part for stmt in body for part in _settle(stmt, env, facts))


def _settle(stmt: Stmt, env: Mapping[str, Expr], facts: Facts) -> Body:
    match stmt:
        case For(start=start, extent=extent):
            loop = replace(stmt, start=_value(start, env, facts), extent=_value(extent, env, facts))
            if loop.trip() == 0:
                return ()
            inner = loop_facts(loop, loop.extent, facts)
            return (replace(loop, body=_bare(settled(stmt.body, env, inner))),)
        case If(cond, body, orelse):
            known = _guard(cond, env, facts)
            if isinstance(known, Const):
                return scoped(settled(body if known.value else orelse, env, facts))
            then = _bare(settled(body, env, facts.with_guard(known)))
            return (If(known, then, _bare(settled(orelse, env, facts))),)
        case Scoped(body):
            return scoped(settled(body, env, facts))
        case _ if stmt.bodies():
            return (map_bodies(stmt, lambda body: settled(body, env, facts)),)
        case _:
            return (
                map_stmt(
                    stmt,
                    lambda value: _scalar(value, env, facts),
                    lambda e: _value(e, env, facts),
                ),
            )


def _value(e: Expr, env: Mapping[str, Expr], facts: Facts) -> Expr:
    return e if variables(e).isdisjoint(env) else simplify(substitute(e, env), facts)


def _guard(e: Expr, env: Mapping[str, Expr], facts: Facts) -> Expr:
    return e if variables(e).isdisjoint(env) else guard_of(substitute(e, env), facts)


def _scalar(value: Scalar, env: Mapping[str, Expr], facts: Facts) -> Scalar:
    match value:
        case Element(guard=guard):
            known = _guard(guard, env, facts)
            if known == FALSE:
                return Literal(0, value.dtype) if value.fill is None else value.fill
            fill = None if known == TRUE else value.fill
            return replace(value, index=_value(value.index, env, facts), guard=known, fill=fill)
        case FromIndex(expr=expr):
            return replace(value, expr=_value(expr, env, facts))
        case Choose(cond=cond):
            known = _guard(cond, env, facts)
            if isinstance(known, Const):
                return value.if_true if known.value else value.if_false
            return replace(value, cond=known)
        case _:
            return value
