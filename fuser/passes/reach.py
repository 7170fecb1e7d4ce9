"""Whether a producer may be computed at a position of its consumers: asked of lowering itself."""

from __future__ import annotations

from dataclasses import replace

from fuser.core.dtypes import DataType
from fuser.core.errors import ScheduleError
from fuser.core.expr import TRUE, Expr, Var, substitute
from fuser.core.simplify import Facts, guard_of, simplify
from fuser.fusion.attrs import ReduceAttrs
from fuser.fusion.graph import FusionGraph
from fuser.kir.scalar import Literal
from fuser.kir.scalar import Value as Scalar
from fuser.nest.build import build_nest, materialised_operands
from fuser.passes.buffers import locate, producer_root
from fuser.passes.expand import Coords, Expander
from fuser.schedule.kinds import ParallelType
from fuser.schedule.schedule import Schedule

ANY = Literal(0.0, DataType.Float)


def consumers_of(graph: FusionGraph, schedule: Schedule, tensor: str) -> tuple[str, ...]:
    """Return the tensors with loops that read `tensor`, through inlined expressions."""
    return tuple(
        name for name in schedule.tensors if tensor in materialised_operands(graph, schedule, name)
    )


def largest_position(graph: FusionGraph, schedule: Schedule, tensor: str, facts: Facts) -> int:
    """Return the largest position at which `tensor` can be computed."""
    ts = schedule.tensors[tensor]
    if not consumers_of(graph, schedule, tensor):
        return 0
    limit = innermost_position(graph, schedule, tensor)
    for position in range(limit, 0, -1):
        trial = replace(
            schedule, tensors={**schedule.tensors, tensor: replace(ts, position=position)}
        )
        try:
            check_position(graph, trial, tensor, facts)
        except ScheduleError:
            continue
        return position
    return 0


def innermost_position(graph: FusionGraph, schedule: Schedule, tensor: str) -> int:
    """Return the first axis that must stay the tensor's own, or the number of its axes.

    A reduction is complete right of its first reduction axis only; a copy keeps its vector loop.
    """
    loop = schedule.tensors[tensor].domain.loop
    copy = graph.value(tensor).op == "set"
    return next(
        (
            j
            for j, d in enumerate(loop)
            if d.reduction or (copy and d.parallel is ParallelType.vectorize)
        ),
        len(loop),
    )


def check_position(graph: FusionGraph, schedule: Schedule, tensor: str, facts: Facts) -> None:
    """Raise `ScheduleError` unless `tensor` can be computed at its position."""
    ts = schedule.tensors[tensor]
    loop = ts.domain.loop
    reduced = next((j for j, d in enumerate(loop) if d.reduction), len(loop))
    if ts.position > reduced:
        raise ScheduleError(
            f"{tensor}: inlined at position {ts.position}, inside its own reduction axis "
            f"{reduced}; at most {reduced} is possible"
        )
    build_nest("trial", graph, schedule, facts)
    for consumer in consumers_of(graph, schedule, tensor):
        check_read(graph, schedule, tensor, consumer, facts)


def check_read(
    graph: FusionGraph, schedule: Schedule, producer: str, consumer: str, facts: Facts
) -> None:
    """Raise `ScheduleError` unless every element that `consumer` reads is provably at hand."""
    ts, value = schedule.tensors[consumer], graph.value(consumer)
    loops: list[Expr] = []
    for j, axis in enumerate(ts.domain.loop):
        name = axis.parallel.value if axis.parallel.is_parallel else f"{consumer}.{j}"
        loops.append(Var(name))
        facts = facts.with_range(name, simplify(axis.extent, facts))
    at, inside = ts.domain.backward(loops, facts)
    facts = facts.with_guard(guard_of(inside, facts))
    root = tuple(simplify(r, facts) for r in at)

    def read(name: str, coords: Coords, guard: Expr, facts: Facts) -> Scalar | None:
        made = schedule.tensors.get(name)
        if name == producer and made is not None:
            where = producer_root(name, made, coords, ts.root_of or consumer, root, facts)
            locate(name, made, where, dict(enumerate(loops[: made.position])), facts, consumer)
        known = graph.value(name).op == "input" or (made is not None and name != consumer)
        return ANY if known else None

    expander = Expander(graph, read, lambda name: name)
    if isinstance(value.attrs, ReduceAttrs):
        expander.operand(value, 0, root, TRUE, facts)
    else:
        env = {f"r{i}": e for i, e in enumerate(root)}
        expander.compute(value, tuple(substitute(c, env) for c in ts.coords), TRUE, facts)
