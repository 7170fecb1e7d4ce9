"""Arrays that a program creates, of the same library as its inputs, and device scratch memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, cast

import numpy as np

from fuser.core.dtypes import DataType
from fuser.core.errors import BackendError, InputError
from fuser.runtime.arrays import ArrayKind, ArrayView, torch_dtype, view_of
from fuser.runtime.dlpack import CUDA, DLTensor, write_capsule
from fuser.runtime.driver import capture_relaxed, check, driver, on_device


class DeviceBuffer:
    """Device memory of ours, readable by any library through DLPack; freed with its last user.

    Attributes
    ----------
    pointer
        Device address, not null even when there is nothing to hold (consumers refuse null).
    """

    def __init__(self, nbytes: int, device_id: int) -> None:
        self.pointer = 0
        self.device_id = device_id
        self.layout: DLTensor | None = None
        with on_device(device_id), capture_relaxed():
            answer = driver().cuMemAlloc(max(1, nbytes))
        self.pointer = int(check(answer, f"allocate {nbytes} bytes on cuda:{device_id}"))

    def __del__(self) -> None:
        if self.pointer and sys is not None and not sys.is_finalizing():
            with on_device(self.device_id), capture_relaxed():
                driver().cuMemFree(self.pointer)  # waits for kernels that still use it

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device_id

    def __dlpack__(self, **_: Any) -> Any:
        """Return a capsule, after the GPU has done all it was given.

        The kernel that fills the buffer may run on a stream that is gone by now, so there is
        nothing narrower to wait for.
        """
        if self.layout is None:
            raise BackendError("device buffer: exported before it has a layout; needed allocate()")
        with on_device(self.device_id):
            check(driver().cuCtxSynchronize(), f"cuda:{self.device_id}")
        return write_capsule(self.layout, self)


_DEFAULT_STREAMS = (0, 1)  # the driver's null and legacy handles


def span_elems(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many elements from the first to the last one, 0 when there is none."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def allocate(
    kind_of: ArrayView | ArrayKind,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: DataType,
    device: str | int | None = None,
) -> tuple[Any, ArrayView]:
    """Create an uninitialised array and describe it.

    Parameters
    ----------
    kind_of
        Library, or a view whose library and device are taken.
    strides
        In elements.
    device
        ``"cpu"`` or a CUDA device number; by default the device of `kind_of`.

    Returns
    -------
    tuple
        The object, to be given to the user through `deliver`, and its view.
    """
    if isinstance(kind_of, ArrayView):
        kind: ArrayKind = kind_of.kind
        if device is None:
            device = kind_of.device_id if kind_of.device == "cuda" else "cpu"
    else:
        kind = kind_of
    if device is None or device == "cpu":
        return _allocate_host(kind, shape, strides, dtype)
    array = _ALLOCATORS[kind](shape, strides, dtype, int(device))
    if isinstance(array, DeviceBuffer):
        return array, _view_of_buffer(array, shape, strides, dtype, kind)
    return array, view_of(array, what="output")


def deliver(array: Any, kind: ArrayKind) -> Any:
    """Turn what `allocate` made into what the user gets, after the launches are queued."""
    if kind != "jax":
        return array
    if isinstance(array, np.ndarray):
        return sys.modules["jax"].numpy.asarray(array)
    return import_module("jax.dlpack").from_dlpack(array)


def current_stream(kind: ArrayKind, device_id: int) -> int:
    """Return the stream that `kind` queues work on now; 0 is the default stream."""
    if kind == "torch":
        return int(sys.modules["torch"]._C._cuda_getCurrentRawStream(device_id))
    if kind == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream(device_id).ptr)
    return 0


def allocating_on(kind: ArrayKind, device_id: int, stream: int) -> AbstractContextManager[Any]:
    """Make caching allocators hand out memory that is free in the order of `stream`.

    Memory of another stream's pool may still be read by work queued there.
    """
    if kind not in ("torch", "cupy") or stream == current_stream(kind, device_id):
        return nullcontext()
    library = cast(Any, sys.modules[kind]).cuda
    on_default = stream in _DEFAULT_STREAMS
    chosen: Any
    if kind == "cupy":
        chosen = library.Stream.null if on_default else library.ExternalStream(stream, device_id)
    elif on_default:
        chosen = library.stream(library.default_stream(device_id))
    else:
        chosen = library.stream(library.ExternalStream(stream, device=device_id))
    return cast(AbstractContextManager[Any], chosen)


def stream_handle(stream: Any) -> int:
    """Return the driver's handle of a stream: an int, or a torch, cupy or cuda.core object.

    Raises
    ------
    InputError
        If it is none of these.
    """
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise InputError(
        f"stream: {type(stream).__qualname__} {stream!r}; "
        "needed a handle (int), a torch or cupy stream, or an object with __cuda_stream__"
    )


class Scratch:
    """Device memory for the length of a ``with`` block, allocated and freed in stream order."""

    def __init__(self, device_id: int, stream: int) -> None:
        self.device_id = device_id
        self.stream = stream
        self._pointers: list[int] = []

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        api = driver()
        for pointer in self._pointers:
            api.cuMemFreeAsync(pointer, self.stream)
        self._pointers.clear()

    def allocate(self, nbytes: int) -> int:
        """Return the address of `nbytes` bytes; 0 when there is nothing to hold."""
        if not nbytes:
            return 0
        answer = driver().cuMemAllocAsync(nbytes, self.stream)
        pointer = int(check(answer, f"allocate {nbytes} bytes on cuda:{self.device_id}"))
        self._pointers.append(pointer)
        return pointer

    def view(
        self, shape: tuple[int, ...], strides: tuple[int, ...], numel: int, dtype: DataType
    ) -> ArrayView:
        """Return a view of `numel` new elements laid out as `shape` and `strides`."""
        pointer = self.allocate(numel * dtype.nbytes)
        return ArrayView(
            pointer=pointer,
            shape=shape,
            strides_elems=strides,
            dtype=dtype,
            device="cuda",
            device_id=self.device_id,
            kind="dlpack",
            owner=None,
        )


def _allocate_host(
    kind: ArrayKind, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DataType
) -> tuple[Any, ArrayView]:
    if kind == "torch":
        array = _torch(shape, strides, dtype, "cpu")
        return array, view_of(array, what="output")
    flat = np.empty(span_elems(shape, strides), dtype.np)
    steps = tuple(s * dtype.nbytes for s in strides)
    host = (
        np.ndarray(shape, dtype.np, buffer=flat, strides=steps)
        if flat.size
        else (np.empty(shape, dtype.np))
    )
    return host, view_of(host, what="output")


def _torch(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: DataType, device: int | str
) -> Any:
    torch = sys.modules["torch"]
    return torch.empty_strided(shape, strides, dtype=torch_dtype(dtype), device=device)


def _cupy(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DataType, device: int) -> Any:
    cupy = sys.modules["cupy"]
    steps = tuple(s * dtype.nbytes for s in strides)
    with cupy.cuda.Device(device):
        memory = cupy.cuda.alloc(max(1, span_elems(shape, strides)) * dtype.nbytes)
        return cupy.ndarray(shape, dtype.np, memory, steps)


def _numba(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DataType, device: int) -> Any:
    cuda: Any = import_module("numba.cuda")
    steps = tuple(s * dtype.nbytes for s in strides)
    with cuda.gpus[device]:
        return cuda.device_array(shape, dtype=dtype.np, strides=steps)


def _own(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DataType, device: int) -> Any:
    return DeviceBuffer(span_elems(shape, strides) * dtype.nbytes, device)


def _no_device(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: DataType, device: int
) -> Any:
    raise InputError(
        f"output {dtype.short}{list(shape)}: NumPy has no memory on cuda:{device}; "
        "needed device='cpu'"
    )


_ALLOCATORS: dict[ArrayKind, Callable[[tuple[int, ...], tuple[int, ...], DataType, int], Any]] = {
    "torch": _torch,
    "cupy": _cupy,
    "numba": _numba,
    "jax": _own,
    "dlpack": _own,
    "numpy": _no_device,
}


def _view_of_buffer(
    buffer: DeviceBuffer,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: DataType,
    kind: ArrayKind,
) -> ArrayView:
    buffer.layout = DLTensor(buffer.pointer, shape, strides, dtype, False, buffer.device_id)
    return ArrayView(
        pointer=buffer.pointer,
        shape=shape,
        strides_elems=strides,
        dtype=dtype,
        device="cuda",
        device_id=buffer.device_id,
        kind=kind,
        owner=buffer,
    )
