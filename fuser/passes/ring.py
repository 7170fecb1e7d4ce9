"""Lower the verbs of a circular buffer: the only place that knows stages, parities and counts.

With S stages, trip l uses stage ``l % S`` and is its ``l / S``-th round. ``full[s]`` completes once
a round, when the copies have landed; ``empty[s]`` completes once a round, when the readers are
done. A reader of trip l waits for parity ``l / S % 2`` of ``full``; a writer for the other parity
of ``empty``, so that a fresh barrier counts as free (PTX ISA, mbarrier phases).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from fuser.core.dtypes import DataType
from fuser.core.expr import (
    ZERO,
    BinOp,
    Const,
    Expr,
    Var,
    all_of,
    equal,
    select,
    substitute,
)
from fuser.core.simplify import simplify
from fuser.core.unroll import Unroll
from fuser.kir.core import BarrierArray, Stmt
from fuser.kir.core import Ring as KernelRing
from fuser.kir.fallback import Fallback
from fuser.kir.stmts import (
    BulkLoad,
    ClusterSync,
    CpAsyncArrive,
    DeclareRegisters,
    For,
    If,
    MbarrierArrive,
    MbarrierArriveExpectTx,
    MbarrierArriveToken,
    MbarrierInit,
    MbarrierInitFence,
    MbarrierInval,
    MbarrierWait,
    MbarrierWaitToken,
    NamedBarrier,
    SyncThreads,
    SyncWarp,
    TensorLoad,
)
from fuser.nest.nodes import (
    Acquire,
    Await,
    Compute,
    Fill,
    InitRing,
    InvalRing,
    Loop,
    NestNode,
    PassTurn,
    Release,
    Ring,
    RingVerb,
    TakeTurn,
    walk,
)
from fuser.passes.box_bytes import expected_bytes, is_in_box
from fuser.passes.buffers import buffer_index, stage_of
from fuser.passes.circular_buffer import keep
from fuser.passes.cluster import cluster_extents, release_to_all
from fuser.passes.copies import CopyPlan, plan_copy
from fuser.passes.guards import guarded
from fuser.passes.hand_over import taken_back
from fuser.passes.producers import by_writers
from fuser.passes.ring_place import check_place
from fuser.passes.state import Lowering, Scope, Team
from fuser.passes.thread_copy import copies_by_threads
from fuser.schedule.circular import Pipelined, WarpSpecialized
from fuser.schedule.kinds import LoadStoreOpType

THREAD = Var("thread")
WARP = 32
WARP_GROUP = 128

TripVerb: TypeAlias = Acquire | Fill | Await | Release
BodyLowering = Callable[[tuple[NestNode, ...], Scope], tuple[Stmt, ...]]


@dataclass(slots=True)
class RingLowering:
    """Lowers the verbs of one ring.

    Attributes
    ----------
    body
        Lowers ordinary nest nodes.
    team
        The role that runs the loop of a pipelined ring; None: all threads of the block, or two
        roles.
    """

    state: Lowering
    ring: Ring
    body: BodyLowering
    team: Team | None = None

    # ---- names and numbers -----------------------------------------------------------------

    @property
    def full(self) -> str:
        """Barriers that complete when a stage is full."""
        return self.state.named(f"{self.ring.name}_full")

    @property
    def empty(self) -> str:
        """Barriers that complete when a stage is free."""
        return self.state.named(f"{self.ring.name}_empty")

    @property
    def turn(self) -> str:
        """Barriers that complete when a consumer group may run its loop of trips."""
        return self.state.named(f"{self.ring.name}_turn")

    @property
    def takes_turns(self) -> bool:
        """Whether consumer groups run their loops of trips one after the other."""
        kind = self.ring.buffer.type
        return isinstance(kind, WarpSpecialized) and kind.ping_pong

    @property
    def tokens(self) -> str:
        """Register array with the token of each stage."""
        return self.state.named(f"{self.ring.name}_token")

    @property
    def stages(self) -> int:
        """S."""
        return self.ring.buffer.stages

    @property
    def owners(self) -> int:
        """Number of consumer groups that have stages of their own; 1: all share them."""
        owned = self.state.nest.schedule.tensors[self.ring.tensors[0]].owner_axis is not None
        return self.groups if owned else 1

    def stage(self, verb: TripVerb, scope: Scope) -> Expr:
        """Return the stage of a verb's trip."""
        at = stage_of(self.stages, verb.trip, verb.group, self.owners)
        return simplify(at, scope.facts)

    def parity(self, verb: TripVerb, scope: Scope) -> Expr:
        """Return the parity of the round that a verb's trip is in."""
        return simplify(verb.trip // (self.stages // self.owners) % 2, scope.facts)

    @property
    def uses_tokens(self) -> bool:
        """Whether readers wait with the token of their own arrival."""
        kind = self.ring.buffer.type
        return isinstance(kind, Pipelined) and kind.sync == "token"

    @property
    def has_empty(self) -> bool:
        """Whether a stage is found free by an mbarrier."""
        kind = self.ring.buffer.type
        return isinstance(kind, WarpSpecialized) or kind.war == "mbarrier"

    def plans(self) -> dict[str, CopyPlan]:
        """Return the plan of every tensor that the copy engine is asked to load."""
        tensors = self.state.nest.schedule.tensors
        return {
            name: plan_copy(self.state, name)
            for name in self.ring.tensors
            if tensors[name].load.is_async_proxy
        }

    def arrivals(self) -> int:
        """Return how many arrivals complete a full barrier besides the bytes."""
        writers = self.writers()
        plans = self.plans()
        engine = any(p.engine != "threads" for p in plans.values())
        if self.uses_tokens:
            count = writers
        else:
            count = int(engine) + (writers if self.has_stores(plans) else 0)
        return count + (writers if self.loads(LoadStoreOpType.cp_async) else 0)

    def has_stores(self, plans: Mapping[str, CopyPlan]) -> bool:
        """Whether threads may fill a part by stores, which an arrival of their own releases.

        Also where `cp_async` was asked for: of accesses that are not 4, 8 or 16 bytes it makes
        stores, and ``cp.async.mbarrier.arrive`` orders none of those (PTX, its section).
        """
        asked = self.loads(LoadStoreOpType.set) or self.loads(LoadStoreOpType.cp_async)
        return asked or any(plan.engine == "threads" for plan in plans.values())

    def readers(self) -> int:
        """Return the arrivals that free a stage: one a warp, or one a thread of partial warps."""
        threads = self.consumers()
        return threads // WARP if threads % WARP == 0 else threads

    def consumers(self) -> int:
        """Return the threads that read a stage: all that compute, or one group of them."""
        if self.ring.buffer.is_specialized:
            return self.state.threads() // self.groups
        return self.everyone()

    def everyone(self) -> int:
        """Return the threads that run the loop of a pipelined ring."""
        return self.state.all_threads() if self.team is None else self.team.threads

    @property
    def group(self) -> Expr:
        """Number of the consumer group."""
        kind = self.ring.buffer.type
        return Var(kind.on.value) if isinstance(kind, WarpSpecialized) else ZERO

    @property
    def groups(self) -> int:
        """Number of consumer groups."""
        ts, kind = self.state.nest.schedule.tensors[self.ring.tensors[0]], self.ring.buffer.type
        if ts.group_axis is None or not isinstance(kind, WarpSpecialized):
            return 1
        groups = self.state.launch.extents[kind.on]
        assert isinstance(groups, Const)  # else `threads` has raised
        return groups.value

    @property
    def peers(self) -> int:
        """Blocks that share what this ring loads: 1, or those of the cluster."""
        plans = self.plans().values()
        extents = cluster_extents(self.state.launch)
        return prod(extents) if any(p.multicast is not None for p in plans) else 1

    def meet(self, why: str) -> Stmt:
        """Return the barrier of all that arrive at this ring's barriers, or write its stages."""
        if self.team is not None:
            return NamedBarrier(self.team.barrier, self.team.threads, why)
        return ClusterSync(why) if self.peers > 1 else SyncThreads(why)

    def writers(self) -> int:
        """Return the threads that take part in filling a stage."""
        kind = self.ring.buffer.type
        return producer_threads(kind) if isinstance(kind, WarpSpecialized) else self.everyone()

    def loads(self, kind: LoadStoreOpType) -> bool:
        """Whether a tensor of the ring is loaded that way."""
        tensors = self.state.nest.schedule.tensors
        return any(tensors[name].load is kind for name in self.ring.tensors)

    # ---- verbs -----------------------------------------------------------------------------

    def lower(self, verb: RingVerb, scope: Scope) -> tuple[Stmt, ...]:
        """Return the statements of a verb."""
        match verb:
            case InitRing():
                check_place(self.state, self.ring, scope, self.peers)
                return self.init(scope)
            case InvalRing(_, returns):
                return self.inval(scope, returns=returns)
            case Acquire():
                return self.acquire(verb, scope)
            case Fill():
                return self.fill(verb, scope)
            case Await():
                return self.wait(verb, scope)
            case Release():
                return self.release(verb, scope)
            case TakeTurn(_, turn):
                return self.take_turn(turn, scope)
            case PassTurn():
                return self.pass_turn()

    def init(self, scope: Scope) -> tuple[Stmt, ...]:
        """Initialise the barriers, make them visible, and declare the tokens."""
        state, arrivals = self.state, self.arrivals_of
        state.rings.append(self.outline())
        state.barriers += [BarrierArray(n, k) for k, names in self.barriers for n in names]
        loops = self.each_barrier(
            "pre-prologue", lambda name, s: MbarrierInit(name, s, Const(arrivals(name)))
        )
        for name, plan in self.plans().items():
            if plan.map is not None:
                state.maps[plan.map.name] = plan.map
            if plan.obstacle is not None:
                (source,) = state.nest.graph.operand_names(name)
                operand = name in state.product_operands
                state.fallbacks.append(Fallback(name, source, plan.obstacle, operand))
        elected = If(self.elected(scope), (*loops, MbarrierInitFence()))
        tokens = (DeclareRegisters(self.tokens, DataType.Int, self.stages),)
        sync = self.meet(f"the barriers of {self.ring.name} are initialised")
        return (*(tokens if self.uses_tokens else ()), elected, sync)

    def inval(self, scope: Scope, *, returns: bool) -> tuple[Stmt, ...]:
        """Give the barriers back, after everybody has stopped waiting on them."""
        sync = self.meet(f"nobody waits on the barriers of {self.ring.name} any more")
        given = If(self.elected(scope), self.each_barrier("post-epilogue", MbarrierInval))
        back = (taken_back(self.ring, self.state.threads()),) if returns else ()
        return (sync, *back, given)

    @property
    def barriers(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """Arrays of barriers by their length: one a stage, one a consumer group."""
        stages = (self.full, self.empty) if self.has_empty else (self.full,)
        if not self.takes_turns:
            return ((self.stages, stages),)
        return ((self.stages, stages), (self.groups, (self.turn,)))

    def each_barrier(self, label: str, make: Callable[[str, Expr], Stmt]) -> tuple[Stmt, ...]:
        """Return loops that do something to every barrier of the ring."""
        return tuple(
            For(
                "s", Const(n), tuple(make(name, Var("s")) for name in names), Unroll("rolled"),
                label=label,
            )
            for n, names in self.barriers
        )  # fmt: skip

    def arrivals_of(self, barrier: str) -> int:
        """Return the arrivals that complete a phase of a barrier."""
        if barrier == self.full:
            return self.arrivals()
        return self.readers() * (self.peers if barrier == self.empty else 1)

    def outline(self) -> KernelRing:
        """Return what the kernel says of the ring."""
        buffer, empty = self.ring.buffer, self.empty if self.has_empty else ""
        return KernelRing(
            self.ring.name, self.ring.tensors, self.stages, buffer.prefetch, buffer.type.words,
            self.full, empty,
        )  # fmt: skip

    def acquire(self, verb: Acquire, scope: Scope) -> tuple[Stmt, ...]:
        """Wait until the readers of the stage's previous trip are done."""
        if not self.has_empty:
            return ()  # the barrier at the end of the trip before said so
        wait = MbarrierWait(
            self.empty, self.stage(verb, scope), self.other_parity(verb, scope),
            "the stage is free", "cluster" if self.peers > 1 else "",
        )  # fmt: skip
        return self.by_writers((wait,), scope)

    def other_parity(self, verb: TripVerb, scope: Scope) -> Expr:
        """Return the parity that a fresh barrier passes in round 0."""
        parity = self.parity(verb, scope)
        if isinstance(parity, Const):
            return Const(1 - parity.value)
        return BinOp("^", parity, Const(1))

    def by_writers(self, stmts: tuple[Stmt, ...], scope: Scope) -> tuple[Stmt, ...]:
        """Return statements for the threads that fill: the elected one if only it issues copies."""
        plans = self.plans()
        alone = len(plans) == len(self.ring.tensors) and all(
            p.engine != "threads" for p in plans.values()
        )
        return (If(self.elected(scope), stmts),) if alone else stmts

    def elected(self, scope: Scope) -> Expr:
        """Return the condition of the thread that issues copies."""
        return equal(THREAD, ZERO if scope.team is None else scope.team.first)

    def wait(self, verb: Await, scope: Scope) -> tuple[Stmt, ...]:
        """Wait until the stage has been filled."""
        stage = self.stage(verb, scope)
        why = "the stage is full"
        if self.uses_tokens:
            return (MbarrierWaitToken(self.full, stage, self.tokens, stage, why),)
        return (MbarrierWait(self.full, stage, self.parity(verb, scope), why),)

    def release(self, verb: Release, scope: Scope) -> tuple[Stmt, ...]:
        """Say that this thread has read the stage."""
        if self.has_empty:
            stage, why = self.stage(verb, scope), "all lanes have read the stage"
            if self.peers > 1:
                by_warp = self.readers() != self.consumers()
                return release_to_all(self.empty, stage, self.peers, why, by_warp=by_warp)
            arrive = MbarrierArrive(self.empty, stage)
            if self.readers() == self.consumers():
                return (arrive,)
            return (SyncWarp(why), *self.by_readers(arrive))
        why = f"every thread has read its stage of {self.ring.name}"
        if scope.team is None:
            return (self.meet(why),)
        return (NamedBarrier(scope.team.barrier, scope.team.threads, why),)

    def by_readers(self, arrive: MbarrierArrive) -> tuple[Stmt, ...]:
        """Return an arrival a warp."""
        return (If(equal(THREAD % WARP, 0), (arrive,)),)

    def take_turn(self, turn: Expr, scope: Scope) -> tuple[Stmt, ...]:
        """Wait until the group before has passed the turn on; the first one begins by itself."""
        group = self.group
        first = select(equal(group, 0), 1, 0)
        parity = BinOp("^", simplify(turn % 2, scope.facts), first)
        return (MbarrierWait(self.turn, group, parity, "the group before has had its turn"),)

    def pass_turn(self) -> tuple[Stmt, ...]:
        """Say that this group has run its loop of trips; its lanes met at the last release."""
        return self.by_readers(MbarrierArrive(self.turn, (self.group + 1) % self.groups))

    # ---- filling ---------------------------------------------------------------------------

    def fill(self, verb: Fill, scope: Scope) -> tuple[Stmt, ...]:
        """Issue all copies of a trip and arrive for them."""
        nodes, stage, plans = verb.body, self.stage(verb, scope), self.plans()
        by_engine = {n for n, p in plans.items() if p.engine != "threads"}
        issue = self.engine_copies(nodes, by_engine, stage, scope)
        by_threads = {n: p for n, p in plans.items() if p.engine == "threads"}
        manual = copies_by_threads(self.state, by_threads, nodes, scope, self.writers())
        rest = keep(nodes, lambda tensor: tensor not in plans)
        if self.team is None:  # else the role's threads are those that the loops are bound to
            rest, scope = by_writers(rest, scope, self.state.fresh)
        others = self.body(rest, scope) if rest else ()
        result: list[Stmt] = [*manual, *others]
        if self.loads(LoadStoreOpType.cp_async):
            result.append(CpAsyncArrive(self.full, stage))
        nbytes = self.expected(nodes, by_engine, scope)
        if self.uses_tokens:
            result += self.token_arrivals(stage, nbytes, issue, scope)
        else:
            if by_engine:
                expect = MbarrierArriveExpectTx(self.full, stage, nbytes)
                result.append(If(self.elected(scope), (expect, *issue)))
            if self.has_stores(plans):
                result.append(MbarrierArrive(self.full, stage))
        return tuple(result)

    def token_arrivals(
        self, stage: Expr, nbytes: Expr, issue: tuple[Stmt, ...], scope: Scope
    ) -> tuple[Stmt, ...]:
        """Every thread arrives and keeps its token; the elected one announces the bytes."""
        plain = MbarrierArriveToken(self.tokens, stage, self.full, stage)
        if not issue:
            return (plain,)
        announce = MbarrierArriveToken(self.tokens, stage, self.full, stage, nbytes)
        return (If(self.elected(scope), (announce, *issue), (plain,)),)

    def expected(self, nodes: tuple[NestNode, ...], names: set[str], scope: Scope) -> Expr:
        """Return the bytes that arrive on the full barrier in one trip."""
        total: Expr = ZERO
        for path, node in walk(nodes):
            if not (isinstance(node, Compute) and node.tensor in names):
                continue
            boxes = [loop for loop in path if not is_in_box(loop)]
            plan = self.plans()[node.tensor]
            total = total + expected_bytes(plan, node, boxes, scope.facts)
        return simplify(total, scope.facts)

    def engine_copies(
        self, nodes: tuple[NestNode, ...], names: set[str], stage: Expr, scope: Scope
    ) -> tuple[Stmt, ...]:
        """Return the copies that the elected thread issues."""
        result: list[Stmt] = []
        for node in nodes:
            if isinstance(node, Loop):
                inner = replace(scope, facts=scope.facts.with_range(node.var, node.extent))
                if node.parallel.is_block:
                    continue  # vectors of threads: boxes lie in no such loop
                body = self.engine_copies(node.body, names, stage, inner)
                if not body or is_in_box(node):
                    result += body
                else:
                    result.append(For(node.var, node.extent, body, node.unroll))
            elif isinstance(node, Compute) and node.tensor in names:
                result += self.engine_copy(node, stage, scope)
        return tuple(result)

    def engine_copy(self, node: Compute, stage: Expr, scope: Scope) -> tuple[Stmt, ...]:
        """Return one box's copy under its guard."""
        name, plan = node.tensor, self.plans()[node.tensor]
        ts = self.state.nest.schedule.tensors[name]
        loops = tuple(ZERO if j in plan.axes else e for j, e in enumerate(node.loops))
        env = {f"a{j}": e for j, e in enumerate(loops)}
        dst = buffer_index(ts, loops, scope.facts)
        guard = substitute(plan.guard, env)

        def at(e: Expr) -> Expr:
            return simplify(substitute(e, env), scope.facts)

        copy: Stmt
        if plan.map is not None:
            coords = tuple(at(c) for c in plan.coords)
            copy = TensorLoad(name, dst, plan.map.name, coords, self.full, stage)
            if plan.multicast is not None:
                copy = replace(copy, multicast=plan.multicast.mask)
                guard = all_of(plan.multicast.leader, guard)
        else:
            (source,) = self.state.nest.graph.operand_names(name)
            copy = BulkLoad(name, dst, source, at(plan.source), at(plan.nbytes), self.full, stage)
        return guarded(guard, (copy,), scope.facts)


def producer_threads(kind: WarpSpecialized) -> int:
    """Return the threads of the producer role: a warp, or a group if registers change hands."""
    return WARP if kind.num_registers is None else WARP_GROUP
