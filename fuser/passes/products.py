"""Put the products of tensor cores into groups: what is fenced, committed and waited for.

A warp group issues products and goes on; what they have read and computed is known when their
group has been waited for.

rewrite::

    for k: { tiles = load; for s: c += a b }; use c                              (mma axes)
    ->
    for k: { tiles = load; fence c; for s: c += a b; commit c }; await c; use c

Where `k` is the loop of a ring, `fuser.passes.circular_buffer` releases a stage when the group that
reads it is complete.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fuser.nest.nodes import (
    AwaitProducts,
    CommitProducts,
    Compute,
    FenceProducts,
    Loop,
    LoopNest,
    NestNode,
    walk,
)
from fuser.nest.rebuild import map_bodies
from fuser.schedule.kinds import ParallelType

Body = tuple[NestNode, ...]


@dataclass(frozen=True, slots=True)
class GroupProducts:
    """See the module."""

    name: ClassVar[str] = "group-products"

    def __call__(self, nest: LoopNest) -> LoopNest:
        """Rewrite the nest; the same nest when nothing is bound to mma."""
        products = frozenset(n for n, ts in nest.schedule.tensors.items() if ts.is_product)
        if not products:
            return nest
        return replace(nest, body=_Grouper(nest, products).body(nest.body))


@dataclass(frozen=True, slots=True)
class _Grouper:
    nest: LoopNest
    products: frozenset[str]

    def body(self, nodes: Body) -> Body:
        """Rewrite one body."""
        result: list[NestNode] = []
        for node in nodes:
            tensor = product_of(node, self.products)
            if tensor:
                result += (FenceProducts(tensor), node, CommitProducts(tensor))
            else:
                result.append(map_bodies(node, self.body))
            result += (AwaitProducts(name) for name in self.summed_by(node))
        return tuple(result)

    def summed_by(self, node: NestNode) -> list[str]:
        """Return the products of which a loop is the outermost one that sums."""
        if not isinstance(node, Loop):
            return []
        found: list[str] = []
        for _, inner in walk(node.body):
            if isinstance(inner, Compute) and inner.step == "combine":
                loop = self.nest.schedule.tensors[inner.tensor].domain.loop
                first = next(j for j, axis in enumerate(loop) if axis.reduction)
                if inner.tensor in self.products and repr(inner.loops[first]) == node.var:
                    found.append(inner.tensor)
        return found


def product_of(node: NestNode, products: frozenset[str]) -> str:
    """Return the tensor of which a loop computes products and nothing else; or nothing."""
    if not isinstance(node, Loop):
        return ""
    inner = [n for _, n in walk(node.body) if not isinstance(n, Loop)]
    names = {n.tensor for n in inner if isinstance(n, Compute) and n.step == "combine"}
    if len(names) != 1 or not names <= products or any(not isinstance(n, Compute) for n in inner):
        return ""
    return names.pop() if all(getattr(n, "step", "") == "combine" for n in inner) else ""


def is_issued(loop: Loop) -> bool:
    """Whether a loop bound to mma, with all loops in it, is one product."""
    node: NestNode = loop
    while isinstance(node, Loop) and node.parallel is ParallelType.mma and len(node.body) == 1:
        (node,) = node.body
    return isinstance(node, Compute) and node.step == "combine"
