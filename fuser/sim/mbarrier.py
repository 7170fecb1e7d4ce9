"""Rules of mbarriers: what arrivals, waits and completed bytes do to a phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Cells:
    """Barriers that lanes name: one a lane, the different ones sorted, and how often each."""

    each: Ints
    unique: Ints
    counts: Ints

    @classmethod
    def of(cls, each: Ints) -> Cells:
        """Return the cells that lanes name; nearly always all are one."""
        if each.size and np.count_nonzero(each != each[0]) == 0:
            return cls(each, each[:1], np.array([each.size]))
        return cls(each, *np.unique(each, return_counts=True))

    def __iter__(self) -> Iterator[int]:
        return iter(self.unique.tolist())


def _cells(
    m: Machine, agent: Agent, name: str, index: Any, reach: Reach | None = None
) -> tuple[Mbarriers, Cells]:
    """Return the cell of every active lane; with `reach`, those it acts on."""
    barriers, mine = m.barriers[name], own(agent)
    if reach is not None and reach is not mine:
        return barriers, _cells_of(m, agent, barriers, index, reach)
    cells: Cells = agent.remember(
        ("cells", name), lambda: _cells_of(m, agent, barriers, index, mine), index, agent.mask
    )
    return barriers, cells


def _cells_of(m: Machine, agent: Agent, barriers: Mbarriers, index: Any, reach: Reach) -> Cells:
    active = agent.active()
    index = agent.spread(index)[active][reach.rows]
    bad = (index < 0) | (index >= barriers.size)
    if bad.any():
        lane = int(np.flatnonzero(active)[reach.rows[np.argmax(bad)]])
        raise ProtocolError(
            f"{m.where(agent)}: {barriers.name}[{int(index[np.argmax(bad)])}] is outside its "
            f"{barriers.size} barriers, in {m.thread(agent, lane)}"
        )
    return Cells.of(reach.slots * barriers.size + index)


def claim(
    m: Machine,
    agent: Agent,
    name: str,
    index: Any,
    reach: Reach | None = None,
    *,
    by_copy: bool = False,
) -> tuple[Mbarriers, Cells]:
    """Return the live cells that the active lanes use, or copies that they issue."""
    barriers, cells = _cells(m, agent, name, index, reach)
    if np.count_nonzero(barriers.expected[cells.unique]) < cells.unique.size:
        dead = barriers.expected[cells.each] == 0
        _fail(m, agent, barriers, int(cells.each[np.argmax(dead)]), "needed a live barrier")
    if m.order is not None:
        for cell in cells:
            what = partial(_user, m, agent, barriers, cell)
            lands = int(barriers.phase[cell]) + 1 if by_copy else 0
            m.order.use(agent, (name, cell), what, lands)
    return barriers, cells


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
    if (cells.counts > 1).any():
        cell = int(cells.unique[np.argmax(cells.counts)])
        _fail(m, agent, barriers, cell, "needed one thread that initialises it")
    live = barriers.expected[cells.each] != 0
    if live.any():
        cell = int(cells.each[np.argmax(live)])
        _fail(m, agent, barriers, cell, "needed an inval before it is initialised again")
    if (counts < 1).any() or (counts > MAX_COUNT).any():
        raise ProtocolError(f"{m.where(agent)}: count {int(counts.min())}; needed 1 to {MAX_COUNT}")
    barriers.make(cells.each, counts)
    m.knowledge.made(barriers, cells.unique)
    if m.order is not None:
        for cell in cells:
            m.order.make(agent, (name, cell))


def fence_init(m: Machine, agent: Agent) -> None:
    """Show new barriers to the copy engine."""
    if m.order is not None:
        m.order.fence_init(agent)


def inval(m: Machine, agent: Agent, name: str, index: Any) -> None:
    """Unmake barriers that nobody uses any more."""
    barriers, cells = claim(m, agent, name, index)
    for cell in cells:
        if barriers.waiting[cell]:
            _fail(m, agent, barriers, cell, "needed nobody inside a wait on it")
        if barriers.pending[cell] != barriers.expected[cell] or barriers.tx[cell]:
            _fail(m, agent, barriers, cell, "needed a phase that has not begun")
        if m.order is not None:
            what = f"{m.where(agent)}: {barriers.label(cell)}"
            m.order.unmake(agent, (name, cell), what)
    barriers.expected[cells.unique] = barriers.pending[cells.unique] = 0


def arrive(
    m: Machine, agent: Agent, name: str, index: Any, count: int, tx_bytes: Any = None
) -> Array:
    """Arrive with every active lane; return the phase each arrival belongs to, one per lane."""
    barriers, cells = claim(m, agent, name, index)
    tokens = np.zeros(agent.lanes, np.int64)
    tokens[agent.active()] = barriers.phase[cells.each]
    if tx_bytes is not None:
        announced = agent.spread(tx_bytes)[agent.active()]
        if (announced < 0).any() or (announced > MAX_COUNT).any():
            raise ProtocolError(
                f"{m.where(agent)}: {int(announced.max())} bytes; needed 0 to {MAX_COUNT}"
            )
        np.add.at(barriers.tx, cells.each, announced)
    m.knowledge.arrive(agent.name, barriers, cells.unique)
    if m.order is not None:
        for cell in cells:
            m.order.arrive(agent, (name, cell))
    count_arrivals(m, agent, barriers, cells, count)
    return tokens


def arrive_remote(m: Machine, agent: Agent, name: str, index: Any, rank: Any) -> None:
    """Arrive with every active lane at the barrier of a block of its cluster."""
    barriers, cells = claim(m, agent, name, index, peer(m, agent, rank))
    if m.order is not None:
        for cell in cells:
            away = cell // barriers.size != int(agent.slot[0])
            m.order.arrive(agent, (name, cell), away=away)
    m.knowledge.arrive(agent.name, barriers, cells.unique)
    count_arrivals(m, agent, barriers, cells)


def count_arrivals(
    m: Machine, agent: Agent, barriers: Mbarriers, cells: Cells, count: int = 1
) -> None:
    """Take one arrival of `count` per lane off what is pending."""
    unique, arrivals = cells.unique, cells.counts * count
    many = arrivals > barriers.pending[unique]
    if np.count_nonzero(many):
        i = int(np.argmax(many))
        needed = f"{int(arrivals[i])} arrivals at once are too many"
        _fail(m, agent, barriers, int(unique[i]), needed)
    barriers.pending[unique] -= arrivals
    _end(m, agent, barriers, unique)


def complete_bytes(
    m: Machine, agent: Agent, barriers: Mbarriers, cells: Cells, nbytes: int
) -> None:
    """Take `nbytes` per lane off what is announced: copies have landed."""
    barriers.tx[cells.unique] -= cells.counts * nbytes
    barriers.flying[cells.unique] -= cells.counts
    _end(m, agent, barriers, cells.unique)


def _end(m: Machine, agent: Agent, barriers: Mbarriers, cells: Ints) -> None:
    """End phases that wait for nothing more."""
    over = (barriers.pending[cells] == 0) & (barriers.tx[cells] < 0)
    if np.count_nonzero(over):
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
    spread = agent.spread(parity)[agent.active()]
    if np.count_nonzero((spread != 0) & (spread != 1)):
        raise ProtocolError(f"{m.where(agent)}: parity {spread.tolist()}; needed 0 or 1")
    seen = m.knowledge.seen(agent.name, barriers)
    awaited, parities = (cells.unique, parity) if isinstance(parity, int) else (cells.each, spread)

    def pending() -> Ints:
        return np.asarray(awaited[barriers.phase[awaited] % 2 == parities])

    yield from _wait(m, agent, barriers, cells, pending, seen, far)


def wait_token(m: Machine, agent: Agent, name: str, index: Any, token: Any) -> Iterator[Wait]:
    """Wait until the phase in which the token was made has ended."""
    barriers, cells = claim(m, agent, name, index)
    tokens = agent.spread(token)[agent.active()]
    seen = np.zeros_like(barriers.phase)
    seen[cells.each] = tokens

    def pending() -> Ints:
        return np.asarray(cells.each[barriers.phase[cells.each] <= tokens])

    yield from _wait(m, agent, barriers, cells, pending, seen)


def _wait(
    m: Machine,
    agent: Agent,
    barriers: Mbarriers,
    cells: Cells,
    pending: Callable[[], Ints],
    seen: Ints,
    far: bool = False,
) -> Iterator[Wait]:
    stmt, unique = agent.at, cells.unique

    def check_alias() -> None:
        ahead = barriers.phase[unique] - seen[unique] > 1
        if np.count_nonzero(ahead):
            cell = int(unique[np.argmax(ahead)])
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
        barriers.waiting[unique] += 1
        yield Wait(ready, why)
        barriers.waiting[unique] -= 1
        check_alias()
    m.knowledge.learn(agent.name, barriers, unique)
    if m.order is not None:
        for cell in cells:
            m.order.acquire(agent, (barriers.name, cell), far=far)


def check_balance(m: Machine) -> None:
    """Raise `ProtocolError` where a kernel ends in the middle of a phase."""
    for barriers in m.barriers.values():
        for cell in map(int, barriers.unbalanced()):
            raise ProtocolError(
                f"kernel {m.kernel}: ends while {barriers.state(cell)}, in block slot "
                f"{cell // barriers.size}; needed as many arrivals and bytes as phases take"
            )
