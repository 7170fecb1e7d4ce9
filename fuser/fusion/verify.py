"""The invariants of a fusion graph, checked in one place."""

from __future__ import annotations

from fuser.core.errors import VerifyError
from fuser.core.expr import ONE
from fuser.fusion.attrs import (
    BroadcastAttrs,
    CatAttrs,
    ConstantAttrs,
    InputAttrs,
    NoAttrs,
    PadAttrs,
    PermuteAttrs,
    ReduceAttrs,
    SliceAttrs,
    SplitDimAttrs,
    SqueezeAttrs,
    UnfoldAttrs,
)
from fuser.fusion.graph import LEAVES, FusionGraph, Value
from fuser.fusion.names import is_valid_name
from fuser.ops import BY_NAME


def verify(graph: FusionGraph) -> None:
    """Raise `VerifyError` at the first value, output or variable that breaks an invariant."""
    for value in graph.values:
        _verify_value(graph, value)
    inputs = {v.name for v in graph.inputs}
    for output in graph.outputs:
        if output.value not in graph:
            raise VerifyError(f"output {output.value}: not a value of the fusion")
        if output.alias_of is not None and output.alias_of not in inputs:
            raise VerifyError(f"output {output.value}: alias {output.alias_of} is not an input")
    known = {f"{v.name}_{kind}{d}" for v in graph.inputs for kind in ("size", "stride")
             for d in range(v.rank)} | inputs  # fmt: skip
    if stray := sorted(graph.extent_variables() - known):
        raise VerifyError(f"fusion: extents name {', '.join(stray)}; no input has these sizes")


def _verify_value(graph: FusionGraph, value: Value) -> None:
    where = f"{value.name} ({value.op})"
    if not is_valid_name(value.name):
        raise VerifyError(f"{where}: the name cannot be printed into CUDA C++")
    operands = graph.operands(value)
    if value.op in LEAVES and operands:
        raise VerifyError(f"{where}: has {len(operands)} operands; a leaf has none")
    arity = 1 if value.op == "cast" else BY_NAME[value.op].arity if value.op in BY_NAME else None
    if arity is not None:
        if len(operands) != arity:
            raise VerifyError(f"{where}: has {len(operands)} operands; it takes {arity}")
        _verify_pointwise(where, value, operands)
    _verify_attrs(where, value, operands)


def _verify_pointwise(where: str, value: Value, operands: tuple[Value, ...]) -> None:
    if not isinstance(value.attrs, NoAttrs):
        raise VerifyError(f"{where}: pointwise values have no attributes, got {value.attrs}")
    for operand in operands:
        if operand.rank not in (0, value.rank):
            raise VerifyError(
                f"{where}: operand {operand.name} has rank {operand.rank}; "
                f"0 or {value.rank} is needed"
            )
        for d, extent in enumerate(operand.shape):
            if value.shape[d] == ONE != extent:
                raise VerifyError(
                    f"{where}: dimension {d} is 1 but operand {operand.name} has {extent}"
                )


def _verify_attrs(where: str, value: Value, operands: tuple[Value, ...]) -> None:
    rank = operands[0].rank if operands else 0
    if not (_fits_view(value, rank) and _fits_joined(value, operands, rank)):
        raise VerifyError(
            f"{where}: rank {value.rank} with operands of ranks "
            f"{[o.rank for o in operands]} does not fit {value.attrs}"
        )


def _fits_view(value: Value, rank: int) -> bool:
    """Whether the ranks of value, operand 0 and attributes fit: one-operand views, reductions."""
    match value.attrs:
        case BroadcastAttrs(dims):
            return len(dims) == rank and all(0 <= d < value.rank for d in dims)
        case SqueezeAttrs(dims):
            return value.rank == rank - len(dims)
        case PermuteAttrs(dims):
            return sorted(dims) == list(range(rank)) and value.rank == rank
        case SliceAttrs(starts, strides):
            return len(starts) == len(strides) == rank == value.rank
        case SplitDimAttrs(dim) | UnfoldAttrs(dim):
            return dim < rank and value.rank == rank + 1
        case ReduceAttrs(dims):
            return value.rank == rank - len(dims) and list(dims) == sorted(set(dims))
        case _:
            return True


def _fits_joined(value: Value, operands: tuple[Value, ...], rank: int) -> bool:
    """Whether the ranks fit: inputs, constants, and views of several operands."""
    match value.attrs:
        case InputAttrs(contiguity, stride_order):
            return len(contiguity) == len(stride_order) == value.rank
        case ConstantAttrs():
            return value.rank == 0
        case PadAttrs(widths):
            return len(operands) == 2 and operands[1].rank == 0 and len(widths) == rank
        case CatAttrs(dim):
            return dim < value.rank and all(o.rank == value.rank for o in operands)
        case _:
            return True
