"""Zero-copy views of the arrays that users pass: torch, cupy, jax, numba, NumPy, any DLPack.

No framework is imported: an object is recognised by the module its type comes from, so whatever
is asked of it has been imported by its owner.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from fuser.core.dtypes import DataType
from fuser.core.errors import InputError
from fuser.runtime.dlpack import read_capsule, row_major
from fuser.runtime.driver import check, device_available, driver, synchronize

DeviceType: TypeAlias = Literal["cpu", "cuda"]
ArrayKind: TypeAlias = Literal["numpy", "torch", "cupy", "jax", "numba", "dlpack"]

SEARCH_STEPS = 100_000  # some milliseconds
LEGACY_STREAM = 1  # how array protocols spell the default stream; the driver takes 0 and 1


@dataclass(frozen=True, slots=True)
class ArrayView:
    """Where an array lies and how it is laid out; the memory belongs to `owner`.

    Attributes
    ----------
    pointer
        Address of element (0, ..., 0).
    shape
        Extents, int per dimension.
    strides_elems
        Distance of neighbours per dimension, in elements.
    device_id
        CUDA device number; 0 on the host.
    kind
        Whose array `owner` is, hence what outputs are made of.
    owner
        Object that keeps the memory alive.
    readonly
        Whether writing would break a promise (jax arrays, read-only NumPy).
    """

    pointer: int
    shape: tuple[int, ...]
    strides_elems: tuple[int, ...]
    dtype: DataType
    device: DeviceType
    device_id: int
    kind: ArrayKind
    owner: Any
    readonly: bool = False

    @property
    def size(self) -> int:
        """Number of elements (an expanded element counts once per index)."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie row-major without gaps."""
        pairs = zip(self.shape, self.strides_elems, row_major(self.shape), strict=True)
        return not self.size or all(n == 1 or have == want for n, have, want in pairs)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a strided NumPy array on the same host memory."""
        if self.device != "cpu":
            raise InputError(f"array on cuda:{self.device_id}: no host memory; needed a copy first")
        return self.owner if self.kind == "numpy" else host_array(self)


class _HostMemory:
    """Array-interface record of a view; NumPy keeps it, and so the owner, as ``base``."""

    def __init__(self, view: ArrayView) -> None:
        nbytes = view.dtype.nbytes
        self.owner = view.owner
        self.__array_interface__ = {
            "data": (view.pointer, view.readonly),
            "shape": view.shape,
            "strides": tuple(s * nbytes for s in view.strides_elems),
            "typestr": f"{'|' if nbytes == 1 else '<'}u{nbytes}",  # bits: bf16 has no typestr
            "version": 3,
        }


def host_array(view: ArrayView) -> np.ndarray[Any, Any]:
    """Return the NumPy array at the address of `view`, element type included."""
    if view.size == 0:
        return np.empty(view.shape, view.dtype.np)
    return np.asarray(_HostMemory(view)).view(view.dtype.np)


def byte_bounds(view: ArrayView) -> tuple[int, int]:
    """Return the addresses ``[low, high)`` that elements of `view` lie between."""
    if view.size == 0:
        return view.pointer, view.pointer
    steps = [(n - 1) * s for n, s in zip(view.shape, view.strides_elems, strict=True)]
    low = sum(step for step in steps if step < 0)
    high = sum(step for step in steps if step > 0) + 1
    nbytes = view.dtype.nbytes
    return view.pointer + low * nbytes, view.pointer + high * nbytes


def may_overlap(a: ArrayView, b: ArrayView) -> bool:
    """Return whether two views may share memory (their address ranges meet)."""
    if (a.device, a.device_id) != (b.device, b.device_id):
        return False
    (a_low, a_high), (b_low, b_high) = byte_bounds(a), byte_bounds(b)
    return a_low < b_high and b_low < a_high


def share_elements(a: ArrayView, b: ArrayView) -> bool:
    """Return whether some byte belongs to elements of both views, as those of two columns do not.

    Strides for which that is too long a search count as shared.
    """
    if not may_overlap(a, b):
        return False
    return _meet(_at_addresses(a), _at_addresses(b))


def repeats_elements(view: ArrayView) -> bool:
    """Return whether two indices lead to the same element.

    If so, take the first dimension they differ in: of the elements that agree in those before it,
    one at 0 of this dimension is also one at 1 or beyond.
    """
    if view.is_dense:
        return False
    array = _at_addresses(view)
    parts = (array[(0,) * k] for k in range(array.ndim))
    return any(_meet(part[:1], part[1:]) for part in parts)


def _meet(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    try:
        return np.shares_memory(a, b, max_work=cast("Any", SEARCH_STEPS))  # any int, says its page
    except np.exceptions.TooHardError:
        return True


def _at_addresses(view: ArrayView) -> np.ndarray[Any, Any]:
    """Return an array to compute addresses with; it may be on a GPU, and is never read."""
    return np.asarray(_HostMemory(view))


def view_of(array: Any, stream: int = LEGACY_STREAM, what: str = "array") -> ArrayView:
    """Describe `array` without copying it.

    Parameters
    ----------
    array
        torch, cupy, jax, numba or NumPy array, or anything with ``__cuda_array_interface__`` or
        ``__dlpack__``.
    stream
        Where the caller will use it: producers that announce a stream are ordered before it.
    what
        Name for error texts, e.g. ``input x``.

    Raises
    ------
    InputError
        If it is none of these, or its element type or layout has no counterpart here.
    """
    cls: type[Any] = array.__class__
    if cls not in _reader_of_type:
        _reader_of_type[cls] = _find_reader(cls)
    reader = _reader_of_type[cls]
    if reader is not None:
        return reader(array, what)
    if hasattr(array, "__cuda_array_interface__"):
        return _from_cuda_interface(array, stream, what)
    if hasattr(array, "__dlpack__"):
        return _from_dlpack(array, stream, what)
    raise InputError(
        f"{what}: {type(array).__module__}.{type(array).__qualname__} is no array; needed NumPy, "
        "torch, cupy, jax or numba, or an object with __dlpack__ or __cuda_array_interface__"
    )


def _find_reader(cls: type[Any]) -> Callable[[Any, str], ArrayView] | None:
    """Return the reader of the library that `cls`, or the nearest class it inherits from, is of."""
    roots = (base.__module__.partition(".")[0] for base in cls.__mro__)
    return next((_READERS[root] for root in roots if root in _READERS), None)


def _from_numpy(value: Any, what: str) -> ArrayView:
    array: np.ndarray[Any, Any] = np.asanyarray(value)  # NumPy scalars too
    dtype = _numpy_dtype(array.dtype, what)
    return ArrayView(
        pointer=array.ctypes.data,
        shape=array.shape,
        strides_elems=_in_elements(array.strides, dtype, what),
        dtype=dtype,
        device="cpu",
        device_id=0,
        kind="numpy",
        owner=array,
        readonly=not array.flags.writeable,
    )


_torch_dtypes: dict[tuple[Any, Any, str], DataType] = {}  # kinds that have been checked
_TORCH_NAMES = {
    "torch.bool": DataType.Bool,
    "torch.int8": DataType.Int8,
    "torch.uint8": DataType.UInt8,
    "torch.int32": DataType.Int32,
    "torch.int64": DataType.Int,
    "torch.float16": DataType.Half,
    "torch.bfloat16": DataType.BFloat16,
    "torch.float32": DataType.Float,
    "torch.float64": DataType.Double,
    "torch.float8_e4m3fn": DataType.Float8_e4m3fn,
    "torch.float8_e5m2": DataType.Float8_e5m2,
}
_NAME_IN_TORCH = {row: name.removeprefix("torch.") for name, row in _TORCH_NAMES.items()}


def torch_dtype(dtype: DataType) -> Any:
    """Return torch's name of `dtype`; torch must have been imported by the caller's caller."""
    return getattr(sys.modules["torch"], _NAME_IN_TORCH[dtype])


def _from_torch(tensor: Any, what: str) -> ArrayView:
    place = tensor.device
    kind = (tensor.dtype, tensor.layout, place.type)
    dtype = _torch_dtypes.get(kind)
    if dtype is None:
        dtype = _torch_dtypes[kind] = _check_torch_kind(*kind, what)
    if tensor.is_neg():
        raise InputError(f"{what}: a lazily negated view; needed a tensor after .resolve_neg()")
    return ArrayView(
        pointer=tensor.data_ptr(),
        shape=tuple(tensor.shape),
        strides_elems=tensor.stride(),
        dtype=dtype,
        device=place.type,
        device_id=place.index or 0,
        kind="torch",
        owner=tensor,
    )


def _check_torch_kind(dtype: Any, layout: Any, device: str, what: str) -> DataType:
    if str(dtype) not in _TORCH_NAMES:
        raise InputError(f"{what}: element type {dtype}; needed one of {[*_TORCH_NAMES]}")
    if device not in ("cuda", "cpu") or str(layout) != "torch.strided":
        raise InputError(
            f"{what}: {layout} tensor on {device}; needed a strided one on cpu or cuda"
        )
    return _TORCH_NAMES[str(dtype)]


def _from_cupy(array: Any, what: str) -> ArrayView:
    dtype = _numpy_dtype(array.dtype, what)
    return ArrayView(
        pointer=array.data.ptr,
        shape=array.shape,
        strides_elems=_in_elements(array.strides, dtype, what),
        dtype=dtype,
        device="cuda",
        device_id=array.device.id,
        kind="cupy",
        owner=array,
    )


def _from_jax(array: Any, what: str) -> ArrayView:
    devices = array.devices()
    if len(devices) != 1:
        raise InputError(f"{what}: sharded over {len(devices)} devices; needed one")
    (place,) = devices
    if place.platform not in ("cpu", "gpu", "cuda"):
        raise InputError(f"{what}: on {place.platform}; needed an array on cpu or gpu")
    array.block_until_ready()  # jax computes on streams of its own
    shape = tuple(array.shape)
    return ArrayView(
        pointer=array.unsafe_buffer_pointer(),
        shape=shape,
        strides_elems=row_major(shape),
        dtype=_numpy_dtype(array.dtype, what),
        device="cpu" if place.platform == "cpu" else "cuda",
        device_id=0 if place.platform == "cpu" else int(place.local_hardware_id),
        kind="jax",
        owner=array,
        readonly=True,
    )


_DTYPE_OF_TYPESTR = {"<f1": DataType.Float8_e5m2.np, "|f1": DataType.Float8_e5m2.np}
"""What ml_dtypes writes and NumPy does not read; its other dtypes are anonymous bytes (``V1``)."""


def _from_cuda_interface(array: Any, stream: int, what: str) -> ArrayView:
    interface = array.__cuda_array_interface__
    pointer, readonly = interface["data"]
    dtype = _numpy_dtype(_DTYPE_OF_TYPESTR.get(interface["typestr"], interface["typestr"]), what)
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    producer = interface.get("stream")
    if producer is not None and producer != (stream or LEGACY_STREAM):
        synchronize(producer)
    is_numba = type(array).__module__.startswith("numba")
    return ArrayView(
        pointer=pointer or 0,
        shape=shape,
        strides_elems=_in_elements(strides, dtype, what) if strides else row_major(shape),
        dtype=dtype,
        device="cuda",
        device_id=_device_of_pointer(pointer),
        kind="numba" if is_numba else "dlpack",
        owner=array,
        readonly=bool(readonly),
    )


def _device_of_pointer(pointer: int) -> int:
    """Return which GPU holds `pointer`; the interface itself does not say."""
    if not pointer:
        return 0
    if not device_available():
        return 0
    api = driver()
    attribute = api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(check(api.cuPointerGetAttribute(attribute, pointer), f"pointer {pointer:#x}"))


def _from_dlpack(array: Any, stream: int, what: str) -> ArrayView:
    device_type, _ = array.__dlpack_device__()
    on_cuda = int(device_type) in (2, 13)
    capsule = array.__dlpack__(stream=stream or LEGACY_STREAM) if on_cuda else array.__dlpack__()
    tensor = read_capsule(capsule, what)
    return ArrayView(
        pointer=tensor.pointer,
        shape=tensor.shape,
        strides_elems=tensor.strides,
        dtype=tensor.dtype,
        device="cpu" if tensor.on_host else "cuda",
        device_id=0 if tensor.on_host else tensor.device_id,
        kind="dlpack",
        owner=(array, capsule),
    )


def _numpy_dtype(dtype: Any, what: str) -> DataType:
    try:
        return DataType.from_numpy(dtype)
    except (KeyError, TypeError):
        raise InputError(
            f"{what}: element type {dtype}; needed one of {[row.short for row in DataType]}"
        ) from None


def _in_elements(strides_bytes: tuple[int, ...], dtype: DataType, what: str) -> tuple[int, ...]:
    if any(step % dtype.nbytes for step in strides_bytes):
        raise InputError(
            f"{what}: strides of {strides_bytes} bytes; "
            f"needed multiples of {dtype.nbytes} (an array of {dtype.short}, not a field of one)"
        )
    return tuple(step // dtype.nbytes for step in strides_bytes)


_READERS: dict[str, Callable[[Any, str], ArrayView]] = {
    "numpy": _from_numpy,
    "torch": _from_torch,
    "cupy": _from_cupy,
    "jaxlib": _from_jax,
    "jax": _from_jax,
}
_reader_of_type: dict[type[Any], Callable[[Any, str], ArrayView] | None] = {}
