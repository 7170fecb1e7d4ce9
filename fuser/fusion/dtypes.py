"""Dtypes of pointwise values: which types they compute in, given that scalars promote weakly."""

from __future__ import annotations

from collections.abc import Sequence

from fuser.core.dtypes import DataType
from fuser.fusion.graph import FusionGraph, Value
from fuser.ops import BY_NAME
from fuser.ops.promotion import Operand, result_type


def pointwise_types(
    graph: FusionGraph, op: str, operands: Sequence[Value]
) -> tuple[DataType, DataType]:
    """Return ``(compute dtype, result dtype)`` of ``op(*operands)``."""
    return result_type(BY_NAME[op], [Operand(v.dtype, graph.is_scalar(v)) for v in operands])


def operand_dtypes(graph: FusionGraph, value: Value) -> tuple[DataType, ...]:
    """Return the dtype that each operand of a pointwise `value` is converted to first.

    A cast has one operand that is converted straight to the value's dtype.
    """
    if value.op == "cast":
        return (value.dtype,)
    compute, _ = pointwise_types(graph, value.op, graph.operands(value))
    return BY_NAME[value.op].operand_dtypes(compute)
