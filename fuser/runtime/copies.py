"""Copies between arrays on one stream: device to device by layout, and host staging."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fuser.core.errors import LaunchError
from fuser.runtime.arrays import ArrayView, byte_bounds
from fuser.runtime.driver import check, driver
from fuser.runtime.memory import Scratch

Loop = tuple[int, int, int]  # extent, destination stride, source stride (elements)


def merged_loops(destination: ArrayView, source: ArrayView) -> list[Loop]:
    """Return the fewest loops, innermost last, that visit both arrays element by element."""
    dimensions = zip(
        destination.shape, destination.strides_elems, source.strides_elems, strict=True
    )
    ordered = sorted((d for d in dimensions if d[0] != 1), key=lambda d: d[1:], reverse=True)
    loops: list[Loop] = []
    for extent, dst, src in ordered:
        if loops and loops[-1][1:] == (extent * dst, extent * src):
            loops[-1] = (loops[-1][0] * extent, dst, src)
        else:
            loops.append((extent, dst, src))
    return loops


def copy_on_device(destination: ArrayView, source: ArrayView, stream: int, what: str) -> None:
    """Queue ``destination[...] = source`` for equal shapes and dtypes; gaps stay untouched.

    Raises
    ------
    LaunchError
        If the layouts differ in more than one strided dimension.
    """
    if destination.shape != source.shape or destination.dtype is not source.dtype:
        raise LaunchError(
            f"{what}: copy of {source.dtype.short}{list(source.shape)} into "
            f"{destination.dtype.short}{list(destination.shape)}; needed equal shapes and dtypes"
        )
    if not destination.size:
        return
    loops = merged_loops(destination, source)
    if not loops or loops[-1][1:] != (1, 1):
        loops.append((1, 1, 1))
    if len(loops) == 1:
        nbytes = loops[0][0] * source.dtype.nbytes
        answer = driver().cuMemcpyDtoDAsync(destination.pointer, source.pointer, nbytes, stream)
    elif len(loops) == 2 and min(loops[0][1:]) >= loops[1][0]:
        answer = driver().cuMemcpy2DAsync(_rows(destination, source, loops), stream)
    else:
        raise LaunchError(
            f"{what}: copy from strides {source.strides_elems} into strides "
            f"{destination.strides_elems}; needed layouts that differ in one row pitch at most"
        )
    check(answer, what)


def _rows(destination: ArrayView, source: ArrayView, loops: list[Loop]) -> Any:
    api = driver()
    (rows, dst_pitch, src_pitch), (width, _, _) = loops
    nbytes = source.dtype.nbytes
    copy = api.CUDA_MEMCPY2D()
    copy.srcMemoryType = copy.dstMemoryType = api.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcDevice, copy.srcPitch = source.pointer, src_pitch * nbytes
    copy.dstDevice, copy.dstPitch = destination.pointer, dst_pitch * nbytes
    copy.WidthInBytes, copy.Height = width * nbytes, rows
    return copy


def zero(pointer: int, nbytes: int, stream: int, what: str) -> None:
    """Queue a memset of `nbytes` bytes."""
    if nbytes:
        check(driver().cuMemsetD8Async(pointer, 0, nbytes, stream), what)


def stage_in(view: ArrayView, scratch: Scratch, what: str) -> ArrayView:
    """Copy a host array to the device, gaps included, so that its strides stay what they are."""
    low, high = byte_bounds(view)
    pointer = scratch.allocate(high - low)
    if pointer:
        check(driver().cuMemcpyHtoDAsync(pointer, low, high - low, scratch.stream), what)
    device_id = scratch.device_id
    return replace(
        view,
        pointer=pointer + view.pointer - low if pointer else 0,
        device="cuda",
        device_id=device_id,
        kind="dlpack",
    )


def fetch(view: ArrayView, stream: int, what: str) -> np.ndarray[Any, Any]:
    """Queue the copy of a device array to new host memory; valid once `stream` is done."""
    low, high = byte_bounds(view)
    memory = np.empty(high - low, np.uint8)
    if not memory.size:
        return np.empty(view.shape, view.dtype.np)
    check(driver().cuMemcpyDtoHAsync(memory.ctypes.data, low, high - low, stream), what)
    return np.ndarray(
        view.shape,
        view.dtype.np,
        buffer=memory,
        offset=view.pointer - low,
        strides=tuple(s * view.dtype.nbytes for s in view.strides_elems),
    )
