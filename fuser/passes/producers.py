"""Copies by the threads of a producer role, which are others than the loops are bound to.

rewrite::

    for tx in threads: tile[tx] = x[tx]
    ->
    for e in range(thread - first, extent, producers): tile[e] = x[e]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuser.core.expr import Const, Expr, Var
from fuser.core.unroll import Unroll
from fuser.nest.nodes import Loop, NestNode, walk
from fuser.nest.rebuild import map_bodies, substituted
from fuser.passes.launch import BLOCK
from fuser.passes.state import Scope, Team
from fuser.schedule.kinds import ParallelType

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


def by_team(nodes: tuple[NestNode, ...], team: Team, fresh: Fresh) -> tuple[NestNode, ...]:
    """Return nodes whose loops over threads are loops of the threads of `team`.

    The innermost of nested ones is shared out among them; the others run one after the other.
    """
    return tuple(_by_team(node, team, fresh) for node in nodes)


def _by_team(node: NestNode, team: Team, fresh: Fresh) -> NestNode:
    if not isinstance(node, Loop) or not node.parallel.is_block:
        return map_bodies(node, lambda body: by_team(body, team, fresh))
    name = fresh("e")
    body = by_team(substituted(node.body, {node.var: Var(name)}), team, fresh)
    loop = replace(node, var=name, parallel=ParallelType.serial, body=body)
    if any(isinstance(n, Loop) and n.parallel.is_block for _, n in walk(node.body)):
        return loop
    start: Expr = THREAD - team.first
    return replace(loop, start=start, step=Const(team.threads), unroll=Unroll("rolled"))
