"""Index lowering: loop nest -> kernel.

Loops become `For` statements or hardware indices; a `Compute` becomes the scalar statements of one
element, its store, and the guard under which the element exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from fuser.core.expr import ONE, all_of, variables
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
from fuser.passes.launch import BLOCK, GRID, launch_extents
from fuser.passes.layout import Layout
from fuser.passes.mentions import mentioned
from fuser.passes.state import Lowering, Scope
from fuser.passes.together import Together
from fuser.passes.vectorize import vectorize_loop
from fuser.schedule.kinds import MemoryType, ParallelType


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
            stmts += together.close()
            match node:
                case Loop():
                    stmts += self.loop(node, scope)
                case Allocate(tensor):
                    stmts += self.allocate(tensor, scope.facts)
                case Sync(why):
                    stmts.append(SyncThreads(why))
                case Compute():
                    stmts += ElementLowering(self.state, scope, node).lower()
                case _:
                    assert_never(node)
        return (*stmts, *together.close())

    def is_store(self, node: Compute) -> bool:
        """Whether a statement writes one element of a global tensor."""
        memory = self.state.nest.schedule.tensors[node.tensor].memory
        return memory is MemoryType.global_ and node.step == "assign"

    def loop(self, loop: Loop, scope: Scope) -> tuple[Stmt, ...]:
        """Lower one loop by what executes it."""
        extent = simplify(loop.extent, scope.facts)
        inner = replace(scope, facts=scope.facts.with_range(loop.var, extent))
        if loop.parallel.is_parallel:
            guard = self.state.launch.guard(replace(loop, extent=extent), scope.facts)
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
            return vectorize_loop(loop.var, extent, stmts, inner.facts, self.state)
        if extent == ONE:
            return stmts
        unroll = loop.unroll
        if loop.parallel in (ParallelType.unroll, ParallelType.unswitch) and unroll.kind == "auto":
            unroll = replace(unroll, kind="full")
        return (For(loop.var, extent, stmts, unroll),)

    def allocate(self, tensor: str, facts: Facts) -> tuple[Stmt, ...]:
        """Declare the registers or the shared array of a tensor."""
        ts = self.state.nest.schedule.tensors[tensor]
        size = buffer_size(tensor, ts, facts)
        dtype = self.state.storage_dtype(tensor)
        self.state.names.setdefault(tensor, 1)
        if ts.memory is MemoryType.shared:
            self.state.shared.append(SharedArray(tensor, dtype, size))
            return ()
        if size == 1:
            value = self.state.nest.graph.value(tensor)
            start = BY_REDUCTION[value.op].identity(dtype) if value.op in BY_REDUCTION else 0
            return (DeclareScalar(tensor, dtype, Literal(start, dtype)),)
        return (DeclareRegisters(tensor, dtype, size),)


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
    body = NestLowering(state).body(nest.body, Scope(facts))
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
    extents = frozenset[str]().union(*(variables(p.numel) for p in tensors))
    sizes = sorted(indices | extents)
    return replace(kernel, params=(*tensors, *values, *(SizeParam(s) for s in sizes)))
