"""Copies of 4, 8 or 16 bytes per thread that skip the registers (``cp.async``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import TRUE, Expr, all_of, less, less_equal, select, to_c
from fuser.kir.core import Context, Render, Stmt
from fuser.kir.stmts.memory import pointer
from fuser.sim import cp_async
from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine


@dataclass(frozen=True, slots=True)
class CpAsync(Stmt):
    """Copy `width` elements from global to shared memory, or fewer and zeros.

    PTX ISA: ``cp.async.shared.global [dst], [src], cp-size, src-size``: all of the destination is
    written, zeros behind the bytes that are read. Where none are, the address is the tensor's
    first, so that it is one in any case.

    Attributes
    ----------
    guard
        Where it is false, nothing is read.
    limit
        Elements that there are from `src_index` on: of more than `width` those are read, of
        less than one none. None: there are enough.
    """

    dst: str
    dst_index: Expr
    src: str
    src_index: Expr
    width: int
    dtype: DataType
    guard: Expr = TRUE
    limit: Expr | None = None

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

    @property
    def whole(self) -> Expr:
        """Condition under which all elements are read."""
        if self.limit is None:
            return self.guard
        return all_of(self.guard, less_equal(self.width, self.limit))

    @property
    def source(self) -> Expr:
        """Index of the first element that is read; 0 where none is."""
        some = self.guard if self.limit is None else all_of(self.guard, less(0, self.limit))
        return select(some, self.src_index, 0)

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        call, rest = f"cp_async<{self.nbytes}>", ""
        if self.limit is not None:
            call = f"cp_async_part<{self.nbytes}, {self.dtype.nbytes}>"
            rest = f", {to_c(select(self.guard, self.limit, 0))}"
        elif self.guard != TRUE:
            rest = f", {to_c(self.guard)}"
        return {
            "call": call,
            "dst": pointer(self.dst, self.dst_index),
            "src": pointer(self.src, self.source),
            "rest": rest,
        }

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        exprs = self.dst_index, self.source, self.guard
        dst, src, guard = (m.index(agent, e) for e in exprs)
        limit = None if self.limit is None else m.index(agent, self.limit)
        cp_async.copy(m, agent, (self.dst, dst), (self.src, src), self.width, guard, limit)
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
