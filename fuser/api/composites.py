"""Operations built from others: softmax, the norms, triu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.api.builder import Builder
from fuser.api.extents import to_dim
from fuser.api.recording import recorded
from fuser.api.tensor import Extent, Operand, Tensor
from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError


class Composites:
    """Composite operations of one definition.

    As everywhere, f16, bf16 and fp8 are computed in Float and the result is Float: narrow it with
    an explicit cast.
    """

    definition: Builder

    @recorded
    def softmax(self, a: Tensor, dim: int = -1) -> Tensor:
        """Return ``exp(a - max) / sum(exp(a - max))`` along `dim`."""
        ops = self.definition.ops
        axis = to_dim(dim, self.definition.tensor("softmax", a).rank, f"softmax of {a.name}")
        powers = ops.exp(a - ops.max(a, [axis], keepdim=True))
        result: Tensor = powers / ops.sum(powers, [axis], keepdim=True)
        return result

    @recorded
    def layer_norm(
        self,
        a: Tensor,
        normalized_shape: Sequence[Extent],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: Operand = 1e-5,
    ) -> Tensor:
        """Normalise the last dimensions to mean 0 and variance 1, then scale and shift."""
        ops = self.definition.ops
        dims = self._normalized("layer_norm", a, normalized_shape)
        variance, mean = ops.var_mean(a, dims, correction=0, keepdim=True)
        result = (a - mean) * ops.rsqrt(variance + eps)
        return self._affine(a, result, dims, weight, bias)

    @recorded
    def rms_norm(
        self,
        a: Tensor,
        normalized_shape: Sequence[Extent],
        weight: Tensor | None = None,
        eps: Operand = 1e-6,
    ) -> Tensor:
        """Divide by the root of the mean square over the last dimensions, then scale."""
        ops = self.definition.ops
        dims = self._normalized("rms_norm", a, normalized_shape)
        wide = a * 1.0 if not a.dtype.is_float else a
        result = wide * ops.rsqrt(ops.mean(wide * wide, dims, keepdim=True) + eps)
        return self._affine(a, result, dims, weight, None)

    @recorded
    def triu(self, a: Tensor, diagonal: int = 0) -> Tensor:
        """Keep the elements on and above a diagonal of the last two dimensions; 0 elsewhere."""
        ops = self.definition.ops
        value = self.definition.tensor("triu", a)
        if value.rank < 2:
            raise DefinitionError(
                f"triu of {value.name}: it has {value.rank} dimensions; at least 2 are needed"
            )
        shape = a.shape
        rows, columns = (
            ops.broadcast_in_dim(ops.iota(shape[d]), shape, [d])
            for d in (value.rank - 2, value.rank - 1)
        )
        result: Tensor = ops.where(columns - rows >= diagonal, a, _zero(value.dtype))
        return result

    def _normalized(self, op: str, a: Tensor, shape: Sequence[Extent]) -> list[int]:
        """Return the dimensions that `shape` covers after checking its constants."""
        value = self.definition.tensor(op, a)
        count = len(shape)
        if not 1 <= count <= value.rank:
            raise DefinitionError(
                f"{op} of {value.name}: normalized_shape has {count} dimensions; 1 to "
                f"{value.rank} are needed"
            )
        dims = list(range(value.rank - count, value.rank))
        for d, extent in zip(dims, shape, strict=True):
            self.definition.unify_extent(
                value.shape[d], extent, f"{op} of {value.name}: dimension {d}"
            )
        return dims

    def _affine(
        self, a: Tensor, x: Any, dims: list[int], weight: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        ops = self.definition.ops
        if weight is not None:
            x = x * ops.broadcast_in_dim(weight, a.shape, dims)
        if bias is not None:
            x = x + ops.broadcast_in_dim(bias, a.shape, dims)
        result: Tensor = x
        return result


def _zero(dtype: DataType) -> Operand:
    return 0.0 if dtype.is_float else dtype.kind != "bool" and 0
