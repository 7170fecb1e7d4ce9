"""Cut a fusion into kernels: at reductions, and between outputs of different shapes.

A segment is a fusion of its own. Its inputs are inputs of the whole fusion or results of earlier
segments; its outputs are written to global memory under names that later segments read.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser.core.expr import Expr
from fuser.fusion.attrs import ReduceAttrs
from fuser.fusion.graph import FusionGraph, Output, Value
from fuser.fusion.specialise import subgraph

LEAVES = ("input", "scalar", "constant", "size")


@dataclass(frozen=True, slots=True)
class Segment:
    """One kernel's fusion.

    Attributes
    ----------
    graph
        Every output is a value that nothing else uses: the store to global memory.
    stores
        ``value of the whole fusion -> output of this segment`` that holds it.
    """

    graph: FusionGraph
    stores: dict[str, str]


def whole(graph: FusionGraph) -> Segment:
    """Return all of `graph` as one segment."""
    return isolate(subgraph(graph, dict.fromkeys(o.value for o in graph.outputs), ()))


def segment(graph: FusionGraph) -> tuple[Segment, ...]:
    """Return the segments of `graph` in launch order."""
    outputs = tuple(dict.fromkeys(o.value for o in graph.outputs))
    live = graph.ancestors(outputs)
    reductions = [v for v in graph.values if v.name in live and _is_reduction(v)]
    cut = [v.name for v in reductions]
    stage = _stages(graph)
    groups: dict[tuple[int, str, tuple[Expr, ...], tuple[int, ...]], list[str]] = {}
    for value in reductions:
        (operand,) = graph.operands(value)
        assert isinstance(value.attrs, ReduceAttrs)
        key = (stage[operand.name], "reduce", operand.shape, value.attrs.dims)
        groups.setdefault(key, []).append(value.name)
    last = 1 + max((stage[v.name] for v in reductions), default=0)
    for name in outputs:
        value = graph.value(name)
        if not _is_reduction(value):
            groups.setdefault((last, "map", value.shape, ()), []).append(name)
    ordered = sorted(groups.items(), key=lambda item: item[0][0])
    return tuple(isolate(subgraph(graph, names, cut)) for _, names in ordered)


def _is_reduction(value: Value) -> bool:
    return isinstance(value.attrs, ReduceAttrs)


def _stages(graph: FusionGraph) -> dict[str, int]:
    """Return for every value how many kernels must have run before it is available."""
    stage: dict[str, int] = {}
    for value in graph.values:
        before = max((stage[o] for o in graph.operand_names(value)), default=0)
        stage[value.name] = before + _is_reduction(value)
    return stage


def isolate(graph: FusionGraph) -> Segment:
    """Give every output a value of its own that nothing else uses and no reduction is."""
    stores: dict[str, str] = {}
    for output in graph.outputs:
        value = graph.value(output.value)
        if _is_reduction(value):
            inner = _unused(graph, f"{value.name}_acc")
            graph.rename(value.name, inner)
            store = graph.add("set", (inner,), value.dtype, value.shape, name=value.name)
        elif value.op in LEAVES or graph.uses(value):
            name = _unused(graph, f"{value.name}_out")
            store = graph.add("set", (value,), value.dtype, value.shape, name=name)
        else:
            store = value
        stores[output.value] = store.name
    graph.set_outputs(Output(name) for name in stores.values())
    return Segment(graph, stores)


def _unused(graph: FusionGraph, name: str) -> str:
    while name in graph:
        name += "_"
    return name
