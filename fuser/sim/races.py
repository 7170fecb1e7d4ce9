"""The monitor of checked mode: vector clocks per warp, a shadow per memory, block barriers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuser.core.errors import ProtocolError
from fuser.sim.agent import Agent, Array, Wait
from fuser.sim.machine import AccessKind, Machine, describe
from fuser.sim.memory import Memory
from fuser.sim.proxy import Actor as CopyActor
from fuser.sim.proxy import AsyncOrder, Clock

NOBODY = -1
ISSUER = 2048
"""A copy's thread is noted as issuer * ISSUER + thread; blocks have fewer threads than that."""


@dataclass(slots=True)
class Touch:
    """Per element, the time, thread and statement of one agent's (or anyone's) last access."""

    time: NDArray[np.int64]
    thread: NDArray[np.int64]
    stmt: NDArray[np.int64]

    @classmethod
    def never(cls, numel: int) -> Touch:
        """Return a record in which nothing has happened."""
        return cls(*(np.zeros(numel, np.int64) for _ in range(3)))

    def record(self, where: Array, time: int, thread: Array, stmt: int) -> None:
        """Note an access to elements `where`."""
        self.time[where], self.thread[where], self.stmt[where] = time, thread, stmt


@dataclass(slots=True)
class Shadow:
    """What is known about the elements of one memory: last write by anyone, last read by each."""

    initialised: NDArray[np.bool_]
    writer: NDArray[np.int64]
    writes: Touch
    reads: dict[int, Touch] = field(default_factory=dict[int, Touch])

    @classmethod
    def of(cls, memory: Memory, initialised: bool) -> Shadow:
        """Return the shadow of a memory before the first statement."""
        numel = memory.data.size
        known = np.full(numel, initialised, np.bool_)
        return cls(known, np.full(numel, NOBODY, np.int64), Touch.never(numel))


@dataclass(frozen=True, slots=True)
class Actor:
    """Who accesses memory: an agent or one of its copies.

    Attributes
    ----------
    rank, now
        Its entry in clocks and the time of the access.
    known
        What is ordered before the access.
    """

    rank: int
    known: Clock
    now: int


@dataclass(slots=True)
class Barrier:
    """The hardware barrier of one block or cluster."""

    clock: NDArray[np.int64]
    arrived: dict[int, object] = field(default_factory=dict[int, object])
    generation: int = 0


class RaceMonitor:
    """Judges every access by happens-before; implements `fuser.sim.machine.Monitor`.

    Parameters
    ----------
    agents
        All warps, in the order of their vector-clock entries.
    initialised
        Memories whose elements hold something before the kernel starts.
    products
        Whether agents issue matrix products.
    """

    def __init__(
        self,
        machine: Machine,
        agents: Sequence[Agent],
        initialised: set[str],
        *,
        products: bool = False,
    ) -> None:
        self.machine = machine
        self.agents = agents
        cells = {name: b.phase.size for name, b in machine.barriers.items()}
        self.order = AsyncOrder(agents, cells, products=products)
        self.rank, self.clocks = self.order.rank, self.order.rows
        self.shadows = {
            name: Shadow.of(m, name in initialised)
            for name, m in machine.memories.items()
            if m.writable
        }
        self.statements: list[object] = [None]
        self._ids: dict[int, int] = {}
        slots = {int(agent.slot[0]) for agent in agents}
        clusters = {s // machine.cluster_size for s in slots}
        self.barriers = {s: Barrier(self.order.zero()) for s in slots}
        self.cluster_barriers = {c: Barrier(self.order.zero()) for c in clusters}
        self.atomics: dict[Hashable, NDArray[np.int64]] = {}

    # accesses --------------------------------------------------------------------------------

    def access(
        self, agent: Agent, memory: Memory, where: Array, kind: AccessKind, value: Any = None
    ) -> None:
        """See `Monitor.access`."""
        shadow = self.shadows.get(memory.name)
        if shadow is None or where.size == 0:
            return
        active = agent.tid if agent.mask is None else agent.tid[agent.mask]
        threads = active[: where.shape[0]]
        if where.shape[1] != 1:
            threads = np.repeat(threads, where.shape[1])
        elements = where.reshape(-1)
        me = self.rank[agent.name]
        actor = Actor(me, self.clocks[me], int(self.clocks[me, me]))
        self._judge(agent, actor, memory, shadow, elements, threads, kind)
        if kind == "write" and value is not None:
            self._check_lanes(agent, memory, elements, threads, value)
        self._record(agent, actor, memory, shadow, elements, threads, kind)

    def copy(
        self,
        agent: Agent,
        memory: Memory,
        where: Array,
        kind: AccessKind,
        actor: CopyActor,
        time: int,
    ) -> None:
        """See `Monitor.copy`; races are those with anything not ordered before the issue."""
        self.order.issue(agent, actor, time)
        shadow = self.shadows.get(memory.name)
        if shadow is None or where.size == 0:
            return
        me, lane = self.rank[agent.name], int(np.argmax(agent.active()))
        who = Actor(self.rank[actor], self.clocks[me], time)
        threads = np.full(where.size, me * ISSUER + int(agent.tid[lane]))
        self._judge(agent, who, memory, shadow, where, threads, kind)
        by_engine = actor[0] != "cp.async"
        if by_engine and memory.space == "shared":
            self._check_fence(agent, who, memory, shadow, where, kind)
        self._record(agent, who, memory, shadow, where, threads, kind)

    def _judge(
        self,
        agent: Agent,
        actor: Actor,
        memory: Memory,
        shadow: Shadow,
        e: Array,
        threads: Array,
        kind: AccessKind,
    ) -> None:
        self._check_writes(agent, actor, memory, shadow, e, threads, kind)
        if kind == "read":
            self._check_initialised(agent, actor, memory, shadow, e, threads)
        else:
            self._check_reads(agent, actor, memory, shadow, e, threads)

    def _record(
        self,
        agent: Agent,
        actor: Actor,
        memory: Memory,
        shadow: Shadow,
        e: Array,
        threads: Array,
        kind: AccessKind,
    ) -> None:
        stmt = self._statement(agent)
        if kind == "write":
            shadow.writes.record(e, actor.now, threads, stmt)
            shadow.writer[e], shadow.initialised[e] = actor.rank, True
            return
        touch = shadow.reads.get(actor.rank)
        if touch is None:
            touch = shadow.reads[actor.rank] = Touch.never(memory.data.size)
        touch.record(e, actor.now, threads, stmt)

    def _statement(self, agent: Agent) -> int:
        key = id(agent.at)
        if key not in self._ids:
            self._ids[key] = len(self.statements)
            self.statements.append(agent.at)
        return self._ids[key]

    def _check_writes(
        self,
        agent: Agent,
        actor: Actor,
        memory: Memory,
        shadow: Shadow,
        e: Array,
        threads: Array,
        kind: str,
    ) -> None:
        writer = shadow.writer[e]
        time = shadow.writes.time[e]
        bad = time > actor.known[writer]  # of elements that nobody has written, the time is 0
        if np.count_nonzero(bad):
            bad &= ~self.order.is_told(actor.known, writer, shadow.writes.thread[e], time)
        if bad.any():
            i = int(np.argmax(bad))
            by = int(writer[i]), int(shadow.writes.thread[e[i]]), int(shadow.writes.stmt[e[i]])
            self._race(agent, actor, memory, int(e[i]), int(threads[i]), kind, "write", by)

    def _check_reads(
        self,
        agent: Agent,
        actor: Actor,
        memory: Memory,
        shadow: Shadow,
        e: Array,
        threads: Array,
    ) -> None:
        for reader, touch in shadow.reads.items():
            time = touch.time[e]
            bad = time > actor.known[reader]
            if np.count_nonzero(bad):
                bad &= ~self.order.is_told(actor.known, reader, touch.thread[e], time)
            if bad.any():
                i = int(np.argmax(bad))
                by = reader, int(touch.thread[e[i]]), int(touch.stmt[e[i]])
                self._race(agent, actor, memory, int(e[i]), int(threads[i]), "write", "read", by)

    def _check_fence(
        self, agent: Agent, actor: Actor, memory: Memory, shadow: Shadow, e: Array, kind: str
    ) -> None:
        """The copy engine and wgmma see ordinary stores only behind a fence of their thread."""
        bad = self.order.unfenced(agent, shadow.writer[e], shadow.writes.time[e])
        if bad.any():
            i = int(np.argmax(bad))
            by, stmt = int(shadow.writer[e[i]]), int(shadow.writes.stmt[e[i]])
            engine = "wgmma" if actor.rank in self.order.products else "the copy engine"
            raise ProtocolError(
                f"{self.machine.where(agent)}: {engine}'s {kind} of "
                f"{_element(memory, int(e[i]))} need not see what "
                f"{self._thread(by, int(shadow.writes.thread[e[i]]))} stored at "
                f"{describe(self.statements[stmt])}; a FenceProxyAsync of that thread is missing"
            )

    def _check_initialised(
        self,
        agent: Agent,
        actor: Actor,
        memory: Memory,
        shadow: Shadow,
        e: Array,
        threads: Array,
    ) -> None:
        initialised = shadow.initialised[e]
        if np.count_nonzero(initialised) < initialised.size:
            i = int(np.argmin(initialised))
            raise ProtocolError(
                f"{self.machine.where(agent)}: reads {_element(memory, int(e[i]))} before it is "
                f"written, in {self._thread(actor.rank, int(threads[i]))}"
            )

    def _check_lanes(
        self, agent: Agent, memory: Memory, e: Array, threads: Array, value: Array
    ) -> None:
        """Lanes of one warp that write the same element must agree on the value."""
        order = np.argsort(e, kind="stable")
        bits = np.ascontiguousarray(value, memory.dtype.np).reshape(-1)[order]
        bits = bits.view(f"u{memory.dtype.nbytes}")
        same = (e[order][1:] == e[order][:-1]) & (bits[1:] != bits[:-1])
        if same.any():
            i = int(np.argmax(same))
            me = self.rank[agent.name]
            pair = [self._thread(me, int(threads[order[j]])) for j in (i, i + 1)]
            raise ProtocolError(
                f"{self.machine.where(agent)}: race on {_element(memory, int(e[order[i]]))}: "
                f"{pair[0]} and {pair[1]} of one warp write different values; only one may write"
            )

    def _race(
        self,
        agent: Agent,
        actor: Actor,
        memory: Memory,
        e: int,
        thread: int,
        kind: str,
        other_kind: str,
        other: tuple[int, int, int],
    ) -> None:
        """Report access `kind` of an element against an earlier one by (rank, thread, stmt)."""
        rank, other_thread, stmt = other
        if rank >= len(self.agents):
            missing = f"a wait for the {self._operation(rank)}"
        else:
            missing = "a __syncthreads" if memory.space == "shared" else "a barrier or an atomic"
        raise ProtocolError(
            f"kernel {self.machine.kernel}: race on {_element(memory, e)}: the {kind} by "
            f"{self._thread(actor.rank, thread)} at {describe(agent.at)} is not ordered after the "
            f"{other_kind} by {self._thread(rank, other_thread)} at "
            f"{describe(self.statements[stmt])}; {missing} between them is missing"
        )

    def _operation(self, rank: int) -> str:
        return "product" if rank in self.order.products else "copy"

    def _thread(self, rank: int, tid: int) -> str:
        if rank >= len(self.agents):
            return f"a {self._operation(rank)} that {self._thread(*divmod(tid, ISSUER))} issued"
        agent = self.agents[rank]
        return self.machine.thread(agent, tid - int(agent.tid[0]))

    # order -----------------------------------------------------------------------------------

    def barrier(self, agent: Agent, what: str) -> Iterator[Wait]:
        """See `Monitor.barrier`."""
        slot = int(agent.slot[0])
        yield from self._meet(agent, self.barriers[slot], range(slot, slot + 1), what)

    def cluster_barrier(self, agent: Agent, what: str) -> Iterator[Wait]:
        """See `Monitor.cluster_barrier`."""
        size = self.machine.cluster_size
        cluster = int(agent.slot[0]) // size
        slots = range(cluster * size, (cluster + 1) * size)
        yield from self._meet(agent, self.cluster_barriers[cluster], slots, what)

    def _meet(self, agent: Agent, barrier: Barrier, slots: range, what: str) -> Iterator[Wait]:
        me = self.rank[agent.name]
        self._check_arrival(agent, barrier, what)
        barrier.arrived[me] = agent.at
        self.order.converge(agent)
        generation = barrier.generation
        np.maximum(barrier.clock, self.clocks[me], out=barrier.clock)
        all_of = [i for i, a in enumerate(self.agents) if int(a.slot[0]) in slots]
        if len(barrier.arrived) == len(all_of):
            for i in all_of:
                self.clocks[i] = barrier.clock
                self.clocks[i, i] += 1
            barrier.arrived, barrier.generation = {}, generation + 1
            barrier.clock = np.zeros_like(barrier.clock)
        yield Wait(lambda: barrier.generation > generation, what)

    def _check_arrival(self, agent: Agent, barrier: Barrier, what: str) -> None:
        if agent.mask is not None and not agent.mask.all():
            lane = int(np.argmin(agent.mask))
            raise ProtocolError(
                f"{self.machine.where(agent)}: {what} in divergent code, a deadlock; "
                f"{self.machine.thread(agent, lane)} does not arrive"
            )
        for other, stmt in barrier.arrived.items():
            if stmt is not agent.at:
                raise ProtocolError(
                    f"{self.machine.where(agent)}: {what} meets another barrier, "
                    f"{describe(stmt)} of {self.agents[other].name}; all threads must arrive at "
                    f"the same one"
                )

    def atomic(self, agent: Agent, key: Hashable) -> None:
        """See `Monitor.atomic`."""
        me = self.rank[agent.name]
        clock = self.atomics.setdefault(key, np.zeros_like(self.clocks[me]))
        np.maximum(clock, self.clocks[me], out=clock)
        self.clocks[me] = clock
        self.clocks[me, me] += 1

    def check_exit(self) -> None:
        """Raise where a block has ended with a copy whose landing nobody knows of.

        Or where it may end before another block of its cluster has used its barriers: no warp of
        it ends after that.
        """
        left = self.order.never_awaited()
        if left is not None:
            issuer, stmt = left
            raise ProtocolError(
                f"kernel {self.machine.kernel}: ends with {describe(stmt)} of "
                f"{self.agents[issuer].name} in flight; a wait for it is missing"
            )
        for (name, number), cell in self.order.cells.items():
            size = self.machine.barriers[name].size
            home = [i for i, a in enumerate(self.agents) if int(a.slot[0]) == number // size]
            for user, time in cell.uses.items():
                if user >= len(self.agents):
                    continue  # copies: somebody has waited for them
                if user not in home and time > self.order.rows[home, user].max():
                    raise ProtocolError(
                        f"kernel {self.machine.kernel}: {self.agents[home[0]].name} and the rest "
                        f"of its block may have ended before {self.agents[user].name} uses its "
                        f"{name}[{number % size}]; a barrier of the cluster at the end is missing"
                    )


def _element(memory: Memory, flat: int) -> str:
    return f"{memory.name}[{flat % memory.numel if memory.space == 'shared' else flat}]"


def deadlock(kernel: str, blocked: Mapping[str, Wait], finished: Sequence[str]) -> ProtocolError:
    """Return the error for warps that wait for something that cannot happen any more."""
    lines = [f"  {name} waits at {wait.reason()}" for name, wait in blocked.items()]
    gone = f"\n  finished: {', '.join(finished)}" if finished else ""
    return ProtocolError(f"kernel {kernel}: deadlock:\n" + "\n".join(lines) + gone)
