"""Copies by the bulk copy engine (TMA) between global and shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuser.core.expr import Expr, to_c
from fuser.kir.core import Context, Render, Stmt
from fuser.kir.stmts.memory import pointer
from fuser.sim import bulk
from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine


@dataclass(frozen=True, slots=True)
class BulkLoad(Stmt):
    """Copy `nbytes` contiguous bytes to shared memory; one thread issues it.

    PTX ISA: ``cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes``. Both addresses
    and the size are multiples of 16; the bytes complete on the barrier.
    """

    dst: str
    dst_index: Expr
    src: str
    src_index: Expr
    nbytes: Expr
    barrier: str
    barrier_index: Expr

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {
            "dst": pointer(self.dst, self.dst_index),
            "src": pointer(self.src, self.src_index),
            "nbytes": to_c(self.nbytes),
            "barrier": pointer(self.barrier, self.barrier_index),
        }

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        exprs = self.dst_index, self.src_index, self.nbytes, self.barrier_index
        dst, src, nbytes, at = (m.index(agent, e) for e in exprs)
        bulk.load(m, agent, (self.dst, dst), (self.src, src), nbytes, (self.barrier, at))
        yield from ()


@dataclass(frozen=True, slots=True)
class TensorLoad(Stmt):
    """Copy one box of a tensor map to shared memory; one thread issues it.

    PTX ISA: ``cp.async.bulk.tensor.Nd.shared::cluster.global.mbarrier::complete_tx::bytes``. What
    lies outside the tensor is zero, and the bytes of the whole box complete on the barrier.

    Attributes
    ----------
    tensor_map
        Name of a `TensorMapParam`.
    coords
        Of the box's first element, innermost first; may be negative or overhang.
    multicast
        Mask of ranks (``.multicast::cluster``): every block of the cluster whose bit is set gets
        the box at the same place of its shared memory, and its bytes on the same barrier of its
        own. None: the issuing block alone.
    """

    dst: str
    dst_index: Expr
    tensor_map: str
    coords: tuple[Expr, ...]
    barrier: str
    barrier_index: Expr
    multicast: Expr | None = None

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {
            "call": "tensor_load" if self.multicast is None else "tensor_load_multicast",
            "dst": pointer(self.dst, self.dst_index),
            "tensor_map": self.tensor_map,
            "coords": ", ".join(to_c(c) for c in self.coords),
            "barrier": pointer(self.barrier, self.barrier_index),
            "mask": "" if self.multicast is None else f"{to_c(self.multicast)}, ",
        }

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        dst, at = m.index(agent, self.dst_index), m.index(agent, self.barrier_index)
        coords = tuple(m.index(agent, c) for c in self.coords)
        mask = None if self.multicast is None else m.index(agent, self.multicast)
        barrier = self.barrier, at
        bulk.tensor_load(m, agent, (self.dst, dst), self.tensor_map, coords, barrier, mask)
        yield from ()


@dataclass(frozen=True, slots=True)
class BulkStore(Stmt):
    """Copy `nbytes` contiguous bytes of shared memory to a tensor; one thread issues it.

    PTX ISA: ``cp.async.bulk.global.shared::cta.bulk_group``. Stores that filled the shared memory
    need `FenceProxyAsync` and a barrier before it.
    """

    dst: str
    dst_index: Expr
    src: str
    src_index: Expr
    nbytes: Expr

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {
            "dst": pointer(self.dst, self.dst_index),
            "src": pointer(self.src, self.src_index),
            "nbytes": to_c(self.nbytes),
        }

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        exprs = self.dst_index, self.src_index, self.nbytes
        dst, src, nbytes = (m.index(agent, e) for e in exprs)
        bulk.store(m, agent, (self.dst, dst), (self.src, src), nbytes)
        yield from ()


@dataclass(frozen=True, slots=True)
class TensorStore(Stmt):
    """Copy one box from shared memory through a tensor map; one thread issues it.

    PTX ISA: ``cp.async.bulk.tensor.Nd.global.shared::cta.bulk_group``. What lies outside the
    tensor is dropped.
    """

    tensor_map: str
    coords: tuple[Expr, ...]
    src: str
    src_index: Expr

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {
            "tensor_map": self.tensor_map,
            "coords": ", ".join(to_c(c) for c in self.coords),
            "src": pointer(self.src, self.src_index),
        }

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        coords = tuple(m.index(agent, c) for c in self.coords)
        src = self.src, m.index(agent, self.src_index)
        bulk.tensor_store(m, agent, self.tensor_map, coords, src)
        yield from ()


@dataclass(frozen=True, slots=True)
class BulkCommit(Stmt):
    """Close the group of bulk stores this thread has issued (``cp.async.bulk.commit_group``)."""

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        bulk.commit(m, agent)
        yield from ()


@dataclass(frozen=True, slots=True)
class BulkWaitRead(Stmt):
    """Wait until all but `pending` groups of this thread have read their shared memory.

    PTX ISA: ``cp.async.bulk.wait_group.read``.
    """

    pending: int

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"pending": self.pending}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        yield from bulk.wait(m, agent, self.pending, read_only=True)


@dataclass(frozen=True, slots=True)
class BulkWait(Stmt):
    """Wait until all but `pending` groups of this thread are complete.

    PTX ISA: ``cp.async.bulk.wait_group``.
    """

    pending: int

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"pending": self.pending}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        yield from bulk.wait(m, agent, self.pending, read_only=False)
