"""Sizes of one call: what the extents of a fusion are for given inputs, and what does not fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from fuser.core.dtypes import DataType
from fuser.core.errors import InputError
from fuser.core.expr import BinOp, Const, Expr, Var, evaluate, variables
from fuser.core.location import SourceLocation
from fuser.fusion.attrs import attr_exprs
from fuser.fusion.graph import Constraint, FusionGraph, Value
from fuser.fusion.scalars import bind_scalar

MAX_NUMBER = 2**63 - 1
"""Largest index, extent and number of bytes."""


class Shaped(Protocol):
    """An array of any library, as far as shapes and dtypes go."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        ...

    @property
    def dtype(self) -> Any:
        """A `DataType`, or anything `numpy.dtype` understands."""
        ...


def bind_sizes(
    graph: FusionGraph, arrays: Mapping[str, Shaped], scalars: Mapping[str, Any]
) -> dict[str, int]:
    """Return the value of every size variable (``x_size0``) and integer scalar.

    Parameters
    ----------
    arrays, scalars
        Inputs by name; arrays only need a shape and a dtype.

    Raises
    ------
    InputError
        An input is missing, or its dtype, rank or an extent differs from the definition, or two
        extents that must agree do not, or an integer scalar is none, or an extent or index is
        negative, too large or divides by 0.
    """
    sizes: dict[str, int] = {}
    for value in graph.inputs:
        if value.op == "input":
            given = arrays.get(value.name)
            if given is None:
                raise InputError(f"input {value.name}: is missing; the fusion needs every input")
            sizes |= _bind_tensor(value, given)
        elif value.dtype.is_integer or value.dtype is DataType.Bool:
            sizes[value.name] = int(bind_scalar(value, scalars.get(value.name)))
    _check_constraints(graph, sizes)
    _check_extents(graph, sizes)
    return sizes


def _bind_tensor(value: Value, array: Any) -> dict[str, int]:
    dtype, shape = _dtype_of(value.name, array.dtype), tuple(array.shape)
    if dtype is not value.dtype:
        raise InputError(
            f"input {value.name}: dtype is {dtype.name}; the definition says {value.dtype.name}"
        )
    if len(shape) != value.rank:
        raise InputError(
            f"input {value.name}: has {len(shape)} dimensions {list(shape)}; "
            f"the definition says {value.rank}"
        )
    for d, (size, extent) in enumerate(zip(shape, value.shape, strict=True)):
        if isinstance(extent, Const) and extent.value != size:
            raise InputError(
                f"input {value.name}: size of dimension {d} is {size}; "
                f"the definition says {extent.value}"
            )
    return {f"{value.name}_size{d}": int(size) for d, size in enumerate(shape)}


def _dtype_of(name: str, dtype: Any) -> DataType:
    if isinstance(dtype, DataType):
        return dtype
    try:
        return DataType.from_numpy(dtype)
    except (KeyError, TypeError):
        known = ", ".join(d.name for d in DataType)
        raise InputError(f"input {name}: dtype {dtype} is not supported; use {known}") from None


def _check_constraints(graph: FusionGraph, sizes: Mapping[str, int]) -> None:
    for c in graph.constraints:
        lhs, rhs = (_number(graph, e, sizes, c.why, c.location) for e in (c.lhs, c.rhs))
        if lhs != rhs:
            origin = _origin(graph, c.lhs, c.rhs)
            raise InputError(f"{origin}: {c.why}: {_disagreement(c, sizes)}", c.location)


def _disagreement(c: Constraint, sizes: Mapping[str, int]) -> str:
    """Say which extents differ, or, of ``min(a, b) == b``, that `a` is too small."""
    match c.lhs:
        case BinOp("min", extent, needed) if needed == c.rhs:
            return (
                f"{extent_text(extent)} is {evaluate(extent, sizes)}; at least "
                f"{evaluate(needed, sizes)} is needed"
            )
        case _:
            return (
                f"{extent_text(c.lhs)} is {evaluate(c.lhs, sizes)} and {extent_text(c.rhs)} is "
                f"{evaluate(c.rhs, sizes)}; they must agree"
            )


def _check_extents(graph: FusionGraph, sizes: Mapping[str, int]) -> None:
    """Reject what only integer scalars can cause: extents that are negative or divide by 0."""
    known: dict[Expr, int] = {}
    for value in graph.values:
        for d, extent in enumerate(value.shape):
            if extent in known:
                continue
            what = f"dimension {d} of {value.name}"
            size = known[extent] = _number(graph, extent, sizes, what, value.location)
            if size < 0:
                raise InputError(
                    f"{_origin(graph, extent)}: {what} becomes {size}; extents are not negative",
                    value.location,
                )
        _check_bytes(graph, value, [known[extent] for extent in value.shape])
        for e in attr_exprs(value.attrs):
            if not isinstance(e, Const):
                _number(graph, e, sizes, f"an index of {value.op} {value.name}", value.location)


def _check_bytes(graph: FusionGraph, value: Value, shape: list[int]) -> None:
    """Reject a value whose elements no address tells apart; NumPy counts as if 0 were 1."""
    if math.prod(n or 1 for n in shape) * value.dtype.nbytes > MAX_NUMBER:
        raise InputError(
            f"{_origin(graph, *value.shape)}: {value.name} is {value.dtype.name}{shape}; at most "
            f"{MAX_NUMBER} bytes are possible",
            value.location,
        )


def _number(
    graph: FusionGraph,
    e: Expr,
    sizes: Mapping[str, int],
    what: str,
    location: SourceLocation | None,
) -> int:
    """Return what `e` is for these sizes; `what` names it where it is no number of 64 bits."""
    try:
        number = int(evaluate(e, sizes))
    except ZeroDivisionError:
        raise InputError(
            f"{_origin(graph, e)}: {what} is {e!r}, which divides by 0; a divisor other than 0 is "
            "needed",
            location,
        ) from None
    if not -MAX_NUMBER - 1 <= number <= MAX_NUMBER:
        raise InputError(
            f"{_origin(graph, e)}: {what} becomes {number}; {-MAX_NUMBER - 1} to {MAX_NUMBER} is "
            "needed",
            location,
        )
    return number


def _origin(graph: FusionGraph, *exprs: Expr) -> str:
    """Name the inputs that `exprs` speak of."""
    names = {name for e in exprs for name in variables(e)}
    inputs = [
        v.name
        for v in graph.inputs
        if v.name in names or any(f"{v.name}_size{d}" in names for d in range(v.rank))
    ]
    return f"input{'s' if len(inputs) > 1 else ''} {', '.join(inputs)}" if inputs else "sizes"


def extent_text(e: Expr) -> str:
    """Print an extent for people: ``size 1 of x`` rather than ``x_size1``."""
    if isinstance(e, Var):
        stem, separator, index = e.name.rpartition("_size")
        return f"size {index} of {stem}" if separator and index.isdigit() else e.name
    return repr(e)
