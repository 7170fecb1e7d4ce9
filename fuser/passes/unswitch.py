"""Unswitch guards of unrolled loops: one test for all iterations, then code without guards.

rewrite::

    for u in [0, 4) unrolled: if (r * 4 + u < n) body
    ->
    if (r * 4 + 3 < n) for u in [0, 4) unrolled: body
    else               for u in [0, 4): if (r * 4 + u < n) body

Without it every copy of the body is a branch of its own, and loads cannot be issued together. The
last loop is rolled, unless it chooses registers or the user wants it unrolled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from fuser.core.expr import BinOp, Const, Expr, all_of, conjuncts, substitute
from fuser.core.simplify import Facts, coefficient_of, simplify
from fuser.core.unroll import Unroll
from fuser.kir.core import Kernel, Stmt, walk_stmts
from fuser.kir.stmts import DeclareRegisters, For, If
from fuser.passes.mentions import memories_of
from fuser.passes.rewrite import map_bodies


def holds_for_all(guard: Expr, var: str, extent: int, facts: Facts) -> Expr | None:
    """Return the condition under which `guard` holds for every index of a loop; None if unknown."""
    terms: list[Expr] = []
    for term in conjuncts(guard):
        if not (isinstance(term, BinOp) and term.op in ("<", "<=")):
            return None
        slope = coefficient_of(term.rhs - term.lhs, var, facts)
        if slope is None:
            return None
        worst = extent - 1 if slope < 0 else 0
        terms.append(simplify(substitute(term, {var: Const(worst)}), facts))
    return all_of(*terms)


@dataclass(frozen=True, slots=True)
class Unswitch:
    """See the module."""

    name: ClassVar[str] = "unswitch"

    def __call__(self, kernel: Kernel) -> Kernel:
        """Rewrite every fully unrolled loop whose whole body is guarded."""
        outside = {p.name for p in kernel.params} | {s.name for s in kernel.shared}
        body = _Unswitcher(frozenset(outside)).body(kernel.body)
        return kernel if body == kernel.body else replace(kernel, body=body)


@dataclass(frozen=True, slots=True)
class _Unswitcher:
    """Rewrites bodies.

    Attributes
    ----------
    memories
        Names of global and shared memory: all other memory is registers.
    excluded
        Conditions that are false here: this is the other version already.
    """

    memories: frozenset[str]
    excluded: frozenset[Expr] = frozenset()

    def body(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """Rewrite every statement."""
        return tuple(self.stmt(s) for s in body)

    def stmt(self, stmt: Stmt) -> Stmt:
        """Rewrite one statement, inner loops first."""
        match stmt:
            case If(cond, then, orelse):
                other = replace(self, excluded=self.excluded | {cond})
                return If(cond, self.body(then), other.body(orelse))
            case For():
                stmt = replace(stmt, body=self.body(stmt.body))
                return self.unswitched(stmt) or stmt
            case _:
                return map_bodies(stmt, self.body)

    def unswitched(self, loop: For) -> Stmt | None:
        """Return the two versions of an unrolled, guarded loop; None for other loops."""
        trip = loop.trip()
        if trip is None or trip < 2 or len(loop.body) != 1 or not loop.is_unrolled():
            return None
        branch = loop.body[0]
        if not isinstance(branch, If) or branch.orelse:
            return None
        facts = Facts({loop.var: Const(trip)})
        whole = holds_for_all(branch.cond, loop.var, trip, facts)
        if whole is None or whole in self.excluded:
            return None
        bound = loop.unroll.origin or self.indexes_registers(loop)
        rolled = loop if bound else replace(loop, unroll=Unroll("rolled"))
        return If(whole, (replace(loop, body=branch.body),), (rolled,))

    def indexes_registers(self, loop: For) -> bool:
        """Whether the loop touches registers of the code around it: they need constant indices."""
        inside = {s.name for s in walk_stmts(loop.body) if isinstance(s, DeclareRegisters)}
        used = memories_of(loop.body)
        return bool(used - inside - self.memories)
