"""How many bytes the boxes of a stage bring: what its barrier is told to expect.

A box of ``bulk`` ends where its tensor does, and one that begins behind that is not copied at all.
So the boxes of a loop bring less in the last trip, and the sum says how much::

    for b in [0, 4): if (o + b * 128 < n) copy min(128, n - o - b * 128)
    ->  min(512, n - o)
    for r in [0, 8): if (o + r < rows) copy 128   ->   128 * min(8, rows - o)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from fuser.core.errors import ScheduleError
from fuser.core.expr import (
    ONE,
    ZERO,
    BinOp,
    Const,
    Expr,
    all_of,
    ceil_div,
    conjuncts,
    maximum,
    minimum,
    select,
    substitute,
    variables,
)
from fuser.core.simplify import Facts, coefficient_of, simplify
from fuser.nest.nodes import Compute, Loop
from fuser.passes.copies import CopyPlan
from fuser.schedule.kinds import ParallelType

MOST_TERMS = 64
"""Boxes whose sizes are added one by one where no closed form is known."""


def expected_bytes(plan: CopyPlan, node: Compute, loops: Sequence[Loop], facts: Facts) -> Expr:
    """Return the bytes of all boxes that a tensor gets in one trip.

    Parameters
    ----------
    node
        The copy of one box.
    loops
        Over boxes, outermost first.

    Raises
    ------
    ScheduleError
        No constant number of boxes whose sizes differ.
    """
    env = {f"a{j}": e for j, e in enumerate(node.loops)}
    for loop in loops:
        facts = facts.with_range(loop.var, loop.extent)
    total = _Boxes.of(plan, env, facts)
    for loop in reversed(loops):
        total = total.over(loop, node.tensor)
    return total.nbytes()


def is_in_box(loop: Loop) -> bool:
    """Whether the iterations of a loop around a copy are no boxes of their own in this block."""
    return loop.parallel is ParallelType.tma or loop.parallel.is_parallel


@dataclass(frozen=True, slots=True)
class _Boxes:
    """A sum of sizes: ``times * min(numel, rests) * itemsize`` where all conditions hold, else 0.

    Attributes
    ----------
    numel
        Elements of what is not cut short.
    ends
        Conditions ``first < end`` that also cut it short: ``end - first`` are its `rests`.
    others
        Conditions of all or nothing.
    """

    numel: Expr
    itemsize: int
    ends: tuple[BinOp, ...]
    others: tuple[Expr, ...]
    facts: Facts
    times: Expr = ONE

    @staticmethod
    def of(plan: CopyPlan, env: dict[str, Expr], facts: Facts) -> _Boxes:
        """Return the size of one box."""
        others = tuple(t for t in conjuncts(plan.guard) if t not in plan.ends)
        ends = (BinOp("<", substitute(t.lhs, env), substitute(t.rhs, env)) for t in plan.ends)
        return _Boxes(
            Const(plan.numel),
            plan.itemsize,
            tuple(ends),
            tuple(substitute(t, env) for t in others),
            facts,
        )

    def nbytes(self) -> Expr:
        """Return the sum as an expression."""
        rests = (simplify(t.rhs - t.lhs, self.facts) for t in self.ends)
        size = reduce(minimum, rests, self.numel) * self.itemsize * self.times
        return select(simplify(all_of(*self.others, *self.ends), self.facts), size, 0)

    def over(self, loop: Loop, name: str) -> _Boxes:
        """Return the sum over a loop."""
        ends = [t for t in self.ends if loop.var in variables(t)]
        others = [t for t in self.others if loop.var in variables(t)]
        repeated = loop.var in variables(self.times)
        if not (ends or others or repeated):
            return replace(self, times=self.times * loop.extent)
        slopes = {self.slope(t, loop.var) for t in ends}
        behind = ends and len(ends) == len(self.ends) and slopes == {self.numel}
        if behind and not (others or repeated):
            # Each box begins where the one before it ends: together they are one that is longer.
            longer = simplify(self.numel * loop.extent, self.facts)
            return replace(self, numel=longer, ends=tuple(at_zero(t, loop.var) for t in ends))
        steps = [self.slope(t, loop.var) for t in others]
        if not (ends or repeated) and all(isinstance(step, Const) for step in steps):
            return self.counted(loop, others, steps)
        return self.added(loop, name)

    def slope(self, term: Expr, var: str) -> Expr | None:
        """Return by how much ``end - first`` shrinks from one box to the next, where it does."""
        if not (isinstance(term, BinOp) and term.op == "<"):
            return None
        step = coefficient_of(term.rhs - term.lhs, var, self.facts)
        return Const(-step) if step is not None and step < 0 else None

    def counted(self, loop: Loop, terms: Sequence[Expr], steps: Sequence[Expr | None]) -> _Boxes:
        """Return the sum of boxes that are whole as long as `terms` hold, the first ones."""
        count = loop.extent
        for term, step in zip(terms, steps, strict=True):
            assert isinstance(term, BinOp)
            assert step is not None
            first = at_zero(term, loop.var)
            count = minimum(count, ceil_div(maximum(first.rhs - first.lhs, ZERO), step))
        others = tuple(t for t in self.others if t not in terms)
        times = self.times * simplify(count, self.facts)
        return replace(self, others=others, times=times)

    def added(self, loop: Loop, name: str) -> _Boxes:
        """Return the sum of boxes one by one."""
        extent = simplify(loop.extent, self.facts)
        if not isinstance(extent, Const) or extent.value > MOST_TERMS:
            raise ScheduleError(
                f"{name}: loads {extent} boxes a stage, of which some may be cut short or left "
                f"out; needed a constant of at most {MOST_TERMS}, or LoadStoreOpType.tma, which "
                "fills what is outside with zeros"
            )
        size = self.nbytes()
        terms = (substitute(size, {loop.var: Const(i)}) for i in range(extent.value))
        whole: Expr = ZERO
        for term in terms:
            whole = whole + simplify(term, self.facts)
        return _Boxes(ONE, 1, (), (), self.facts, whole)


def at_zero(term: BinOp, var: str) -> BinOp:
    """Return a condition of the first box of a loop."""
    return BinOp(term.op, *(substitute(e, {var: ZERO}) for e in (term.lhs, term.rhs)))
