"""Rules of ``cp.async``: each lane's copy lands some time; groups and arrivals wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser.sim import mbarrier
from fuser.sim.agent import Agent, Wait, any_lane
from fuser.sim.copies import Flight
from fuser.sim.machine import Machine
from fuser.sim.memory import gather, lane_columns, scatter

Place = tuple[str, Any]


def copy(m: Machine, agent: Agent, dst: Place, src: Place, width: int, guard: Any) -> None:
    """Issue copies of `width` elements per active lane; zeros where `guard` is false."""
    target, source = m.memories[dst[0]], m.memories[src[0]]
    mask, guarded = agent.mask, agent.narrow(agent.mask, guard)
    to = m.locate(agent, target, dst[1], mask, width)
    start = m.locate(agent, source, src[1], guarded, width) if any_lane(guarded) else 0
    groups = m.groups(agent, "cp.async")
    groups.issued += 1
    if m.monitor is not None:
        actor = ("cp.async", agent.name)
        read = agent.active() if guarded is None else guarded
        here = lane_columns(agent.spread(start)[read], width).reshape(-1)
        m.monitor.copy(agent, source, here, "read", actor, groups.issued)
        where = lane_columns(agent.spread(to)[agent.active()], width).reshape(-1)
        m.monitor.copy(agent, target, where, "write", actor, groups.issued)

    def land() -> None:
        value = gather(source.data, agent.spread(start), width)
        if guarded is not None:
            value = np.array(value)
            value.view(f"u{value.itemsize}")[~guarded] = 0
        scatter(target.data, agent.spread(to), value, mask, width)

    flight = Flight(f"{m.where(agent)} of {agent.name}", land)
    groups.add(flight, agent.active())
    m.launch(flight)


def arrive(m: Machine, agent: Agent, name: str, index: Any) -> None:
    """Arrive with every active lane once its earlier copies have landed."""
    barriers, cells = mbarrier.claim(m, agent, name, index)
    groups = m.groups(agent, "cp.async")
    earlier = (*(f for group in groups.closed for f in group), *groups.open)
    clock = None if m.order is None else m.order.arrive_later(agent)
    stmt = agent.at

    def land() -> None:
        here, agent.at = agent.at, stmt
        if m.order is not None and clock is not None:
            for cell in cells:
                m.order.arrived((name, cell), clock)
        mbarrier.count_arrivals(m, agent, barriers, cells)
        agent.at = here

    m.launch(Flight(f"{m.where(agent)} of {agent.name}", land, earlier))


def commit(m: Machine, agent: Agent) -> None:
    """Close the open group."""
    m.groups(agent, "cp.async").commit()


def wait(m: Machine, agent: Agent, pending: int) -> Iterator[Wait]:
    """Wait until all but `pending` groups have landed."""
    groups = m.groups(agent, "cp.async")
    complete = groups.complete(pending)
    flights = [f for f in groups.flights(complete) if not f.landed]
    if flights:
        why = f"{m.where(agent)}: copies that have not landed"
        yield Wait(lambda: all(f.landed for f in flights), why)
    if m.order is not None and complete:
        m.order.landed(agent, ("cp.async", agent.name), groups.marks[complete - 1])
