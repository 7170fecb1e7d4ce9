"""Inputs for a fusion that a script defines and never runs, so that it can be explained."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.api.definition import FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.api.tensor import Scalar, Tensor
from fuser.core.expr import Const, Expr, variables
from fuser.fusion.attrs import InputAttrs
from fuser.fusion.graph import Value

ELEMENTS = 2**20
"""About so many elements a tensor gets when all its extents are symbolic."""


def compile_for_made_up_inputs(fd: FusionDefinition, by_hand: bool) -> None:
    """Compile `fd` for a size that suits its symbolic extents; nothing runs.

    Parameters
    ----------
    by_hand
        Under the schedule set by hand.

    Raises
    ------
    FuserError
        The definition does not take such sizes; the script must execute it then.
    """
    program_of(fd, bind(fd, inputs_for(fd), by_hand), by_hand)


def inputs_for(fd: FusionDefinition) -> list[Any]:
    """Return untouched arrays of one size in every symbolic extent, and ones for scalars."""
    size = symbolic_size(fd)
    return [_input(argument, size, fd) for argument in fd.arguments]


def symbolic_size(fd: FusionDefinition) -> int:
    """Return a power of two: small enough for the tensor with most symbolic extents."""
    symbolic = (
        sum(not isinstance(e, Const) for e in v.shape) for v in fd.fusion.values if v.op == "input"
    )
    return max(2, round(2 ** (20 / max(2, *symbolic, 2))))


def _input(argument: Any, size: int, fd: FusionDefinition) -> Any:
    if isinstance(argument, Tensor):
        return _array(argument.value, size)
    if isinstance(argument, Scalar):
        return _scalar(argument.value, size, fd)
    return [_scalar(item.value, size, fd) for item in argument]


def _scalar(value: Value, size: int, fd: FusionDefinition) -> Any:
    extents = (variables(e) for v in fd.fusion.values for e in v.shape)
    is_extent = any(value.name in names for names in extents)
    return value.dtype.np.type(size if is_extent else 1).item()


def _array(value: Value, size: int) -> Any:
    """Return an array of the promised memory order; expanded dimensions have stride 0."""
    shape = [_extent(e, size) for e in value.shape]
    attrs = value.attrs
    if not isinstance(attrs, InputAttrs):
        return np.empty(shape, value.dtype.np)
    order = attrs.outer_to_inner
    expanded = attrs.expanded or (False,) * len(shape)
    kept = [1 if expanded[d] else n for d, n in enumerate(shape)]
    memory = np.empty([kept[d] for d in order], value.dtype.np)
    return np.broadcast_to(memory.transpose(np.argsort(order)), shape)


def _extent(extent: Expr, size: int) -> int:
    return extent.value if isinstance(extent, Const) else size
