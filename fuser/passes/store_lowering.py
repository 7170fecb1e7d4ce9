"""Lower the verbs of stores by the copy engine: fence, meet, issue, commit, wait.

One thread issues all stores of a trip, commits them as one bulk group, and alone can wait for it
(PTX ISA, ``cp.async.bulk.commit_group``). Groups end in order, so that with S stages the one of
trip ``l - S`` has read its stage when at most ``S - 1`` are pending.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fuser.core.errors import ScheduleError
from fuser.core.expr import ZERO, Const, Expr, Var, all_of, substitute
from fuser.core.simplify import simplify
from fuser.core.unroll import Unroll
from fuser.kir.core import Stmt
from fuser.kir.fallback import Fallback
from fuser.kir.scalar import Element
from fuser.kir.stmts import (
    BulkCommit,
    BulkStore,
    BulkWaitRead,
    FenceProxyAsync,
    For,
    If,
    Store,
    TensorStore,
)
from fuser.nest.nodes import Compute, Drain, Emit, Loop, NestNode, Outlet, Reuse, StoreVerb
from fuser.passes.copies import CopyPlan, digits_of
from fuser.passes.guards import guarded
from fuser.passes.launch import BLOCK
from fuser.passes.state import Lowering, Scope
from fuser.passes.store_plans import plan_store
from fuser.passes.team import THREAD, barrier, elected, first_thread, threads_of
from fuser.schedule.kinds import ParallelType

Copy = Callable[[Compute, Scope], tuple[Stmt, ...]]


def lower_store(state: Lowering, verb: StoreVerb, scope: Scope) -> tuple[Stmt, ...]:
    """Return the statements of a verb."""
    match verb:
        case Reuse(outlet, pending):
            return StoreLowering(state, outlet).reuse(pending, scope)
        case Emit(outlet, body):
            return StoreLowering(state, outlet).emit(body, scope)
        case Drain(outlets):
            if not any(StoreLowering(state, outlet).by_engine for outlet in outlets):
                return ()
            return (If(elected(scope), (BulkWaitRead(0),)),)


@dataclass(slots=True)
class StoreLowering:
    """Lowers the stores of one outlet.

    Attributes
    ----------
    plans
        How each output is stored.
    """

    state: Lowering
    outlet: Outlet
    plans: dict[str, CopyPlan] = field(init=False)

    def __post_init__(self) -> None:
        self.plans = {y: plan_store(self.state, y, tile) for y, tile in self.outlet.stores}

    @property
    def by_engine(self) -> bool:
        """Whether the copy engine stores anything."""
        return any(plan.engine != "threads" for plan in self.plans.values())

    def reuse(self, pending: int, scope: Scope) -> tuple[Stmt, ...]:
        """Wait for older stores and tell the threads that write; a ring's stage it fills itself."""
        wait = (If(elected(scope), (BulkWaitRead(pending),)),) if self.by_engine else ()
        if not self.outlet.stages:
            return wait
        return (*wait, barrier(f"the stage of {self.outlet.tiles} has been stored", scope))

    def emit(self, nodes: tuple[NestNode, ...], scope: Scope) -> tuple[Stmt, ...]:
        """Show the tiles, if threads have written them, and store them."""
        self.declare()
        shown: list[Stmt] = []
        if self.outlet.stages:
            if self.by_engine:
                shown.append(FenceProxyAsync(f"the copy engine sees {self.outlet.tiles}"))
            shown.append(barrier(f"{self.outlet.tiles} is complete", scope))
        issue = self.copies(nodes, scope, self.engine_copy)
        by_hand = self.copies(nodes, scope, self.thread_copy)
        if self.by_engine:
            shown.append(If(elected(scope), (*issue, BulkCommit())))
        return (*shown, *by_hand)

    def declare(self) -> None:
        """Note the tensor maps, and why threads store what they do."""
        for output, plan in self.plans.items():
            if plan.map is not None:
                self.state.maps[plan.map.name] = plan.map
            if plan.obstacle is not None:
                fallback = Fallback(output, output, plan.obstacle)
                if fallback not in self.state.fallbacks:  # a clone of its loop has said it
                    self.state.fallbacks.append(fallback)

    def copies(self, nodes: tuple[NestNode, ...], scope: Scope, copy: Copy) -> tuple[Stmt, ...]:
        """Return the loops over boxes with what `copy` makes of each."""
        result: list[Stmt] = []
        for node in nodes:
            if isinstance(node, Compute):
                result += copy(node, scope)
            elif isinstance(node, Loop):
                self.check_axis(node)
                body = self.copies(node.body, self.inside(node, scope), copy)
                if not body or node.parallel is ParallelType.tma or node.parallel.is_parallel:
                    result += body
                else:
                    result.append(For(node.var, node.extent, body, node.unroll))
        return tuple(result)

    def inside(self, loop: Loop, scope: Scope) -> Scope:
        """Return the scope of a loop over boxes; one over blocks deals them out."""
        within = replace(scope, facts=scope.facts.with_range(loop.var, loop.extent))
        if not loop.parallel.is_parallel:
            return within
        guard = self.state.launch.guard(loop, scope.facts)
        hardware = scope.hardware | {loop.parallel}
        if guard is None:
            return replace(within, hardware=hardware)
        return replace(scope, hardware=hardware, guard=all_of(scope.guard, guard))

    def check_axis(self, loop: Loop) -> None:
        """Raise `ScheduleError` where threads share the boxes out."""
        if loop.parallel.is_block:
            raise ScheduleError(
                f"{self.outlet.outputs}: a box lies inside a loop over {loop.parallel.name}; one "
                "thread issues it, so bind only grid axes around it"
            )

    # ---- one box ---------------------------------------------------------------------------

    def engine_copy(self, node: Compute, scope: Scope) -> tuple[Stmt, ...]:
        """Return one box's store under its guard; nothing where threads store."""
        output, plan = node.tensor, self.plans[node.tensor]
        if plan.engine == "threads":
            return ()
        loops = (ZERO if j in plan.axes else e for j, e in enumerate(node.loops))
        env = {f"a{j}": e for j, e in enumerate(loops)}

        def at(e: Expr) -> Expr:
            return simplify(substitute(e, env), scope.facts)

        tile = dict(self.outlet.stores)[output]
        store: Stmt
        if plan.map is not None:
            coords = tuple(at(c) for c in plan.coords)
            store = TensorStore(plan.map.name, coords, tile, at(plan.tile))
        else:
            store = BulkStore(output, at(plan.source), tile, at(plan.tile), at(plan.nbytes))
        guard = all_of(substitute(plan.guard, env), self.owned(output, tile, scope))
        return guarded(guard, (store,), scope.facts)

    def owned(self, output: str, tile: str, scope: Scope) -> Expr:
        """Return the condition under which this block stores: others may have the same tile."""
        last = self.state.last_block.get(tile, ())
        chosen = scope.hardware.union(BLOCK, *(b.kinds for b in last))
        flags = (Var(b.flag) for b in last)
        return all_of(scope.guard, *flags, self.state.elsewhere(frozenset(chosen)))

    def thread_copy(self, node: Compute, scope: Scope) -> tuple[Stmt, ...]:
        """Return the loop over the elements of a box, shared out among the threads."""
        output, plan = node.tensor, self.plans[node.tensor]
        if plan.engine != "threads":
            return ()
        tile = dict(self.outlet.stores)[output]
        e = Var(self.state.fresh("e"))
        ts = self.state.nest.schedule.tensors[output]
        digits, numel = digits_of(ts, plan.axes, e, scope.facts)
        facts = scope.facts.with_range(e.name, Const(numel))
        env = {f"a{j}": digits.get(j, at) for j, at in enumerate(node.loops)}
        guard = all_of(substitute(plan.guard, env), self.owned(output, tile, scope))
        held = facts.with_guard(guard)
        dtype = self.state.nest.graph.value(output).dtype
        value = Element(tile, simplify(substitute(plan.tile, env), held), dtype)
        store = Store(output, simplify(substitute(plan.source, env), held), value)
        return (
            For(
                e.name, Const(numel), guarded(guard, (store,), facts), Unroll("rolled"),
                THREAD - first_thread(scope), Const(threads_of(self.state, scope)),
            ),
        )  # fmt: skip
