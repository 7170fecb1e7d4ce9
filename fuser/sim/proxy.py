"""Order of what no warp does itself: copies in flight, mbarrier phases, stores the engine sees.

A clock has one entry per agent and one per *actor* that is none: each mbarrier (its copies have
the number of the phase they complete in as time), each warp's bulk stores and matrix products
(time: their group) and each warp's ``cp.async`` (time: their number). The second half of a clock
says, for the same actors, up to which time their ordinary stores have been shown to the copy engine
and to wgmma by a fence.

Where some lanes of a warp arrive for all, the others' accesses are ordered before only up to where
the warp last converged. The third part of a clock has an entry per lane: what those lanes know of
themselves. Kernels without mbarriers have no such arrivals, and no third part.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fuser.core.errors import ProtocolError
from fuser.sim.agent import Agent

WARP = 32

Clock: TypeAlias = NDArray[np.int64]
Key: TypeAlias = tuple[str, int]
"""An mbarrier: name of its array, and cell."""
Actor: TypeAlias = "tuple[str, int] | tuple[str, str]"
"""An mbarrier for its copies, or ``(kind, agent)``: bulk, wgmma or cp.async, of an agent."""


@dataclass(slots=True)
class Cell:
    """What arrivals at one mbarrier know, and who has used it.

    Attributes
    ----------
    arrived, done
        Joined clocks of the arrivals of the current phase, and of all ended phases.
    far_arrived, far_done
        The same of arrivals from other blocks, which only waits of cluster scope learn from.
    maker, made
        Who initialised it, and when.
    fenced
        Whether the copy engine sees it.
    uses
        By agent, the time of its last use; and when its last copy lands, by its own entry: copies
        use it when they land, not when they are issued.
    """

    arrived: Clock
    done: Clock
    far_arrived: Clock
    far_done: Clock
    maker: int
    made: int
    fenced: bool = False
    uses: dict[int, int] = field(default_factory=dict[int, int])


class AsyncOrder:
    """Clocks of all agents and the order that asynchronous operations add to them.

    Attributes
    ----------
    rows
        One clock per agent.
    rank
        Entry of every agent (by name) and of every other actor in a clock.
    issued
        By actor, the time of its latest operation, who issued it and with which statement.
    converged
        By agent, when its lanes last met.
    products
        Entries of matrix products.

    Parameters
    ----------
    products
        Whether agents issue matrix products.
    """

    def __init__(
        self, agents: Sequence[Agent], barriers: Mapping[str, int], *, products: bool = False
    ) -> None:
        names: list[Hashable] = [a.name for a in agents]
        names += [(name, cell) for name, cells in barriers.items() for cell in range(cells)]
        names += [("bulk", a.name) for a in agents]
        first = len(names)
        names += [("wgmma", a.name) for a in agents if products]
        self.products = range(first, len(names))
        names += [("cp.async", a.name) for a in agents]
        self.rank = {name: i for i, name in enumerate(names)}
        self.width, self.agents = len(names), len(agents)
        lanes = len(agents) * WARP if barriers else 0
        self.rows = np.zeros((len(agents), 2 * self.width + lanes), np.int64)
        np.fill_diagonal(self.rows, 1)
        self.converged = np.zeros(len(agents), np.int64)
        self.cells: dict[Key, Cell] = {}
        self.gathering: dict[Hashable, Clock] = {}
        self.gathered: dict[Hashable, Clock] = {}
        self.issued: dict[Actor, tuple[int, int, object]] = {}

    def zero(self) -> Clock:
        """Return a clock that knows nothing."""
        return np.zeros(self.rows.shape[1], np.int64)

    def row(self, agent: Agent) -> Clock:
        """Return the clock of `agent`, to read or to change."""
        row: Clock = self.rows[self.rank[agent.name]]
        return row

    def _tick(self, agent: Agent) -> None:
        self.row(agent)[self.rank[agent.name]] += 1

    # lanes -----------------------------------------------------------------------------------

    def converge(self, agent: Agent) -> None:
        """Note that the lanes of `agent` meet, unless some of them are elsewhere."""
        if agent.active().all():
            me = self.rank[agent.name]
            self.converged[me] = self.rows[me, me]
            self._tick(agent)

    def _told(self, agent: Agent) -> Clock:
        """Return what the active lanes of `agent` tell others: of the rest, up to their meeting."""
        active, row = agent.active(), self.row(agent)
        if active.all():
            return row
        me, told = self.rank[agent.name], row.copy()
        told[me] = self.converged[me]
        told[2 * self.width + me * WARP + np.flatnonzero(active)] = row[me]
        return told

    def is_told(self, clock: Clock, rank: Any, thread: Any, time: Any) -> NDArray[np.bool_]:
        """Return which accesses by single threads of agents `clock` knows of by their lanes."""
        if clock.size == 2 * self.width:
            return np.zeros(np.shape(time), np.bool_)
        is_agent = (rank >= 0) & (rank < self.agents)
        lane = 2 * self.width + np.where(is_agent, rank * WARP + thread % WARP, 0)
        told: NDArray[np.bool_] = is_agent & (time <= clock[lane])
        return told

    # fences ----------------------------------------------------------------------------------

    def fence_proxy(self, agent: Agent) -> None:
        """Show all stores of `agent`, and its completed ``cp.async``, to the copy engine."""
        row = self.row(agent)
        for actor in (agent.name, ("cp.async", agent.name)):
            rank = self.rank[actor]
            row[self.width + rank] = row[rank]
        self._tick(agent)

    def fence_init(self, agent: Agent) -> None:
        """Show the barriers that `agent` has made to the copy engine."""
        me = self.rank[agent.name]
        for cell in self.cells.values():
            cell.fenced |= cell.maker == me

    def unfenced(self, agent: Agent, writer: Any, time: Any) -> NDArray[np.bool_]:
        """Return which ordinary stores, by their actor and time, the engine need not see."""
        row = self.row(agent)
        ordinary = writer < self.agents
        ordinary |= writer >= self.width - self.agents  # cp.async
        hidden: NDArray[np.bool_] = ordinary & (writer >= 0) & (time > row[self.width + writer])
        return hidden

    # mbarriers -------------------------------------------------------------------------------

    def make(self, agent: Agent, key: Key) -> None:
        """Note that `agent` initialises an mbarrier."""
        me = self.rank[agent.name]
        clocks = (self.zero(), self.zero(), self.zero(), self.zero())
        self.cells[key] = Cell(*clocks, me, int(self.rows[me, me]))

    def use(self, agent: Agent, key: Key, what: Callable[[], str], lands: int = 0) -> None:
        """Require that the barrier's init is ordered before.

        Parameters
        ----------
        what
            Begins the error text.
        lands
            Of a copy, the phase that it completes in; 0: the agent itself uses the barrier.
        """
        me, cell = self.rank[agent.name], self.cells[key]
        if cell.made > self.rows[me, cell.maker]:
            raise ProtocolError(
                f"{what()} is used by {agent.name} without order after its init; a barrier of the "
                f"block, or of the cluster, between them is missing"
            )
        if lands:
            cell.uses[self.rank[key]] = lands
        else:
            cell.uses[me] = int(self.rows[me, me])

    def unmake(self, agent: Agent, key: Key, what: str) -> None:
        """Require that every use by others is ordered before the invalidation."""
        me = self.rank[agent.name]
        for user, time in self.cells[key].uses.items():
            if time > self.rows[me, user]:
                name = next(n for n, rank in self.rank.items() if rank == user)
                by = name if isinstance(name, str) else "a copy"
                raise ProtocolError(
                    f"{what} is invalidated without order after its last use by {by}; a barrier "
                    f"of the block, or of the cluster, between them is missing"
                )
        del self.cells[key]

    def arrive(self, agent: Agent, key: Key, *, away: bool = False) -> None:
        """Give the current phase what `agent`, which may be of another block, knows."""
        cell = self.cells[key]
        clock = cell.far_arrived if away else cell.arrived
        np.maximum(clock, self._told(agent), out=clock)
        self._tick(agent)

    def arrive_later(self, agent: Agent) -> Clock:
        """Return what an arrival issued now gives when the agent's ``cp.async`` have landed.

        Nothing but those copies: the agent's own stores are not ordered before it.
        """
        actor = ("cp.async", agent.name)
        clock = self.zero()
        clock[self.rank[actor]] = self.issued[actor][0] if actor in self.issued else 0
        self._tick(agent)
        return clock

    def arrived(self, key: Key, clock: Clock) -> None:
        """Give the current phase a clock from `arrive_later`."""
        cell = self.cells[key]
        np.maximum(cell.arrived, clock, out=cell.arrived)

    def end_phase(self, key: Key, phases: int) -> None:
        """Let waiters learn what arrivals knew, and that the copies of the phase have landed."""
        cell = self.cells[key]
        np.maximum(cell.done, cell.arrived, out=cell.done)
        cell.done[self.rank[key]] = phases
        np.maximum(cell.far_done, cell.far_arrived, out=cell.far_done)
        cell.arrived, cell.far_arrived = self.zero(), self.zero()

    def acquire(self, agent: Agent, key: Key, *, far: bool = False) -> None:
        """Let `agent` learn what ended phases know."""
        row = self.row(agent)
        np.maximum(row, self.cells[key].done, out=row)
        if far:
            np.maximum(row, self.cells[key].far_done, out=row)
        self.cells[key].uses[self.rank[agent.name]] = int(row[self.rank[agent.name]])

    # other meetings --------------------------------------------------------------------------

    def meet(self, agent: Agent, key: Hashable, *, is_last: bool) -> None:
        """Give what `agent` knows to the others at a named barrier, which the last one ends."""
        clock = self.gathering.setdefault(key, self.zero())
        self.converge(agent)
        np.maximum(clock, self.row(agent), out=clock)
        self._tick(agent)
        if is_last:
            self.gathered[key] = self.gathering.pop(key)

    def met(self, agent: Agent, key: Hashable) -> None:
        """Take what the others knew."""
        row = self.row(agent)
        np.maximum(row, self.gathered[key], out=row)

    # copies ----------------------------------------------------------------------------------

    def issue(self, agent: Agent, actor: Actor, time: int) -> None:
        """Note an operation of `actor` that lands some time."""
        self.issued[actor] = time, self.rank[agent.name], agent.at

    def landed(self, agent: Agent, actor: Actor, time: int) -> None:
        """Let `agent` know that operations of `actor` up to `time` have landed."""
        row, rank = self.row(agent), self.rank[actor]
        row[rank] = max(row[rank], time)

    def never_awaited(self) -> tuple[int, object] | None:
        """Return who issued an operation whose landing nobody knows of, and the statement."""
        for actor, (time, issuer, stmt) in self.issued.items():
            rank = self.rank[actor]
            own = isinstance(actor[1], str) and actor[0] != "cp.async"
            known = self.rows[issuer, rank] if own else self.rows[:, rank].max()
            if time > known:
                return issuer, stmt
        return None
