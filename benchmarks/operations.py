"""How many operations a fusion asks for, counted on its graph: for the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fuser import FusionDefinition
from fuser.core.expr import evaluate
from fuser.fusion.attrs import ReduceAttrs
from fuser.fusion.graph import Value
from fuser.ops import BY_NAME

NO_ARITHMETIC = {"cast", "set"}


def count_operations(fd: FusionDefinition, sizes: Mapping[str, int]) -> int:
    """Return one operation per element of every pointwise value and every reduced operand.

    An addition counts as much as an exponential; conversions, views and scalars count nothing, and
    what a schedule computes twice counts once.
    """
    graph = fd.fusion
    total = 0
    for value in graph.values:
        if isinstance(value.attrs, ReduceAttrs):
            total += _elements(graph.operands(value)[0], sizes)
        elif value.op in BY_NAME and value.op not in NO_ARITHMETIC and value.shape:
            total += _elements(value, sizes)
    return total


def _elements(value: Value, sizes: Mapping[str, int]) -> int:
    return math.prod(int(evaluate(extent, sizes)) for extent in value.shape)
