"""Tensor maps encoded by the driver, and whether a run may use the ones its program asks for.

Encoding costs a few microseconds; allocators hand out the same addresses again and again, so
the latest maps are kept. The rules themselves are `fuser.kir.tensor_map`'s.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from fuser.core.dtypes import DataType
from fuser.core.errors import LaunchError
from fuser.kir.program import Program
from fuser.kir.tensor_map import (
    MAP_BYTES,
    Encoding,
    Swizzle,
    TensorMapParam,
    bind,
    obstacle,
    violations,
)
from fuser.runtime.driver import check, driver
from fuser.runtime.plan import PlannedMap

_MAPS_KEPT = 256
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
    api = driver()
    found = violations(encoding)
    if found:
        raise LaunchError("; also: ".join(found))
    return encode_unchecked(api, encoding)


def encode_unchecked(api: Any, encoding: Encoding) -> bytes:
    """Give `encoding` to the driver as it is (tests compare its verdict with `violations`)."""
    rank = len(encoding.dims)
    strides = encoding.strides_bytes or (0,)  # not read when rank is 1, but never a null array
    answer = api.cuTensorMapEncodeTiled(
        getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_DATA_TYPE[encoding.dtype]}"),
        rank,
        encoding.address,
        [api.cuuint64_t(extent) for extent in encoding.dims],
        [api.cuuint64_t(stride) for stride in strides],
        [api.cuuint32_t(extent) for extent in encoding.box],
        [api.cuuint32_t(step) for step in encoding.element_strides],
        api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLE[encoding.swizzle]}"),
        api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    encoded = check(answer, f"{encoding}")
    return ctypes.string_at(encoded.getPtr(), MAP_BYTES)
