"""The workloads: inputs, the fusion, the same in torch, and the bytes that must move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from fuser import DataType, FusionDefinition


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the table.

    Attributes
    ----------
    inputs
        Makes the input tensors on the GPU, random.
    define
        Builds the fusion from those inputs.
    torch
        The same computation in torch, for the peers.
    reference
        The same in float64, for the check; gets float64 inputs.
    ceiling
        Key of the hand-written kernel that bounds it.
    """

    name: str
    inputs: Callable[[], tuple[Any, ...]]
    define: Callable[[FusionDefinition], None]
    torch: Callable[..., Any]
    reference: Callable[..., Any]
    ceiling: str = "plain_map"


def _random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Any:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def _matrix(fd: FusionDefinition, dtype: DataType) -> Any:
    return fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=dtype)


def _bias_gelu(fd: FusionDefinition) -> None:
    x = _matrix(fd, DataType.BFloat16)
    bias = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.BFloat16)
    b = fd.ops.broadcast_in_dim(bias, fd.ops.shape(x), [1])
    y = fd.ops.gelu(fd.ops.add(x, b), approximate="tanh")
    fd.add_output(fd.ops.cast(y, DataType.BFloat16))


def _silu_mul(fd: FusionDefinition) -> None:
    x, y = _matrix(fd, DataType.BFloat16), _matrix(fd, DataType.BFloat16)
    fd.add_output(fd.ops.cast(fd.ops.mul(fd.ops.silu(x), y), DataType.BFloat16))


def _add_mul(fd: FusionDefinition) -> None:
    x, y = _matrix(fd, DataType.Float), _matrix(fd, DataType.Float)
    fd.add_output(fd.ops.mul(fd.ops.add(x, y), 2.0))


def _transpose(fd: FusionDefinition) -> None:
    fd.add_output(fd.ops.permute(_matrix(fd, DataType.BFloat16), [1, 0]))


ROWS, COLS = 16384, 8192

WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "bias+gelu bf16 16384x8192",
        lambda: (_random(ROWS, COLS), _random(COLS)),
        _bias_gelu,
        lambda x, b: F.gelu(x + b, approximate="tanh"),
        lambda x, b: F.gelu(x + b, approximate="tanh"),
    ),
    Workload(
        "silu(x)*y bf16 16384x8192",
        lambda: (_random(ROWS, COLS), _random(ROWS, COLS)),
        _silu_mul,
        lambda x, y: F.silu(x) * y,
        lambda x, y: F.silu(x) * y,
    ),
    Workload(
        "(x+y)*2 fp32 16384x8192",
        lambda: (
            _random(ROWS, COLS, dtype=torch.float32),
            _random(ROWS, COLS, dtype=torch.float32),
        ),
        _add_mul,
        lambda x, y: (x + y) * 2.0,
        lambda x, y: (x + y) * 2.0,
    ),
    Workload(
        "transpose bf16 16384x8192",
        lambda: (_random(ROWS, COLS),),
        _transpose,
        lambda x: x.t().contiguous(),
        lambda x: x.t(),
    ),
)


def moved_bytes(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> int:
    """Return the bytes of every input once and every output once."""
    return sum(t.numel() * t.element_size() for t in (*inputs, *outputs))
