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

from fuser.core.expr import FALSE, TRUE, BinOp, Const, Expr, all_of, conjuncts, substitute
from fuser.core.simplify import Facts, coefficient_of, simplify
from fuser.core.unroll import Unroll
from fuser.kir.core import Kernel, Stmt, walk_stmts
from fuser.kir.stmts import CpAsync, DeclareRegisters, For, If
from fuser.passes.loops import hardware_facts, loop_facts
from fuser.passes.mentions import memories_of
from fuser.passes.rewrite import map_bodies


def holds_for_all(guard: Expr, var: str, first: int, last: int, facts: Facts) -> Expr | None:
    """Return when `guard` holds for every index of a loop, `first` to `last`; None if unknown."""
    terms: list[Expr] = []
    for term in conjuncts(guard):
        if not (isinstance(term, BinOp) and term.op in ("<", "<=")):
            return None
        slope = coefficient_of(term.rhs - term.lhs, var, facts)
        if slope is None:
            return None
        worst = last if slope < 0 else first
        terms.append(simplify(substitute(term, {var: Const(worst)}), facts))
    return all_of(*terms)


def _guarded_body(loop: For) -> tuple[Expr, tuple[Stmt, ...]] | None:
    """Return the condition of a loop's body and what is left without it; None if it has none.

    Copies by ``cp.async`` have no branch, and read less where it does not hold.
    """
    match loop.body:
        case (If(cond, body, ()),):
            return cond, body
        case body if all(isinstance(s, CpAsync) for s in body):
            copies = [s for s in body if isinstance(s, CpAsync)]
            cond = all_of(*(s.whole for s in copies))
            whole = tuple(replace(s, guard=TRUE, limit=None) for s in copies)
            return None if cond == TRUE else (cond, whole)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Unswitch:
    """See the module; `facts` is what the shape class promises about sizes."""

    facts: Facts

    name: ClassVar[str] = "unswitch"

    def __call__(self, kernel: Kernel) -> Kernel:
        """Rewrite every fully unrolled loop whose whole body is guarded."""
        outside = {p.name for p in kernel.params} | {s.name for s in kernel.shared}
        facts = hardware_facts(kernel, self.facts)
        body = _Unswitcher(frozenset(outside), facts).body(kernel.body)
        return kernel if body == kernel.body else replace(kernel, body=body)


@dataclass(frozen=True, slots=True)
class _Unswitcher:
    """Rewrites bodies.

    Attributes
    ----------
    memories
        Names of global and shared memory: all other memory is registers.
    facts
        What holds here.
    excluded
        Conditions that are false here: this is the other version already.
    """

    memories: frozenset[str]
    facts: Facts
    excluded: frozenset[Expr] = frozenset()

    def body(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """Rewrite every statement."""
        return tuple(self.stmt(s) for s in body)

    def stmt(self, stmt: Stmt) -> Stmt:
        """Rewrite one statement, inner loops first."""
        match stmt:
            case If(cond, then, orelse):
                held = replace(self, facts=self.facts.with_guard(cond))
                other = replace(self, excluded=self.excluded | {cond})
                return If(cond, held.body(then), other.body(orelse))
            case For():
                inner = replace(self, facts=loop_facts(stmt, stmt.extent, self.facts))
                stmt = replace(stmt, body=inner.body(stmt.body))
                return inner.unswitched(stmt) or stmt
            case _:
                return map_bodies(stmt, self.body)

    def unswitched(self, loop: For) -> Stmt | None:
        """Return the two versions of an unrolled, guarded loop; None for other loops."""
        indices = loop.indices()
        if indices is None or len(indices) < 2 or not loop.is_unrolled():
            return None
        found = _guarded_body(loop)
        if found is None:
            return None
        cond, body = found
        whole = holds_for_all(cond, loop.var, indices[0], indices[-1], self.facts)
        if whole is None or whole == FALSE or whole in self.excluded:
            return None
        bound = loop.unroll.origin or self.indexes_registers(loop)
        rolled = loop if bound else replace(loop, unroll=Unroll("rolled"))
        unguarded = replace(loop, body=body)
        return unguarded if whole == TRUE else If(whole, (unguarded,), (rolled,))

    def indexes_registers(self, loop: For) -> bool:
        """Whether the loop touches registers of the code around it: they need constant indices."""
        inside = {s.name for s in walk_stmts(loop.body) if isinstance(s, DeclareRegisters)}
        used = memories_of(loop.body)
        return bool(used - inside - self.memories)
