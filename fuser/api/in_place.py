"""Outputs that alias inputs: copied by the driver where rows are dense, else by a last kernel.

Every aliased output is computed into a buffer of its own first, because other threads may still
read the input. The driver copies a contiguous buffer into contiguous memory; into any other layout
a generated kernel stores it.
"""

from __future__ import annotations

from fuser.core.expr import ONE, Const, Expr
from fuser.core.simplify import Facts, simplify
from fuser.fusion.attrs import InputAttrs
from fuser.fusion.graph import FusionGraph, Output, Value
from fuser.kir.program import OutputBinding
from fuser.passes.layout import contiguous_strides
from fuser.schedule.segment import Segment


def is_row_major(shape: tuple[Expr, ...], strides: tuple[Expr, ...], facts: Facts) -> bool:
    """Whether `strides` are proved to be those of a contiguous tensor."""
    dims = zip(shape, strides, contiguous_strides(shape), strict=True)
    return all(
        extent == ONE or simplify(stride, facts) == simplify(dense, facts)
        for extent, stride, dense in dims
    )


def store_into(value: Value, buffer: str, target: str) -> Segment:
    """Return the fusion that sets the input `target` to `buffer`, which holds `value`."""
    graph = FusionGraph()
    contiguity = tuple(None if e == Const(1) else True for e in value.shape)
    attrs = InputAttrs(contiguity, tuple(reversed(range(value.rank))))
    graph.add("input", (), value.dtype, value.shape, attrs, buffer)
    graph.add("set", (buffer,), value.dtype, value.shape, name=target)
    graph.set_outputs([Output(target)])
    return Segment(graph, {})


def binding(output: Output, buffer: str, stored: bool) -> OutputBinding:
    """Return how an output is handed over; `stored`: a kernel puts it into its alias."""
    copied = None if stored else output.alias_of
    return OutputBinding(buffer, copied, output.alias_of is None)
