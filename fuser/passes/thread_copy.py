"""Copy a box into its stage element by element, where the copy engine cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fuser.core.expr import ZERO, Const, Var, substitute
from fuser.core.simplify import guard_of, simplify
from fuser.core.unroll import Unroll
from fuser.kir.core import Stmt
from fuser.kir.scalar import Element, Literal
from fuser.kir.stmts import FenceProxyAsync, For, Store
from fuser.nest.nodes import Compute, Loop, NestNode
from fuser.passes.buffers import buffer_index
from fuser.passes.copies import CopyPlan, digits_of
from fuser.passes.guards import guarded
from fuser.passes.state import Lowering, Scope
from fuser.schedule.kinds import ParallelType

THREAD = Var("thread")


def copies_by_threads(
    state: Lowering,
    plans: Mapping[str, CopyPlan],
    nodes: tuple[NestNode, ...],
    scope: Scope,
    writers: int,
) -> tuple[Stmt, ...]:
    """Return loops in which `writers` threads copy the boxes of the tensors that have `plans`."""
    copies = _copies(state, plans, nodes, scope, writers)
    shown = state.product_operands & plans.keys()
    if not copies or not shown:
        return copies
    return (*copies, FenceProxyAsync(f"products read {', '.join(sorted(shown))}"))


def _copies(
    state: Lowering,
    plans: Mapping[str, CopyPlan],
    nodes: tuple[NestNode, ...],
    scope: Scope,
    writers: int,
) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for node in nodes:
        if isinstance(node, Loop):
            inner = replace(scope, facts=scope.facts.with_range(node.var, node.extent))
            body = _copies(state, plans, node.body, inner, writers)
            if not body or node.parallel is ParallelType.tma or node.parallel.is_parallel:
                result += body
            else:
                result.append(For(node.var, node.extent, body, node.unroll))
        elif isinstance(node, Compute) and node.tensor in plans:
            result.append(copy_by_threads(state, plans[node.tensor], node, scope, writers))
    return tuple(result)


def copy_by_threads(
    state: Lowering, plan: CopyPlan, node: Compute, scope: Scope, writers: int
) -> Stmt:
    """Return the loop over the elements of a box, shared out among `writers` threads.

    Products read whole tiles: where the tensor ends, theirs have zeros, as from the copy engine.
    """
    name, graph = node.tensor, state.nest.graph
    ts = state.nest.schedule.tensors[name]
    (source,) = graph.operand_names(name)
    e = Var(state.fresh("e"))
    digits, numel = digits_of(ts, plan.axes, e, scope.facts)
    facts = scope.facts.with_range(e.name, Const(numel))
    loops = tuple(digits.get(j, at) for j, at in enumerate(node.loops))
    env = {f"a{j}": at for j, at in enumerate(loops)}
    guard = substitute(plan.guard, env)
    held = facts.with_guard(guard)
    dtype = graph.value(source).dtype
    value = Element(source, simplify(substitute(plan.source, env), held), dtype)
    body: tuple[Stmt, ...]
    if name in state.product_operands:
        filled = replace(value, guard=guard_of(guard, facts), fill=Literal(0, dtype))
        body = (Store(name, buffer_index(ts, loops, facts), filled),)
    else:
        body = guarded(guard, (Store(name, buffer_index(ts, loops, held), value),), facts)
    first = ZERO if scope.team is None else scope.team.first
    return For(
        e.name, Const(numel), body, Unroll("rolled"),
        THREAD - first, Const(writers),
    )  # fmt: skip
