"""Fences: between ordinary accesses and the copy engine, and between the lanes of a warp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuser.kir.core import Context, Render, Stmt
from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine


@dataclass(frozen=True, slots=True)
class FenceProxyAsync(Stmt):
    """Show this thread's stores to shared memory to the copy engine and to wgmma.

    PTX ISA: ``fence.proxy.async.shared::cta``. Every thread that stored executes it, before the
    barrier that hands the memory over.
    """

    why: str

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"why": self.why}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        if m.order is not None:
            m.order.fence_proxy(agent)
        yield from ()


@dataclass(frozen=True, slots=True)
class SyncWarp(Stmt):
    """``__syncwarp()``: the lanes of a warp meet, before one of them speaks for all."""

    why: str

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"why": self.why}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        if m.order is not None:
            m.order.converge(agent)
        yield from ()
