"""What the blocks of a cluster do to each other: meet, and arrive at each other's mbarriers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuser.core.expr import Expr, to_c
from fuser.kir.core import Context, Render, Stmt
from fuser.kir.stmts.memory import pointer
from fuser.sim import mbarrier
from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine


@dataclass(frozen=True, slots=True)
class ClusterSync(Stmt):
    """All threads of all blocks of the cluster meet; `why` is printed behind it.

    PTX ISA: ``barrier.cluster.arrive.release.aligned``, ``barrier.cluster.wait.acquire.aligned``.
    Before it no block may touch the barriers or the shared memory of another one that has to make
    them first; a block that ends too early takes memory away that others still access.
    """

    why: str

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"why": self.why}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        yield from m.cluster_barrier(agent, f"barrier.cluster ({self.why})")


@dataclass(frozen=True, slots=True)
class MbarrierArriveRemote(Stmt):
    """Every active thread arrives at the barrier of the block of its cluster with rank `rank`.

    PTX ISA: ``mapa.shared::cluster``, ``mbarrier.arrive.release.cluster.shared::cluster``. The
    rank may be the thread's own. Waiters need `MbarrierWait` of scope ``"cluster"``.
    """

    barrier: str
    index: Expr
    rank: Expr

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"barrier": pointer(self.barrier, self.index), "rank": to_c(self.rank)}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        at, rank = m.index(agent, self.index), m.index(agent, self.rank)
        mbarrier.arrive_remote(m, agent, self.barrier, at, rank)
        yield from ()
