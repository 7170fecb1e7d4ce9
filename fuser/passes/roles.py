"""Lower warp roles: who is producer, who is consumer, and whether a block can have both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fuser.core.errors import ScheduleError
from fuser.core.expr import ZERO, Const, Var
from fuser.kir.core import Stmt
from fuser.kir.stmts import Role, Roles
from fuser.nest.nodes import Group, Ring, WarpRoles
from fuser.passes.guards import split_guard
from fuser.passes.hand_over import around
from fuser.passes.launch import BLOCK
from fuser.passes.producers import whole_stages
from fuser.passes.ring import WARP, BodyLowering, RingLowering, producer_threads
from fuser.passes.state import Lowering, Scope, Team
from fuser.schedule.circular import WarpSpecialized

BARRIERS = 16
CONSUMER_BARRIER, PRODUCER_BARRIER, FIRST_GROUP_BARRIER = 1, 2, 3
"""Hardware barriers of a block; 0 is ``__syncthreads``."""


def lower_roles(
    state: Lowering, roles: WarpRoles, scope: Scope, ring: RingLowering, body: BodyLowering
) -> tuple[Stmt, ...]:
    """Lower warp roles: consumers are the threads of the nest's loops, producers come behind."""
    kind = roles.ring.buffer.type
    assert isinstance(kind, WarpSpecialized)
    consumers, producers = state.threads(), producer_threads(kind)
    check_specialised(state, ring, kind, consumers)
    narrow = scope.facts.with_range(kind.on.value, state.launch.extents[kind.on])
    producer = replace(
        scope,
        guard=split_guard(scope.guard, frozenset(k.value for k in BLOCK))[0],
        team=Team(Const(consumers), producers, Const(PRODUCER_BARRIER)),
    )
    consumer = replace(scope, facts=narrow, team=Team(ZERO, consumers, Const(CONSUMER_BARRIER)))
    filled = whole_stages(roles.producer, state.nest.schedule.tensors[roles.ring.name])
    produce, consume = body(filled, producer), body(roles.consumer, consumer)
    assert consumer.team is not None
    consume, produce = around(roles.ring, consume, produce, consumer.team, returns=roles.returns)
    return (
        Roles(
            (
                Role(f"consumer of {roles.ring.name}", 0, consumers, consume, ring.groups),
                Role(
                    f"producer of {roles.ring.name}", consumers, producers, produce,
                    serves=roles.serves,
                ),
            )
        ),
    )  # fmt: skip


def lower_group(
    state: Lowering, group: Group, scope: Scope, ring: RingLowering, body: BodyLowering
) -> tuple[Stmt, ...]:
    """Lower what a consumer group does: its threads meet at a barrier of their own."""
    kind = group.ring.buffer.type
    assert isinstance(kind, WarpSpecialized)
    if FIRST_GROUP_BARRIER + ring.groups > BARRIERS:
        raise ScheduleError(
            f"{group.ring.name}: {ring.groups} consumer groups; a block has hardware barriers for "
            f"{BARRIERS - FIRST_GROUP_BARRIER}"
        )
    threads, number = ring.consumers(), Var(kind.on.value)
    if threads % WARP:
        raise ScheduleError(
            f"{group.ring.name}: consumer groups of {threads} threads; whole warps of {WARP} are "
            "needed"
        )
    team = Team(number * threads, threads, number + FIRST_GROUP_BARRIER)
    return body(group.body, replace(scope, team=team))


def check_counted(state: Lowering, ring: Ring) -> None:
    """Raise `ScheduleError` unless it is known how many threads arrive at a ring's barriers."""
    for kind, extent in state.launch.extents.items():
        if kind.is_block and not isinstance(extent, Const):
            how = "warp-specialised" if ring.buffer.is_specialized else "loaded asynchronously"
            raise ScheduleError(
                f"{ring.name}: {how}, and {kind.name} has {extent} threads; barriers count "
                "arrivals, which needs a constant extent"
            )


def check_same_axis(
    others: Mapping[str, WarpSpecialized], name: str, kind: WarpSpecialized
) -> None:
    """Raise `ScheduleError` unless all rings of a kernel extend one thread axis."""
    for other, its in others.items():
        if its.on is not kind.on:
            raise ScheduleError(
                f"{name}: warp-specialised on {kind.on.name}, and {other} of the same kernel on "
                f"{its.on.name}; all must agree"
            )


def check_placement(state: Lowering, name: str, kind: WarpSpecialized) -> None:
    """Raise `ScheduleError` unless producers extend the slowest varying axis that has threads."""
    launch, on = state.launch, kind.on
    used = [k for k in launch.used if k.is_block]
    slower = [k for k in used if k.value > on.value]
    if slower:
        raise ScheduleError(
            f"{name}: warp-specialised on {on.name}, and {slower[0].name} has threads too; "
            "producer warps follow the others only on the slowest varying thread axis"
        )
    if on not in used:
        lacks = (
            "whose loop has 1 iteration" if on in launch.extents else "to which no loop is bound"
        )
        needed = f"a loop of several iterations that is bound to ParallelType.{on.name}"
        if used:
            slowest = max(used, key=lambda k: k.value)
            needed = f"ParallelType.{slowest.name}, the slowest varying axis that has threads"
        raise ScheduleError(f"{name}: warp-specialised on {on.name}, {lacks}; needed {needed}")


def check_specialised(
    state: Lowering, ring: RingLowering, kind: WarpSpecialized, consumers: int
) -> None:
    """Raise `ScheduleError` where roles cannot be whole warps, or cannot load that way."""
    name = ring.ring.name
    if consumers % WARP:
        raise ScheduleError(
            f"{name}: warp-specialised over {consumers} threads; whole warps of {WARP} are needed"
        )
