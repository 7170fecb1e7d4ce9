"""Tensor maps encoded by the driver, and whether a run may use the ones its program asks for.

Encoding costs a few microseconds; allocators hand out the same addresses again and again, so
the latest maps are kept. The rules themselves are `fuser.kir.tensor_map`'s.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from fuser.core.dtypes import DataType
from fuser.core.errors import BackendError, LaunchError
from fuser.kir.program import Program
from fuser.kir.tensor_map import (
    MAP_BYTES,
    MAX_RANK,
    Encoding,
    Swizzle,
    TensorMapParam,
    bind,
    obstacle,
    violations,
)
from fuser.runtime.driver import check, driver
from fuser.runtime.launch import aligned_memory
from fuser.runtime.plan import PlannedMap

_MAPS_KEPT = 256
_FIRST_CUDA = 12000
_PerDim64 = ctypes.c_uint64 * (MAX_RANK + 1)  # one more: the driver, not ctypes, refuses rank 6
_PerDim32 = ctypes.c_uint32 * (MAX_RANK + 1)
_ENCODE_TILED = ctypes.CFUNCTYPE(
    ctypes.c_int,  # CUresult
    ctypes.c_void_p,  # where the map goes
    ctypes.c_int,  # data type
    ctypes.c_uint32,  # rank
    ctypes.c_void_p,  # address
    ctypes.POINTER(ctypes.c_uint64),  # dims
    ctypes.POINTER(ctypes.c_uint64),  # strides
    ctypes.POINTER(ctypes.c_uint32),  # box
    ctypes.POINTER(ctypes.c_uint32),  # element strides
    ctypes.c_int,  # interleave
    ctypes.c_int,  # swizzle
    ctypes.c_int,  # L2 promotion
    ctypes.c_int,  # fill
)
_DATA_TYPE: dict[DataType, str] = {  # copies move bits: any type of the right width would do
    DataType.Bool: "UINT8",
    DataType.Int8: "UINT8",
    DataType.UInt8: "UINT8",
    DataType.Float8_e4m3fn: "UINT8",
    DataType.Float8_e5m2: "UINT8",
    DataType.Half: "FLOAT16",
    DataType.BFloat16: "BFLOAT16",
    DataType.Int32: "INT32",
    DataType.Float: "FLOAT32",
    DataType.Int: "INT64",
    DataType.Double: "FLOAT64",
}
_SWIZZLE: dict[Swizzle, str] = {"none": "NONE", "32B": "32B", "64B": "64B", "128B": "128B"}


def encode(param: TensorMapParam, values: Mapping[str, int], pointer: int) -> bytes:
    """Return the 128 bytes of the map for a tensor that begins at `pointer`.

    Parameters
    ----------
    values
        Sizes and strides that the expressions of `param` name.

    Raises
    ------
    LaunchError
        If a rule is broken, naming tensor, dimension and value, or if the driver refuses.
    BackendError
        Without a driver.
    """
    return _named(param, bind(param, values, pointer))


def encode_planned(planned: PlannedMap, pointer: int) -> bytes:
    """Return what `encode` would, sizes being evaluated already."""
    at_zero = planned.at_zero
    return _named(planned.param, replace(at_zero, address=at_zero.address + pointer))


def tma_obstacle(
    program: Program, env: Mapping[str, int], addresses: Mapping[str, int]
) -> str | None:
    """Return why `program` cannot run with its tensor maps on these inputs, or None if it can.

    Parameters
    ----------
    addresses
        Where the inputs begin. Buffers are left out: every allocator aligns well enough.
    """
    for kernel in program.kernels:
        for param in kernel.params:
            if isinstance(param, TensorMapParam):
                reason = obstacle(param, env, addresses.get(param.tensor, 0))
                if reason is not None:
                    return reason
    return None


def _named(param: TensorMapParam, encoding: Encoding) -> bytes:
    try:
        return _encode(encoding)
    except LaunchError as error:
        raise LaunchError(f"{param.label}: {error}") from None


@lru_cache(maxsize=_MAPS_KEPT)
def _encode(encoding: Encoding) -> bytes:
    driver()  # without one that is the error, whatever the rules say
    found = violations(encoding)
    if found:
        raise LaunchError("; also: ".join(found))
    return encode_unchecked(encoding)


def encode_unchecked(encoding: Encoding) -> bytes:
    """Give `encoding` to the driver as it is (tests compare its verdict with `violations`)."""
    api, encoded = driver(), aligned_memory(MAP_BYTES)
    code = _entry_point()(
        ctypes.addressof(encoded),
        getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_DATA_TYPE[encoding.dtype]}"),
        len(encoding.dims),
        encoding.address,
        _PerDim64(*encoding.dims),
        _PerDim64(*encoding.strides_bytes),
        _PerDim32(*encoding.box),
        _PerDim32(*encoding.element_strides),
        api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLE[encoding.swizzle]}"),
        api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    check((api.CUresult(code),), f"{encoding}")
    return encoded.raw


@cache
def _entry_point() -> Any:
    """Return the driver's ``cuTensorMapEncodeTiled`` as a C function.

    The binding of that name writes to memory that Python aligns to 16 bytes, where the driver
    is promised 64; called this way it is also several times faster.
    """
    name = "cuTensorMapEncodeTiled"
    answer = driver().cuGetProcAddress(name.encode(), _FIRST_CUDA, 0)
    address, _ = check(answer, f"CUDA driver: {name}")
    if not int(address):
        raise BackendError(f"CUDA driver: has no {name}; needed CUDA 12.0 or newer")
    return _ENCODE_TILED(int(address))
