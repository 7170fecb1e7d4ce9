"""Barriers between the threads of a block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuser.kir.core import Context, Render, Stmt
from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine


@dataclass(frozen=True, slots=True)
class SyncThreads(Stmt):
    """``__syncthreads()``; `why` is printed behind it."""

    why: str

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"why": self.why}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        yield from m.barrier(agent, f"__syncthreads ({self.why})")
