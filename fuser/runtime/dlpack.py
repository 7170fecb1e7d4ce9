"""The DLPack exchange structures: reading a capsule and writing one, without a framework.

NumPy's own ``from_dlpack`` does not know bfloat16 and fp8, and there is no CUDA array in the
standard library; both sides are a few ctypes structures.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from fuser.core.dtypes import DataType
from fuser.core.errors import InputError

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_ON_HOST = (CPU, CUDA_HOST)

_INT, _UINT, _FLOAT, _BFLOAT, _BOOL, _F8_E4M3FN, _F8_E5M2 = 0, 1, 2, 4, 6, 10, 12
_DTYPES: dict[tuple[int, int], DataType] = {
    (_BOOL, 8): DataType.Bool,
    (_INT, 8): DataType.Int8,
    (_UINT, 8): DataType.UInt8,
    (_INT, 32): DataType.Int32,
    (_INT, 64): DataType.Int,
    (_FLOAT, 16): DataType.Half,
    (_BFLOAT, 16): DataType.BFloat16,
    (_FLOAT, 32): DataType.Float,
    (_FLOAT, 64): DataType.Double,
    (_F8_E4M3FN, 8): DataType.Float8_e4m3fn,
    (_F8_E5M2, 8): DataType.Float8_e5m2,
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class _DLDevice(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _DLManagedTensor(ctypes.Structure):
    _fields_ = (
        ("tensor", _DLTensor),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
    )


@dataclass(frozen=True, slots=True)
class DLTensor:
    """What a capsule says: memory, layout in elements, element type and device."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DataType
    on_host: bool
    device_id: int


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)


def read_capsule(capsule: Any, what: str) -> DLTensor:
    """Read a ``"dltensor"`` capsule; the memory is valid while the caller keeps `capsule`.

    The capsule is not consumed: its own destructor releases the tensor.

    Raises
    ------
    InputError
        If the element type or the device is not one this package knows.
    """
    address = _pointer_of(capsule, b"dltensor")
    tensor = _DLManagedTensor.from_address(address).tensor
    kind = (tensor.dtype.code, tensor.dtype.bits)
    if kind not in _DTYPES or tensor.dtype.lanes != 1:
        raise InputError(
            f"{what}: DLPack element type code {kind[0]}, {kind[1]} bits, "
            f"{tensor.dtype.lanes} lanes; needed one of {[d.short for d in _CODES]}"
        )
    if tensor.device.type not in (*_ON_HOST, CUDA, CUDA_MANAGED):
        raise InputError(
            f"{what}: DLPack device type {tensor.device.type}; needed host or CUDA memory"
        )
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else row_major(shape)
    return DLTensor(
        pointer=(tensor.data or 0) + tensor.byte_offset,
        shape=shape,
        strides=strides,
        dtype=_DTYPES[kind],
        on_host=tensor.device.type in _ON_HOST,
        device_id=tensor.device.id,
    )


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides in elements of a dense row-major array."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)

_exported: dict[int, tuple[Any, ...]] = {}  # what a consumer still reads, by structure address


def _release_address(address: int) -> None:
    _exported.pop(address, None)


_release = _DELETER(_release_address)


# Prototypes that keep the GIL, on raw addresses: the capsule is being destroyed when these run.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_address_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _destroy_capsule(capsule: int) -> None:
    """Release a capsule nobody consumed (a consumer renames it and calls the deleter itself)."""
    if _is_valid(capsule, b"dltensor"):
        _release_address(_address_in(capsule, b"dltensor"))


_destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_destroy_capsule)


def write_capsule(tensor: DLTensor, owner: object) -> Any:
    """Return a ``"dltensor"`` capsule of `tensor` that keeps `owner` alive while it is read."""
    rank = len(tensor.shape)
    shape = (ctypes.c_int64 * max(1, rank))(*tensor.shape)
    strides = (ctypes.c_int64 * max(1, rank))(*tensor.strides)
    code, bits = _CODES[tensor.dtype]
    managed = _DLManagedTensor(
        _DLTensor(
            tensor.pointer,
            _DLDevice(CPU if tensor.on_host else CUDA, tensor.device_id),
            rank,
            _DLDataType(code, bits, 1),
            ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
            ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)),
            0,
        ),
        None,
        _release,
    )
    address = ctypes.addressof(managed)
    _exported[address] = (managed, shape, strides, owner)
    return _new_capsule(address, b"dltensor", ctypes.cast(_destructor, ctypes.c_void_p))
