"""The GPU of this machine, by torch: its queue, the inputs of the workloads, the check."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from benchmarks import in_torch
from benchmarks.measure import CheckError, as_tuple
from benchmarks.timing import Timer
from benchmarks.workloads import Case, Input
from fuser import DataType

FLUSH_BYTES = 256 * 2**20
DTYPES = {
    DataType.BFloat16: torch.bfloat16, DataType.Float: torch.float32, DataType.Int: torch.int64,
}  # fmt: skip

NOT_IN_NUMPY = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}

LIMITS = {torch.bfloat16: (1e-2, 2**-5), torch.float16: (1e-2, 2**-5)}
"""Relative error by norms, and of an element over its size and the root mean square of all."""
FLOAT_LIMITS = (1e-5, 1e-4)


class TorchStream:
    """Torch's current stream, as `benchmarks.timing.Stream`."""

    def __init__(self) -> None:
        self._flushed = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def event(self) -> torch.cuda.Event:
        return torch.cuda.Event(enable_timing=True)

    def flush(self) -> None:
        self._flushed.zero_()

    def spin(self, cycles: int) -> None:
        torch.cuda._sleep(cycles)

    def synchronize(self) -> None:
        torch.cuda.synchronize()


class TorchDevice:
    """`benchmarks.measure.Device`."""

    def __init__(self, repetitions: int) -> None:
        self.timer = Timer(TorchStream(), repetitions)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def poison(self, outputs: tuple[Any, ...]) -> None:
        for out in outputs:
            out.fill_(float("nan") if out.is_floating_point() else -1)

    def nbytes(self, array: Any) -> int:
        return array.numel() * array.element_size() if isinstance(array, torch.Tensor) else 0


def make_input(spec: Input, device: str = "cuda") -> torch.Tensor:
    """Return a random tensor."""
    dtype = DTYPES[spec.dtype]
    match spec.draw:
        case "normal":
            return torch.randn(spec.shape, dtype=dtype, device=device)
        case "uniform":
            return torch.rand(spec.shape, dtype=dtype, device=device)
        case "index":
            return torch.randint(spec.bound, spec.shape, dtype=dtype, device=device)


def to_gpu(item: Any, device: str = "cuda") -> Any:
    """Return a NumPy array or a tensor on the GPU, strides kept; other inputs are not arrays."""
    if isinstance(item, np.ndarray):
        item = _from_numpy(item)
    if not isinstance(item, torch.Tensor):
        return item
    repeated = tuple(slice(0, 1) if s == 0 else slice(None) for s in item.stride())
    once = item[repeated]
    copy = torch.empty_strided(once.shape, once.stride(), dtype=item.dtype, device=device)
    return copy.copy_(once).expand(item.shape)


def _from_numpy(array: Any) -> torch.Tensor:
    """Return a tensor of the array's own memory, or a copy where torch has no such strides."""
    positive = array if min(array.strides, default=0) >= 0 else np.ascontiguousarray(array)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is read-only, which suits us
        if array.dtype.name not in NOT_IN_NUMPY:
            return torch.from_numpy(positive)
        bits = torch.from_numpy(positive.view(f"i{array.itemsize}"))
    return bits.view(getattr(torch, array.dtype.name))


def reference(case: Case, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return the outputs of a workload in float64."""
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    return as_tuple(getattr(in_torch, case.workload.torch)(*wide))


def check(outputs: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> float:
    """Return the largest relative error by norms of an output.

    Raises
    ------
    CheckError
        It is not small, or that of a single element is not.
    """
    if len(outputs) != len(expected):
        raise CheckError(f"{len(outputs)} outputs; {len(expected)} were needed")
    worst = 0.0
    for index, (out, want) in enumerate(zip(outputs, expected, strict=True)):
        if out.shape != want.shape:
            raise CheckError(
                f"output {index}: shape {list(out.shape)}; {list(want.shape)} was needed"
            )
        by_norm, by_element = errors(out, want)
        limits = LIMITS.get(out.dtype, FLOAT_LIMITS)
        if not (by_norm < limits[0] and by_element < limits[1]):
            raise CheckError(
                f"output {index}: relative error {by_norm:.3g}, of an element {by_element:.3g}; "
                f"below {limits[0]:.3g} and {limits[1]:.3g} was needed"
            )
        worst = max(worst, by_norm)
    return worst


def errors(out: torch.Tensor, want: torch.Tensor) -> tuple[float, float]:
    """Return the relative error by norms, and the largest of an element."""
    if not want.numel():
        return 0.0, 0.0
    difference = out.double().sub_(want)
    norm = want.norm()
    typical = norm / want.numel() ** 0.5
    by_norm = float(difference.norm() / norm)
    return by_norm, float((difference.abs_() / (want.abs() + typical)).max())
