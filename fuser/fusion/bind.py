"""Sizes of one call: what the extents of a fusion are for given inputs, and what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fuser.core.dtypes import DataType
from fuser.core.errors import InputError
from fuser.core.expr import BinOp, Const, Expr, Var, evaluate, variables
from fuser.fusion.graph import Constraint, FusionGraph, Value
from fuser.fusion.scalars import bind_scalar


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
        extents that must agree do not, or an integer scalar is none.
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
        if evaluate(c.lhs, sizes) != evaluate(c.rhs, sizes):
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
    """Reject negative extents, which only integer scalars can cause."""
    seen: set[Expr] = set()
    for value in graph.values:
        for d, extent in enumerate(value.shape):
            if isinstance(extent, Const) or extent in seen:
                continue
            seen.add(extent)
            size = evaluate(extent, sizes)
            if size < 0:
                raise InputError(
                    f"{_origin(graph, extent)}: dimension {d} of {value.name} becomes {size}; "
                    "extents are not negative",
                    value.location,
                )


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
