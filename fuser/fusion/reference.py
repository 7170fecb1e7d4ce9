"""What a fusion means: plain NumPy, independent of the index maps and of every schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import Const, Expr
from fuser.core.expr import evaluate as evaluate_expr
from fuser.fusion.attrs import (
    BroadcastAttrs,
    CatAttrs,
    ConstantAttrs,
    ExpandAttrs,
    FullAttrs,
    IotaAttrs,
    PadAttrs,
    PermuteAttrs,
    ReduceAttrs,
    ReshapeAttrs,
    SizeAttrs,
    SliceAttrs,
    SplitDimAttrs,
    SqueezeAttrs,
    UnfoldAttrs,
)
from fuser.fusion.bind import bind_sizes
from fuser.fusion.dtypes import operand_dtypes
from fuser.fusion.graph import FusionGraph, Value
from fuser.fusion.scalars import bind_scalars
from fuser.ops import BY_NAME, BY_REDUCTION
from fuser.ops.convert import convert

Array: TypeAlias = NDArray[Any]


def evaluate(
    graph: FusionGraph,
    inputs: Mapping[str, Any],
    scalars: Mapping[str, Any] | None = None,
    *,
    precise: bool = False,
) -> dict[str, Array]:
    """Return every value of `graph` as an array, by name.

    Parameters
    ----------
    inputs, scalars
        Inputs by name.
    precise
        Keep every float in float64, so that casts to narrower floats do not round: the answer in
        real numbers, up to float64. A scalar is still rounded to the type it is used in, because
        that is the number the fusion is given, and so are the operands of what is defined on the
        numbers of its compute dtype (`nextafter`). Otherwise f16, bf16 and fp8 are computed in f32
        and rounded where the dtype rules say.

    Raises
    ------
    InputError
        The inputs do not fit the definition.
    """
    numbers = bind_scalars(graph, scalars or {})
    sizes = bind_sizes(graph, inputs, numbers)
    return _Evaluator(graph, inputs, numbers, sizes, precise).run()


class _Evaluator:
    """One evaluation: the arrays so far and the sizes of this call."""

    def __init__(
        self,
        graph: FusionGraph,
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
        sizes: Mapping[str, int],
        precise: bool,
    ) -> None:
        self.graph = graph
        self.given = {**inputs, **scalars}
        self.sizes = sizes
        self.precise = precise
        self.arrays: dict[str, Array] = {}

    def run(self) -> dict[str, Array]:
        for value in self.graph.values:
            array = np.asarray(self._compute(value))
            self.arrays[value.name] = self._stored(array, value.dtype)
        return self.arrays

    def _stored(self, array: Array, dtype: DataType) -> Array:
        """Convert to how a value of `dtype` is kept."""
        target = DataType.Double if self.precise and dtype.is_float else dtype
        return array if array.dtype == target.np else convert(array, target)

    def _int(self, e: Expr) -> int:
        return int(e.value if isinstance(e, Const) else evaluate_expr(e, self.sizes))

    def _ints(self, exprs: Sequence[Expr]) -> tuple[int, ...]:
        return tuple(self._int(e) for e in exprs)

    def _compute(self, value: Value) -> Any:
        if value.op == "input":
            return np.asarray(self.given[value.name])
        if value.op == "scalar":
            return convert(_scalar_array(self.given[value.name]), value.dtype)
        if isinstance(value.attrs, ConstantAttrs):
            return convert(_scalar_array(value.attrs.value), value.dtype)
        if isinstance(value.attrs, SizeAttrs):
            return np.int64(self._int(value.attrs.expr))
        operands = [self.arrays[name] for name in self.graph.operand_names(value)]
        if value.op == "cast":
            return operands[0]
        if value.op in BY_NAME:
            return self._pointwise(value, operands)
        if isinstance(value.attrs, ReduceAttrs):
            return self._reduce(value, operands[0], value.attrs.dims)
        return self._view(value, operands)

    def _pointwise(self, value: Value, operands: Sequence[Array]) -> Array:
        spec = BY_NAME[value.op]
        wanted = operand_dtypes(self.graph, value)
        given = zip(self.graph.operands(value), operands, wanted, strict=True)
        converted: list[Array] = []
        for operand, array, dtype in given:
            rounds = spec.in_compute_dtype or self.graph.is_scalar(operand)
            rounded = convert(array, dtype) if rounds else array
            converted.append(rounded if spec.in_compute_dtype else self._stored(rounded, dtype))
        result = spec(*converted)
        return np.broadcast_to(result, self._ints(value.shape))

    def _reduce(self, value: Value, array: Array, dims: tuple[int, ...]) -> Array:
        spec = BY_REDUCTION[value.op]
        dtype = self.graph.operands(value)[0].dtype
        accumulate = spec.accumulate(dtype)
        array = self._stored(array, accumulate)
        if not dims:
            return array
        with np.errstate(all="ignore"):
            return np.asarray(
                spec.ufunc.reduce(
                    array, axis=dims, dtype=array.dtype,
                    initial=array.dtype.type(spec.identity(accumulate)),
                )
            )  # fmt: skip

    def _view(self, value: Value, operands: Sequence[Array]) -> Array:
        shape = self._ints(value.shape)
        match value.attrs:
            case BroadcastAttrs(dims):
                return np.broadcast_to(_expanded(operands[0], dims, len(shape)), shape)
            case ExpandAttrs():
                return np.broadcast_to(operands[0], shape)
            case SqueezeAttrs(dims):
                return np.squeeze(operands[0], dims)
            case PermuteAttrs(dims):
                return np.transpose(operands[0], dims)
            case ReshapeAttrs():
                return operands[0].reshape(shape)
            case CatAttrs(dim):
                return np.concatenate(operands, dim)
            case _:
                return self._generate(value, operands, shape)

    def _generate(self, value: Value, operands: Sequence[Array], shape: tuple[int, ...]) -> Array:
        match value.attrs:
            case SliceAttrs(starts, strides):
                corner = zip(self._ints(starts), self._ints(strides), shape, strict=True)
                return operands[0][tuple(slice(a, a + n * s, s) for a, s, n in corner)]
            case UnfoldAttrs(dim, step):
                first = np.arange(shape[dim]) * self._int(step)
                at = first[:, None] + np.arange(shape[-1])
                return np.moveaxis(operands[0].take(at, dim), dim + 1, -1)
            case PadAttrs(widths):
                fill = self._stored(convert(operands[1], value.dtype), value.dtype)
                return _pad(operands[0], [self._ints(pair) for pair in widths], fill)
            case SplitDimAttrs(dim, factor, fill):
                missing = shape[dim] * self._int(factor) - operands[0].shape[dim]
                trailing = [(0, missing * (d == dim)) for d in range(operands[0].ndim)]
                number = self._stored(convert(_scalar_array(fill), value.dtype), value.dtype)
                return _pad(operands[0], trailing, number).reshape(shape)
            case IotaAttrs(start, step):
                return self._int(start) + self._int(step) * np.arange(shape[0])
            case FullAttrs():
                return np.broadcast_to(convert(operands[0], value.dtype), shape)
            case other:
                raise VerifyError(f"{value.name}: {value.op} has {other}; a view op was needed")


def _scalar_array(value: Any) -> Array:
    """Return a number as a 0-d array of a dtype that holds it exactly."""
    array = np.asarray(value)
    return array.astype(np.int64) if array.dtype == np.int32 and type(value) is int else array


def _expanded(array: Array, dims: tuple[int, ...], rank: int) -> Array:
    """Give `array` the rank of the output: dimension ``i`` goes to ``dims[i]``."""
    extents = [1] * rank
    for size, d in zip(array.shape, dims, strict=True):
        extents[d] = size
    return array.reshape(extents)


def _pad(array: Array, widths: Sequence[tuple[int, ...]], fill: Array) -> Array:
    """`np.pad` with a constant, where negative widths crop."""
    shape = [n + before + after for n, (before, after) in zip(array.shape, widths, strict=True)]
    out = np.empty(shape, array.dtype)
    out[...] = fill
    target: list[slice] = []
    source: list[slice] = []
    for n, total, (before, _) in zip(array.shape, shape, widths, strict=True):
        low, high = max(before, 0), max(min(before + n, total), max(before, 0))
        target.append(slice(low, high))
        source.append(slice(low - before, high - before))
    out[tuple(target)] = array[tuple(source)]
    return out
