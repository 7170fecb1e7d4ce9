"""Rules of ``cp.async``: each lane's copy lands some time; groups and arrivals wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuser.sim import mbarrier
from fuser.sim.agent import Agent, Wait
from fuser.sim.copies import Flight
from fuser.sim.machine import Machine
from fuser.sim.memory import Memory, gather, lane_columns, scatter

Place = tuple[str, Any]


def copy(
    m: Machine,
    agent: Agent,
    dst: Place,
    src: Place,
    width: int,
    guard: Any,
    limit: Any = None,
) -> None:
    """Issue copies of `width` elements per active lane; zeros where there is nothing to read.

    Parameters
    ----------
    guard
        Where it is false, nothing is read.
    limit
        Elements that there are from the source on; None: `width` or more.
    """
    target, source = m.memories[dst[0]], m.memories[src[0]]
    mask = agent.mask
    to = m.locate(agent, target, dst[1], mask, width)
    exists = _existing(agent, guard, width if limit is None else limit, width)
    where = _sources(m, agent, source, src[1], exists)
    groups = m.groups(agent, "cp.async")
    groups.issued += 1
    if m.monitor is not None:
        actor = ("cp.async", agent.name)
        m.monitor.copy(agent, source, where[exists], "read", actor, groups.issued)
        there = lane_columns(agent.spread(to)[agent.active()], width).reshape(-1)
        m.monitor.copy(agent, target, there, "write", actor, groups.issued)

    def land() -> None:
        value = np.zeros(where.shape, source.dtype.np)
        value[exists] = gather(source.data, where[exists], 1)
        scatter(target.data, agent.spread(to), value if width > 1 else value[:, 0], mask, width)

    flight = Flight(f"{m.where(agent)} of {agent.name}", land)
    groups.add(flight, agent.active())
    m.launch(flight)


def _existing(agent: Agent, guard: Any, limit: Any, width: int) -> NDArray[np.bool_]:
    """Return which elements are read, shape (lanes, width)."""
    some = agent.active() & agent.spread(guard).astype(np.bool_)
    within: NDArray[np.bool_] = np.arange(width) < agent.spread(limit)[:, None]
    return within & some[:, None]


def _sources(
    m: Machine, agent: Agent, source: Memory, first: Any, exists: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return the element that each column is read from, shape (lanes, width), checked."""
    width = exists.shape[1]
    m.locate(agent, source, first, agent.mask, 1)  # a valid address even where nothing is read
    if width > 1:
        m.check_alignment(agent, source, first, agent.mask, width)
    last = agent.spread(first) + np.maximum(exists.sum(1), 1) - 1
    m.locate(agent, source, last, agent.mask, 1)
    return lane_columns(agent.spread(first), width)


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
