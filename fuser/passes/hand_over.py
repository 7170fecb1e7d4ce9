"""Registers that producers give to consumers, and take back where all threads compute again.

rewrite::

    consumer: use                       consumer: increase; use; meet; decrease to begin
    producer: fill               ->     producer: decrease; fill
    post-epilogue: barrier              post-epilogue: barrier; producer: increase to begin

Producers take theirs behind a barrier of the block: before, they could take what the consumers have
not come to take yet, who then would wait forever.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.core.errors import ScheduleError
from fuser.core.hardware import registers_at_entry
from fuser.kir.core import Stmt
from fuser.kir.stmts import NamedBarrier, Role, Roles, SetMaxRegisters
from fuser.nest.nodes import (
    Compute,
    InitRing,
    InvalRing,
    Loop,
    NestNode,
    Ring,
    WarpRoles,
    When,
    walk,
)
from fuser.passes.state import Team
from fuser.schedule.circular import WarpSpecialized

WARP_GROUP = 128
Body = tuple[NestNode, ...]


def hands_over(ring: Ring) -> bool:
    """Whether the producers of a ring give registers to its consumers."""
    kind = ring.buffer.type
    return isinstance(kind, WarpSpecialized) and kind.num_registers is not None


def behind_roles(tail: Body) -> tuple[Body, Body]:
    """Return what follows the loop of a ring that hands registers over: by consumers, by all.

    Consumers go on until another ring comes, whose barriers count all threads of the block.
    """
    rings = (i for i, n in enumerate(tail) if any(isinstance(m, InitRing) for _, m in walk((n,))))
    cut = next(rings, len(tail))
    return tail[:cut], tail[cut:]


def returned(body: Body) -> Body:
    """Return a copy in which registers go back wherever all threads have more to do."""
    return _returned(body, follows=False)[0]


def _returned(nodes: Body, *, follows: bool) -> tuple[Body, bool]:
    """Return the copy, and whether threads of the block compute in it or behind it."""
    result: list[NestNode] = []
    for node in reversed(nodes):
        match node:
            case InvalRing(ring) if follows and hands_over(ring):
                node = replace(node, returns=True)
            case WarpRoles(ring):
                if follows and hands_over(ring):
                    node = replace(node, returns=True)
                follows = True
            case Compute() | InitRing():
                follows = True
            case Loop() | When():
                again = isinstance(node, Loop) and not node.parallel.is_parallel
                inner, computes = _returned(node.body, follows=follows or again)
                node, follows = replace(node, body=inner), follows or computes
            case _:
                pass
        result.append(node)
    return tuple(reversed(result)), follows


def around(
    ring: Ring, consume: tuple[Stmt, ...], produce: tuple[Stmt, ...], team: Team, *, returns: bool
) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
    """Return ``(consumer, producer)`` with what they do to their registers.

    Parameters
    ----------
    team
        The consumers.
    returns
        Consumers give back what they took.
    """
    kind = ring.buffer.type
    assert isinstance(kind, WarpSpecialized)
    if kind.num_registers is None:
        return consume, produce
    check_registers(ring.name, kind.num_registers, team.threads)
    fewer, more = kind.num_registers
    consume = (SetMaxRegisters(more, True), *consume)
    if returns:
        meet = NamedBarrier(team.barrier, team.threads, "before registers change again")
        begin = registers_at_entry(WARP_GROUP + team.threads)
        consume = (*consume, meet, SetMaxRegisters(begin, False))
    return consume, (SetMaxRegisters(fewer, False), *produce)


def taken_back(ring: Ring, consumers: int) -> Stmt:
    """Return what producers do behind the barrier at which consumers have given theirs back."""
    begin = SetMaxRegisters(registers_at_entry(WARP_GROUP + consumers), True)
    return Roles((Role(f"producer of {ring.name}", consumers, WARP_GROUP, (begin,)),))


def check_registers(name: str, registers: tuple[int, int], consumers: int) -> None:
    """Raise `ScheduleError` unless producers give at least what consumers take."""
    if consumers % WARP_GROUP:
        raise ScheduleError(
            f"{name}: registers change hands among {consumers} consumer threads; whole warp groups "
            f"of {WARP_GROUP} are needed"
        )
    fewer, more = registers
    threads = WARP_GROUP + consumers
    begin = registers_at_entry(threads)
    if not fewer <= begin <= more:
        raise ScheduleError(
            f"{name}: num_registers ({fewer}, {more}), and a block of {threads} threads begins "
            f"with {begin} a thread; needed at most that for producers and at least that for "
            "consumers"
        )
    total = fewer * WARP_GROUP + more * consumers
    if total > begin * threads:
        raise ScheduleError(
            f"{name}: num_registers {fewer} x {WARP_GROUP} + {more} x {consumers} = {total}; the "
            f"block begins with {begin} x {threads} = {begin * threads}, which nothing may exceed"
        )
