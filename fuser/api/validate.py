"""``fd.validate``: the outputs of an execution against a reference in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fuser.core.dtypes import DataType
from fuser.core.errors import InputError, ResultMismatchError
from fuser.fusion.dtypes import pointwise_types
from fuser.fusion.graph import FusionGraph, Output
from fuser.fusion.reference import evaluate
from fuser.ops import BY_NAME

if TYPE_CHECKING:
    from fuser.api.definition import FusionDefinition

Array: TypeAlias = NDArray[Any]

_MARGIN = 16.0


def validate(
    fd: FusionDefinition,
    inputs: Sequence[Any],
    reference_outputs: Sequence[Any] | None,
    options: Mapping[str, Any],
) -> list[Any]:
    """Execute `fd`, compare, and return the outputs.

    The tolerance of an element is the rounding of its dtype, plus the error bounds of the
    operations it is computed by, plus a margin over how far plain f32 NumPy is from float64 there:
    a fusion is not blamed for cancellation that its definition asks for.
    """
    _check_references(fd, reference_outputs)
    arrays, scalars = fd.named_inputs(inputs)
    before = {name: host_copy(array) for name, array in arrays.items()}  # aliases overwrite inputs
    outputs = fd.execute(inputs, **options)
    precise = evaluate(fd.fusion, before, scalars, precise=True)
    rounded = evaluate(fd.fusion, before, scalars)
    references = outputs if reference_outputs is None else reference_outputs
    returned = iter(zip(outputs, references, strict=True))
    for index, output in enumerate(fd.fusion.outputs):
        expected = precise[output.value]
        if output.alias_of is None:
            got, given = next(returned)
            if reference_outputs is not None:
                expected = host_copy(given)
        else:
            got = arrays[output.alias_of]
        allowed = tolerance(fd.fusion, output, precise, rounded)
        compare(f"output {index} ({output.value})", host_copy(got), expected, allowed)
    return outputs


def _check_references(fd: FusionDefinition, references: Sequence[Any] | None) -> None:
    returned = [o.value for o in fd.fusion.outputs if o.alias_of is None]
    if references is not None and len(references) != len(returned):
        raise InputError(
            f"validate: got {len(references)} reference outputs; the definition returns "
            f"{len(returned)}: {', '.join(returned)}"
        )


def tolerance(
    graph: FusionGraph, output: Output, values: Mapping[str, Array], f32: Mapping[str, Array]
) -> Array:
    """Return the error allowed per element of one output.

    Parameters
    ----------
    values, f32
        Every value of the fusion, in float64 and as plain NumPy computes it.
    """
    value = graph.value(output.value)
    precise, rounded = values[output.value], f32[output.value]
    if not value.dtype.is_float:
        return np.zeros(precise.shape)
    relative = _epsilon(value.dtype)
    absolute = 0.0
    for name in graph.ancestors((output.value,)):
        operation = graph.value(name)
        if operation.op in BY_NAME:
            compute, _ = pointwise_types(graph, operation.op, graph.operands(operation))
            bounds = BY_NAME[operation.op].tolerance
            relative += bounds.rtol(compute)
            absolute += bounds.atol(compute)
        elif operation.op in ("sum", "prod") and operation.dtype.is_float:
            (operand,) = graph.operands(operation)
            count = values[operand.name].size / max(values[name].size, 1)
            relative += _order_of(count) * _epsilon(operation.dtype.compute)
    exact = precise.astype(np.float64)
    with np.errstate(all="ignore"):
        distance = np.abs(rounded.astype(np.float64) - exact)
    distance = np.where(np.isfinite(distance), distance, 0.0)
    typical = distance.mean() if distance.size else 0.0
    allowed: Array = relative * np.abs(exact) + absolute + _MARGIN * (distance + typical)
    return np.where(np.isfinite(allowed), allowed, 0.0)


def _order_of(count: float) -> float:
    """Return how many units in the last place the order of `count` additions may cost.

    About the square root; a bound for every order, ``count / 2``, would hide a missing addend.
    """
    return 2 * math.sqrt(count)


def compare(what: str, got: Array, expected: Array, allowed: Array) -> None:
    """Raise `ResultMismatchError` naming the worst element that is off by more than `allowed`."""
    if got.shape != expected.shape:
        raise ResultMismatchError(
            f"{what}: shape is {list(got.shape)}; the reference has {list(expected.shape)}"
        )
    a, b = _wide(got), _wide(expected)
    with np.errstate(all="ignore"):
        error = np.abs(a - b).astype(np.float64)
    same = (a == b) | ((a != a) & (b != b))
    # past the largest finite number of its dtype an output is infinite and float64 is not
    overflowed = _overflowed(got, b)
    error = np.where(same | overflowed, 0.0, np.where(np.isnan(error), np.inf, error))
    excess = np.broadcast_to(error > allowed, error.shape)
    if not excess.any():
        return
    worst = np.unravel_index(int(np.argmax(np.where(excess, error, -1.0))), error.shape)
    at = tuple(int(i) for i in worst)
    raise ResultMismatchError(
        f"{what}: {int(excess.sum())} of {error.size} elements differ; max error {error[at]:.6g} "
        f"at {list(at)}, where it is {a[at]!s} and the reference {b[at]!s}; at most "
        f"{float(np.broadcast_to(allowed, error.shape)[at]):.6g} is allowed"
    )


def _overflowed(got: Array, expected: Array) -> Array:
    dtype = DataType.from_numpy(got.dtype)
    if not dtype.is_float or dtype is DataType.Double:
        return np.zeros(got.shape, np.bool_)
    largest = float(_finfo(dtype).max)
    wide = _wide(got)
    infinite = np.isinf(wide) & (np.sign(wide) == np.sign(expected))
    if dtype is DataType.Float8_e4m3fn:  # has no infinity
        infinite = np.isnan(wide)
    return np.asarray(infinite & (np.abs(expected) >= largest * (1 - _epsilon(dtype))))


def _wide(array: Array) -> Array:
    dtype = DataType.from_numpy(array.dtype)
    if dtype.is_float:
        return array.astype(np.float64)
    return array.astype(np.int64)


def _epsilon(dtype: DataType) -> float:
    return float(_finfo(dtype).eps)


def _finfo(dtype: DataType) -> Any:
    return ml_dtypes.finfo(dtype.np)  # type: ignore[no-untyped-call]


def host_copy(array: Any) -> Array:
    """Return the elements of an array of any library as a NumPy copy."""
    from fuser.runtime.arrays import LEGACY_STREAM, view_of
    from fuser.runtime.copies import fetch

    view = view_of(array)
    if view.device == "cpu":
        return view.numpy().copy()
    return fetch(view, LEGACY_STREAM, "validate")
