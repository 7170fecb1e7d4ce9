"""Compile a kernel into the programs of a few agents: what its pipeline consists of, alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fuser.core.expr import (
    TRUE,
    Const,
    Expr,
    Var,
    all_of,
    conjuncts,
    equal,
    evaluate,
    less,
    substitute,
    variables,
)
from fuser.kir.core import Stmt, walk_stmts
from fuser.kir.stmts import (
    BlockReduce,
    BulkLoad,
    BulkStore,
    ClusterSync,
    CpAsync,
    CpAsyncArrive,
    FenceProxyAsync,
    For,
    GridReduce,
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
    Outlined,
    Roles,
    Scoped,
    Store,
    SyncThreads,
    SyncWarp,
    TensorLoad,
    TensorStore,
    VectorStore,
    WarpReduce,
    Wgmma,
)
from fuser.kir.team_box import TeamBox
from fuser.protocol.acts import constant_range, group_act
from fuser.protocol.clusters import by_rank, members, position
from fuser.protocol.emitter import Emitter, Mask
from fuser.protocol.errors import Unsupported
from fuser.protocol.program import (
    Act,
    Branch,
    Converge,
    Enter,
    Head,
    Jump,
    LoopRange,
    Next,
    Program,
    Read,
)
from fuser.protocol.rings import (
    ARRIVALS,
    ENGINE_LOADS,
    ENGINE_STORES,
    GROUPS,
    WAITS,
    bytes_of,
    changes_stage,
    reads,
)
from fuser.protocol.threads import THREADS, block_threads, thread_env
from fuser.protocol.values import Compiled, compile_index

BLOCKS = ("bx", "by", "bz")
ENGINE = (*ENGINE_LOADS, *ENGINE_STORES)
VISIBLE = (
    *ARRIVALS, *WAITS, *ENGINE, *GROUPS, FenceProxyAsync, MbarrierInit, MbarrierInitFence,
    MbarrierInval, SyncThreads, ClusterSync, NamedBarrier, BlockReduce, GridReduce,
)  # fmt: skip


def only_copies(body: tuple[Stmt, ...], lets: Mapping[str, Expr]) -> bool:
    """Whether a body makes copies of the engine and nothing else, the same for all threads."""
    for s in body:
        match s:
            case Let():
                right = True
            case If(cond, then, orelse):
                of_threads = variables(cond) & set(THREADS)
                right = not of_threads and only_copies(then, lets) and only_copies(orelse, lets)
            case For(body=inner):
                bounds = (substitute(e, lets) for e in (s.start, s.extent, s.step))
                right = all(isinstance(e, Const) for e in bounds) and only_copies(inner, lets)
            case _:
                right = isinstance(s, ENGINE)
        if not right:
            return False
    return True


@dataclass(slots=True)
class Compiler(Emitter):
    """Compiles the kernel as a set of threads runs it."""

    def run(self, name: str) -> Program:
        """Return the program."""
        self.program = Program(name, self.threads.size)
        lets = {**self.sizes, **{b: Const(0) for b in BLOCKS}, **position(self.kernel, self.rank)}
        self.body(self.kernel.body, lets, np.ones(self.threads.size, np.bool_))
        self.act_boundary()
        self.count_trips(0)
        self.act(Act("end"))
        return self.program

    # ---- statements ------------------------------------------------------------------------

    def body(self, stmts: tuple[Stmt, ...], lets: Mapping[str, Expr], mask: Mask) -> None:
        """Compile statements in order."""
        known = dict(lets)
        for stmt in stmts:
            if isinstance(stmt, Let):
                known[stmt.name] = substitute(stmt.value, known)
                continue
            self.stmt(stmt, known, mask)

    def stmt(self, stmt: Stmt, lets: Mapping[str, Expr], mask: Mask) -> None:
        """Compile one statement."""
        for array, index in reads(stmt):
            if array in self.rings:
                self.read(array, index, lets, by_product=isinstance(stmt, Wgmma))
        match stmt:
            case For():
                self.loop(stmt, lets, mask)
            case If():
                self.branch(stmt, lets, mask)
            case Roles():
                self.roles(stmt, lets, mask)
            case Scoped(body=body) | Outlined(body=body):
                self.body(body, lets, mask)
            case Store() | VectorStore() | CpAsync():
                self.store(stmt, lets)
            case SyncWarp() | WarpReduce():
                self.code.append(Converge())
            case _:
                self.visible(stmt, lets, mask)

    def read(self, array: str, index: Expr, lets: Mapping[str, Expr], *, by_product: bool) -> None:
        """Compile a read, once per stretch without acts."""
        stage = self.stage(array, index, lets)
        key = f"{array} by products" if by_product else array, stage.text
        if key in self.seen:
            return
        self.seen.add(key)
        array = self.trips_of(array)
        self.note("reads", array, stage)
        self.code.append(Read(array, stage, by_product))

    def store(self, stmt: Store | VectorStore | CpAsync, lets: Mapping[str, Expr]) -> None:
        """Compile a store into a stage, once per stretch without acts."""
        array, index = (
            (stmt.dst, stmt.dst_index) if isinstance(stmt, CpAsync) else (stmt.memory, stmt.index)
        )
        if array not in self.rings:
            return
        stage = self.stage(array, index, lets)
        key = f"{array} by threads", stage.text
        if key in self.seen:
            return
        array = self.trips_of(array)
        self.note("fills", array, stage)
        write = array, stage, -1 - self.agent
        if isinstance(stmt, CpAsync):
            # One part of a stage, with stores between its copies or not.
            here = array, self.samples(array, stage)
            if here not in [(other, self.samples(other, at)) for other, at, _ in self.open_writes]:
                self.open_writes.append(write)
        else:
            self.act(Act("write", writes=(write,)))
        self.seen.add(key)

    def visible(self, stmt: Stmt, lets: Mapping[str, Expr], mask: Mask) -> None:
        """Compile what other agents can see; everything else has no part in the protocol."""
        self.part_trips(stmt)
        made = self.barrier_act(stmt, lets, mask) or self.meeting(stmt, lets) or group_act(stmt)
        if made is not None:
            self.act(replace(made, partial=not mask.all()))
        elif isinstance(stmt, ENGINE):
            self.copy(stmt, lets, mask, None)
        elif isinstance(stmt, MbarrierArriveRemote):
            self.arrive_remote(stmt, lets, mask)
        elif isinstance(stmt, CpAsyncArrive):
            self.flush(self.at(stmt.barrier), self.index(stmt.index, lets), int(mask.sum()))

    def arrive_remote(
        self, stmt: MbarrierArriveRemote, lets: Mapping[str, Expr], mask: Mask
    ) -> None:
        """Compile arrivals at the blocks of a cluster, those of each block together."""
        ranks = substitute(stmt.rank, lets)
        size = self.kernel.cluster_size
        env = thread_env(self.kernel, self.threads)
        at, partial = self.index(stmt.index, lets), not mask.all()
        for rank, lanes in by_rank(ranks, size, self.threads, env):
            weight, there = int((lanes & mask).sum()), self.at(stmt.barrier, rank)
            if weight:
                self.act(Act("arrive", there, at, weight=weight, partial=partial))

    def barrier_act(self, stmt: Stmt, lets: Mapping[str, Expr], mask: Mask) -> Act | None:
        """Return the act of a statement on an mbarrier."""
        weight = int(mask.sum())
        here = self.at(str(getattr(stmt, "barrier", "")))
        match stmt:
            case MbarrierInit(_, at, count):
                return Act("init", here, self.index(at, lets), self.index(count, lets), weight)
            case MbarrierInitFence():
                return Act("fence")
            case MbarrierInval(_, at):
                return Act("inval", here, self.index(at, lets), weight=weight)
            case MbarrierArrive(_, at, count):
                return Act("arrive", here, self.index(at, lets), weight=weight * count)
            case MbarrierArriveExpectTx(_, at, nbytes):
                number = self.index(nbytes * weight, lets)
                return Act("arrive", here, self.index(at, lets), number, weight)
            case MbarrierArriveToken(tokens, slot, _, at, nbytes):
                announced = None if nbytes is None else self.index(nbytes * weight, lets)
                token = tokens, self.index(slot, lets), self.mask_id(mask)
                return Act("arrive", here, self.index(at, lets), announced, weight, token=token)
            case MbarrierWait(_, at, parity, why):
                parity_of = self.index(parity, lets)
                return Act("wait", here, self.index(at, lets), parity_of, why=why)
            case MbarrierWaitToken(_, at, tokens, slot, why):
                token = tokens, self.index(slot, lets), -1
                return Act("wait_token", here, self.index(at, lets), token=token, why=why)
            case _:
                return None

    def meeting(self, stmt: Stmt, lets: Mapping[str, Expr]) -> Act | None:
        """Return the act of a statement at which threads meet."""
        match stmt:
            case SyncThreads(why):
                return Act("sync", self.at("block"), weight=block_threads(self.kernel), why=why)
            case ClusterSync(why):
                all_of = block_threads(self.kernel) * self.kernel.cluster_size
                return Act("sync", "cluster", weight=all_of, why=why)
            case NamedBarrier(number, threads, why):
                which = self.index(number, lets).text
                return Act("sync", self.at(f"named barrier {which}"), weight=threads, why=why)
            case BlockReduce(name, box=TeamBox() as box):
                which = self.index(box.barrier, lets).text
                what, why = f"named barrier {which}", f"BlockReduce of {name}"
                return Act("sync", self.at(what), weight=box.threads, why=why)
            case BlockReduce() | GridReduce():
                what = f"{type(stmt).__name__} of {stmt.name}"
                return Act("sync", self.at("block"), weight=block_threads(self.kernel), why=what)
            case _:
                return None

    def copy(
        self, stmt: Stmt, lets: Mapping[str, Expr], mask: Mask, guard: Compiled | None
    ) -> None:
        """Compile a copy by the engine."""
        if isinstance(stmt, BulkStore | TensorStore):
            self.engine_store(stmt, lets, mask, guard)
            return
        assert isinstance(stmt, BulkLoad | TensorLoad)
        nbytes, lanes = bytes_of(self.kernel, stmt), int(mask.sum())
        multicast = stmt.multicast if isinstance(stmt, TensorLoad) else None
        mask_of = None if multicast is None else substitute(multicast, lets)
        if stmt.dst not in self.rings:
            raise Unsupported(f"{stmt.dst} is filled by the copy engine, and no ring")
        stage = self.stage(stmt.dst, stmt.dst_index, lets)
        for rank in members(mask_of, self.rank, self.kernel.cluster_size):
            array = self.trips_of(stmt.dst, rank)
            self.note("fills", array, stage)
            write = array, stage, self.part(array)
            self.add_copy(
                Act(
                    "copy", self.at(stmt.barrier, rank), self.index(stmt.barrier_index, lets),
                    self.index(nbytes * lanes, lets), writes=(write,), guard=guard,
                    partial=not mask.all(),
                ),
                nbytes * lanes,
            )  # fmt: skip

    def engine_store(
        self,
        stmt: BulkStore | TensorStore,
        lets: Mapping[str, Expr],
        mask: Mask,
        guard: Compiled | None,
    ) -> None:
        """Compile a store by the engine: it reads its stage until it is waited for."""
        stage = self.stage(stmt.src, stmt.src_index, lets)
        array, lanes = self.trips_of(stmt.src), int(mask.sum())
        self.note("reads", array, stage)
        self.act(Act("store", array, stage, weight=lanes, guard=guard, partial=not mask.all()))

    # ---- control flow ----------------------------------------------------------------------

    def loop(self, loop: For, lets: Mapping[str, Expr], mask: Mask) -> None:
        """Compile a loop: over trips, unrolled, or a stretch whose iterations are alike."""
        if id(loop) in self.trip_loops:
            self.trips(loop, lets, mask)
        elif any(isinstance(s, VISIBLE) for s in walk_stmts(loop.body)) or changes_stage(
            loop, self.rings, lets
        ):
            for value in constant_range(loop, lets):
                self.group = value if loop.var == self.serves else self.group
                self.body(loop.body, {**lets, loop.var: Const(value)}, mask)
            self.group = None if loop.var == self.serves else self.group
        else:
            self.body(loop.body, {**lets, loop.var: Const(0)}, mask)

    def trips(self, loop: For, lets: Mapping[str, Expr], mask: Mask) -> None:
        """Compile a loop over trips."""
        step = substitute(loop.step, lets)
        if not isinstance(step, Const) or step.value < 1:
            raise Unsupported(f"loop {loop.var} has step {step}")
        self.act_boundary()
        self.count_trips(len(self.levels) + 1)
        level, position = len(self.levels), len(self.code)
        start, extent = self.index(loop.start, lets), self.index(loop.extent, lets)
        inner = {name: e for name, e in lets.items() if name != loop.var}
        self.levels.append(loop.var)
        outer_parts, self.parts = self.parts, {}
        below = compile_index(
            less(Var(loop.var), substitute(loop.extent, lets)),
            {name: slot for slot, name in enumerate(self.levels)},
            self.counts,
        )
        head = Head(level, below)
        self.code.extend((Enter(level, start), head))
        self.body(loop.body, inner, mask)
        self.act_boundary()
        self.count_trips(len(self.levels))
        self.levels.pop()
        self.parts = outer_parts
        if not self.has_content(position):
            del self.code[position:]
            return
        self.code.append(Next(level, step.value, position + 1))
        head.exit = len(self.code)
        self.program.loops.append(LoopRange(level, position, head.exit, start, extent, step.value))

    def has_content(self, position: int) -> bool:
        """Whether the instructions from `position` on are more than control flow."""
        return any(isinstance(i, Act | Read) for i in self.code[position:])

    def branch(self, stmt: If, lets: Mapping[str, Expr], mask: Mask) -> None:
        """Compile a branch: lanes part, or all go one way, or both sides only access memory."""
        terms = [substitute(term, lets) for term in conjuncts(stmt.cond)]
        of_threads = [t for t in terms if variables(t) <= set(THREADS)]
        rest = all_of(*(t for t in terms if t not in of_threads))
        taken = mask & self.lanes(all_of(*of_threads))
        if rest == TRUE:
            self.sided(stmt.body, lets, taken)
            self.sided(stmt.orelse, lets, mask & ~taken)
            return
        acts = [s for s in walk_stmts((*stmt.body, *stmt.orelse)) if isinstance(s, VISIBLE)]
        if not acts:
            self.sided(stmt.body, lets, taken)
            self.sided(stmt.orelse, lets, mask)
            return
        if stmt.orelse and of_threads:
            raise Unsupported(f"threads part on {stmt.cond} around barriers of its pipeline")
        if taken.any():
            self.uniform(stmt, rest, lets, taken)

    def lanes(self, cond: Expr) -> Mask:
        """Return the threads that a condition on threads holds for."""
        held = np.asarray(evaluate(cond, thread_env(self.kernel, self.threads)), np.bool_)
        return np.broadcast_to(held, self.threads.shape)

    def sided(self, body: tuple[Stmt, ...], lets: Mapping[str, Expr], mask: Mask) -> None:
        """Compile one side for its lanes."""
        if body and mask.any():
            self.body(body, lets, mask)

    def uniform(self, stmt: If, cond: Expr, lets: Mapping[str, Expr], mask: Mask) -> None:
        """Compile a branch that all lanes of `mask` take the same way."""
        test = self.index(cond, lets)
        if only_copies(stmt.body, lets) and only_copies(stmt.orelse, lets):
            self.copies(stmt.body, lets, mask, cond)
            self.copies(stmt.orelse, lets, mask, equal(cond, 0))
            return
        branch, jump = Branch(test), Jump()
        self.act_boundary()
        self.code.append(branch)
        around = frozenset(self.going)
        self.body(stmt.body, lets, mask)
        self.act_boundary()
        self.count_begun(around)
        self.code.append(jump)
        branch.target = len(self.code)
        self.sided(stmt.orelse, lets, mask)
        self.act_boundary()
        self.count_begun(around)
        jump.target = len(self.code)

    def copies(
        self, body: tuple[Stmt, ...], lets: Mapping[str, Expr], mask: Mask, cond: Expr
    ) -> None:
        """Compile copies of the engine, each made where `cond` holds: parts of one trip."""
        known = dict(lets)
        for s in body:
            match s:
                case Let(name, value):
                    known[name] = substitute(value, known)
                case If(inner, then, orelse):
                    self.copies(then, known, mask, all_of(cond, substitute(inner, known)))
                    other = equal(substitute(inner, known), 0)
                    self.copies(orelse, known, mask, all_of(cond, other))
                case For():
                    for at in constant_range(s, known):
                        self.copies(s.body, {**known, s.var: Const(at)}, mask, cond)
                case _:
                    self.copy(s, known, mask, self.index(cond, known))

    def roles(self, stmt: Roles, lets: Mapping[str, Expr], mask: Mask) -> None:
        """Compile the role of these threads."""
        for role in stmt.roles:
            self.serves = role.serves
            for group, (_, threads) in enumerate(role.parts):
                inside = (self.threads >= threads.start) & (self.threads < threads.stop)
                if (mask & inside).any():
                    self.group = group if role.groups > 1 else None
                    known = lets if self.group is None else {**lets, **self.own_indices()}
                    self.sided(role.body, known, mask & inside)
            self.serves, self.group = "", None

    def own_indices(self) -> dict[str, Expr]:
        """Return the thread indices that all threads of this agent share."""
        found = thread_env(self.kernel, self.threads)
        return {n: Const(int(found[n][0])) for n in THREADS[1:] if (found[n] == found[n][0]).all()}
