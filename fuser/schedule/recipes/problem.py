"""What a recipe knows of the fusion it schedules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fuser.core.boundary import Boundary
from fuser.core.expr import ONE, Expr, evaluate, variables
from fuser.core.simplify import Facts, is_multiple
from fuser.fusion.graph import FusionGraph, Value
from fuser.fusion.views import VIEW_OPS


@dataclass(frozen=True, slots=True)
class Problem:
    """A segment of a fusion, the layouts of its inputs, and on which side of a size a call lies.

    Attributes
    ----------
    strides
        Strides in elements of every input, and of an output that is stored into one.
    aligned_bytes
        Guaranteed alignment of the same tensors.
    facts
        What the shape class promises about sizes.
    sizes
        Sizes of the call that is compiled for: for trade-offs, never for correctness.
    asked
        What was asked of them. Calls with other answers are compiled for anew, so a recipe asks
        for few boundaries: sizes of one dimension should make three kernels at most.
    """

    graph: FusionGraph
    strides: Mapping[str, tuple[Expr, ...]]
    aligned_bytes: Mapping[str, int]
    facts: Facts
    sizes: Mapping[str, int]
    asked: list[Boundary] = field(default_factory=list[Boundary])

    @property
    def stores(self) -> tuple[Value, ...]:
        """The values written to global memory."""
        return tuple(self.graph.value(o.value) for o in self.graph.outputs)

    @property
    def tensors(self) -> tuple[Value, ...]:
        """Input tensors."""
        return tuple(v for v in self.graph.inputs if v.op == "input")

    def reached(self, e: Expr, edges: Sequence[int]) -> int:
        """Return how many of ascending `edges` an extent reaches; the answer becomes a boundary."""
        at = bisect_right(edges, int(evaluate(e, self.sizes)))
        if variables(e):
            least = edges[at - 1] if at else None
            limit = edges[at] if at < len(edges) else None
            self.asked.append(Boundary(e, least, limit))
        return at

    def at_least(self, e: Expr, least: int) -> bool:
        """Whether an extent is that large; the answer becomes a boundary."""
        return self.reached(e, (least,)) == 1

    def is_flat(self) -> bool:
        """Whether every tensor is read and written at one common linear index."""
        shapes = {v.shape for v in (*self.stores, *self.tensors) if v.shape}
        if len(shapes) > 1 or any(v.op in VIEW_OPS for v in self.graph.values if v.shape):
            return False
        for name, strides in self.strides.items():
            step: Expr = ONE
            shape = self.graph.value(name).shape
            for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
                if extent != ONE and stride != step:
                    return False
                step = step * extent
        return True

    def row_multiple(self, shapes: Sequence[tuple[Expr, ...]]) -> int:
        """Return the power of two, at most 16, that divides the last extent of all `shapes`.

        Inputs need not be considered: an access that is not aligned stays element-wise.
        """
        width = 16
        for shape in shapes:
            inner = next((e for e in reversed(shape) if e != ONE), None)
            while inner is not None and width > 1 and not is_multiple(inner, width, self.facts):
                width //= 2
        return width
