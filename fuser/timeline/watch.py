"""Watching a checked run: which trip is in which stage, and what every warp does.

A `Watch` stands where the machine has its race monitor, hands everything on to it, and notes what
touches a ring. Phases of barriers are read off after every step. A run that nobody watches has the
race monitor there, as ever: watching costs it nothing. Of a cluster the first block is noted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fuser.kir.core import Kernel, Ring, walk_stmts
from fuser.kir.stmts import (
    BulkLoad,
    BulkWait,
    BulkWaitRead,
    CpAsync,
    CpAsyncArrive,
    CpAsyncWait,
    For,
    MbarrierArrive,
    MbarrierArriveExpectTx,
    MbarrierArriveRemote,
    MbarrierArriveToken,
    MbarrierInit,
    MbarrierInitFence,
    MbarrierInval,
    MbarrierWait,
    MbarrierWaitToken,
    Roles,
    TensorLoad,
    Wgmma,
    WgmmaCommit,
    WgmmaWait,
)
from fuser.sim.agent import Agent, Array, Wait
from fuser.sim.machine import AccessKind, Machine, Monitor
from fuser.sim.memory import Memory
from fuser.sim.proxy import Actor
from fuser.timeline.timeline import Span, joined

WAITS = (MbarrierWait, MbarrierWaitToken)
STORE_WAITS = (BulkWaitRead, BulkWait)
ARRIVALS = (
    CpAsyncArrive, MbarrierArrive, MbarrierArriveExpectTx, MbarrierArriveRemote,
    MbarrierArriveToken,
)  # fmt: skip
SETUP = (MbarrierInit, MbarrierInitFence, MbarrierInval)
PROTOCOL = (*ARRIVALS, *SETUP, *WAITS, BulkLoad, TensorLoad, CpAsync)
"""Statements that are about barriers and copies; the others compute."""


@dataclass(slots=True)
class Fill:
    """The life of one trip in its stage; None: not yet.

    Attributes
    ----------
    begin, full
        When its first copy was issued, and when all had landed.
    first, last
        When it was first read, and when its last read was over.
    free
        When its readers had given it back.
    """

    trip: int
    begin: float
    full: float | None = None
    first: float | None = None
    last: float | None = None
    free: float | None = None


@dataclass(slots=True)
class RingLog:
    """The trips of one ring, by stage.

    Attributes
    ----------
    parts
        Elements of a stage, by array.
    count
        Trips begun since the barriers were made.
    """

    ring: Ring
    parts: dict[str, int]
    stages: list[list[Fill]]
    count: int = 0
    most: int = 0

    @classmethod
    def of(cls, kernel: Kernel, ring: Ring) -> RingLog:
        """Return an empty log."""
        numel = {s.name: s.numel for s in kernel.shared}
        parts = {name: numel[name] // ring.stages for name in ring.arrays}
        return cls(ring, parts, [[] for _ in range(ring.stages)])

    def holds(self, stage: int) -> Fill | None:
        """Return the trip that was last brought into a stage."""
        fills = self.stages[stage]
        return fills[-1] if fills else None

    def fill(self, stage: int, now: float) -> Fill:
        """Note a copy into a stage: of the trip being filled, or of the next one."""
        held = self.holds(stage)
        if held is not None and held.full is None:
            return held
        if held is not None and held.free is None:
            held.free = max(now, held.last or held.full or now)
        new = Fill(self.count, now)
        self.stages[stage].append(new)
        self.count += 1
        self.most = max(self.most, self.count)
        return new

    def fulfil(self, stage: int, now: float) -> None:
        """Note that a stage is full."""
        held = self.holds(stage)
        if held is None or held.full is not None:
            held = self.fill(stage, now)  # a trip of which nothing has to be copied
        held.full = now

    def read(self, stage: int, now: float, until: float) -> None:
        """Note a read of a stage that lasts until `until`."""
        held = self.holds(stage)
        if held is not None:
            held.first = now if held.first is None else held.first
            held.last = until

    def release(self, stage: int, now: float) -> None:
        """Note that the readers have given a stage back."""
        held = self.holds(stage)
        if held is not None and held.full is not None:
            held.free = now


@dataclass(slots=True)
class WarpLog:
    """What one warp did, which trip it is at, and which one it fills next.

    Attributes
    ----------
    products
        What its matrix products may still read, in groups: the open one, then the closed ones, the
        latest first.
    """

    spans: list[Span] = field(default_factory=list[Span])
    trip: int | None = None
    next_fill: int = 0
    products: list[list[Fill]] = field(default_factory=lambda: [[]])

    def awaited(self, pending: int, now: float) -> None:
        """Note that all groups of products but the latest `pending` ones have read their stages."""
        for fill in (fill for group in self.products[pending + 1 :] for fill in group):
            fill.last = now if fill.last is None else max(fill.last, now)
        del self.products[pending + 1 :]


class Watch:
    """Implements `fuser.sim.machine.Monitor` on top of another one.

    Attributes
    ----------
    now, until
        When the statement being run begins and ends; the scheduler sets them.
    touched
        Whether that statement has filled or read a stage, and of which trip.
    stage
        Index of the barrier that it arrives at or waits for; -1: none.
    """

    def __init__(self, kernel: Kernel, machine: Machine, monitor: Monitor) -> None:
        self.machine, self.monitor = machine, monitor
        self.rings = [RingLog.of(kernel, ring) for ring in kernel.rings]
        self.by_array = {name: log for log in self.rings for name in log.parts}
        self.by_full = {log.ring.full: log for log in self.rings}
        self.by_empty = {log.ring.empty: log for log in self.rings if log.ring.empty}
        self.warps: dict[str, WarpLog] = {}
        self.phases: list[Span] = []
        self.labels = labels(kernel)
        fills, self.uses = trip_parts(kernel, set(self.by_full))
        self.fills = {stmt: self.by_full[barrier] for stmt, barrier in fills.items()}
        self.now = self.until = 0.0
        self.touched: tuple[str, int] | None = None
        self.stage = -1
        self.known = {name: b.phase.copy() for name, b in machine.barriers.items()}
        self.live = {name: b.expected > 0 for name, b in machine.barriers.items()}

    # what the monitor is told -----------------------------------------------------------------

    def access(
        self, agent: Agent, memory: Memory, where: Array, kind: AccessKind, value: Any = None
    ) -> None:
        """See `Monitor.access`."""
        self.monitor.access(agent, memory, where, kind, value)
        self._touch(memory, where, kind)

    def copy(
        self,
        agent: Agent,
        memory: Memory,
        where: Array,
        kind: AccessKind,
        actor: Actor,
        time: int,
    ) -> None:
        """See `Monitor.copy`."""
        self.monitor.copy(agent, memory, where, kind, actor, time)
        self._touch(memory, where, kind)
        held = self._held(memory, where)
        if isinstance(agent.at, Wgmma) and held is not None and not agent.slot[0]:
            self.warps.setdefault(agent.name, WarpLog()).products[0].append(held)

    def barrier(self, agent: Agent, what: str) -> Iterator[Wait]:
        """See `Monitor.barrier`."""
        return self.monitor.barrier(agent, what)

    def cluster_barrier(self, agent: Agent, what: str) -> Iterator[Wait]:
        """See `Monitor.cluster_barrier`."""
        return self.monitor.cluster_barrier(agent, what)

    def atomic(self, agent: Agent, key: Hashable) -> None:
        """See `Monitor.atomic`."""
        self.monitor.atomic(agent, key)

    def _held(self, memory: Memory, where: Array) -> Fill | None:
        """Return the trip in the stage of a ring's elements."""
        log = self.by_array.get(memory.name)
        if log is None or where.size == 0 or int(where.flat[0]) >= memory.numel:
            return None
        return log.holds(int(where.flat[0]) // log.parts[memory.name])

    def _touch(self, memory: Memory, where: Array, kind: AccessKind) -> None:
        log = self.by_array.get(memory.name)
        if log is None or where.size == 0 or int(where.flat[0]) >= memory.numel:
            return
        stage = int(where.flat[0]) // log.parts[memory.name]
        if kind == "write":
            self.touched = "issue", log.fill(stage, self.now).trip
            return
        log.read(stage, self.now, self.until)
        held = log.holds(stage)
        if held is not None and self.touched is None:
            self.touched = "compute", held.trip

    # what the scheduler tells -----------------------------------------------------------------

    def look(self) -> None:
        """Note which phases have ended, and which barriers have been made, since last time."""
        for name, barriers in self.machine.barriers.items():
            log = self.by_full.get(name)
            ended = (barriers.phase != self.known[name])[: barriers.size]
            for cell in map(int, ended.nonzero()[0]):
                if barriers.expected[cell] and self.live[name][cell]:
                    if log is not None:
                        log.fulfil(cell, self.now)
                    elif name in self.by_empty:
                        self.by_empty[name].release(cell, self.now)
            live = barriers.expected > 0
            if log is not None and (live & ~self.live[name]).any():
                log.count = 0
            self.known[name], self.live[name] = barriers.phase.copy(), live

    def begins(self, agent: Agent, stmt: object, until: float) -> None:
        """Note that a warp is about to run `stmt`; its indices are known now, not when it ran."""
        self.until, self.touched, self.stage = until, None, -1
        if isinstance(stmt, (*ARRIVALS, *WAITS)):
            index = self.machine.index(agent, stmt.index)
            self.stage = int(agent.spread(index)[int(agent.active().argmax())])

    def ran(self, agent: Agent, stmt: object, start: float, stop: float) -> None:
        """Note that a warp has run `stmt` from `start` to `stop`."""
        if agent.slot[0]:
            return
        log = self.warps.setdefault(agent.name, WarpLog())
        what, trip = "other", None
        if isinstance(stmt, WgmmaCommit):
            log.products.insert(0, [])
        if self.touched is not None and self.touched[0] == "issue":
            what, trip = self.touched
        elif isinstance(stmt, ARRIVALS) and stmt.barrier in self.by_full:
            what, trip = "issue", self.being_filled(self.by_full[stmt.barrier])
            log.next_fill = trip + 1
        elif id(stmt) in self.fills:
            what, trip = "issue", min(log.next_fill, self.fills[id(stmt)].count)
        elif id(stmt) in self.uses:
            what, trip = "compute", log.trip if self.touched is None else self.touched[1]
        joined(log.spans, Span(start, stop, what, trip))
        self._in_phase(agent, stmt, start, stop)

    def waited(
        self, agent: Agent, stmt: object, stage: int, start: float, stop: float,
        *, in_vain: bool = False,
    ) -> None:  # fmt: skip
        """Note that a warp has waited; behind a full barrier it is at the trip of the stage."""
        if agent.slot[0]:
            return
        log = self.warps.setdefault(agent.name, WarpLog())
        what, trip = waiting_for(stmt, self.by_full, self.by_empty), None
        if isinstance(stmt, WgmmaWait):
            log.awaited(stmt.pending, stop)
        if what == "wait full" and isinstance(stmt, WAITS):
            ring = self.by_full[stmt.barrier]
            held = ring.holds(stage)
            trip = log.trip = held.trip if held is not None else None
            if in_vain and held is not None and held.full is not None:
                stages = ring.ring.stages  # it waits for the next trip there, which never came
                trip = held.trip + stages if held.trip % stages == stage else None
        elif what == "wait empty" and isinstance(stmt, WAITS):
            trip = self.by_empty[stmt.barrier].count
        joined(log.spans, Span(start, stop, what, trip))
        self._in_phase(agent, stmt, start, stop)

    def being_filled(self, log: RingLog) -> int:
        """Return the trip for which a warp arrives on a full barrier."""
        held = log.holds(self.stage)
        return log.count if held is None or held.full is not None else held.trip

    def _in_phase(self, agent: Agent, stmt: object, start: float, stop: float) -> None:
        label = self.labels.get(id(stmt))
        if label is None or int(agent.tid[0]):
            return
        last = self.phases[-1] if self.phases else None
        if last is not None and last.what == label:
            self.phases[-1] = Span(last.start, stop, label)
        else:
            self.phases.append(Span(start, stop, label))


def waiting_for(stmt: object, full: dict[str, RingLog], empty: dict[str, RingLog]) -> str:
    """Return the activity of a warp that waits at `stmt`."""
    if isinstance(stmt, STORE_WAITS):
        return "wait store"
    if isinstance(stmt, WgmmaWait):
        return "wait product"
    if isinstance(stmt, CpAsyncWait):
        return "wait copy"
    name = stmt.barrier if isinstance(stmt, WAITS) else ""
    return "wait full" if name in full else "wait empty" if name in empty else "meet"


def labels(kernel: Kernel) -> dict[int, str]:
    """Return, by statement, the name of the outermost loop of a pipeline that it is in."""
    found: dict[int, str] = {}
    for stmt in walk_stmts(kernel.body):
        label = "warp roles" if isinstance(stmt, Roles) else ""
        if isinstance(stmt, For):
            label = stmt.label
        if label:
            inside = (s for body in stmt.bodies() for s in walk_stmts(body))
            for s in inside:
                found.setdefault(id(s), label)
    return found


def trip_parts(kernel: Kernel, full: set[str]) -> tuple[dict[int, str], set[int]]:
    """Return the statements that fill stages, with the full barrier, and those that use them.

    In a loop that waits for full stages, what stands before the wait fills a later trip; in one
    that does not wait for any, and arrives on a full barrier, everything fills.
    """
    fills, uses = dict[int, str](), set[int]()
    for loop in walk_stmts(kernel.body):
        if not isinstance(loop, For):
            continue
        waits = [n for n, s in enumerate(loop.body) if isinstance(s, WAITS) and s.barrier in full]
        before = loop.body[: waits[0]] if waits else loop.body
        nested = any(isinstance(s, WAITS) and s.barrier in full for s in walk_stmts(before))
        barrier = next(
            (
                s.barrier
                for s in walk_stmts(before)
                if isinstance(s, ARRIVALS) and s.barrier in full
            ),
            None,
        )
        if barrier is not None and not nested:
            fills.update((id(s), barrier) for s in walk_stmts(before))
        if waits:
            uses.update(id(s) for s in walk_stmts(loop.body[waits[0] :]))
    return fills, uses
