"""Index lowering: loop nest -> kernel.

Loops become `For` statements or hardware indices; a `Compute` becomes the scalar statements of one
element, its store, and the guard under which the element exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fuser.core.errors import ScheduleError
from fuser.core.expr import ONE, Const, Expr, Var, all_of, less, variables
from fuser.core.simplify import Facts, prove_equal, simplify
from fuser.core.unroll import Unroll
from fuser.kir.core import (
    IndexType,
    Kernel,
    ScalarParam,
    SharedArray,
    SizeParam,
    Stmt,
    TensorParam,
    walk_stmts,
)
from fuser.kir.program import Buffer
from fuser.kir.scalar import Literal
from fuser.kir.stmts import DeclareRegisters, DeclareScalar, For
from fuser.nest.nodes import (
    Allocate,
    AwaitProducts,
    CommitProducts,
    Compute,
    Drain,
    Emit,
    FenceProducts,
    Group,
    InitRing,
    Loop,
    LoopNest,
    NestNode,
    Reuse,
    Ring,
    Sync,
    WarpRoles,
    When,
    walk,
)
from fuser.ops import BY_REDUCTION
from fuser.passes.box_order import turn_tiles
from fuser.passes.buffers import COPY_ALIGN, buffer_size
from fuser.passes.cluster import check_clusters, cluster_extents, cluster_grid
from fuser.passes.element import ElementLowering
from fuser.passes.guards import guarded
from fuser.passes.launch import BLOCK, launch_extents, padded_block
from fuser.passes.layout import Layout
from fuser.passes.loops import loop_facts
from fuser.passes.mentions import mentioned
from fuser.passes.product_lowering import lower_product, lower_product_verb
from fuser.passes.products import is_issued
from fuser.passes.register_slots import check_slots, unrolled
from fuser.passes.rewrite import substitute_body
from fuser.passes.ring import RingLowering, producer_threads
from fuser.passes.roles import (
    check_counted,
    check_placement,
    check_same_axis,
    lower_group,
    lower_roles,
)
from fuser.passes.state import Lowering, Scope
from fuser.passes.store_lowering import lower_store
from fuser.passes.team import barrier
from fuser.passes.together import Together
from fuser.passes.unroll import MAX_COPIES
from fuser.passes.vectorize import vectorize_loop
from fuser.schedule.circular import WarpSpecialized
from fuser.schedule.kinds import MemoryType, ParallelType

UNROLLED = (ParallelType.unroll, ParallelType.unswitch, ParallelType.mma)
"""Loops in one thread whose bodies are repeated; those of mma choose accumulators."""


@dataclass(frozen=True, slots=True)
class NestLowering:
    """Turns nest nodes into statements."""

    state: Lowering

    def body(self, nodes: tuple[NestNode, ...], scope: Scope) -> tuple[Stmt, ...]:
        """Lower the nodes of one body."""
        stmts: list[Stmt] = []
        together = Together(scope.facts)
        for node in nodes:
            if isinstance(node, Compute) and self.is_store(node):
                stmts += together.add(ElementLowering(self.state, scope, node))
                continue
            stmts += (*together.close(), *self.node(node, scope))
        return (*stmts, *together.close())

    def node(self, node: NestNode, scope: Scope) -> tuple[Stmt, ...]:
        """Lower one node."""
        match node:
            case Loop():
                return self.loop(node, scope)
            case When(condition, body):
                inner = replace(scope, facts=scope.facts.with_guard(condition))
                return guarded(condition, self.body(body, inner), scope.facts)
            case Allocate(tensor):
                return self.allocate(tensor, scope.facts)
            case Sync(why):
                return (barrier(why, scope),)
            case Group():
                return lower_group(self.state, node, scope, self.ring(node.ring, scope), self.body)
            case Reuse() | Emit() | Drain():
                return lower_store(self.state, node, scope)
            case WarpRoles():
                return lower_roles(self.state, node, scope, self.ring(node.ring, scope), self.body)
            case FenceProducts() | CommitProducts() | AwaitProducts():
                return lower_product_verb(self.state, node)
            case Compute():
                return ElementLowering(self.state, scope, node).lower()
            case _:
                return self.ring(node.ring, scope).lower(node, scope)

    def ring(self, ring: Ring, scope: Scope) -> RingLowering:
        """Return the lowering of one ring's verbs."""
        team = None if ring.buffer.is_specialized else scope.team
        return RingLowering(self.state, ring, self.body, team)

    def is_store(self, node: Compute) -> bool:
        """Whether a statement writes one element of a global tensor."""
        memory = self.state.nest.schedule.tensors[node.tensor].memory
        return memory is MemoryType.global_ and node.step == "assign"

    def loop(self, loop: Loop, scope: Scope) -> tuple[Stmt, ...]:
        """Lower one loop by what executes it."""
        extent = simplify(loop.extent, scope.facts)
        inner = replace(scope, facts=loop_facts(loop, extent, scope.facts))
        if loop.parallel.is_parallel:
            guard = self.state.launch.guard(replace(loop, extent=extent), scope.facts)
            if scope.team is None and loop.parallel is self.state.extra_axis:
                guard = less(Var(loop.var), extent)  # producers' threads are beyond the loop
            # Beyond the loop's extent the index runs to the launch's: the range holds under the
            # guard only, and must not prove that same guard.
            bound = replace(
                inner if guard is None else scope,
                guard=scope.guard if guard is None else all_of(scope.guard, guard),
                hardware=scope.hardware | {loop.parallel},
            )
            return self.body(loop.body, bound)
        if loop.parallel is ParallelType.tma:
            raise self.left_to_threads(loop)
        if loop.parallel is ParallelType.mma and is_issued(loop):
            return lower_product(self.state, scope, loop)
        stmts = self.body(loop.body, inner)
        if not stmts:  # the end of a reduction that no threads share
            return ()
        if loop.parallel is ParallelType.vectorize:
            return vectorize_loop(loop.var, extent, stmts, inner.facts, self.state)
        start = simplify(loop.start, scope.facts)
        if isinstance(start, Const) and extent == start + 1 and loop.step == ONE:
            return substitute_body(stmts, {loop.var: start})
        unroll = loop.unroll
        if loop.parallel in UNROLLED and unroll.kind == "auto":
            unroll = repeated(loop, start, extent)
        made = For(loop.var, extent, stmts, unroll, start, loop.step, loop.label, loop.outlined)
        return (unrolled(made, frozenset(self.state.register_rings)),)

    def left_to_threads(self, loop: Loop) -> ScheduleError:
        """Return why threads would have to run a loop over the elements of a box."""
        tensors = sorted(t.tensor for _, t in walk(loop.body) if isinstance(t, Compute))
        found = [self.state.nest.schedule.tensors[name] for name in tensors]
        why = (
            "an axis is bound to tma, and the tensor is not copied by LoadStoreOpType.tma or bulk; "
            "bind it to threads"
        )
        if all(ts.is_stored for ts in found):
            why = (
                "stored by the copy engine inside of consumer groups; needed a ring without "
                "groups, or an output that threads store"
            )
        return ScheduleError(f"{', '.join(tensors)}: {why}")

    def allocate(self, tensor: str, facts: Facts) -> tuple[Stmt, ...]:
        """Declare the registers or the shared array of a tensor."""
        ts = self.state.nest.schedule.tensors[tensor]
        size = buffer_size(tensor, ts, facts)
        dtype = self.state.storage_dtype(tensor)
        if ts.memory is MemoryType.shared:
            align = COPY_ALIGN if ts.meets_engine else 16
            if ts.swizzle is not None:
                align = ts.swizzle.pattern_bytes
            array = SharedArray(tensor, dtype, size, align, ts.stages)
            if array not in self.state.shared:  # a loop cloned by a pipeline declares it twice
                self.state.shared.append(array)
            return ()
        if size == 1:
            value = self.state.nest.graph.value(tensor)
            start = BY_REDUCTION[value.op].identity(dtype) if value.op in BY_REDUCTION else 0
            return (DeclareScalar(tensor, dtype, Literal(start, dtype)),)
        return (DeclareRegisters(tensor, dtype, size),)


def lower_to_kernel(
    nest: LoopNest,
    layouts: Mapping[str, Layout],
    index: IndexType,
    header: tuple[str, ...] = (),
    reserved: frozenset[str] = frozenset(),
) -> tuple[Kernel, tuple[Buffer, ...]]:
    """Lower `nest`; also return the temporary buffers that its grid reductions need.

    Parameters
    ----------
    layouts
        Of every input and output tensor of the nest's graph.
    reserved
        Names of other kernels' tensors, which memory of this one must not have.
    """
    launch = launch_extents(nest)
    check_clusters(nest, launch)
    values = {v.name for v in nest.graph.values}
    state = Lowering(nest, layouts, launch, reserved | values)
    state.names |= dict.fromkeys((*layouts, *(v.name for v in nest.graph.inputs)), 1)
    state.names |= {n.tensor: 1 for _, n in walk(nest.body) if isinstance(n, Allocate)}
    turn_tiles(state)
    facts = nest.facts
    reserve_producers(state)
    for kind, extent in launch.extents.items():
        facts = facts.with_range(kind.value, extent)
    block = padded_block(launch, state.extra_threads)
    if state.extra_axis is not None:
        facts = facts.with_range(state.extra_axis.value, block[BLOCK.index(state.extra_axis)])
    body = NestLowering(state).body(nest.body, Scope(facts))
    check_slots(body, frozenset(state.register_rings))
    check_directives(nest, body)
    kernel = Kernel(
        name=nest.name,
        params=(),
        shared=tuple(dict.fromkeys(state.shared)),  # clones of a loop allocate the same
        grid=cluster_grid(launch),
        cluster=cluster_extents(launch),
        block=block,
        index=index,
        body=body,
        header=(*header, *map(str, state.fallbacks)),
        barriers=tuple(dict.fromkeys(state.barriers)),
        rings=tuple(dict.fromkeys(state.rings)),
        register_rings=tuple((t, nest.schedule.tensors[t].stages) for t in state.register_rings),
        fallbacks=tuple(state.fallbacks),
    )
    return with_params(kernel, state), tuple(state.buffers)


def repeated(loop: Loop, start: Expr, extent: Expr) -> Unroll:
    """Return how often the code repeats a loop that is bound to unroll, unswitch or mma.

    Raises
    ------
    ScheduleError
        It is bound to unroll and makes too many trips, or nobody knows how many.
    """
    trips = For(loop.var, extent, (), Unroll(), start, loop.step).trip()
    if trips is not None and trips <= MAX_COPIES:
        return replace(loop.unroll, kind="full")
    if loop.parallel is not ParallelType.unroll:
        return replace(loop.unroll, kind="rolled")
    raise ScheduleError(
        f"{', '.join(axes_of(loop))} of extent {extent!r} is bound to unroll; needed a "
        f"constant of at most {MAX_COPIES}: split it, or its directive unroll(n)"
    )


def axes_of(loop: Loop) -> tuple[str, ...]:
    """Return the axes that a loop is, one of each tensor computed in it, as errors name them."""
    computed = [node for _, node in walk(loop.body) if isinstance(node, Compute)]
    places = {n.tensor: n.loops.index(Var(loop.var)) for n in computed if Var(loop.var) in n.loops}
    return tuple(f"{tensor}: axis {j}" for tensor, j in sorted(places.items()))


def check_directives(nest: LoopNest, body: tuple[Stmt, ...]) -> None:
    """Raise `ScheduleError` where no loop came of an axis with an unroll directive, or outlined."""
    outlined = {s.var for s in walk_stmts(body) if isinstance(s, For) and s.outlined}
    kept = {"", *(s.unroll.origin for s in walk_stmts(body) if isinstance(s, For))}
    for _, loop in walk(nest.body):
        if not isinstance(loop, Loop) or prove_equal(loop.extent, loop.start + 1, nest.facts):
            continue
        for part, unroll in loop.unroll.parts:
            raise ScheduleError(
                f"{unroll.origin} has the directive {unroll.written(part)}, and its loop is not "
                "cloned by a ring in shared memory; needed the innermost loop of a ring's trips, "
                "or a directive without loop"
            )
        if loop.outlined and loop.var not in outlined:
            raise ScheduleError(
                f"{loop.outlined} has the directive outlined(), and no loop that computes came of "
                "it; needed a directive on the axis of a tensor that threads compute"
            )
        if loop.unroll.origin in kept:
            continue
        raise ScheduleError(
            f"{loop.unroll.origin} has the directive {loop.unroll.directive}, and no loop came "
            "of it: nothing is computed there; needed a directive on the axis that computes"
        )


def reserve_producers(state: Lowering) -> None:
    """Note how many threads the producer roles of the nest add, and on which axis."""
    others: dict[str, WarpSpecialized] = {}
    for _, node in walk(state.nest.body):
        if isinstance(node, InitRing):
            check_counted(state, node.ring)
        if not isinstance(node, WarpRoles):
            continue
        name, kind = node.ring.name, node.ring.buffer.type
        assert isinstance(kind, WarpSpecialized)
        check_same_axis(others, name, kind)
        check_placement(state, name, kind)
        others[name] = kind
        state.extra_threads = max(state.extra_threads, producer_threads(kind))
        state.extra_axis = kind.on


def with_params(kernel: Kernel, state: Lowering) -> Kernel:
    """Return `kernel` with exactly the parameters that its body and extents mention."""
    nest, layouts = state.nest, state.layouts
    memories, scalars, indices = mentioned(kernel)
    maps = list(state.maps.values())
    memories |= {m.tensor for m in maps}
    tensors = [
        TensorParam(
            name, nest.graph.value(name).dtype, layout.mode, simplify(layout.numel, nest.facts),
            layout.aligned_bytes, layout.aliased,
        )
        for name, layout in layouts.items()
        if name in memories
    ]  # fmt: skip
    tensors += [TensorParam(b.name, b.dtype, "workspace", b.numel) for b in state.buffers]
    values = [
        ScalarParam(v.name, v.dtype)
        for v in nest.graph.inputs
        if v.op == "scalar" and v.name in scalars
    ]
    used = [*(p.numel for p in tensors), *(e for m in maps for e in (*m.dims, *m.strides_bytes))]
    extents = frozenset[str]().union(*(variables(e) for e in used))
    sizes = sorted(indices | extents)
    return replace(
        kernel,
        params=(*tensors, *maps, *values, *(SizeParam(s, nest.facts.least(s)) for s in sizes)),
    )
