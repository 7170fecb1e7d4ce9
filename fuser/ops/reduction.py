"""Rows of the reductions: identity, combine step, accumulation and result dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

import fuser.ops.meanings as meanings
from fuser.core.dtypes import DataType
from fuser.ops.spec import Array, Text

Scalar: TypeAlias = bool | int | float
Neutral: TypeAlias = Literal["zero", "one", "lowest", "highest"]


@dataclass(frozen=True, slots=True)
class ReductionSpec:
    """One reduction.

    Attributes
    ----------
    name
        Name in the fusion graph and in the user API.
    neutral
        Which value is the identity; see `identity`.
    numpy
        Combines two arrays of the accumulation dtype.
    ufunc
        NumPy ufunc whose ``reduce`` is the reference along an axis.
    text
        CUDA combine expression on ``{0}`` and ``{1}``, both of the accumulation dtype.
    widens
        Bool and integers accumulate in Int and give Int (sum and prod).
    """

    name: str
    neutral: Neutral
    numpy: Callable[..., Any]
    ufunc: np.ufunc
    text: Text
    widens: bool

    def __call__(self, a: Array, b: Array) -> Array:
        """Combine two partial results of the accumulation dtype."""
        with np.errstate(all="ignore"):
            return np.asarray(self.numpy(a, b))

    def accumulate(self, dtype: DataType) -> DataType:
        """Dtype of the partial results for input (or requested) dtype `dtype`."""
        if dtype.is_float:
            return dtype.compute
        return DataType.Int if self.widens else dtype

    def result(self, dtype: DataType, requested: DataType | None = None) -> DataType:
        """Result dtype for input `dtype`; `requested` is the user's ``dtype=``, which wins."""
        if requested is not None:
            return requested
        return dtype if dtype.is_float or not self.widens else DataType.Int

    def identity(self, dtype: DataType) -> Scalar:
        """Return the value that leaves the other operand as it is, for accumulation `dtype`."""
        if self.neutral in ("zero", "one"):
            number = int(self.neutral == "one")
            return float(number) if dtype.is_float else number
        lowest = self.neutral == "lowest"
        if dtype.is_float:
            return float("-inf") if lowest else float("inf")
        if dtype is DataType.Bool:
            return not lowest
        limits = np.iinfo(dtype.np)
        return int(limits.min if lowest else limits.max)

    def cuda(self, dtype: DataType) -> str:
        """Return the combine template for accumulation dtype `dtype`."""
        return self.text.of(dtype).replace("{T}", dtype.cuda)


REDUCTIONS: tuple[ReductionSpec, ...] = (
    ReductionSpec(
        "sum", "zero", np.add, np.add,
        Text("({0} + {1})", "({0} + {1})", "iadd({0}, {1})"), True,
    ),
    ReductionSpec(
        "prod", "one", np.multiply, np.multiply,
        Text("({0} * {1})", "({0} * {1})", "imul({0}, {1})"), True,
    ),
    ReductionSpec(
        "max", "lowest", meanings.maximum, np.maximum,
        Text.numbers("max_nan({0}, {1})", "({0} || {1})"), False,
    ),
    ReductionSpec(
        "min", "highest", meanings.minimum, np.minimum,
        Text.numbers("min_nan({0}, {1})", "({0} && {1})"), False,
    ),
)  # fmt: skip
