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
    """A NumPy array that is said to lie on a GPU.

    Attributes
    ----------
    asked
        How often any tensor was asked for its strides: guards do not ask.
    """

    asked = 0

    def __init__(self, array: np.ndarray, index: int = 0, neg: bool = False) -> None:
        self.array, self.neg = array, neg
        self.device = Device("cuda", index)
        self.dtype, self.layout = _DTYPES[array.dtype.name], "torch.strided"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        Tensor.asked += 1
        return self.strides

    @property
    def strides(self) -> tuple[int, ...]:
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


class TensorGuards:
    """Whether tensors are like others; torch's compares more."""

    inference = False  # the state of torch, which its guards compare too

    def __init__(self, *tensors: Tensor, dynamic_dims_sizes: Any, dynamic_dims_strides: Any):
        known = zip(tensors, dynamic_dims_sizes, dynamic_dims_strides, strict=True)
        self.known = [(t.dtype, t.device, tuple(n), tuple(s)) for t, n, s in known]
        self.inference = TensorGuards.inference

    def check(self, *tensors: Tensor) -> bool:
        if len(tensors) != len(self.known):
            raise TypeError("wrong length")
        return self.inference is TensorGuards.inference and all(
            type(t) is Tensor and not t.neg and (t.dtype, t.device, t.shape, t.strides) == known
            for t, known in zip(tensors, self.known, strict=True)
        )


class FakeTorch(ModuleType):
    """The module, with a current stream per device."""

    __version__ = "2.11.0+cu130"

    def __init__(self) -> None:
        super().__init__("torch")
        self.Tensor, self.streams = Tensor, [0, 0]
        self.nn = SimpleNamespace(Parameter=Tensor)
        self.made: list[str] = []
        guards = SimpleNamespace(TensorGuards=TensorGuards)
        self._C = SimpleNamespace(
            _cuda_getCurrentRawStream=lambda index: self.streams[index],
            _dynamo=SimpleNamespace(guards=guards),
        )
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
