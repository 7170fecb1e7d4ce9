"""Reductions: sum, prod, max, min from the op table and the statistics built from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from fuser.api.builder import Builder
from fuser.api.extents import to_dims
from fuser.api.given import check_dtype
from fuser.api.recording import recorded
from fuser.api.tensor import Scalar, Tensor
from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError
from fuser.core.expr import ONE, product
from fuser.fusion.attrs import BroadcastAttrs, ReduceAttrs, SizeAttrs
from fuser.ops import BY_REDUCTION

Dims: TypeAlias = int | Sequence[int] | None


class ReductionOps:
    """Reductions of one definition; ``dims=None`` means all dimensions."""

    definition: Builder

    @recorded
    def sum(
        self, a: Tensor, dims: Dims = None, keepdim: bool = False, dtype: DataType | None = None
    ) -> Tensor:
        """Sum; Bool and integers give Int, f16 and bf16 accumulate in Float."""
        return self._reduce("sum", a, dims, keepdim, dtype)

    @recorded
    def prod(
        self, a: Tensor, dims: Dims = None, keepdim: bool = False, dtype: DataType | None = None
    ) -> Tensor:
        """Product; dtypes as in `sum`."""
        return self._reduce("prod", a, dims, keepdim, dtype)

    @recorded
    def max(
        self, a: Tensor, dims: Dims = None, keepdim: bool = False, dtype: DataType | None = None
    ) -> Tensor:
        """Largest element, in the dtype of `a`; NaN when there is one."""
        return self._reduce("max", a, dims, keepdim, dtype)

    @recorded
    def min(
        self, a: Tensor, dims: Dims = None, keepdim: bool = False, dtype: DataType | None = None
    ) -> Tensor:
        """Smallest element, in the dtype of `a`; NaN when there is one."""
        return self._reduce("min", a, dims, keepdim, dtype)

    @recorded
    def mean(
        self, a: Tensor, dims: Dims = None, keepdim: bool = False, dtype: DataType | None = None
    ) -> Tensor:
        """Arithmetic mean, in Float (Double for Double) unless `dtype` is given."""
        total = self._reduce("sum", self._floats(a, dtype), dims, keepdim, None)
        return self._as(total / self._count(a, dims), dtype)

    @recorded
    def var(
        self, a: Tensor, dims: Dims = None, correction: float = 1, keepdim: bool = False
    ) -> Tensor:
        """Variance with ``n - correction`` in the denominator; NaN where that is 0."""
        deviations, _, count = self._moments(a, dims, keepdim)
        return self._variance(deviations, count, correction)

    @recorded
    def var_mean(
        self, a: Tensor, dims: Dims = None, correction: float = 1, keepdim: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return ``(variance, mean)``."""
        deviations, mean, count = self._moments(a, dims, keepdim)
        return self._variance(deviations, count, correction), mean

    @recorded
    def welford(self, a: Tensor, dims: Dims = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``(mean, sum of squared deviations, number of elements)`` over `dims`.

        Computed in two passes (the mean, then the deviations from it), not by Welford's running
        update: the update divides once per element and its error grows with the order of merging,
        while two passes are as accurate as the sums are, and the second one reads on-chip data.
        """
        deviations, mean, count = self._moments(a, dims, False)
        n = self.definition.ops.full(mean.shape, count, DataType.Int)
        return mean, deviations, n

    # ---- parts ---------------------------------------------------------------------------

    def _reduce(
        self, op: str, a: Tensor, dims: Dims, keepdim: bool, dtype: DataType | None
    ) -> Tensor:
        fd = self.definition
        value = fd.tensor(op, a)
        reduced = tuple(sorted(to_dims(dims, value.rank, f"{op} of {value.name}")))
        spec = BY_REDUCTION[op]
        if dtype is not None:
            check_dtype(op, dtype)
        wanted = spec.result(value.dtype, dtype)
        if spec.accumulate(wanted) is not spec.accumulate(value.dtype):
            value = fd.emit("cast", (value,), wanted, value.shape).value
        if not reduced:
            same = fd.emit_tensor("cast", (value,), wanted, value.shape)
            return same
        shape = tuple(e for d, e in enumerate(value.shape) if d not in reduced)
        # a bf16 operand with dtype=Float is not rounded to bf16 on the way: the partial results
        # have the accumulation dtype, and only the last one is converted
        result = fd.emit_tensor(op, (value,), wanted, shape, ReduceAttrs(reduced))
        return self._kept(result, reduced, value.rank) if keepdim else result

    def _kept(self, result: Tensor, reduced: tuple[int, ...], rank: int) -> Tensor:
        """Give a reduction its reduced dimensions back, with extent 1."""
        value = result.value
        dims = tuple(d for d in range(rank) if d not in reduced)
        kept = iter(value.shape)
        shape = tuple(ONE if d in reduced else next(kept) for d in range(rank))
        kept_value = self.definition.emit_tensor(
            "broadcast", (value,), value.dtype, shape, BroadcastAttrs(dims)
        )
        return kept_value

    def _count(self, a: Tensor, dims: Dims) -> Scalar:
        """Return the number of elements that meet in one element of the result."""
        value = a.value
        extents = tuple(value.shape[d] for d in to_dims(dims, value.rank, "count"))
        count: Scalar = self.definition.emit(
            "size", (), DataType.Int, (), SizeAttrs(product(extents))
        )
        return count

    def _floats(self, a: Tensor, dtype: DataType | None) -> Tensor:
        """Cast to the float dtype that statistics are computed in."""
        if dtype is not None and not check_dtype("mean", dtype).is_float:
            raise DefinitionError(f"mean: dtype is {dtype.name}; a float is needed")
        value = self.definition.tensor("mean", a)
        source = dtype or value.dtype
        wide = source.compute if source.is_float else DataType.Float
        return a if value.dtype is wide else self.definition.ops.cast(a, wide)

    def _as(self, a: Any, dtype: DataType | None) -> Tensor:
        result: Tensor = a if dtype in (None, a.dtype) else self.definition.ops.cast(a, dtype)
        return result

    def _moments(self, a: Tensor, dims: Dims, keepdim: bool) -> tuple[Tensor, Tensor, Scalar]:
        """Return the sum of squared deviations, the mean and the count."""
        wide = self._floats(a, None)
        value = wide.value
        reduced = tuple(sorted(to_dims(dims, value.rank, f"var of {value.name}")))
        count = self._count(wide, reduced)
        mean: Tensor = self._reduce("sum", wide, dims, False, None) / count
        centre = self._kept(mean, reduced, value.rank) if reduced else mean
        deviation = wide - centre
        total = self._reduce("sum", deviation * deviation, dims, False, None)
        if keepdim and reduced:
            return self._kept(total, reduced, value.rank), centre, count
        return total, mean, count

    def _variance(self, deviations: Tensor, count: Scalar, correction: float) -> Tensor:
        degrees = count if correction == 0 else self.definition.ops.maximum(count - correction, 0)
        variance: Tensor = deviations / degrees
        return variance
