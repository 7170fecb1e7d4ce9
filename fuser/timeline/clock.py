"""A scheduler with a clock: warps run side by side, statements and copies take time.

The time is a model, made to show how a pipeline hangs together: it is not measured. What is
modelled is order: nobody goes on before what he waits for has happened.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fuser.core.errors import ProtocolError
from fuser.interp.checked import Warps
from fuser.kir.stmts import (
    ClusterSync,
    CpAsyncWait,
    DeclareRegisters,
    DeclareScalar,
    For,
    If,
    Let,
    NamedBarrier,
    Outlined,
    Roles,
    Scoped,
    SyncThreads,
    SyncWarp,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)
from fuser.sim.agent import Agent, Wait
from fuser.sim.copies import Flight
from fuser.sim.races import deadlock
from fuser.timeline.watch import PROTOCOL, SETUP, STORE_WAITS, WAITS, Watch

FREE = (
    ClusterSync, CpAsyncWait, DeclareRegisters, DeclareScalar, For, If, Let, NamedBarrier, Outlined,
    Roles, Scoped, SyncThreads, SyncWarp, WgmmaCommit, WgmmaFence, WgmmaWait, *STORE_WAITS, *WAITS,
)  # fmt: skip
"""Statements that take no time of their own."""


@dataclass(frozen=True, slots=True)
class Costs:
    """How long things take.

    Attributes
    ----------
    work
        A statement that computes, or a matrix product from the end of the one before, or its own
        issue, to its completion.
    copy
        From the issue of a copy to its landing.
    protocol
        An arrival, or the issue of a copy or a product; of barriers that are made or given back,
        half as long.
    """

    work: float
    copy: float
    protocol: float = 1.0

    def of(self, stmt: object) -> float:
        """Return how long a statement keeps its warp busy, waits aside."""
        if isinstance(stmt, FREE):
            return 0.0
        if isinstance(stmt, SETUP):
            return self.protocol / 2
        return self.protocol if isinstance(stmt, (*PROTOCOL, Wgmma)) else self.work


@dataclass(frozen=True, slots=True)
class Blocked:
    """A warp that has waited at a statement since some time; `stage` as in `Watch`."""

    agent: Agent
    stmt: object
    stage: int
    wait: Wait
    since: float


@dataclass(slots=True)
class Clock:
    """Runs warps in the order of time; ties in the order of the warps.

    Attributes
    ----------
    steps
        Statements run so far, by all warps.
    ready, blocked
        Warps by name, with the time at which they go on or what they wait for.
    landing
        When copies land.
    """

    warps: Warps
    watch: Watch
    costs: Costs
    steps: int = 0
    ready: dict[str, tuple[float, Agent]] = field(init=False)
    blocked: dict[str, Blocked] = field(default_factory=dict[str, "Blocked"])
    landing: dict[Flight, float] = field(default_factory=dict[Flight, float])

    def __post_init__(self) -> None:
        self.ready = {agent.name: (0.0, agent) for agent in self.warps.agents}

    def run(self, most: int) -> bool:
        """Run until all warps have ended, or `most` statements; return whether they have.

        Raises
        ------
        ProtocolError
            As a checked run.
        """
        while self.ready or self.blocked:
            self.wake()
            machine, now = self.warps.machine, self.watch.now
            flights = [f for f in machine.flights if f.may_land()]
            flight = min(flights, key=self.landing.__getitem__, default=None)
            agent = min(self.ready.values(), key=lambda entry: entry[0], default=None)
            if flight is not None and (agent is None or self.landing[flight] <= agent[0]):
                self.watch.now = max(now, self.landing[flight])
                machine.land(flight)
            elif agent is not None:
                if self.steps >= most:
                    return False
                self.steps += 1
                self.watch.now = max(now, agent[0])
                del self.ready[agent[1].name]
                stmt = agent[1].at
                self.step(agent[1])
                for new in machine.flights:
                    if new not in self.landing:
                        self.landing[new] = self.lands(new, stmt)
            else:
                raise self.stuck()
            self.watch.look()
        return True

    def lands(self, flight: Flight, stmt: object) -> float:
        """Return when what a statement has just issued takes effect."""
        if isinstance(stmt, Wgmma):
            before = [self.landing[earlier] for earlier in flight.after]
            return max([self.watch.until, *before]) + self.costs.work
        return self.watch.now + (0.0 if flight.after else self.costs.copy)

    def wake(self) -> None:
        """Let those go on whose wait is over."""
        now = self.watch.now
        for name, blocked in list(self.blocked.items()):
            if blocked.wait.ready():
                del self.blocked[name]
                self.watch.waited(blocked.agent, blocked.stmt, blocked.stage, blocked.since, now)
                self.ready[name] = now, blocked.agent

    def step(self, agent: Agent) -> None:
        """Run the current statement of a warp."""
        watch, stmt = self.watch, agent.at
        before = watch.now
        watch.begins(agent, stmt, before + self.costs.of(stmt))
        wait = next(self.warps.programs[agent.name], None)
        watch.ran(agent, stmt, before, watch.until)
        if wait is not None and not wait.ready():
            self.blocked[agent.name] = Blocked(agent, stmt, watch.stage, wait, watch.until)
            return
        if isinstance(stmt, (*WAITS, WgmmaWait)):
            watch.waited(agent, stmt, watch.stage, before, before)
        if wait is not None:
            self.ready[agent.name] = watch.until, agent

    def stuck(self) -> ProtocolError:
        """Note what everybody waits for in vain; return the error."""
        last = max(blocked.since for blocked in self.blocked.values())
        stop = max(last, self.watch.now) + self.costs.copy
        for b in self.blocked.values():
            self.watch.waited(b.agent, b.stmt, b.stage, b.since, stop, in_vain=True)
        self.watch.now = stop
        waits = {name: blocked.wait for name, blocked in self.blocked.items()}
        finished = [a.name for a in self.warps.agents if a.name not in waits]
        return deadlock(self.warps.machine.kernel, waits, finished)
