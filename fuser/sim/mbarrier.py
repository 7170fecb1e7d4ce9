"""Rules of mbarriers: what arrivals, waits and completed bytes do to a phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from fuser.core.errors import ProtocolError
from fuser.sim.agent import Agent, Array, Wait
from fuser.sim.cluster import Reach, own, peer
from fuser.sim.machine import Machine
from fuser.sim.phases import Ints, Mbarriers

MAX_COUNT = 2**20 - 1
"""Largest arrival count, and largest number of bytes one phase waits for."""


def _cells(
    m: Machine, agent: Agent, name: str, index: Any, reach: Reach | None = None
) -> tuple[Mbarriers, Ints]:
    """Return the cell of every active lane; with `reach`, those it acts on."""
    barriers = m.barriers[name]
    active = agent.active()
    reach = own(agent) if reach is None else reach
    index = agent.spread(index)[active][reach.rows]
    bad = (index < 0) | (index >= barriers.size)
    if bad.any():
        lane = int(np.flatnonzero(active)[reach.rows[np.argmax(bad)]])
        raise ProtocolError(
            f"{m.where(agent)}: {name}[{int(index[np.argmax(bad)])}] is outside its "
            f"{barriers.size} barriers, in {m.thread(agent, lane)}"
        )
    return barriers, reach.slots * barriers.size + index


def claim(
    m: Machine, agent: Agent, name: str, index: Any, reach: Reach | None = None
) -> tuple[Mbarriers, Ints]:
    """Return the live cells that the active lanes use."""
    barriers, cells = _cells(m, agent, name, index, reach)
    dead = barriers.expected[cells] == 0
    if dead.any():
        _fail(m, agent, barriers, int(cells[np.argmax(dead)]), "needed a live barrier")
    if m.order is not None:
        for cell in map(int, _distinct(cells)):
            what = partial(_user, m, agent, barriers, cell)
            m.order.use(agent, (name, cell), what)
    return barriers, cells


def _distinct(cells: Ints) -> Ints:
    """Return the different ones of `cells`, sorted; nearly always all are one."""
    return cells[:1] if _is_one(cells) else np.unique(cells)


def _counted(cells: Ints) -> tuple[Ints, Ints]:
    """Return the different ones of `cells`, and how often each is there."""
    return (
        (cells[:1], np.array([cells.size]))
        if _is_one(cells)
        else np.unique(cells, return_counts=True)
    )


def _is_one(cells: Ints) -> bool:
    return cells.size > 0 and np.count_nonzero(cells != cells[0]) == 0


def _user(m: Machine, agent: Agent, barriers: Mbarriers, cell: int) -> str:
    return f"{m.where(agent)}: {barriers.label(cell)}"


def _fail(m: Machine, agent: Agent, barriers: Mbarriers, cell: int, needed: str) -> None:
    lanes = np.flatnonzero(agent.active() & (agent.slot == cell // barriers.size))
    who = m.thread(agent, int(lanes[0])) if lanes.size else agent.name
    raise ProtocolError(f"{m.where(agent)}: {barriers.state(cell)}; {needed}, in {who}")


def init(m: Machine, agent: Agent, name: str, index: Any, count: Any) -> None:
    """Make barriers; one thread each."""
    barriers, cells = _cells(m, agent, name, index)
    counts = agent.spread(count)[agent.active()]
    unique, times = np.unique(cells, return_counts=True)
    if (times > 1).any():
        cell = int(unique[np.argmax(times)])
        _fail(m, agent, barriers, cell, "needed one thread that initialises it")
    live = barriers.expected[cells] != 0
    if live.any():
        cell = int(cells[np.argmax(live)])
        _fail(m, agent, barriers, cell, "needed an inval before it is initialised again")
    if (counts < 1).any() or (counts > MAX_COUNT).any():
        raise ProtocolError(f"{m.where(agent)}: count {int(counts.min())}; needed 1 to {MAX_COUNT}")
    barriers.make(cells, counts)
    m.knowledge.made(barriers, cells)
    if m.order is not None:
        for cell in cells:
            m.order.make(agent, (name, int(cell)))


def fence_init(m: Machine, agent: Agent) -> None:
    """Show new barriers to the copy engine."""
    if m.order is not None:
        m.order.fence_init(agent)


def inval(m: Machine, agent: Agent, name: str, index: Any) -> None:
    """Unmake barriers that nobody uses any more."""
    barriers, cells = claim(m, agent, name, index)
    for cell in map(int, _distinct(cells)):
        if barriers.waiting[cell]:
            _fail(m, agent, barriers, cell, "needed nobody inside a wait on it")
        if barriers.pending[cell] != barriers.expected[cell] or barriers.tx[cell]:
            _fail(m, agent, barriers, cell, "needed a phase that has not begun")
        if m.order is not None:
            what = f"{m.where(agent)}: {barriers.label(cell)}"
            m.order.unmake(agent, (name, cell), what)
    barriers.expected[cells] = barriers.pending[cells] = 0


def arrive(
    m: Machine, agent: Agent, name: str, index: Any, count: int, tx_bytes: Any = None
) -> Array:
    """Arrive with every active lane; return the phase each arrival belongs to, one per lane."""
    barriers, cells = claim(m, agent, name, index)
    tokens = np.zeros(agent.lanes, np.int64)
    tokens[agent.active()] = barriers.phase[cells]
    if tx_bytes is not None:
        announced = agent.spread(tx_bytes)[agent.active()]
        if (announced < 0).any() or (announced > MAX_COUNT).any():
            raise ProtocolError(
                f"{m.where(agent)}: {int(announced.max())} bytes; needed 0 to {MAX_COUNT}"
            )
        np.add.at(barriers.tx, cells, announced)
    m.knowledge.arrive(agent.name, barriers, _distinct(cells))
    if m.order is not None:
        for cell in _distinct(cells):
            m.order.arrive(agent, (name, int(cell)))
    count_arrivals(m, agent, barriers, cells, count)
    return tokens


def arrive_remote(m: Machine, agent: Agent, name: str, index: Any, rank: Any) -> None:
    """Arrive with every active lane at the barrier of a block of its cluster."""
    barriers, cells = claim(m, agent, name, index, peer(m, agent, rank))
    if m.order is not None:
        for cell in _distinct(cells):
            away = int(cell) // barriers.size != int(agent.slot[0])
            m.order.arrive(agent, (name, int(cell)), away=away)
    m.knowledge.arrive(agent.name, barriers, _distinct(cells))
    count_arrivals(m, agent, barriers, cells)


def count_arrivals(
    m: Machine, agent: Agent, barriers: Mbarriers, cells: Ints, count: int = 1
) -> None:
    """Take one arrival of `count` per entry of `cells` off what is pending."""
    unique, arrivals = _counted(cells)
    arrivals = arrivals * count
    many = arrivals > barriers.pending[unique]
    if many.any():
        i = int(np.argmax(many))
        needed = f"{int(arrivals[i])} arrivals at once are too many"
        _fail(m, agent, barriers, int(unique[i]), needed)
    barriers.pending[unique] -= arrivals
    _end(m, agent, barriers, unique)


def complete_bytes(m: Machine, agent: Agent, barriers: Mbarriers, cells: Ints, nbytes: int) -> None:
    """Take `nbytes` per entry of `cells` off what is announced: copies have landed."""
    np.subtract.at(barriers.tx, cells, nbytes)
    np.subtract.at(barriers.flying, cells, 1)
    _end(m, agent, barriers, _distinct(cells))


def _end(m: Machine, agent: Agent, barriers: Mbarriers, cells: Ints) -> None:
    """End phases that wait for nothing more."""
    over = (barriers.pending[cells] == 0) & (barriers.tx[cells] < 0)
    if over.any():
        cell = int(cells[np.argmax(over)])
        _fail(m, agent, barriers, cell, "more bytes have landed than were announced")
    for cell in map(int, barriers.end_phases(cells)):
        if barriers.flying[cell]:
            _fail(
                m, agent, barriers, cell,
                f"the phase before has just ended with {int(barriers.flying[cell])} of its copies "
                f"in flight: fewer bytes were announced than they move",
            )  # fmt: skip
        if m.order is not None:
            m.order.end_phase((barriers.name, cell), int(barriers.phase[cell]))


def wait_parity(
    m: Machine, agent: Agent, name: str, index: Any, parity: Any, *, far: bool = False
) -> Iterator[Wait]:
    """Wait until the latest ended phase of every lane's barrier has its `parity`.

    Parameters
    ----------
    far
        Be ordered after arrivals of other blocks, too.
    """
    barriers, cells = claim(m, agent, name, index)
    parities = agent.spread(parity)[agent.active()]
    if ((parities != 0) & (parities != 1)).any():
        raise ProtocolError(f"{m.where(agent)}: parity {parities.tolist()}; needed 0 or 1")
    seen = m.knowledge.seen(agent.name, barriers)

    def pending() -> Ints:
        return np.asarray(cells[barriers.phase[cells] % 2 == parities])

    yield from _wait(m, agent, barriers, cells, pending, seen, far)


def wait_token(m: Machine, agent: Agent, name: str, index: Any, token: Any) -> Iterator[Wait]:
    """Wait until the phase in which the token was made has ended."""
    barriers, cells = claim(m, agent, name, index)
    tokens = agent.spread(token)[agent.active()]
    seen = np.zeros_like(barriers.phase)
    seen[cells] = tokens

    def pending() -> Ints:
        return np.asarray(cells[barriers.phase[cells] <= tokens])

    yield from _wait(m, agent, barriers, cells, pending, seen)


def _wait(
    m: Machine,
    agent: Agent,
    barriers: Mbarriers,
    cells: Ints,
    pending: Callable[[], Ints],
    seen: Ints,
    far: bool = False,
) -> Iterator[Wait]:
    stmt = agent.at

    def check_alias() -> None:
        ahead = barriers.phase[cells] - seen[cells] > 1
        if ahead.any():
            cell = int(cells[np.argmax(ahead)])
            agent.at = stmt
            _fail(
                m, agent, barriers, cell,
                f"this waiter last knew of phase {int(seen[cell])}, two phases are one parity",
            )  # fmt: skip

    asked, is_over = -1, False

    def ready() -> bool:
        nonlocal asked, is_over
        if asked != barriers.changes:
            check_alias()
            asked, is_over = barriers.changes, pending().size == 0
        return is_over

    def why() -> str:
        return f"{m.where(agent)}: {barriers.state(int(pending()[0]))}"

    if not ready():
        unique = _distinct(cells)
        barriers.waiting[unique] += 1
        yield Wait(ready, why)
        barriers.waiting[unique] -= 1
        check_alias()
    m.knowledge.learn(agent.name, barriers, _distinct(cells))
    if m.order is not None:
        for cell in _distinct(cells):
            m.order.acquire(agent, (barriers.name, int(cell)), far=far)


def check_balance(m: Machine) -> None:
    """Raise `ProtocolError` where a kernel ends in the middle of a phase."""
    for barriers in m.barriers.values():
        for cell in map(int, barriers.unbalanced()):
            raise ProtocolError(
                f"kernel {m.kernel}: ends while {barriers.state(cell)}, in block slot "
                f"{cell // barriers.size}; needed as many arrivals and bytes as phases take"
            )
