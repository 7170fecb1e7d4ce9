"""Mbarriers: phases of arrivals and of bytes, in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fuser.core.expr import Const, Expr, to_c
from fuser.kir.core import Context, Render, Stmt
from fuser.kir.stmts.memory import pointer
from fuser.sim import mbarrier
from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine


@dataclass(frozen=True, slots=True)
class MbarrierInit(Stmt):
    """Make element `index` a barrier whose phases take `count` arrivals (PTX ``mbarrier.init``).

    One thread does it; `MbarrierInitFence` and a barrier of the block must follow.
    """

    barrier: str
    index: Expr
    count: Expr

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"barrier": pointer(self.barrier, self.index), "count": to_c(self.count)}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        at, count = m.index(agent, self.index), m.index(agent, self.count)
        mbarrier.init(m, agent, self.barrier, at, count)
        yield from ()


@dataclass(frozen=True, slots=True)
class MbarrierInitFence(Stmt):
    """Show the barriers this thread has made to the copy engine.

    PTX ISA: ``fence.mbarrier_init.release.cluster``.
    """

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        mbarrier.fence_init(m, agent)
        yield from ()


@dataclass(frozen=True, slots=True)
class MbarrierInval(Stmt):
    """Make the memory of a barrier ordinary again (PTX ``mbarrier.inval``).

    Nobody may wait on it, and nothing may be pending.
    """

    barrier: str
    index: Expr

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"barrier": pointer(self.barrier, self.index)}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        mbarrier.inval(m, agent, self.barrier, m.index(agent, self.index))
        yield from ()


@dataclass(frozen=True, slots=True)
class MbarrierArrive(Stmt):
    """Every active thread counts as `count` arrivals (PTX ``mbarrier.arrive``)."""

    barrier: str
    index: Expr
    count: int = 1

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        count = "" if self.count == 1 else f", {self.count}"
        return {"barrier": pointer(self.barrier, self.index), "count": count}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        mbarrier.arrive(m, agent, self.barrier, m.index(agent, self.index), self.count)
        yield from ()


@dataclass(frozen=True, slots=True)
class MbarrierArriveExpectTx(Stmt):
    """One arrival that also announces `tx_bytes` (PTX ``mbarrier.arrive.expect_tx``).

    The phase ends when all arrivals are in and copies have completed as many bytes.
    """

    barrier: str
    index: Expr
    tx_bytes: Expr

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"barrier": pointer(self.barrier, self.index), "tx_bytes": to_c(self.tx_bytes)}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        at, nbytes = m.index(agent, self.index), m.index(agent, self.tx_bytes)
        mbarrier.arrive(m, agent, self.barrier, at, 1, nbytes)
        yield from ()


@dataclass(frozen=True, slots=True)
class MbarrierWait(Stmt):
    """Wait until the phase of `parity` has ended (PTX ``mbarrier.try_wait.parity``).

    A fresh barrier counts as one whose phase of parity 1 has ended.

    Attributes
    ----------
    scope
        ``"cluster"``: also ordered after arrivals of other blocks of the cluster
        (``.acquire.cluster``).
    """

    barrier: str
    index: Expr
    parity: Expr
    why: str
    scope: Literal["", "cluster"] = ""

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {
            "barrier": pointer(self.barrier, self.index),
            "parity": to_c(self.parity),
            "scope": f"_{self.scope}" if self.scope else "",
            "why": self.why,
        }

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        at, parity = m.index(agent, self.index), m.index(agent, self.parity)
        far = self.scope == "cluster"
        yield from mbarrier.wait_parity(m, agent, self.barrier, at, parity, far=far)


@dataclass(frozen=True, slots=True)
class MbarrierArriveToken(Stmt):
    """Arrive and keep the state of the phase, for `MbarrierWaitToken` (``mbarrier.arrive``).

    Attributes
    ----------
    tokens
        Register array of `DataType.Int`; opaque. It stays in registers whatever the index.
    expect_tx
        Bytes this thread announces; ``None``: an ordinary arrival.
    """

    tokens: str
    token_index: Expr
    barrier: str
    index: Expr
    expect_tx: Expr | None = None

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        barrier = pointer(self.barrier, self.index)
        call = (
            f"mbarrier_arrive({barrier})"
            if self.expect_tx is None
            else f"mbarrier_arrive_expect_tx({barrier}, {to_c(self.expect_tx)})"
        )
        if isinstance(self.token_index, Const):
            return {"kept": f"{self.tokens}[{to_c(self.token_index)}] = {call}"}
        return {"kept": f"keep_token({self.tokens}, {to_c(self.token_index)}, {call})"}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        at = m.index(agent, self.index)
        nbytes = None if self.expect_tx is None else m.index(agent, self.expect_tx)
        token = mbarrier.arrive(m, agent, self.barrier, at, 1, nbytes)
        m.store(agent, self.tokens, m.index(agent, self.token_index), token)
        yield from ()


@dataclass(frozen=True, slots=True)
class MbarrierWaitToken(Stmt):
    """Wait until the phase in which the token was made has ended (``mbarrier.try_wait``)."""

    barrier: str
    index: Expr
    tokens: str
    token_index: Expr
    why: str

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        at = to_c(self.token_index)
        known = isinstance(self.token_index, Const)
        token = f"{self.tokens}[{at}]" if known else f"token_of({self.tokens}, {at})"
        return {
            "barrier": pointer(self.barrier, self.index),
            "token": token,
            "why": self.why,
        }

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        at = m.index(agent, self.index)
        token = m.load(agent, self.tokens, m.index(agent, self.token_index), agent.mask)
        yield from mbarrier.wait_token(m, agent, self.barrier, at, token)
