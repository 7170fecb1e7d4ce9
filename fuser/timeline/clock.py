"""A scheduler with a clock: warps run side by side, statements and copies take time.

The time is a model, made to show how a pipeline hangs together: it is not measured. What is
modelled is order: nobody goes on before what he waits for has happened.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser.interp.checked import Warps
from fuser.kir.stmts import (
    DeclareRegisters,
    DeclareScalar,
    For,
    If,
    Let,
    NamedBarrier,
    Roles,
    SyncThreads,
    SyncWarp,
)
from fuser.sim.agent import Agent, Wait
from fuser.sim.copies import Flight
from fuser.sim.races import deadlock
from fuser.timeline.watch import PROTOCOL, SETUP, WAITS, Watch

FREE = (
    DeclareRegisters, DeclareScalar, For, If, Let, NamedBarrier, Roles, SyncThreads, SyncWarp, *WAITS,
)  # fmt: skip
"""Statements that take no time of their own."""


@dataclass(frozen=True, slots=True)
class Costs:
    """How long things take.

    Attributes
    ----------
    work
        A statement that computes.
    copy
        From the issue of a copy to its landing.
    protocol
        An arrival, or the issue of a copy; of barriers that are made or given back, half as long.
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
        return self.protocol if isinstance(stmt, PROTOCOL) else self.work


@dataclass(slots=True)
class Clock:
    """Runs warps in the order of time; ties in the order of the warps.

    Attributes
    ----------
    steps
        Statements run so far, by all warps.
    """

    warps: Warps
    watch: Watch
    costs: Costs
    steps: int = 0

    def run(self, most: int) -> bool:
        """Run until all warps have ended, or `most` statements; return whether they have.

        Raises
        ------
        ProtocolError
            As a checked run.
        """
        agents = {agent.name: agent for agent in self.warps.agents}
        ready = dict.fromkeys(agents, 0.0)
        blocked: dict[str, tuple[Wait, float, object]] = {}
        landing: dict[Flight, float] = {}
        machine, watch = self.warps.machine, self.watch
        while ready or blocked:
            for name in [n for n, (wait, _, _) in blocked.items() if wait.ready()]:
                _, since, stmt = blocked.pop(name)
                watch.waited(agents[name], stmt, since, watch.now)
                ready[name] = watch.now
            flights = [f for f in machine.flights if f.may_land()]
            flight = min(flights, key=lambda f: landing[f], default=None)
            name = min(ready, key=lambda n: ready[n], default=None)
            if flight is not None and (name is None or landing[flight] <= ready[name]):
                watch.now = max(watch.now, landing[flight])
                machine.land(flight)
            elif name is not None:
                if self.steps >= most:
                    return False
                self.steps += 1
                watch.now = max(watch.now, ready.pop(name))
                outcome = self.step(agents[name])
                if isinstance(outcome, tuple):
                    blocked[name] = outcome
                elif outcome is not None:
                    ready[name] = outcome
                for new in machine.flights:
                    if new not in landing:
                        delay = 0.0 if new.after else self.costs.copy
                        landing[new] = watch.now + delay
            else:
                reasons = {name: wait for name, (wait, _, _) in blocked.items()}
                self.stand_still(agents, blocked)
                raise deadlock(machine.kernel, reasons, [n for n in agents if n not in reasons])
            watch.look()
        return True

    def step(self, agent: Agent) -> float | tuple[Wait, float, object] | None:
        """Run the current statement of a warp; return when it goes on, or what it waits for."""
        watch, stmt = self.watch, agent.at
        before = watch.now
        watch.until, watch.touched = before + self.costs.of(stmt), None
        wait = next(self.warps.programs[agent.name], None)
        watch.ran(agent, stmt, before, watch.until)
        if isinstance(stmt, WAITS) and (wait is None or wait.ready()):
            watch.waited(agent, stmt, before, before)
        if wait is None:
            return None
        return watch.until if wait.ready() else (wait, watch.until, stmt)

    def stand_still(
        self, agents: dict[str, Agent], blocked: dict[str, tuple[Wait, float, object]]
    ) -> None:
        """Note what everybody waits for in vain."""
        last = max(since for _, since, _ in blocked.values())
        stop = max(last, self.watch.now) + self.costs.copy
        for name, (_, since, stmt) in blocked.items():
            self.watch.waited(agents[name], stmt, since, stop)
        self.watch.now = stop
