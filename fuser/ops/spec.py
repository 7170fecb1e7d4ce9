"""What the package must know about a pointwise operation, in one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError

Array: TypeAlias = NDArray[Any]
Promotion: TypeAlias = Literal[
    "arithmetic", "float", "compare", "inspect", "logical", "keep", "select"
]


@dataclass(frozen=True, slots=True)
class Text:
    """CUDA expression templates of one op, one per group of compute dtypes.

    ``{0}``, ``{1}``... are the operands, already of compute dtype and either names, literals or
    parenthesised; ``{T}`` is the CUDA spelling of the compute dtype. An empty text means that
    the op does not exist for these dtypes.

    Attributes
    ----------
    f32, f64, integer, boolean
        Text for Float, for Double, for the signed and unsigned integers, for Bool.
    reduced
        Text for f16, bf16 and fp8; only ops that move bits have one, arithmetic is done in f32.
    """

    f32: str = ""
    f64: str = ""
    integer: str = ""
    boolean: str = ""
    reduced: str = ""

    @classmethod
    def floats(cls, text: str) -> Text:
        """One text for Float and Double: an operator or an overloaded function of the prelude."""
        return cls(f32=text, f64=text)

    @classmethod
    def numbers(cls, text: str, boolean: str = "") -> Text:
        """One text for Float, Double and the integers, and possibly another for Bool."""
        return cls(f32=text, f64=text, integer=text, boolean=boolean)

    @classmethod
    def everything(cls, text: str) -> Text:
        """One text for every dtype, for ops that move bits."""
        return cls(text, text, text, text, text)

    def of(self, dtype: DataType) -> str:
        """Return the template for compute dtype `dtype`; empty when there is none."""
        match dtype.kind:
            case "bool":
                return self.boolean
            case "int" | "uint":
                return self.integer
            case "float":
                wide = {DataType.Float: self.f32, DataType.Double: self.f64}
                return wide.get(dtype, self.reduced)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far the CUDA text may be from the float64 meaning of the same f32 or f64 operands.

    Attributes
    ----------
    f32, f64
        Units in the last place of the result; 0.5 means correctly rounded, 0 exact.
    near_zero
        Absolute error allowed in addition, in eps of the dtype: for ops whose relative error is
        unbounded at the zeros of the result.
    flushed
        Results of f32 below this many times the smallest normal number may become 0.
    """

    f32: float = 0.0
    f64: float = 0.0
    near_zero: float = 0.0
    flushed: float = 0.0

    def rtol(self, dtype: DataType) -> float:
        """Return the relative error that the ulps of `dtype` amount to; 0 for non-floats."""
        if not dtype.is_float:
            return 0.0
        ulp = self.f64 if dtype is DataType.Double else self.f32
        return ulp * float(np.finfo(dtype.compute.np).eps)

    def atol(self, dtype: DataType) -> float:
        """Return the absolute error allowed for `dtype` on top of `rtol`; 0 for non-floats."""
        if not dtype.is_float:
            return 0.0
        info = np.finfo(dtype.compute.np)
        floor = self.near_zero * float(info.eps)
        return floor if dtype is DataType.Double else floor + self.flushed * float(info.tiny)


EXACT = Tolerance()
ROUNDED = Tolerance(0.5, 0.5)


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One pointwise operation: a row of the op table.

    Attributes
    ----------
    name
        Name in the fusion graph and in the user API.
    arity
        Number of tensor or scalar operands.
    promotion
        Dtype rule, see `fuser.ops.promotion`.
    numpy
        The meaning: `arity` arrays that broadcast together, already of compute dtype -> array.
        Called through `__call__`, which silences floating-point warnings.
    text
        CUDA expression templates.
    tolerance
        Error bound of `text` against `numpy` evaluated in float64.
    in_compute_dtype
        Whether the meaning is about the numbers that the compute dtype has, as "the next one" is:
        float64 then gives another answer, not a better one.
    """

    name: str
    arity: int
    promotion: Promotion
    numpy: Callable[..., Any]
    text: Text
    tolerance: Tolerance = EXACT
    in_compute_dtype: bool = False

    def __call__(self, *args: Array) -> Array:
        """Apply the meaning to arrays of compute dtype; raise `DefinitionError` on a bad count."""
        self.check_arity(len(args))
        with np.errstate(all="ignore"):
            return np.asarray(self.numpy(*args))

    def accepts(self, compute: DataType) -> bool:
        """Whether the op exists for this compute dtype."""
        return bool(self.text.of(compute))

    def cuda(self, compute: DataType) -> str:
        """Return the expression template on ``{0}``, ``{1}``... of dtype `compute`.

        Raises
        ------
        DefinitionError
            The op does not exist for this dtype.
        """
        template = self.text.of(compute)
        if not template:
            raise DefinitionError(
                f"{self.name}: operands of dtype {compute.name} have no meaning; "
                f"cast them to one of {', '.join(d.name for d in DataType if self.accepts(d))}"
            )
        return template.replace("{T}", compute.cuda)

    def constant(self, compute: DataType) -> bool | None:
        """Return the result where it depends on no operand (isnan of integers), else None."""
        return {"true": True, "false": False}.get(self.text.of(compute))

    def operand_dtypes(self, compute: DataType) -> tuple[DataType, ...]:
        """Return the dtype each operand must be cast to before `numpy` or the CUDA text."""
        if self.promotion == "select":
            return (DataType.Bool, *(compute,) * (self.arity - 1))
        return (compute,) * self.arity

    def check_arity(self, count: int) -> None:
        """Raise `DefinitionError` unless `count` operands is what the op takes."""
        if count != self.arity:
            raise DefinitionError(f"{self.name}: got {count} operand(s); takes {self.arity}")
