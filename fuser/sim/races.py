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

NOBODY = -1


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


@dataclass(slots=True)
class Barrier:
    """The hardware barrier of one block."""

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
    """

    def __init__(self, machine: Machine, agents: Sequence[Agent], initialised: set[str]) -> None:
        self.machine = machine
        self.agents = agents
        self.rank = {agent.name: i for i, agent in enumerate(agents)}
        self.clocks = np.eye(len(agents), dtype=np.int64)
        self.shadows = {
            name: Shadow.of(m, name in initialised)
            for name, m in machine.memories.items()
            if m.writable
        }
        self.statements: list[object] = [None]
        self._ids: dict[int, int] = {}
        width = len(agents)
        self.barriers = {
            int(s): Barrier(np.zeros(width, np.int64))
            for s in {int(agent.slot[0]) for agent in agents}
        }
        self.atomics: dict[Hashable, NDArray[np.int64]] = {}

    # accesses --------------------------------------------------------------------------------

    def access(
        self, agent: Agent, memory: Memory, where: Array, kind: AccessKind, value: Any = None
    ) -> None:
        """See `Monitor.access`."""
        shadow = self.shadows.get(memory.name)
        if shadow is None or where.size == 0:
            return
        lanes = np.flatnonzero(agent.active())[: where.shape[0]]
        threads = np.repeat(agent.tid[lanes], where.shape[1])
        elements = where.reshape(-1)
        self._check_writes(agent, memory, shadow, elements, threads, kind)
        me, stmt = self.rank[agent.name], self._statement(agent)
        now = int(self.clocks[me, me])
        if kind == "read":
            self._check_initialised(agent, memory, shadow, elements, threads)
            touch = shadow.reads.get(me)
            if touch is None:
                touch = shadow.reads[me] = Touch.never(memory.data.size)
            touch.record(elements, now, threads, stmt)
            return
        self._check_reads(agent, memory, shadow, elements, threads)
        if value is not None:
            self._check_lanes(agent, memory, elements, threads, value)
        shadow.writes.record(elements, now, threads, stmt)
        shadow.writer[elements], shadow.initialised[elements] = me, True

    def _statement(self, agent: Agent) -> int:
        key = id(agent.at)
        if key not in self._ids:
            self._ids[key] = len(self.statements)
            self.statements.append(agent.at)
        return self._ids[key]

    def _check_writes(
        self, agent: Agent, memory: Memory, shadow: Shadow, e: Array, threads: Array, kind: str
    ) -> None:
        me, writer = self.rank[agent.name], shadow.writer[e]
        known = self.clocks[me][writer]
        bad = (writer != NOBODY) & (writer != me) & (shadow.writes.time[e] > known)
        if bad.any():
            i = int(np.argmax(bad))
            other = self._thread(int(writer[i]), int(shadow.writes.thread[e[i]]))
            stmt = int(shadow.writes.stmt[e[i]])
            self._race(agent, memory, e[i], threads[i], kind, f"write by {other}", stmt)

    def _check_reads(
        self, agent: Agent, memory: Memory, shadow: Shadow, e: Array, threads: Array
    ) -> None:
        me = self.rank[agent.name]
        for reader, touch in shadow.reads.items():
            bad = touch.time[e] > self.clocks[me, reader]
            if reader != me and bad.any():
                i = int(np.argmax(bad))
                other = self._thread(reader, int(touch.thread[e[i]]))
                stmt = int(touch.stmt[e[i]])
                self._race(agent, memory, e[i], threads[i], "write", f"read by {other}", stmt)

    def _check_initialised(
        self, agent: Agent, memory: Memory, shadow: Shadow, e: Array, threads: Array
    ) -> None:
        bad = ~shadow.initialised[e]
        if bad.any():
            i = int(np.argmax(bad))
            raise ProtocolError(
                f"{self.machine.where(agent)}: reads {_element(memory, int(e[i]))} before it is "
                f"written, in {self._thread(self.rank[agent.name], int(threads[i]))}"
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
        self, agent: Agent, memory: Memory, e: Any, thread: Any, kind: str, other: str, stmt: int
    ) -> None:
        me = self._thread(self.rank[agent.name], int(thread))
        fence = "a __syncthreads" if memory.space == "shared" else "a barrier or an atomic"
        raise ProtocolError(
            f"kernel {self.machine.kernel}: race on {_element(memory, int(e))}: the {kind} by {me} "
            f"at {describe(agent.at)} is not ordered after the {other} at "
            f"{describe(self.statements[stmt])}; {fence} between them is missing"
        )

    def _thread(self, rank: int, tid: int) -> str:
        agent = self.agents[rank]
        return self.machine.thread(agent, tid - int(agent.tid[0]))

    # order -----------------------------------------------------------------------------------

    def barrier(self, agent: Agent, what: str) -> Iterator[Wait]:
        """See `Monitor.barrier`."""
        me, slot = self.rank[agent.name], int(agent.slot[0])
        barrier = self.barriers[slot]
        self._check_arrival(agent, barrier, what)
        barrier.arrived[me] = agent.at
        generation = barrier.generation
        np.maximum(barrier.clock, self.clocks[me], out=barrier.clock)
        block = [i for i, a in enumerate(self.agents) if int(a.slot[0]) == slot]
        if len(barrier.arrived) == len(block):
            for i in block:
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
                    f"{describe(stmt)} of {self.agents[other].name}; all threads of a block must "
                    f"arrive at the same one"
                )

    def atomic(self, agent: Agent, key: Hashable) -> None:
        """See `Monitor.atomic`."""
        me = self.rank[agent.name]
        clock = self.atomics.setdefault(key, np.zeros_like(self.clocks[me]))
        np.maximum(clock, self.clocks[me], out=clock)
        self.clocks[me] = clock
        self.clocks[me, me] += 1


def _element(memory: Memory, flat: int) -> str:
    return f"{memory.name}[{flat % memory.numel if memory.space == 'shared' else flat}]"


def deadlock(kernel: str, blocked: Mapping[str, Wait], finished: Sequence[str]) -> ProtocolError:
    """Return the error for warps that wait for something that cannot happen any more."""
    lines = [f"  {name} waits at {wait.why}" for name, wait in blocked.items()]
    gone = f"\n  finished: {', '.join(finished)}" if finished else ""
    return ProtocolError(f"kernel {kernel}: deadlock:\n" + "\n".join(lines) + gone)
