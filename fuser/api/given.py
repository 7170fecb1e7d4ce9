"""What users give for dtypes, numbers and counts, checked where it is given."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from fuser.api.tensor import Number
from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError

MAX_EXTENT = 2**63 - 1
"""Largest number that index arithmetic knows."""


def is_count(given: Any, low: int = 0) -> bool:
    """Whether `given` is a Python or NumPy integer from `low` to `MAX_EXTENT`."""
    is_integer = isinstance(given, int | np.integer) and not isinstance(given, bool)
    return is_integer and low <= int(cast("Any", given)) <= MAX_EXTENT


def check_dtype(what: str, dtype: Any) -> DataType:
    """Return `dtype`; raise `DefinitionError` when it is none of ours; `what` is the call."""
    if not isinstance(dtype, DataType):
        raise DefinitionError(f"{what}: dtype is {dtype!r}; a DataType is needed")
    return dtype


def check_number(what: str, given: Any) -> Number:
    """Return a Python or NumPy number as a Python number.

    Raises
    ------
    DefinitionError
        It is of another type, such as a string or a complex number.
    """
    number: Any = given
    if isinstance(number, np.generic):
        number = cast("Any", number).item()
    if not isinstance(number, bool | int | float):
        raise DefinitionError(
            f"{what}: value is {given!r}, a {type(given).__name__}; a bool, an int or a float is "
            "needed"
        )
    return number
