"""Copies by the threads of a producer role, which are others than the loops are bound to.

rewrite::

    for tx in threads: tile[tx] = x[tx]
    ->
    for e in range(thread - first, extent, producers): tile[e] = x[e]

Loops over threads around a fill are the consumers' too: their indices say which of *those* a thread
is, and nothing of a producer. A producer fills the parts of all of them::

    for ty in threads: for l: fill l: tile[ty]   ->   for l: fill l: for ty in threads: tile[ty]

What no loop over threads shares out is shared out by its innermost serial loop, or one thread
copies it: two of several warps that write the same would race.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuser.core.expr import ONE, Const, Expr, Var, equal
from fuser.core.unroll import Unroll
from fuser.nest.nodes import Fill, Loop, NestNode, When, walk
from fuser.nest.rebuild import map_bodies, substituted
from fuser.passes.launch import BLOCK
from fuser.passes.state import Scope, Team
from fuser.schedule.kinds import ParallelType
from fuser.schedule.schedule import TensorSchedule

THREAD = Var("thread")
Fresh = Callable[[str], str]


def by_writers(
    nodes: tuple[NestNode, ...], scope: Scope, fresh: Fresh
) -> tuple[tuple[NestNode, ...], Scope]:
    """Return nodes and scope for those that run them: a role, or what loops are bound to."""
    if scope.team is None:
        return nodes, scope
    inner = replace(scope, hardware=scope.hardware | {*BLOCK})  # which thread, `by_team` has said
    return by_team(nodes, scope.team, fresh), inner


def whole_stages(nodes: tuple[NestNode, ...], schedule: TensorSchedule) -> tuple[NestNode, ...]:
    """Return a producer's nodes with the loops over threads inside of its fills.

    Parameters
    ----------
    schedule
        Of a tensor of the ring; all of them lie in the same loops.
    """
    result: list[NestNode] = []
    for node in nodes:
        match node:
            case Loop(parallel=parallel, body=body) if parallel.is_block:
                result += whole_stages(body, schedule)
            case Fill(body=body):
                result.append(replace(node, body=_within_threads(body, schedule)))
            case _:
                result.append(map_bodies(node, lambda body: whole_stages(body, schedule)))
    return tuple(result)


def _within_threads(nodes: tuple[NestNode, ...], schedule: TensorSchedule) -> tuple[NestNode, ...]:
    """Return nodes inside the loops over threads that lie around the loop of trips."""
    for j in reversed(range(schedule.trip_axes[-1])):
        axis = schedule.domain.loop[j]
        if axis.parallel.is_block and j != schedule.group_axis:
            nodes = (Loop(axis.parallel.value, axis.extent, axis.parallel, Unroll(), nodes),)
    return nodes


def by_team(nodes: tuple[NestNode, ...], team: Team, fresh: Fresh) -> tuple[NestNode, ...]:
    """Return nodes that the threads of `team` share out.

    Of nested loops over threads that is the innermost; the others run one after the other.
    """
    return tuple(_by_team(node, team, fresh) for node in nodes)


def _by_team(node: NestNode, team: Team, fresh: Fresh) -> NestNode:
    if not _has(node, _is_block):
        return _shared_out(node, team)
    if not isinstance(node, Loop) or not node.parallel.is_block:
        return map_bodies(node, lambda body: by_team(body, team, fresh))
    name = fresh("e")
    body = substituted(node.body, {node.var: Var(name)})
    loop = replace(node, var=name, parallel=ParallelType.serial, body=body)
    if any(_has(n, _is_block) for n in body):
        return replace(loop, body=by_team(body, team, fresh))
    return _strided(loop, team)


def _shared_out(node: NestNode, team: Team) -> NestNode:
    """Share out the innermost serial loop of a node without loops over threads."""
    if not _has(node, _is_long):
        return When(equal(THREAD, team.first), (node,))
    if isinstance(node, Loop) and _is_long(node) and not any(_has(n, _is_long) for n in node.body):
        return _strided(node, team)
    return map_bodies(node, lambda body: tuple(_shared_out(n, team) for n in body))


def _strided(loop: Loop, team: Team) -> Loop:
    """Return a loop of which each thread of a team runs its part."""
    start: Expr = THREAD - team.first
    return replace(loop, start=start, step=Const(team.threads), unroll=Unroll("rolled"))


def _has(node: NestNode, wanted: Callable[[Loop], bool]) -> bool:
    return any(isinstance(n, Loop) and wanted(n) for _, n in walk((node,)))


def _is_block(loop: Loop) -> bool:
    return loop.parallel.is_block


def _is_long(loop: Loop) -> bool:
    """Whether a loop may be shared out: a directive would have all of its trips in one thread."""
    return loop.parallel is ParallelType.serial and loop.extent != ONE and not loop.unroll.origin
