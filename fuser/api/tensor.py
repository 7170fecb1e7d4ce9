"""Tensors and scalars of a fusion as users hold them: names with Python operators."""

from __future__ import annotations

from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np

from fuser.api.owner import Owner
from fuser.api.scheduling import Scheduling
from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError
from fuser.core.expr import Const
from fuser.core.location import caller_location
from fuser.fusion.graph import Value

Number: TypeAlias = bool | int | float


class StaticNeededError(DefinitionError):
    """A scalar is used where only a number known at definition will do.

    Parameters
    ----------
    scalar
        The scalar; `@fuse` traces again with the inputs it is computed from as numbers.
    """

    def __init__(self, scalar: Scalar, use: str) -> None:
        super().__init__(
            f"{scalar.name}: {use}, and its value is known at execution only; a number is needed",
            scalar.fd.location or caller_location(),
        )
        self.scalar = scalar


class Handle:
    """A value of one `FusionDefinition`, by its current name.

    Operators build the operation of the same meaning in ``fd.ops``; numbers on either side are
    scalars that do not promote a tensor of the same category.
    """

    __array_ufunc__ = None  # np.float32(2) * x is x.__rmul__, not an object array

    def __init__(self, fd: Owner, name: str) -> None:
        self.fd = fd
        self.name = name

    @property
    def value(self) -> Value:
        """The graph's record of this value."""
        return self.fd.value(self.name)

    @property
    def dtype(self) -> DataType:
        """Element type."""
        return self.value.dtype

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self.name}: has no truth value while a fusion is defined; use where, logical_and, "
            "logical_or or logical_not"
        )

    def __add__(self, other: Operand) -> Any:
        return self.fd.ops.add(self, other)

    def __radd__(self, other: Operand) -> Any:
        return self.fd.ops.add(other, self)

    def __sub__(self, other: Operand) -> Any:
        return self.fd.ops.sub(self, other)

    def __rsub__(self, other: Operand) -> Any:
        return self.fd.ops.sub(other, self)

    def __mul__(self, other: Operand) -> Any:
        return self.fd.ops.mul(self, other)

    def __rmul__(self, other: Operand) -> Any:
        return self.fd.ops.mul(other, self)

    def __truediv__(self, other: Operand) -> Any:
        return self.fd.ops.truediv(self, other)

    def __rtruediv__(self, other: Operand) -> Any:
        return self.fd.ops.truediv(other, self)

    def __floordiv__(self, other: Operand) -> Any:
        return self.fd.ops.floordiv(self, other)

    def __rfloordiv__(self, other: Operand) -> Any:
        return self.fd.ops.floordiv(other, self)

    def __mod__(self, other: Operand) -> Any:
        return self.fd.ops.remainder(self, other)

    def __rmod__(self, other: Operand) -> Any:
        return self.fd.ops.remainder(other, self)

    def __pow__(self, other: Operand) -> Any:
        return self.fd.ops.pow(self, other)

    def __rpow__(self, other: Operand) -> Any:
        return self.fd.ops.pow(other, self)

    def __and__(self, other: Operand) -> Any:
        return self.fd.ops.bitwise_and(self, other)

    def __rand__(self, other: Operand) -> Any:
        return self.fd.ops.bitwise_and(other, self)

    def __or__(self, other: Operand) -> Any:
        return self.fd.ops.bitwise_or(self, other)

    def __ror__(self, other: Operand) -> Any:
        return self.fd.ops.bitwise_or(other, self)

    def __xor__(self, other: Operand) -> Any:
        return self.fd.ops.bitwise_xor(self, other)

    def __rxor__(self, other: Operand) -> Any:
        return self.fd.ops.bitwise_xor(other, self)

    def __lshift__(self, other: Operand) -> Any:
        return self.fd.ops.bitwise_left_shift(self, other)

    def __rlshift__(self, other: Operand) -> Any:
        return self.fd.ops.bitwise_left_shift(other, self)

    def __rshift__(self, other: Operand) -> Any:
        return self.fd.ops.bitwise_right_shift(self, other)

    def __rrshift__(self, other: Operand) -> Any:
        return self.fd.ops.bitwise_right_shift(other, self)

    def __lt__(self, other: Operand) -> Any:
        return self.fd.ops.lt(self, other)

    def __le__(self, other: Operand) -> Any:
        return self.fd.ops.le(self, other)

    def __gt__(self, other: Operand) -> Any:
        return self.fd.ops.gt(self, other)

    def __ge__(self, other: Operand) -> Any:
        return self.fd.ops.ge(self, other)

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, _OPERANDS):
            return NotImplemented
        return self.fd.ops.eq(self, other)

    def __ne__(self, other: object) -> Any:
        if not isinstance(other, _OPERANDS):
            return NotImplemented
        return self.fd.ops.ne(self, other)

    __hash__ = object.__hash__

    def __neg__(self) -> Any:
        return self.fd.ops.neg(self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self.fd.ops.abs(self)

    def __invert__(self) -> Any:
        return self.fd.ops.bitwise_not(self)


class Scalar(Handle):
    """A scalar: an input of `define_scalar`, a constant, a size, or computed from those."""

    def __bool__(self) -> bool:
        raise StaticNeededError(self, "is used as a truth value")

    def __index__(self) -> int:
        raise StaticNeededError(self, "is used as a Python integer")

    def __int__(self) -> int:
        raise StaticNeededError(self, "is converted to int")

    def __float__(self) -> float:
        raise StaticNeededError(self, "is converted to float")

    def __repr__(self) -> str:
        return f"<Scalar {self.name}: {self.dtype.short}>"


class Tensor(Scheduling, Handle):
    """A tensor of a fusion, 0-d included; `Scheduling` has its directives."""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.value.rank

    @property
    def shape(self) -> tuple[int | Scalar, ...]:
        """Extents: ints where the definition fixes them, else Int scalars."""
        return tuple(
            extent.value if isinstance(extent, Const) else self.fd.ops.size(self, d)
            for d, extent in enumerate(self.value.shape)
        )

    def size(self, dim: int) -> Scalar:
        """Return the extent of dimension `dim` as an Int scalar."""
        extent: Scalar = self.fd.ops.size(self, dim)
        return extent

    def __len__(self) -> int:
        raise TypeError(f"{self.name}: its length is an Int scalar; use {self.name}.shape[0]")

    def __iter__(self) -> Any:
        raise TypeError(f"{self.name}: tensors of a fusion cannot be iterated; index them")

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Tensor:
        part: Tensor = self.fd.ops.getitem(self, index)
        return part

    def __repr__(self) -> str:
        v = self.value
        return f"<Tensor {v.name}: {v.dtype.short}[{', '.join(map(repr, v.shape))}]>"


class Vector(tuple[Scalar, ...]):
    """Int scalars in a row: a shape, or an input of `define_vector`."""

    __slots__ = ()


_OPERANDS = (Handle, bool, int, float, np.generic)

Operand: TypeAlias = Handle | Number
Extent: TypeAlias = int | Scalar
Index: TypeAlias = int | slice | EllipsisType | None
