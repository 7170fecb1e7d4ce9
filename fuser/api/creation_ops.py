"""Operations that make tensors from scalars and sizes: full, iota."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.api.builder import Builder, check_range
from fuser.api.extents import to_expr, to_shape
from fuser.api.given import check_dtype
from fuser.api.recording import recorded
from fuser.api.tensor import Extent, Operand, Scalar, Tensor
from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError
from fuser.fusion.attrs import FullAttrs, IotaAttrs


class CreationOps:
    """Creation operations of one definition."""

    definition: Builder

    @recorded
    def full(self, shape: Sequence[Extent], fill_value: Operand, dtype: DataType) -> Tensor:
        """Return a tensor whose elements all are `fill_value`, converted to `dtype`."""
        fd = self.definition
        check_dtype("full", dtype)
        extents = to_shape(fd.fusion, shape, "full")
        fill = fd.scalar_operand("full", fill_value)
        fd.check_fits("full", fill, dtype)
        result = fd.emit_tensor("full", (fill,), dtype, extents, FullAttrs())
        return result

    @recorded
    def iota(
        self,
        length: Extent,
        start: Operand | None = None,
        step: Operand | None = None,
        dtype: DataType = DataType.Int,
    ) -> Tensor:
        """Return ``start + i * step`` for ``i`` below `length`; 0 and 1 by default.

        A float `dtype` computes in Float (Double for Double) from the integers ``i``.
        """
        fd = self.definition
        if check_dtype("iota", dtype) is DataType.Bool:
            raise DefinitionError("iota: dtype is Bool; an integer or float is needed")
        extents = to_shape(fd.fusion, [length], "iota")
        start, step = 0 if start is None else start, 1 if step is None else step
        if dtype.is_integer:
            for what, number in (("start", start), ("step", step)):
                if not _is_integer(number):
                    raise DefinitionError(
                        f"iota: {what} is {number!r} and dtype {dtype.name}; an integer is needed"
                    )
                check_range(f"iota: {what}", number, dtype)
            attrs = IotaAttrs(
                to_expr(fd.fusion, start, "iota: start"), to_expr(fd.fusion, step, "iota: step")
            )
            result = fd.emit_tensor("iota", (), dtype, extents, attrs)
            return result
        attrs = IotaAttrs(to_expr(fd.fusion, 0, "iota"), to_expr(fd.fusion, 1, "iota"))
        ordinals = fd.emit_tensor("iota", (), DataType.Int, extents, attrs)
        numbers: Any = fd.ops.cast(ordinals, dtype.compute) * step + start
        narrowed: Tensor = numbers if numbers.dtype is dtype else fd.ops.cast(numbers, dtype)
        return narrowed


def _is_integer(number: Any) -> bool:
    if isinstance(number, Scalar):
        return number.dtype.is_integer
    return isinstance(number, int) and not isinstance(number, bool)
