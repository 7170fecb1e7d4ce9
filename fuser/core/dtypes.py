"""Element types: one row per dtype, read by the reference, the interpreter and codegen."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np

Kind: TypeAlias = Literal["bool", "int", "uint", "float"]


class DataType(Enum):
    """Element type of a tensor or scalar; member names follow nvFuser's Python front end.

    The value of a member is ``(short name, numpy scalar type, CUDA spelling, kind)``. The CUDA
    spellings other than ``bool``, ``float`` and ``double`` are typedefs or structs of the
    project's prelude (``kernels/templates/prelude``).
    """

    Bool = ("bool", np.bool_, "bool", "bool")
    Int8 = ("i8", np.int8, "i8", "int")
    UInt8 = ("u8", np.uint8, "u8", "uint")
    Int32 = ("i32", np.int32, "i32", "int")
    Int = ("i64", np.int64, "i64", "int")
    Half = ("f16", np.float16, "f16", "float")
    BFloat16 = ("bf16", ml_dtypes.bfloat16, "bf16", "float")
    Float = ("f32", np.float32, "float", "float")
    Double = ("f64", np.float64, "double", "float")
    Float8_e4m3fn = ("f8e4m3", ml_dtypes.float8_e4m3fn, "f8e4m3", "float")
    Float8_e5m2 = ("f8e5m2", ml_dtypes.float8_e5m2, "f8e5m2", "float")

    # nvFuser's other names for the same types
    Char = Int8
    Byte = UInt8
    Int64 = Int

    def __init__(self, short: str, scalar: Any, cuda: str, kind: Kind) -> None:
        self.short = short
        self.np: np.dtype[Any] = np.dtype(scalar)
        self.cuda = cuda
        self.kind: Kind = kind
        self.nbytes: int = self.np.itemsize

    def __repr__(self) -> str:
        return f"DataType.{self.name}"

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point type of any width."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer type (bool is not)."""
        return self.kind in ("int", "uint")

    @property
    def is_reduced_float(self) -> bool:
        """Whether arithmetic on this type is done in f32: f16, bf16 and both fp8 types."""
        return self.is_float and self.nbytes < 4

    @property
    def compute(self) -> DataType:
        """The type arithmetic on this type is carried out in."""
        return DataType.Float if self.is_reduced_float else self

    @classmethod
    def from_numpy(cls, dtype: Any) -> DataType:
        """Return the row of a NumPy (or ml_dtypes) dtype; raise ``KeyError`` if there is none."""
        return _BY_NUMPY[np.dtype(dtype)]

    @classmethod
    def from_short(cls, short: str) -> DataType:
        """Return the row called `short`, e.g. ``"bf16"``; raise ``KeyError`` if there is none."""
        return _BY_SHORT[short]


_BY_NUMPY = {member.np: member for member in DataType}
_BY_SHORT = {member.short: member for member in DataType}
