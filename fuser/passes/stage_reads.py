"""When the readers of a stage are done with it, and may release it.

What threads read themselves, they have read where it is used. Products of tensor cores read on
until their group is complete: with two stages or more, the one before is waited for, so that one
group is always under way.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.core.expr import ONE, ZERO, Const, Expr, Var, less
from fuser.core.simplify import simplify
from fuser.nest.build import materialised_operands
from fuser.nest.nodes import (
    AwaitProducts,
    CommitProducts,
    LoopNest,
    NestNode,
    Release,
    Ring,
    WarpRoles,
    When,
    walk,
)
from fuser.nest.rebuild import map_bodies

Body = tuple[NestNode, ...]


def awaited(nest: LoopNest, uses: Body, ring: Ring) -> Body:
    """Return the waits for products that may still read a ring's stages behind some uses."""
    return tuple(map(AwaitProducts, _open(nest, uses, ring)))


def settled(nodes: Body) -> Body:
    """Return a copy without waits for products that have been waited for already."""
    return _settled(nodes, frozenset())[0]


def _settled(nodes: Body, done: frozenset[str]) -> tuple[Body, frozenset[str]]:
    """Return the copy, and the products that are known to be complete behind it."""
    result: list[NestNode] = []
    for node in nodes:
        match node:
            case AwaitProducts(tensor, 0):
                if tensor in done:
                    continue
                done |= {tensor}
            case CommitProducts(tensor):
                done -= {tensor}
            case WarpRoles(consumer=consumer):
                inner, done = _settled(consumer, done)
                node = replace(node, consumer=inner)
            case _:
                node = map_bodies(node, settled)
                done -= {n.tensor for _, n in walk((node,)) if isinstance(n, CommitProducts)}
        result.append(node)
    return tuple(result), done


def is_late(nest: LoopNest, uses: Body, ring: Ring) -> bool:
    """Whether a stage is released in the trip behind the one that uses it."""
    return _own_stages(nest, ring) > 1 and bool(_groups(nest, uses, ring))


def released(
    nest: LoopNest, uses: Body, ring: Ring, trip: Expr, var: str, group: Expr = ZERO
) -> Body:
    """Return what follows the uses of a trip: the stage that is free now is released.

    Parameters
    ----------
    var
        Variable of the loop of trips, which counts from 0.
    """
    open_ = _open(nest, uses, ring)
    if not open_:
        return (Release(ring, trip, group),)
    if not is_late(nest, uses, ring):
        return (*awaited(nest, uses, ring), Release(ring, trip, group))
    wait = AwaitProducts(open_[0], len(_groups(nest, uses, ring)))
    return wait, When(less(ZERO, Var(var)), (Release(ring, trip - ONE, group),))


def released_last(
    nest: LoopNest, uses: Body, ring: Ring, last: Expr, trips: Expr, group: Expr
) -> Body:
    """Return what follows the loop of trips: if there was one, the stage of the last is free."""
    if not is_late(nest, uses, ring):
        return awaited(nest, uses, ring)  # the consumer's own: what is behind the roles has none
    return (*awaited(nest, uses, ring), When(less(ZERO, trips), (Release(ring, last, group),)))


def _own_stages(nest: LoopNest, ring: Ring) -> int:
    """Return the stages that a reader's trips go through: all, or those of its consumer group."""
    ts = nest.schedule.tensors[ring.tensors[0]]
    if ts.owner_axis is None:
        return ring.buffer.stages
    groups = simplify(ts.domain.loop[ts.owner_axis].extent, nest.facts)
    assert isinstance(groups, Const)  # `consumer_groups` has raised
    return ring.buffer.stages // groups.value


def _open(nest: LoopNest, uses: Body, ring: Ring) -> tuple[str, ...]:
    """Return the products that read a ring and may still do so behind its uses in a trip."""
    inside = [node for _, node in walk(uses)]
    ended = {node.tensor for node in inside if isinstance(node, AwaitProducts)}
    begun = dict.fromkeys(node.tensor for node in inside if isinstance(node, CommitProducts))
    return tuple(
        name
        for name in begun
        if name not in ended
        and not set(ring.tensors).isdisjoint(materialised_operands(nest.graph, nest.schedule, name))
    )


def _groups(nest: LoopNest, uses: Body, ring: Ring) -> tuple[CommitProducts, ...]:
    """Return the groups of products that a trip issues; none where their number is not known."""
    open_ = _open(nest, uses, ring)
    every = [node for _, node in walk(uses) if isinstance(node, CommitProducts)]
    straight = tuple(node for node in uses if isinstance(node, CommitProducts))
    return straight if open_ and len(straight) == len(every) else ()
