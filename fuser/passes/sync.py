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
    When,
    walk,
)
from fuser.schedule.kinds import MemoryType


@dataclass(slots=True)
class _Pending:
    """Shared tensors touched since the last barrier."""

    written: set[str] = field(default_factory=set[str])
    read: set[str] = field(default_factory=set[str])

    def forget(self, tensors: set[str]) -> None:
        """Forget tensors: behind a barrier of all who touched them."""
        self.written -= tensors
        self.read -= tensors


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
        body = _Inserter(nest, shared, of_groups(nest, shared)).body(nest.body, _Pending())
        return replace(nest, body=body)


def of_groups(nest: LoopNest, shared: set[str]) -> set[str]:
    """Return the shared tensors that only consumer groups touch, each its own part."""
    touched = [
        ({node.tensor, *materialised_operands(nest.graph, nest.schedule, node.tensor)}, node)
        for _, node in walk(nest.body)
        if isinstance(node, Compute)
    ]
    groups = [node for _, node in walk(nest.body) if isinstance(node, Group)]
    mine = {id(node) for group in groups for _, node in walk(group.body)}
    inside = {name for names, node in touched if id(node) in mine for name in names}
    outside = {name for names, node in touched if id(node) not in mine for name in names}
    return (inside - outside) & shared


@dataclass(frozen=True, slots=True)
class _Inserter:
    """Inserts barriers; `private` tensors are those of consumer groups, `group` is inside one."""

    nest: LoopNest
    shared: set[str]
    private: set[str]
    group: bool = False

    def body(self, nodes: tuple[NestNode, ...], pending: _Pending) -> tuple[NestNode, ...]:
        """Return one body with barriers; `pending` is what came before it and is updated."""
        result: list[NestNode] = []
        for node in nodes:
            reads, writes = self.touched(node)
            judged = self.shared if self.group else self.shared - self.private
            late = reads & pending.written & judged
            early = writes & pending.read & judged
            if late or early:
                names = ", ".join(sorted(late or early))
                why = "is read by other threads" if late else "is still read by other threads"
                result.append(Sync(f"{names} {why}"))
                pending.forget(self.private if self.group else self.shared)
            result.append(self.inside(node, pending))
        return tuple(result)

    def inside(self, node: NestNode, pending: _Pending) -> NestNode:
        """Return a node with barriers inserted inside it; `pending` becomes its final state."""
        if isinstance(node, InitRing | InvalRing):
            pending.forget(self.shared)  # each holds a barrier of the block
            return node
        if isinstance(node, Reuse | Emit) and node.outlet.stages:
            pending.forget(self.shared)  # its own barrier orders all there is
            return node
        if isinstance(node, Group):
            return replace(node, body=replace(self, group=True).body(node.body, pending))
        if not isinstance(node, Loop | When):
            reads, writes = self.touched(node)
            pending.read |= reads
            pending.written |= writes
            if isinstance(node, WarpRoles):  # its barriers say nothing to the rest of the block
                return replace(node, consumer=self.body(node.consumer, _Pending()))
            return node
        before = replace(pending, written={*pending.written}, read={*pending.read})
        body = self.body(node.body, pending)
        if isinstance(node, Loop) and not node.parallel.is_parallel:
            body = self.body(node.body, pending)  # with what the previous iteration left pending
        if isinstance(node, When) or node.label:
            # Perhaps nothing of a branch or of a clone has run, nor any barrier in it.
            pending.read |= before.read
            pending.written |= before.written
        return replace(node, body=body)

    def touched(self, node: NestNode) -> tuple[set[str], set[str]]:
        """Return the shared tensors that a node (with everything in it) reads and writes."""
        reads: set[str] = set()
        writes: set[str] = set()
        todo: list[NestNode] = [node]
        while todo:
            item = todo.pop()
            if isinstance(item, Loop | When | Group):
                todo += item.body
            elif isinstance(item, WarpRoles):
                todo += item.consumer
            elif isinstance(item, Compute):
                writes |= {item.tensor} & self.shared
                nest = self.nest
                operands = materialised_operands(nest.graph, nest.schedule, item.tensor)
                reads |= set(operands) & self.shared
        return reads, writes
