"""Scalar inputs of one call: the Python number each stands for, and what does not fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from fuser.core.dtypes import DataType
from fuser.core.errors import InputError
from fuser.fusion.graph import FusionGraph, Value

Number: TypeAlias = bool | int | float


def bind_scalars(graph: FusionGraph, scalars: Mapping[str, Any]) -> dict[str, Number]:
    """Return the scalar inputs of `graph` as Python numbers, by name.

    Raises
    ------
    InputError
        A scalar is missing, is no real number, or is one that its dtype does not hold.
    """
    inputs = (value for value in graph.inputs if value.op == "scalar")
    return {value.name: bind_scalar(value, scalars.get(value.name)) for value in inputs}


def bind_scalar(value: Value, given: Any) -> Number:
    """Return what `given` is as the scalar input `value`; floats are not rounded yet."""
    what, dtype = f"input {value.name}", value.dtype
    if given is None:
        raise InputError(f"{what}: is missing; the fusion needs every input")
    number = _python_number(given)
    if number is None:
        raise InputError(f"{what}: {given!r} is no number; the definition says {dtype.name}")
    if dtype is DataType.Bool:
        return number != 0
    if dtype.is_integer:
        return _integer(what, dtype, number)
    try:
        return float(number)
    except OverflowError:
        raise InputError(
            f"{what}: got an integer past 1e308; the definition says {dtype.name}"
        ) from None


def _python_number(given: Any) -> Number | None:
    """Return a Python or NumPy number, or the element of a 0-d array of any library."""
    if not isinstance(given, bool | int | float) and getattr(given, "shape", None) == ():
        given = given.item()
    return given if isinstance(given, bool | int | float) else None


def _integer(what: str, dtype: DataType, number: Number) -> int:
    if not (math.isfinite(number) and number == int(number)):
        raise InputError(f"{what}: {number} is no integer; the definition says {dtype.name}")
    limits = np.iinfo(dtype.np)
    if not limits.min <= number <= limits.max:
        raise InputError(
            f"{what}: {number} does not fit {dtype.name}; {limits.min} to {limits.max} is needed"
        )
    return int(number)
