"""Copies of 4, 8 or 16 bytes per thread that skip the registers (``cp.async``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import TRUE, Expr, to_c
from fuser.kir.core import Context, Render, Stmt
from fuser.kir.stmts.memory import pointer
from fuser.sim import cp_async
from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine


@dataclass(frozen=True, slots=True)
class CpAsync(Stmt):
    """Copy `width` elements from global to shared memory (``cp.async.ca.shared.global``).

    Attributes
    ----------
    guard
        Where it is false, the destination becomes zero and the source is not read.
    """

    dst: str
    dst_index: Expr
    src: str
    src_index: Expr
    width: int
    dtype: DataType
    guard: Expr = TRUE

    def __post_init__(self) -> None:
        if self.nbytes not in (4, 8, 16):
            raise VerifyError(
                f"CpAsync of {self.dst}: {self.width} x {self.dtype.short} is {self.nbytes} bytes; "
                f"one copy moves 4, 8 or 16"
            )

    @property
    def nbytes(self) -> int:
        """Bytes each thread copies."""
        return self.width * self.dtype.nbytes

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {
            "nbytes": self.nbytes,
            "dst": pointer(self.dst, self.dst_index),
            "src": pointer(self.src, self.src_index),
            "guard": "" if self.guard == TRUE else f", {to_c(self.guard)}",
        }

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        exprs = self.dst_index, self.src_index, self.guard
        dst, src, guard = (m.index(agent, e) for e in exprs)
        cp_async.copy(m, agent, (self.dst, dst), (self.src, src), self.width, guard)
        yield from ()


@dataclass(frozen=True, slots=True)
class CpAsyncArrive(Stmt):
    """Arrive once per thread when all its earlier `CpAsync` are complete.

    PTX ISA: ``cp.async.mbarrier.arrive.noinc``: the barrier's count includes these arrivals.
    """

    barrier: str
    index: Expr

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"barrier": pointer(self.barrier, self.index)}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        cp_async.arrive(m, agent, self.barrier, m.index(agent, self.index))
        yield from ()


@dataclass(frozen=True, slots=True)
class CpAsyncCommit(Stmt):
    """Close the group of `CpAsync` this thread has issued (``cp.async.commit_group``)."""

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        cp_async.commit(m, agent)
        yield from ()


@dataclass(frozen=True, slots=True)
class CpAsyncWait(Stmt):
    """Wait until all but `pending` groups of this thread are complete (``cp.async.wait_group``).

    Other threads see the data after a barrier.
    """

    pending: int

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"pending": self.pending}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        yield from cp_async.wait(m, agent, self.pending)
