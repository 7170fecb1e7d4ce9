"""What holds inside a loop, and in the whole kernel."""

from __future__ import annotations

from fuser.core.expr import BinOp, Const, Expr, Var, less, product
from fuser.core.simplify import Facts
from fuser.kir.core import Kernel, walk_stmts
from fuser.kir.stmts import For, GridReduce, Let
from fuser.nest.nodes import Loop


def loop_facts(loop: Loop | For, extent: Expr, facts: Facts) -> Facts:
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


def hardware_facts(kernel: Kernel, facts: Facts) -> Facts:
    """Return `facts` with the ranges of block and thread indices; other names may be anything."""
    for axis, blocks, cluster, threads in zip(
        "xyz", kernel.grid, kernel.cluster, kernel.block, strict=True
    ):
        facts = facts.with_range(f"b{axis}", blocks // cluster)
        facts = facts.with_range(f"c{axis}", Const(cluster)).with_range(f"t{axis}", threads)
    facts = facts.with_range("thread", product(kernel.block))
    facts = facts.with_range("cluster_rank", Const(kernel.cluster_size))
    unknown: set[str] = set()
    for stmt in walk_stmts(kernel.body):
        match stmt:
            case Let(name) | GridReduce(is_last=name):
                unknown.add(name)
            case _:
                pass
    return Facts(facts.ranges, facts.multiples, facts.bounds, facts.signed | unknown)
