"""Copies of boxes by all threads that fill a ring, where the copy engine cannot make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fuser.core.expr import ZERO, Const, Expr, Var, substitute
from fuser.core.simplify import simplify
from fuser.core.unroll import Unroll
from fuser.kir.core import Stmt
from fuser.kir.scalar import Element
from fuser.kir.stmts import For, Store
from fuser.nest.nodes import Compute, Loop, NestNode
from fuser.passes.buffers import buffer_index
from fuser.passes.copies import CopyPlan
from fuser.passes.guards import guarded
from fuser.passes.state import Lowering, Scope
from fuser.schedule.kinds import ParallelType


def thread_copies(
    state: Lowering,
    plans: Mapping[str, CopyPlan],
    nodes: tuple[NestNode, ...],
    writers: int,
    scope: Scope,
) -> tuple[Stmt, ...]:
    """Return loops in which `writers` threads copy the boxes of the tensors in `plans`."""
    result: list[Stmt] = []
    for node in nodes:
        if isinstance(node, Loop):
            inner = replace(scope, facts=scope.facts.with_range(node.var, node.extent))
            body = thread_copies(state, plans, node.body, writers, inner)
            if not body or node.parallel is ParallelType.tma or node.parallel.is_parallel:
                result += body
            else:
                result.append(For(node.var, node.extent, body, node.unroll))
        elif isinstance(node, Compute) and node.tensor in plans:
            result.append(_copy(state, plans[node.tensor], node, writers, scope))
    return tuple(result)


def _copy(state: Lowering, plan: CopyPlan, node: Compute, writers: int, scope: Scope) -> Stmt:
    """Return the loop over the elements of a box, shared out among the writers."""
    name, graph, ts = node.tensor, state.nest.graph, state.nest.schedule.tensors[node.tensor]
    (source,) = graph.operand_names(name)
    numel = 1
    digits: dict[int, Expr] = {}
    e = Var(state.fresh("e"))
    for j in reversed(plan.axes):
        extent = simplify(ts.domain.loop[j].extent, scope.facts)
        assert isinstance(extent, Const)
        digits[j] = (e // numel) % extent
        numel *= extent.value
    facts = scope.facts.with_range(e.name, Const(numel))
    loops = tuple(digits.get(j, at) for j, at in enumerate(node.loops))
    guard = substitute(plan.guard, {f"a{j}": at for j, at in enumerate(loops)})
    held = facts.with_guard(guard)
    at = substitute(plan.source, {f"a{j}": at for j, at in enumerate(loops)})
    value = Element(source, simplify(at, held), graph.value(source).dtype)
    store = Store(name, buffer_index(ts, loops, held), value)
    first = ZERO if scope.team is None else scope.team.first
    return For(
        e.name, Const(numel), guarded(guard, (store,), facts), Unroll("rolled"),
        Var("thread") - first, Const(writers),
    )  # fmt: skip
