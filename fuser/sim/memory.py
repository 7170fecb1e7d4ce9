"""Flat memories and how lanes gather from and scatter to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fuser.core.dtypes import DataType
from fuser.core.errors import InputError
from fuser.sim.agent import Array, Mask


@dataclass(slots=True)
class Memory:
    """Elements of one tensor, or of one shared array in each of several blocks.

    Attributes
    ----------
    data
        1-D and contiguous: a view of the caller's memory for tensors.
    numel
        Elements that an index may name (per block for shared arrays).
    """

    name: str
    dtype: DataType
    data: Array
    numel: int
    space: Literal["global", "shared"]
    writable: bool = True
    aligned_bytes: int = 16


def poison(numel: int | tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return elements that nobody should ever see: all bits set, NaN in the float types."""
    array = np.empty(numel, dtype)
    array.reshape(-1).view(np.uint8).fill(0xFF if dtype != np.bool_ else 1)
    return array


def flat_view(name: str, array: Array) -> Array:
    """Return the elements `array` spans in memory as one 1-D view, gaps included, no copy.

    Raises
    ------
    InputError
        Strides are negative or no multiple of the element size.
    """
    if array.size == 0:
        return array.reshape(-1)
    itemsize = array.itemsize
    strides = [s for s, n in zip(array.strides, array.shape, strict=True) if n > 1]
    if any(s < 0 or s % itemsize for s in strides):
        raise InputError(
            f"{name}: strides {array.strides} in bytes; needs non-negative multiples of {itemsize}"
        )
    extents = zip(array.strides, array.shape, strict=True)
    numel = 1 + sum(s // itemsize * (n - 1) for s, n in extents if n > 1)
    return strided_view(array, (numel,), (itemsize,))


def strided_view(array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """View the memory at the start of `array`; `strides` are in bytes."""
    bits = array.view(f"u{array.itemsize}")  # NumPy cannot restride the dtypes of ml_dtypes
    return np.lib.stride_tricks.as_strided(bits, shape, strides).view(array.dtype)


def _units(data: Array, width: int) -> Array:
    """View `data` as opaque units of `width` elements; moving them never looks inside."""
    whole = data[: data.size - data.size % width]
    return whole.view(np.dtype((np.void, width * data.itemsize)))


def gather(data: Array, where: Any, width: int) -> Array:
    """Read `width` elements at each flat address: shape (lanes,), or (lanes, width) if wider."""
    if data.size == 0:
        return np.zeros(np.shape(where) + (width,) * (width > 1), data.dtype)
    if width == 1:
        if isinstance(where, int):
            element: Array = data[where]
            return element
        taken: Array = data.view(f"u{data.itemsize}").take(where)
        return taken.view(data.dtype)
    if isinstance(where, int):
        return np.array(data[where : where + width])
    units: Array = _units(data, width).take(where // width)
    return units.view(data.dtype).reshape(-1, width)


def scatter(data: Array, where: Any, value: Any, mask: Mask, width: int) -> None:
    """Write at each flat address; of lanes that collide, the last one wins."""
    if isinstance(where, int):
        rows = np.asarray(value).reshape(-1, width)
        rows = rows if mask is None or len(rows) == 1 else rows[mask]
        data[where : where + width] = rows[-1]
        return
    if mask is not None:
        where = where[mask]
        value = value[mask] if np.ndim(value) >= 1 + (width > 1) else value
    if width == 1:
        data[where] = value
        return
    full = np.ascontiguousarray(np.broadcast_to(value, (where.size, width)), data.dtype)
    _units(data, width)[where // width] = full.view(np.dtype((np.void, width * data.itemsize)))[
        :, 0
    ]


def lane_columns(index: Any, width: int) -> NDArray[np.int64]:
    """Return the register columns each lane touches, shape (lanes, width)."""
    return np.asarray(index)[:, None] + np.arange(width)
