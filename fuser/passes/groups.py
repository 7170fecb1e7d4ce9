"""Consumer groups of a warp-specialised ring: each computes trips of its own, in turn.

With G groups, an index of the specialised thread axis is a group, and that axis numbers trips like
a serial one: the producer fills them one after the other, a group awaits and releases its own. Each
group has S / G stages for its own: it then awaits every phase of their barriers. Were they shared,
a group could await a phase while the one before is still open, and parities two rounds apart are
alike.

rewrite::

    for i: for g in threads: for k: load tile; use tile;   finish
    ->
    producer: for i: for g: for k:            acquire; fill
    consumer: for i: group g: [take turn]; for k: await; use; release; [pass turn];   finish

Taking turns (ping-pong) keeps the inner loops in the order of the trips, so that all stages can be
shared, and leaves what follows them to run beside the next group's. Source: the ping-pong schedule
of CUTLASS's Hopper kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuser.core.errors import ScheduleError
from fuser.core.expr import ZERO, Const, Expr, Var, substitute
from fuser.core.simplify import simplify
from fuser.nest.nodes import (
    Acquire,
    Await,
    Compute,
    Fill,
    Group,
    Loop,
    LoopNest,
    NestNode,
    PassTurn,
    Ring,
    TakeTurn,
    walk,
)
from fuser.schedule.circular import WarpSpecialized
from fuser.schedule.kinds import ParallelType


def consumer_groups(nest: LoopNest, ring: Ring) -> ConsumerGroups | None:
    """Return the groups of a ring, or None; raise `ScheduleError` where they cannot take turns."""
    name = ring.tensors[0]
    ts, kind = nest.schedule.tensors[name], ring.buffer.type
    assert isinstance(kind, WarpSpecialized)
    others = {t: nest.schedule.tensors[t].group_axis for t in ring.tensors}
    axis = ts.group_axis
    if any(other != axis for other in others.values()):
        raise ScheduleError(
            f"{', '.join(others)}: circular-buffered on one loop, and axis {kind.on.name} is axis "
            f"{', '.join(str(a) for a in others.values())} of theirs; needed the same"
        )
    if axis is None:
        if kind.ping_pong:
            raise ScheduleError(
                f"{name}: ping_pong, and no axis left of stage_slice_position "
                f"{kind.stage_slice_position} is bound to {kind.on.name}; there are no groups to "
                "take turns"
            )
        return None
    if ts.trip_axes[0] == axis:
        raise ScheduleError(
            f"{name}: consumer groups on axis {axis} ({kind.on.name}), and no serial loop is left "
            "of it; needed one over the trips that the groups take in turn"
        )
    groups = simplify(ts.domain.loop[axis].extent, nest.facts)
    if not isinstance(groups, Const):
        raise ScheduleError(
            f"{name}: specialised axis {axis} ({kind.on.name}) has extent {groups}; a constant "
            "number of consumer groups is needed"
        )
    if not kind.ping_pong and ring.buffer.stages % groups.value:
        raise ScheduleError(
            f"{name}: {ring.buffer.stages} stages for {groups.value} consumer groups that each "
            "have stages of their own; needed a multiple, or ping_pong, whose groups share them"
        )
    if kind.ping_pong and ts.trip_axes[-1] == axis:
        raise ScheduleError(
            f"{name}: ping_pong, and no serial loop lies between axis {axis} ({kind.on.name}) and "
            f"stage_slice_position {kind.stage_slice_position}; turns are taken around such a loop"
        )
    return ConsumerGroups(nest, ring, kind, axis)


@dataclass(frozen=True, slots=True)
class ConsumerGroups:
    """The groups of one ring; `axis` is the loop axis of its tensors that numbers them."""

    nest: LoopNest
    ring: Ring
    kind: WarpSpecialized
    axis: int

    @property
    def var(self) -> str:
        """The variable of the loop over groups: a hardware index."""
        return self.kind.on.value

    @property
    def serves(self) -> str:
        """The variable of the producer's loop over groups."""
        number = 0
        while f"g{number}" in self.nest.graph:
            number += 1
        return f"g{number}"

    def in_turn(self, nodes: tuple[NestNode, ...]) -> tuple[NestNode, ...]:
        """Return the producer's nodes with a serial loop over the groups."""
        return _serial(nodes, self.var, self.serves)

    def each(self, nodes: tuple[NestNode, ...]) -> tuple[NestNode, ...]:
        """Return the consumer's nodes: what a group does is marked, turns are taken."""
        result: list[NestNode] = []
        for node in nodes:
            if isinstance(node, Loop) and self.awaits(node):
                mine = node.var == self.var
                body = (Group(self.ring, self.turns(node.body)),) if mine else self.each(node.body)
                node = replace(node, body=body)
            result.append(node)
        return tuple(result)

    def awaits(self, loop: Loop) -> bool:
        """Whether the ring is awaited inside a loop."""
        return any(isinstance(n, Await) and n.ring == self.ring for _, n in walk(loop.body))

    def turns(self, body: tuple[NestNode, ...]) -> tuple[NestNode, ...]:
        """Return a group's body with turns around its loop of trips."""
        if not self.kind.ping_pong:
            return body
        result: list[NestNode] = []
        for node in body:
            if isinstance(node, Loop) and self.awaits(node):
                result += [TakeTurn(self.ring, self.turn()), node, PassTurn(self.ring)]
            else:
                result.append(node)
        return tuple(result)

    def turn(self) -> Expr:
        """Return how many turns each group has had: the linear index of the loops outside."""
        ts = self.nest.schedule.tensors[self.ring.tensors[0]]
        turn: Expr = ZERO
        for _, node in walk(self.nest.body):
            if isinstance(node, Compute) and node.tensor == self.ring.tensors[0]:
                for j in ts.trip_axes:
                    if j < self.axis:
                        turn = turn * ts.domain.loop[j].extent + node.loops[j]
                break
        return simplify(turn, self.nest.facts)


def _serial(nodes: tuple[NestNode, ...], var: str, name: str) -> tuple[NestNode, ...]:
    """Return a copy in which loop `var` is the serial loop `name`."""
    env = {var: Var(name)}
    result: list[NestNode] = []
    for node in nodes:
        match node:
            case Loop(body=body):
                node = replace(node, body=_serial(body, var, name))
                if node.var == var:
                    node = replace(node, var=name, parallel=ParallelType.serial)
            case Compute(loops=loops):
                node = replace(node, loops=tuple(substitute(e, env) for e in loops))
            case Acquire(trip=trip, group=group):
                at, group = substitute(trip, env), substitute(group, env)
                node = replace(node, trip=at, group=group)
            case Fill(trip=trip, body=body, group=group):
                at, group = substitute(trip, env), substitute(group, env)
                node = replace(node, trip=at, group=group, body=_serial(body, var, name))
            case _:
                pass
        result.append(node)
    return tuple(result)
