"""What the launch path asks of torch, on tensors that claim to be on a GPU (of `fake_cuda`)."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest


class Device:
    def __init__(self, kind: str, index: int) -> None:
        self.type, self.index = kind, index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))


class DType:
    """One object per dtype, as in torch."""

    def __init__(self, name: str) -> None:
        self.np = np.dtype(name)
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class Tensor:
    """A NumPy array that is said to lie on a GPU."""

    asked = 0  # how often any tensor was asked for its strides: bound anew, or known

    def __init__(self, array: np.ndarray, index: int = 0, neg: bool = False) -> None:
        self.array, self.neg = array, neg
        self.device = Device("cuda", index)
        self.dtype, self.layout = _DTYPES[array.dtype.name], "torch.strided"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.array.itemsize for s in self.array.strides)

    def element_size(self) -> int:
        return self.array.itemsize

    def data_ptr(self) -> int:
        return self.array.ctypes.data if self.array.size else 0

    def is_neg(self) -> bool:
        return self.neg

    def copy_(self, other: Tensor) -> None:
        self.array[...] = other.array


Tensor.__module__ = "torch"
_DTYPES = {name: DType(name) for name in ("float32", "float64", "int32", "uint8")}


def aligned(shape: Any, dtype: Any = np.float32, at: int = 0) -> np.ndarray:
    """Return an array of NaN (or the largest int) whose address is `at` modulo 256."""
    count = int(np.prod(shape))
    raw = np.full(count * np.dtype(dtype).itemsize + 512, 0xFF, np.uint8)
    start = -raw.ctypes.data % 256 + at
    return raw[start : start + count * np.dtype(dtype).itemsize].view(dtype).reshape(shape)


class FakeTorch(ModuleType):
    """The module, with a current stream per device."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.Tensor, self.streams = Tensor, [0, 0]
        self.made: list[str] = []
        self._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda index: self.streams[index])
        self.cuda = SimpleNamespace(
            stream=self._on, ExternalStream=lambda handle, device: (handle, device),
            default_stream=lambda device: (0, device),
        )  # fmt: skip
        vars(self).update(_DTYPES)

    def empty_like(self, tensor: Tensor) -> Tensor:
        self.made.append("like")
        return Tensor(aligned(tensor.shape, tensor.dtype.np), tensor.device.index)

    def empty_strided(self, shape: Any, strides: Any, *, dtype: DType, device: Any) -> Tensor:
        self.made.append("strided")
        index = device if isinstance(device, int) else device.index
        return Tensor(aligned(shape, dtype.np), index)

    @contextmanager
    def _on(self, stream: tuple[int, int]) -> Any:
        handle, index = stream
        before, self.streams[index] = self.streams[index], handle
        yield
        self.streams[index] = before


def installed(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """Put a new fake torch in the place of the real one."""
    torch = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch
