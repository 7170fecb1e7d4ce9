"""Kernels with one mistake each: what a person might write, and a checker must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from fuser.core.expr import BinOp, Const, Expr, Var, substitute, variables
from fuser.kir.core import Kernel, Stmt, walk_stmts
from fuser.kir.stmts import (
    BlockReduce,
    BulkCommit,
    BulkLoad,
    BulkStore,
    BulkWaitRead,
    ClusterSync,
    CpAsyncArrive,
    FenceProxyAsync,
    For,
    If,
    Let,
    MbarrierArrive,
    MbarrierArriveExpectTx,
    MbarrierArriveRemote,
    MbarrierArriveToken,
    MbarrierInit,
    MbarrierInitFence,
    MbarrierInval,
    MbarrierWait,
    MbarrierWaitToken,
    NamedBarrier,
    Roles,
    SyncThreads,
    SyncWarp,
    TensorLoad,
    TensorStore,
    Wgmma,
    WgmmaCommit,
    WgmmaWait,
)
from fuser.kir.team_box import TeamBox
from fuser.protocol.cluster_mutants import share
from fuser.protocol.rings import ENGINE_STORES, Ring, find_rings, places, reads, stored

Body: TypeAlias = tuple[Stmt, ...]
Edit: TypeAlias = Callable[[Body, int], Iterator[tuple[str, Body]]]
"""Given a body and a position, yields kinds of mistakes with what the body becomes."""

UNIT_BYTES = 16
WARP = 32
COPIES = (BulkLoad, TensorLoad)
RELEASES = (MbarrierArrive, MbarrierArriveRemote, SyncThreads, NamedBarrier)
"""What tells others that a stage may be filled again."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A kernel with one mistake.

    Attributes
    ----------
    kind
        What the mistake is.
    where
        The statement it is in.
    """

    kind: str
    where: str
    kernel: Kernel


def mutants(kernel: Kernel) -> tuple[Mutant, ...]:
    """Return every mutant of a kernel with a pipeline."""
    maker = _Maker(kernel, find_rings(kernel))
    found = list[Mutant]()
    for edit in maker.edits():
        for kind, where, body in variants(kernel.body, edit):
            found.append(Mutant(kind, where, replace(kernel, body=body)))
    return tuple(found)


def variants(body: Body, edit: Edit) -> Iterator[tuple[str, str, Body]]:
    """Yield kind, place and outcome of every edit at every position, at any depth."""
    for at, stmt in enumerate(body):
        for kind, edited in edit(body, at):
            yield kind, _name(stmt), edited
        for kind, where, inner in _inside(stmt, edit):
            yield kind, where, (*body[:at], inner, *body[at + 1 :])


def _inside(stmt: Stmt, edit: Edit) -> Iterator[tuple[str, str, Stmt]]:
    if isinstance(stmt, For):
        for kind, where, body in variants(stmt.body, edit):
            label = f" ({stmt.label})" if stmt.label else ""
            yield kind, f"{where} in loop {stmt.var}{label}", replace(stmt, body=body)
    elif isinstance(stmt, If):
        for kind, where, body in variants(stmt.body, edit):
            yield kind, where, replace(stmt, body=body)
        for kind, where, body in variants(stmt.orelse, edit):
            yield kind, where, replace(stmt, orelse=body)
    elif isinstance(stmt, Roles):
        for number, role in enumerate(stmt.roles):
            for kind, where, body in variants(role.body, edit):
                roles = list(stmt.roles)
                roles[number] = replace(role, body=body)
                yield kind, f"{where} of the {role.name}", replace(stmt, roles=tuple(roles))


def _name(stmt: Stmt) -> str:
    """Return what tells a statement apart from others like it: its barrier, else what it is for."""
    kind, what = type(stmt).__name__, getattr(stmt, "barrier", "") or getattr(stmt, "why", "")
    return f"{kind}({what})" if what else kind


@dataclass(frozen=True, slots=True)
class _Maker:
    kernel: Kernel
    rings: dict[str, Ring]

    def edits(self) -> tuple[Edit, ...]:
        """Return all edits."""
        return (
            self.drop,
            self.ungroup,
            self.flip,
            self.recount,
            self.regroup,
            self.restage,
            self.move_wait,
            self.move_group_wait,
            self.move_meeting,
            self.uncarry,
            share,
        )

    def is_empty(self, barrier: str) -> bool:
        """Whether readers arrive on a barrier: no copy, announcement or writer does."""
        writers = (*COPIES, CpAsyncArrive, MbarrierArriveToken, MbarrierArriveExpectTx)
        every = list(walk_stmts(self.kernel.body))
        if any(isinstance(s, writers) and s.barrier == barrier for s in every):
            return False
        waits = [s for s in every if isinstance(s, MbarrierWait) and s.barrier == barrier]
        return any(wait.why == "the stage is free" for wait in waits)

    @property
    def by_engine(self) -> bool:
        """Whether the copy engine loads something."""
        return any(isinstance(s, COPIES) for s in walk_stmts(self.kernel.body))

    # ---- edits -----------------------------------------------------------------------------

    def drop(self, body: Body, at: int) -> Iterator[tuple[str, Body]]:
        """Leave a statement out."""
        stmt = body[at]
        without = (*body[:at], *body[at + 1 :])
        match stmt:
            case MbarrierWaitToken():
                yield "wait dropped", without
            case MbarrierWait():
                yield ("acquire" if self.is_empty(stmt.barrier) else "wait") + " dropped", without
            case MbarrierArrive() | MbarrierArriveRemote():
                what = "release" if self.is_empty(stmt.barrier) else "arrive"
                yield f"{what} dropped", without
            case CpAsyncArrive() | MbarrierArriveToken():
                yield "arrive dropped", without
                if isinstance(stmt, MbarrierArriveToken) and stmt.expect_tx is not None:
                    unsaid = replace(stmt, expect_tx=None)
                    yield "expect dropped", (*body[:at], unsaid, *body[at + 1 :])
            case MbarrierArriveExpectTx():
                yield "arrive dropped", without
                plain = MbarrierArrive(stmt.barrier, stmt.index)
                yield "expect dropped", (*body[:at], plain, *body[at + 1 :])
            case MbarrierInitFence() if self.by_engine:
                yield "fence dropped", without
            case SyncThreads() | NamedBarrier() if self.guards_ring(stmt) and not _met(body, at):
                yield "barrier dropped", without
            case SyncWarp() if at + 1 < len(body) and _arrives(body[at + 1]):
                yield "convergence dropped", without
            case _:
                pass

    def ungroup(self, body: Body, at: int) -> Iterator[tuple[str, Body]]:
        """Leave out what a store by the copy engine, or a product, needs."""
        what: dict[type[Stmt], str] = {
            BulkWaitRead: "store wait dropped",
            BulkCommit: "commit dropped",
            FenceProxyAsync: "proxy fence dropped",
            WgmmaWait: "product wait dropped",
            WgmmaCommit: "commit dropped",
        }
        if type(body[at]) in what:
            yield what[type(body[at])], (*body[:at], *body[at + 1 :])

    def guards_ring(self, stmt: SyncThreads | NamedBarrier) -> bool:
        """Whether a barrier of threads belongs to a ring."""
        names = {b.name.rsplit("_", 1)[0] for b in self.kernel.barriers} | stored(self.kernel)
        return any(name in stmt.why for name in names)

    def flip(self, body: Body, at: int) -> Iterator[tuple[str, Body]]:
        """Wait for the other parity."""
        stmt = body[at]
        if isinstance(stmt, MbarrierWait):
            other = replace(stmt, parity=BinOp("^", stmt.parity, Const(1)))
            yield "parity flipped", (*body[:at], other, *body[at + 1 :])

    def recount(self, body: Body, at: int) -> Iterator[tuple[str, Body]]:
        """Count or announce wrongly."""
        stmt = body[at]
        changed: list[tuple[str, Stmt]] = []
        match stmt:
            case MbarrierInit():
                for by in (1, -1):
                    changed.append(("count changed", replace(stmt, count=stmt.count + by)))
            case MbarrierArriveExpectTx():
                for by in (UNIT_BYTES, -UNIT_BYTES):
                    changed.append(("bytes changed", replace(stmt, tx_bytes=stmt.tx_bytes + by)))
            case BulkWaitRead() | WgmmaWait():
                changed.append(("groups changed", replace(stmt, pending=stmt.pending + 1)))
            case MbarrierArriveToken(expect_tx=nbytes) if nbytes is not None:
                for by in (UNIT_BYTES, -UNIT_BYTES):
                    changed.append(("bytes changed", replace(stmt, expect_tx=nbytes + by)))
            case _:
                pass
        for kind, new in changed:
            yield kind, (*body[:at], new, *body[at + 1 :])

    def regroup(self, body: Body, at: int) -> Iterator[tuple[str, Body]]:
        """Let the threads of a role wait for more or fewer than they are."""
        stmt = body[at]
        changed: list[tuple[str, Stmt]] = []
        match stmt:
            case NamedBarrier(threads=threads):
                for count in (threads + WARP, threads - WARP):
                    if count:
                        changed.append(("threads changed", replace(stmt, threads=count)))
            case BlockReduce(box=TeamBox()):
                changed.append(("reduction of the block", replace(stmt, box=None)))
            case _:
                pass
        for kind, new in changed:
            yield kind, (*body[:at], new, *body[at + 1 :])

    def restage(self, body: Body, at: int) -> Iterator[tuple[str, Body]]:
        """Use the next stage."""
        stmt = body[at]
        changed: Stmt | None = None
        match stmt:
            case (
                MbarrierWait()
                | MbarrierArriveExpectTx()
                | CpAsyncArrive()
                | MbarrierArrive()
                | MbarrierArriveRemote()
            ):
                changed = replace(stmt, index=self.next(stmt.barrier, stmt.index))
            case BulkLoad() | TensorLoad() if stmt.dst in self.rings:
                changed = replace(stmt, dst_index=self.moved(stmt.dst, stmt.dst_index))
            case BulkStore() | TensorStore():
                changed = replace(stmt, src_index=self.moved(stmt.src, stmt.src_index))
            case Wgmma():
                for kind, new in self.misread(stmt):
                    yield kind, (*body[:at], new, *body[at + 1 :])
            case _:
                pass
        if changed is not None:
            yield "stage changed", (*body[:at], changed, *body[at + 1 :])

    def misread(self, stmt: Wgmma) -> Iterator[tuple[str, Wgmma]]:
        """Yield a product with either operand out of the next stage."""
        if stmt.a in self.rings:
            a = self.moved(stmt.a, stmt.a_index)
            yield "product's stage changed", replace(stmt, a_index=a)
        if stmt.b in self.rings:
            b = self.moved(stmt.b, stmt.b_index)
            yield "product's stage changed", replace(stmt, b_index=b)

    def moved(self, array: str, index: Expr) -> Expr:
        """Return an element a stage further on, around the ring."""
        ring = self.rings[array]
        moved = index + ring.slot
        return moved % (ring.slot * ring.stages) if ring.stages > 1 else moved

    def next(self, barrier: str, index: Expr) -> Expr:
        """Return the index behind, around the ring."""
        size = next(b.size for b in self.kernel.barriers if b.name == barrier)
        return (index + 1) % size if size > 1 else index + 1

    def move_wait(self, body: Body, at: int) -> Iterator[tuple[str, Body]]:
        """Use a stage before waiting for it."""
        stmt = body[at]
        if not isinstance(stmt, MbarrierWait | MbarrierWaitToken) or at + 1 == len(body):
            return
        for behind in range(at + 1, len(body)):
            if any(self.uses(p.stmt) for p in places((body[behind],))):
                moved = (*body[:at], *body[at + 1 : behind + 1], stmt, *body[behind + 1 :])
                yield "wait moved behind the use", moved
                return

    def move_group_wait(self, body: Body, at: int) -> Iterator[tuple[str, Body]]:
        """Let a stage be filled again before the products out of it are waited for."""
        stmt = body[at]
        if not isinstance(stmt, WgmmaWait) or at + 1 == len(body):
            return
        behind, *rest = body[at + 1 :]
        if any(isinstance(p.stmt, MbarrierInval) for p in places(tuple(rest))):
            return  # the ring is given back: nobody fills it any more
        if any(isinstance(p.stmt, RELEASES) for p in places((behind,))):
            moved = (*body[:at], behind, stmt, *rest)
            yield "product wait moved behind the release", moved

    def move_meeting(self, body: Body, at: int) -> Iterator[tuple[str, Body]]:
        """Have the blocks of a cluster meet before the last use of a stage in a trip."""
        stmt = body[at]
        if not isinstance(stmt, ClusterSync) or at + 1 < len(body):
            return
        used = [i for i in range(at) if any(self.uses(p.stmt) for p in places((body[i],)))]
        if used:
            moved = (*body[: used[-1]], stmt, *body[used[-1] : at])
            yield "cluster barrier moved before the use", moved

    def uses(self, stmt: Stmt) -> bool:
        """Whether a statement reads or fills a stage."""
        if isinstance(stmt, (*COPIES, *ENGINE_STORES)):
            return True
        return any(array in self.rings for array, _ in reads(stmt))

    def uncarry(self, body: Body, at: int) -> Iterator[tuple[str, Body]]:
        """Forget rounds: the parity of round 0, or a trip counted in the inner loop alone."""
        stmt = body[at]
        if isinstance(stmt, MbarrierWait) and variables(stmt.parity):
            first = substitute(stmt.parity, {name: Const(0) for name in variables(stmt.parity)})
            stuck = replace(stmt, parity=first)
            yield "phase not carried", (*body[:at], stuck, *body[at + 1 :])
        inner = self.inner_of(stmt.value) if isinstance(stmt, Let) else None
        if isinstance(stmt, Let) and inner is not None:
            if any(isinstance(s, MbarrierWait) for s in walk_stmts(body[at:])):
                only = replace(stmt, value=inner)
                yield "phase not carried over the outer loop", (*body[:at], only, *body[at + 1 :])

    def inner_of(self, e: Expr) -> Expr | None:
        """Return the inner of two trips counted together, ``outer * trips + inner``."""
        loops = {s.var for s in walk_stmts(self.kernel.body) if isinstance(s, For)}
        match e:
            case BinOp("+", BinOp("*", Var(outer), _), Var(name) as inner) if {
                outer,
                name,
            } <= loops:
                return inner
            case _:
                return None


def _arrives(stmt: Stmt) -> bool:
    arrivals = MbarrierArrive | MbarrierArriveRemote
    return isinstance(stmt, If) and any(isinstance(s, arrivals) for s in stmt.body)


def _met(body: Body, at: int) -> bool:
    """Whether threads have just met: the loop before ends with a barrier, this one adds nothing."""
    before = body[at - 1] if at else None
    return isinstance(before, For) and isinstance(before.body[-1], SyncThreads | NamedBarrier)
