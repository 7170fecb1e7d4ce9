"""The fusions of the workloads, as a user would write them; fuser schedules them by itself."""

from __future__ import annotations

from typing import TypeAlias

from fuser import DataType, FusionDefinition
from fuser.api.tensor import Tensor

BF16, F32 = DataType.BFloat16, DataType.Float
RMS_EPSILON, LAYER_EPSILON = 1e-6, 1e-5

Columns: TypeAlias = int
"""Length of a row, which normalisations are written for; -1 where it is not in the definition."""


def bias_gelu(fd: FusionDefinition, columns: Columns) -> None:
    """gelu(x + bias), by tanh."""
    x, bias = _matrix(fd), _vector(fd)
    b = fd.ops.broadcast_in_dim(bias, fd.ops.shape(x), [1])
    y = fd.ops.gelu(fd.ops.add(x, b), approximate="tanh")
    fd.add_output(fd.ops.cast(y, BF16))


def silu_mul(fd: FusionDefinition, columns: Columns) -> None:
    """silu(x) * y."""
    x, y = _matrix(fd), _matrix(fd)
    fd.add_output(fd.ops.cast(fd.ops.mul(fd.ops.silu(x), y), BF16))


def add_mul(fd: FusionDefinition, columns: Columns) -> None:
    """(x + y) * 2."""
    x, y = _matrix(fd, F32), _matrix(fd, F32)
    fd.add_output(fd.ops.mul(fd.ops.add(x, y), 2.0))


def remainder(fd: FusionDefinition, columns: Columns) -> None:
    """fmod(x, max(|y|, 1/4)): divisors without rounding and without zeros."""
    x, y = _matrix(fd, F32), _matrix(fd, F32)
    fd.add_output(fd.ops.fmod(x, fd.ops.maximum(fd.ops.abs(y), 0.25)))


def transpose(fd: FusionDefinition, columns: Columns) -> None:
    """The transposed matrix, contiguous."""
    fd.add_output(fd.ops.permute(_matrix(fd), [1, 0]))


def sum_rows(fd: FusionDefinition, columns: Columns) -> None:
    """The sum of every row."""
    fd.add_output(fd.ops.sum(_matrix(fd, F32), [1]))


def sum_columns(fd: FusionDefinition, columns: Columns) -> None:
    """The sum of every column."""
    fd.add_output(fd.ops.sum(_matrix(fd, F32), [0]))


def softmax(fd: FusionDefinition, columns: Columns) -> None:
    """Softmax of every row."""
    fd.add_output(fd.ops.cast(fd.ops.softmax(_matrix(fd), 1), BF16))


def rms_norm(fd: FusionDefinition, columns: Columns) -> None:
    """RMS norm of every row, with a weight."""
    x, weight = _matrix(fd, BF16, columns), _vector(fd, BF16, columns)
    fd.add_output(fd.ops.cast(fd.ops.rms_norm(x, [columns], weight, RMS_EPSILON), BF16))


def layer_norm(fd: FusionDefinition, columns: Columns) -> None:
    """Layer norm of every row, with weight and bias."""
    x, weight, bias = _normalised(fd, columns)
    y = fd.ops.layer_norm(x, [columns], weight, bias, LAYER_EPSILON)
    fd.add_output(fd.ops.cast(y, BF16))


def residual_layer_norm(fd: FusionDefinition, columns: Columns) -> None:
    """h = x + residual and its layer norm, both written."""
    x, weight, bias = _normalised(fd, columns)
    h = fd.ops.add(x, _matrix(fd, BF16, columns))
    fd.add_output(fd.ops.cast(h, BF16))
    y = fd.ops.layer_norm(h, [columns], weight, bias, LAYER_EPSILON)
    fd.add_output(fd.ops.cast(y, BF16))


def rms_norm_backward(fd: FusionDefinition, columns: Columns) -> None:
    """Gradients of RMS norm: of x for every element, of the weight summed over the rows."""
    x, weight, dy = (
        _matrix(fd, BF16, columns), _vector(fd, BF16, columns), _matrix(fd, BF16, columns)
    )  # fmt: skip
    rstd = fd.ops.broadcast_in_dim(_vector(fd, F32), fd.ops.shape(x), [0])
    normal = fd.ops.mul(x, rstd)
    scaled = fd.ops.mul(dy, fd.ops.broadcast_in_dim(weight, fd.ops.shape(x), [1]))
    mean = fd.ops.mean(fd.ops.mul(scaled, normal), [1], keepdim=True)
    dx = fd.ops.mul(fd.ops.sub(scaled, fd.ops.mul(normal, mean)), rstd)
    fd.add_output(fd.ops.cast(dx, BF16))
    fd.add_output(fd.ops.cast(fd.ops.sum(fd.ops.mul(dy, normal), [0]), BF16))


def cross_entropy(fd: FusionDefinition, columns: Columns) -> None:
    """The loss of every row of logits: log(sum(exp(x))) - x[target].

    There is no gather; the element at the target is picked by comparing the number of its column.
    """
    x = _matrix(fd)
    target = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Int)
    shape = fd.ops.shape(x)
    column = fd.ops.broadcast_in_dim(fd.ops.iota(x.size(1), dtype=DataType.Int), shape, [1])
    is_target = fd.ops.eq(column, fd.ops.broadcast_in_dim(target, shape, [0]))
    picked = fd.ops.sum(fd.ops.where(is_target, x, 0.0), [1])
    peak = fd.ops.max(x, [1], keepdim=True)
    total = fd.ops.sum(fd.ops.exp(fd.ops.sub(x, peak)), [1])
    log_sum = fd.ops.add(fd.ops.log(total), fd.ops.squeeze(peak, [1]))
    fd.add_output(fd.ops.sub(log_sum, picked))


def _matrix(fd: FusionDefinition, dtype: DataType = BF16, columns: Columns = -1) -> Tensor:
    return fd.define_tensor(shape=[-1, columns], contiguity=[True, True], dtype=dtype)


def _vector(fd: FusionDefinition, dtype: DataType = BF16, length: int = -1) -> Tensor:
    return fd.define_tensor(shape=[length], contiguity=[True], dtype=dtype)


def _normalised(fd: FusionDefinition, columns: Columns) -> tuple[Tensor, Tensor, Tensor]:
    """Define a matrix and the weight and bias of its rows."""
    return (
        _matrix(fd, BF16, columns), _vector(fd, BF16, columns), _vector(fd, BF16, columns)
    )  # fmt: skip
