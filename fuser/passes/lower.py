"""Index lowering: loop nest -> kernel.

Loops become `For` statements or hardware indices; a `Compute` becomes the scalar statements of one
element, its store, and the guard under which the element exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from fuser.core.dtypes import DataType
from fuser.core.expr import ONE, TRUE, Expr, Var, all_of, equal, variables
from fuser.core.simplify import Facts, simplify
from fuser.kir.core import (
    IndexType,
    Kernel,
    ScalarParam,
    SharedArray,
    SizeParam,
    Stmt,
    TensorParam,
)
from fuser.kir.program import Buffer
from fuser.kir.scalar import Literal
from fuser.kir.stmts import DeclareRegisters, DeclareScalar, For, SyncThreads
from fuser.nest.nodes import Allocate, Compute, Loop, LoopNest, NestNode, Sync
from fuser.ops import BY_REDUCTION
from fuser.passes.buffers import buffer_size
from fuser.passes.element import ElementLowering
from fuser.passes.launch import BLOCK, GRID, LastBlock, LaunchExtents, launch_extents
from fuser.passes.layout import Layout
from fuser.passes.mentions import mentioned
from fuser.passes.together import Together
from fuser.passes.vectorize import vectorize_loop
from fuser.schedule.kinds import MemoryType, ParallelType


@dataclass(frozen=True, slots=True)
class Scope:
    """What is known at one point of the nest.

    Attributes
    ----------
    facts
        Ranges of the loop variables in scope and guards that hold.
    guard
        Conditions that statements here must add: hardware indices beyond a loop's extent.
    hardware
        Hardware axes bound by enclosing loops.
    """

    facts: Facts
    guard: Expr = TRUE
    hardware: frozenset[ParallelType] = frozenset()


@dataclass(slots=True)
class Lowering:
    """State of lowering one nest: names, shared arrays, temporary buffers."""

    nest: LoopNest
    layouts: Mapping[str, Layout]
    launch: LaunchExtents
    names: dict[str, int] = field(default_factory=dict[str, int])
    shared: list[SharedArray] = field(default_factory=list[SharedArray])
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    last_block: dict[str, tuple[LastBlock, ...]] = field(
        default_factory=dict[str, tuple[LastBlock, ...]]
    )

    def fresh(self, base: str) -> str:
        """Return `base`, or ``base_1``, ``base_2``... if it is taken."""
        while True:
            number = self.names.get(base, 0)
            self.names[base] = number + 1
            name = base if number == 0 else f"{base}_{number}"
            if number == 0 or name not in self.names:
                self.names.setdefault(name, 1)
                return name

    def body(self, nodes: tuple[NestNode, ...], scope: Scope) -> tuple[Stmt, ...]:
        """Lower the nodes of one body."""
        stmts: list[Stmt] = []
        together = Together(scope.facts)
        for node in nodes:
            if isinstance(node, Compute) and self.is_store(node):
                stmts += together.add(ElementLowering(self, scope, node))
                continue
            stmts += together.close()
            match node:
                case Loop():
                    stmts += self.loop(node, scope)
                case Allocate(tensor):
                    stmts += self.allocate(tensor, scope.facts)
                case Sync(why):
                    stmts.append(SyncThreads(why))
                case Compute():
                    stmts += ElementLowering(self, scope, node).lower()
                case _:
                    assert_never(node)
        return (*stmts, *together.close())

    def is_store(self, node: Compute) -> bool:
        """Whether a statement writes one element of a global tensor."""
        memory = self.nest.schedule.tensors[node.tensor].memory
        return memory is MemoryType.global_ and node.step == "assign"

    def loop(self, loop: Loop, scope: Scope) -> tuple[Stmt, ...]:
        """Lower one loop by what executes it."""
        extent = simplify(loop.extent, scope.facts)
        inner = replace(scope, facts=scope.facts.with_range(loop.var, extent))
        if loop.parallel.is_parallel:
            guard = self.launch.guard(replace(loop, extent=extent), scope.facts)
            # Beyond the loop's extent the index runs to the launch's: the range holds under the
            # guard only, and must not prove that same guard.
            bound = replace(
                inner if guard is None else scope,
                guard=scope.guard if guard is None else all_of(scope.guard, guard),
                hardware=scope.hardware | {loop.parallel},
            )
            return self.body(loop.body, bound)
        stmts = self.body(loop.body, inner)
        if loop.parallel is ParallelType.vectorize:
            return vectorize_loop(loop.var, extent, stmts, inner.facts, self)
        if extent == ONE:
            return stmts
        unroll = loop.unroll
        if loop.parallel in (ParallelType.unroll, ParallelType.unswitch) and unroll.kind == "auto":
            unroll = replace(unroll, kind="full")
        return (For(loop.var, extent, stmts, unroll),)

    def allocate(self, tensor: str, facts: Facts) -> tuple[Stmt, ...]:
        """Declare the registers or the shared array of a tensor."""
        ts = self.nest.schedule.tensors[tensor]
        size = buffer_size(tensor, ts, facts)
        dtype = self.storage_dtype(tensor)
        self.names.setdefault(tensor, 1)
        if ts.memory is MemoryType.shared:
            self.shared.append(SharedArray(tensor, dtype, size))
            return ()
        if size == 1:
            value = self.nest.graph.value(tensor)
            start = BY_REDUCTION[value.op].identity(dtype) if value.op in BY_REDUCTION else 0
            return (DeclareScalar(tensor, dtype, Literal(start, dtype)),)
        return (DeclareRegisters(tensor, dtype, size),)

    def storage_dtype(self, tensor: str) -> DataType:
        """Return the dtype a materialised tensor is kept in: reductions accumulate wider."""
        value = self.nest.graph.value(tensor)
        if value.op in BY_REDUCTION:
            return BY_REDUCTION[value.op].accumulate(value.dtype)
        return value.dtype

    def elsewhere(self, hardware: frozenset[ParallelType]) -> Expr:
        """Return the guard that picks one thread along hardware axes bound by no loop here."""
        unbound = [kind for kind in self.launch.used if kind not in hardware]
        return all_of(*(equal(Var(kind.value), 0) for kind in unbound))


def lower_to_kernel(
    nest: LoopNest, layouts: Mapping[str, Layout], index: IndexType, header: tuple[str, ...] = ()
) -> tuple[Kernel, tuple[Buffer, ...]]:
    """Lower `nest`; also return the temporary buffers that its grid reductions need.

    Parameters
    ----------
    layouts
        Of every input and output tensor of the nest's graph.
    """
    launch = launch_extents(nest)
    state = Lowering(nest, layouts, launch)
    state.names |= dict.fromkeys((*layouts, *(v.name for v in nest.graph.inputs)), 1)
    facts = nest.facts
    for kind, extent in launch.extents.items():
        facts = facts.with_range(kind.value, extent)
    body = state.body(nest.body, Scope(facts))
    kernel = Kernel(
        name=nest.name,
        params=(),
        shared=tuple(state.shared),
        grid=launch.of(GRID),
        block=launch.of(BLOCK),
        index=index,
        body=body,
        header=header,
    )
    return with_params(kernel, nest, layouts, tuple(state.buffers)), tuple(state.buffers)


def with_params(
    kernel: Kernel, nest: LoopNest, layouts: Mapping[str, Layout], buffers: tuple[Buffer, ...]
) -> Kernel:
    """Return `kernel` with exactly the parameters that its body and extents mention."""
    memories, scalars, indices = mentioned(kernel)
    tensors = [
        TensorParam(
            name, nest.graph.value(name).dtype, layout.mode, simplify(layout.numel, nest.facts),
            layout.aligned_bytes, layout.aliased,
        )
        for name, layout in layouts.items()
        if name in memories
    ]  # fmt: skip
    tensors += [TensorParam(b.name, b.dtype, "workspace", b.numel) for b in buffers]
    values = [
        ScalarParam(v.name, v.dtype)
        for v in nest.graph.inputs
        if v.op == "scalar" and v.name in scalars
    ]
    sizes = sorted(indices | frozenset().union(*(variables(p.numel) for p in tensors)))
    return replace(kernel, params=(*tensors, *values, *(SizeParam(s) for s in sizes)))
