"""What holds inside a loop."""

from __future__ import annotations

from fuser.core.expr import BinOp, Const, Expr, Var, less
from fuser.core.simplify import Facts
from fuser.nest.nodes import Loop


def loop_facts(loop: Loop, extent: Expr, facts: Facts) -> Facts:
    """Return what holds inside a loop; the bound of a cut-short clone as far as it helps."""
    match extent:
        case BinOp("min", a, b):
            index = Var(loop.var)
            return facts.with_range(loop.var, b).with_guard(less(index, a))
        case BinOp("max", a, Const(0)):
            return facts.with_range(loop.var, a)  # no trip at all where `a` is negative
        case BinOp("/", BinOp("max", a, Const(0)), stages):
            return facts.with_range(loop.var, a // stages)  # no round at all where it is negative
        case _:
            return facts.with_range(loop.var, extent)
