"""What a recipe knows of the fusion it schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fuser.core.expr import ONE, Expr, evaluate
from fuser.core.simplify import Facts, is_multiple
from fuser.fusion.graph import FusionGraph, Value
from fuser.fusion.views import VIEW_OPS


@dataclass(frozen=True, slots=True)
class Problem:
    """A segment of a fusion, the layouts of its inputs, and typical sizes.

    Attributes
    ----------
    strides
        Strides in elements of every input, and of an output that is stored into one.
    aligned_bytes
        Guaranteed alignment of the same tensors.
    facts
        What the shape class promises about sizes.
    sizes
        Sizes of the first call of this class: a hint for trade-offs, never for correctness.
    """

    graph: FusionGraph
    strides: Mapping[str, tuple[Expr, ...]]
    aligned_bytes: Mapping[str, int]
    facts: Facts
    sizes: Mapping[str, int]

    @property
    def stores(self) -> tuple[Value, ...]:
        """The values written to global memory."""
        return tuple(self.graph.value(o.value) for o in self.graph.outputs)

    @property
    def tensors(self) -> tuple[Value, ...]:
        """Input tensors."""
        return tuple(v for v in self.graph.inputs if v.op == "input")

    def hint(self, e: Expr) -> int:
        """Return the value of an extent in the first call."""
        return int(evaluate(e, self.sizes))

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
