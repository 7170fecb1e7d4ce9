"""Insert barriers between threads that exchange values through shared memory.

Inside a warp role they are barriers of the role: lowering makes of a `Sync` the barrier of the
threads it stands among.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from fuser.nest.build import materialised_operands
from fuser.nest.nodes import (
    Compute,
    Emit,
    Group,
    InitRing,
    InvalRing,
    Loop,
    LoopNest,
    NestNode,
    Reuse,
    Sync,
    WarpRoles,
)
from fuser.schedule.kinds import MemoryType


@dataclass(slots=True)
class _Pending:
    """Shared tensors touched since the last barrier."""

    written: set[str] = field(default_factory=set[str])
    read: set[str] = field(default_factory=set[str])

    def clear(self) -> None:
        """Forget what a barrier of the block lies behind."""
        self.written.clear()
        self.read.clear()


@dataclass(frozen=True, slots=True)
class InsertSyncs:
    """Put a barrier before the first read after a write, and before a write after a read.

    rewrite::

        for i: tile[..] = x[..]; y[..] = tile[..]
        ->
        for i: tile[..] = x[..]; sync (tile is read by other threads); y[..] = tile[..];
               sync (tile is overwritten in the next iteration)
    """

    name: ClassVar[str] = "insert-syncs"

    def __call__(self, nest: LoopNest) -> LoopNest:
        """Rewrite the nest; the same nest when no tensor is in shared memory."""
        shared = {
            name for name, ts in nest.schedule.tensors.items() if ts.memory is MemoryType.shared
        }
        if not shared:
            return nest
        body = _Inserter(nest, shared).body(nest.body, _Pending())
        return replace(nest, body=body)


@dataclass(slots=True)
class _Inserter:
    nest: LoopNest
    shared: set[str]

    def body(self, nodes: tuple[NestNode, ...], pending: _Pending) -> tuple[NestNode, ...]:
        """Return one body with barriers; `pending` is what came before it and is updated."""
        result: list[NestNode] = []
        for node in nodes:
            reads, writes = self.touched(node)
            late = reads & pending.written
            early = writes & pending.read
            if late or early:
                names = ", ".join(sorted(late or early))
                why = "is read by other threads" if late else "is still read by other threads"
                result.append(Sync(f"{names} {why}"))
                pending.clear()
            result.append(self.inside(node, pending))
        return tuple(result)

    def inside(self, node: NestNode, pending: _Pending) -> NestNode:
        """Return a node with barriers inserted inside it; `pending` becomes its final state."""
        if isinstance(node, InitRing | InvalRing):
            pending.clear()  # each holds a barrier of the block
            return node
        if isinstance(node, Reuse | Emit) and node.outlet.stages:
            pending.clear()  # its own barrier orders all there is
            return node
        if not isinstance(node, Loop):
            reads, writes = self.touched(node)
            pending.read |= reads
            pending.written |= writes
            if isinstance(node, Group):
                return replace(node, body=self.body(node.body, _Pending()))
            if isinstance(node, WarpRoles):  # its barriers say nothing to the rest of the block
                return replace(node, consumer=self.body(node.consumer, _Pending()))
            return node
        if node.parallel.is_parallel:
            return replace(node, body=self.body(node.body, pending))
        first = self.body(node.body, pending)
        again = self.body(node.body, pending)  # what the previous iteration left pending
        return replace(node, body=again if again != first else first)

    def touched(self, node: NestNode) -> tuple[set[str], set[str]]:
        """Return the shared tensors that a node (with everything in it) reads and writes."""
        reads: set[str] = set()
        writes: set[str] = set()
        todo: list[NestNode] = [node]
        while todo:
            item = todo.pop()
            if isinstance(item, Loop | Group):
                todo += item.body
            elif isinstance(item, WarpRoles):
                todo += item.consumer
            elif isinstance(item, Compute):
                writes |= {item.tensor} & self.shared
                nest = self.nest
                operands = materialised_operands(nest.graph, nest.schedule, item.tensor)
                reads |= set(operands) & self.shared
        return reads, writes
