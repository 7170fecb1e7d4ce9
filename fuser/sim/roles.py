"""Roles of a block: a warp runs its own; a lockstep agent splits into one agent per role."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.core.errors import ProtocolError
from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine
from fuser.sim.races import deadlock

WARP = 32


@dataclass(frozen=True, slots=True)
class Part:
    """A role: its linear thread indices, and what starts its body."""

    name: str
    threads: range
    start: Callable[[Agent], Iterator[Wait]]


def run(m: Machine, agent: Agent, parts: Sequence[Part]) -> Iterator[Wait]:
    """Run the roles that have threads in `agent`."""
    if m.interleaved:  # a warp, which has one role or none
        for part in parts:
            if int(agent.tid[0]) in part.threads:
                yield from part.start(agent)
        return
    agents = {p.name: _part(agent, p) for p in parts}
    programs = {p.name: p.start(agents[p.name]) for p in parts if agents[p.name].lanes}
    blocked, finished = dict[str, Wait](), list[str]()
    while programs:
        runnable = [n for n in programs if n not in blocked or blocked[n].ready()]
        if not runnable:
            raise deadlock(m.kernel, blocked, finished)
        for name in runnable:
            wait = next(programs[name], None)
            blocked.pop(name, None)
            if wait is not None:
                blocked[name] = wait
                continue
            del programs[name]
            finished.append(name)
    for split in agents.values():
        _merge(m, agent, split)


def _part(agent: Agent, part: Part) -> Agent:
    """Return an agent of the lanes of one role, with copies of what they hold."""
    threads = part.threads
    lanes = (agent.tid >= threads.start) & (agent.tid < threads.stop) & agent.active()

    def take(value: Any) -> Any:
        return value[lanes] if np.ndim(value) else value

    return Agent(
        f"role {part.name}",
        agent.tid[lanes],
        agent.slot[lanes],
        {n: take(v) for n, v in agent.env.items()},
        {n: take(v) for n, v in agent.values.items()},
        {n: r.take(lanes) for n, r in agent.registers.items()},
    )


def _merge(m: Machine, agent: Agent, part: Agent) -> None:
    """Give the lanes of a role back what they have changed."""
    if not part.lanes:
        return
    lanes = np.isin(agent.tid, part.tid) & agent.active()
    for name, old in agent.values.items():
        merged = np.array(agent.spread(old))
        merged[lanes] = part.values[name]
        agent.values[name] = merged
    for name, registers in agent.registers.items():
        registers.data = np.array(registers.data)
        registers.data[lanes] = part.registers[name].data
        state = part.registers[name].accumulators
        if registers.accumulators is None:
            registers.accumulators = state
        elif state is not None:
            registers.accumulators.adopt(state, np.unique(m.warps(part)))


def same_in_all(m: Machine, agent: Agent, value: Any) -> int:
    """Return what a role's barrier, or its part of an array, is in all active lanes."""
    if isinstance(value, int):
        return value
    numbers = np.unique(agent.spread(value)[agent.active()])
    if numbers.size > 1:
        raise ProtocolError(
            f"{m.where(agent)}: threads of one warp or role meet at barriers {numbers.tolist()}"
        )
    return int(numbers[0]) if numbers.size else 0


def named_barrier(m: Machine, agent: Agent, number: Any, threads: int, why: str) -> Iterator[Wait]:
    """Meet at hardware barrier `number` of each block until `threads` threads have arrived."""
    number = same_in_all(m, agent, number)
    what = f"bar.sync {number} ({why})"
    active = agent.active()
    for start in range(0, agent.lanes, WARP):
        warp = active[start : start + WARP]
        if warp.any() and not warp.all():
            raise ProtocolError(
                f"{m.where(agent)}: {what} in divergent code, a deadlock; "
                f"{m.thread(agent, start + int(np.argmin(warp)))} does not arrive"
            )
    key = ("named barrier", number)
    fresh = tuple(np.zeros(m.blocks, np.int64) for _ in range(3))
    arrived, generation, expected = m.board.setdefault(key, fresh)
    mine = np.bincount(agent.slot[active], minlength=m.blocks)
    slots = np.flatnonzero(mine)
    other = expected[slots][(arrived[slots] > 0) & (expected[slots] != threads)]
    if other.size:
        raise ProtocolError(
            f"{m.where(agent)}: {what} of {threads} threads meets one of {int(other[0])}; all must "
            f"name the same number"
        )
    expected[slots] = threads
    before = generation[slots].copy()
    arrived += mine
    if (arrived > threads).any():
        raise ProtocolError(
            f"{m.where(agent)}: {int(arrived.max())} threads arrive at {what}; needed {threads}"
        )
    full = arrived == threads
    if m.order is not None:
        m.order.meet(agent, (key, int(slots[0])), is_last=bool(full[slots[0]]))
    generation += full
    arrived[full] = 0

    def met() -> bool:
        return bool((generation[slots] > before).all())

    if not met():
        yield Wait(met, lambda: f"{what} with {int(arrived[slots].max())} of {threads} threads")
    if m.order is not None:
        m.order.met(agent, (key, int(slots[0])))
