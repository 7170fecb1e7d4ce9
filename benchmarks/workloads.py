"""The workloads: inputs, the fusion, the same in torch, and the bytes that must move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F

from benchmarks.rings import BOX, RING_MAP, RING_SUM, ring_map, ring_sum
from fuser import DataType, FusionDefinition, LoadStoreOpType

Implementation: TypeAlias = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the table.

    Attributes
    ----------
    inputs
        Makes the input tensors on the GPU, random.
    build
        Makes our implementation: a function of the list of inputs.
    torch
        The same computation in torch, for the peers.
    reference
        The same in float64, for the check; gets float64 inputs.
    ceiling
        Key of the hand-written kernel that bounds it.
    """

    name: str
    inputs: Callable[[], tuple[Any, ...]]
    build: Callable[[], Implementation]
    torch: Callable[..., Any]
    reference: Callable[..., Any]
    ceiling: str = "plain_map"


def _automatic(define: Callable[[FusionDefinition], None]) -> Callable[[], Implementation]:
    """Return the builder of a fusion that fuser schedules."""

    def build() -> Implementation:
        with FusionDefinition() as fd:
            define(fd)
        return fd.execute

    return build


def _random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Any:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def _uniform(*shape: int) -> Any:
    """Return addends of one sign: an error relative to their sum then says something."""
    return torch.rand(*shape, device="cuda", dtype=torch.float32)


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
RING = 2**28


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "bias+gelu bf16 16384x8192",
        lambda: (_random(ROWS, COLS), _random(COLS)),
        _automatic(_bias_gelu),
        lambda x, b: F.gelu(x + b, approximate="tanh"),
        lambda x, b: F.gelu(x + b, approximate="tanh"),
    ),
    Workload(
        "silu(x)*y bf16 16384x8192",
        lambda: (_random(ROWS, COLS), _random(ROWS, COLS)),
        _automatic(_silu_mul),
        lambda x, y: F.silu(x) * y,
        lambda x, y: F.silu(x) * y,
    ),
    Workload(
        "(x+y)*2 fp32 16384x8192",
        lambda: (
            _random(ROWS, COLS, dtype=torch.float32),
            _random(ROWS, COLS, dtype=torch.float32),
        ),
        _automatic(_add_mul),
        lambda x, y: (x + y) * 2.0,
        lambda x, y: (x + y) * 2.0,
    ),
    Workload(
        "transpose bf16 16384x8192",
        lambda: (_random(ROWS, COLS),),
        _automatic(_transpose),
        lambda x: x.t().contiguous(),
        lambda x: x.t(),
    ),
    Workload(
        "ring sum fp32 2^28, bulk",
        lambda: (_uniform(RING),),
        lambda: ring_sum().manual_execute,
        lambda x: x.sum(),
        lambda x: x.sum(),
        "ring_sum",
    ),
    Workload(
        "ring sum fp32 2^28, tma",
        lambda: (_uniform(RING // BOX, BOX),),
        lambda: ring_sum(replace(RING_SUM, load=LoadStoreOpType.tma)).manual_execute,
        lambda x: x.sum(),
        lambda x: x.sum(),
        "ring_sum",
    ),
    Workload(
        "ring map fp32 2^28, bulk",
        lambda: (_random(RING, dtype=torch.float32),),
        lambda: ring_map().manual_execute,
        lambda x: 2 * x + 1,
        lambda x: 2 * x + 1,
        "ring_map",
    ),
    Workload(
        "ring map fp32 2^28, tma",
        lambda: (_random(RING // BOX, BOX, dtype=torch.float32),),
        lambda: ring_map(replace(RING_MAP, load=LoadStoreOpType.tma)).manual_execute,
        lambda x: 2 * x + 1,
        lambda x: 2 * x + 1,
        "ring_map",
    ),
)


def moved_bytes(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> int:
    """Return the bytes of every input once and every output once."""
    return sum(t.numel() * t.element_size() for t in (*inputs, *outputs))
