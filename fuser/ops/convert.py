"""The meaning of cast, shared by the reference, the interpreter and the tests.

Every conversion rounds once, to nearest even. NumPy and ml_dtypes round float64 and wide integers
to the 8- and 16-bit floats through f32, which rounds twice; here they go to f32 by *rounding to
odd*, after which the second rounding is exact. The CUDA prelude (``convert.cuh``) does the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuser.core.dtypes import DataType


def convert(array: Any, target: DataType) -> NDArray[Any]:
    """Return `array` converted to `target`.

    * float to float: nearest even, once; subnormals kept; e4m3fn overflows to NaN (it has no
      infinity), the others to infinity.
    * float to integer: truncates, saturates at the range of `target`; NaN gives 0.
    * anything to Bool: ``!= 0`` (NaN is true).
    * integer to integer: wraps.
    * integer to float: nearest even, once.
    """
    x = np.asarray(array)
    source = DataType.from_numpy(x.dtype)
    if source is target:
        return x.copy()
    with np.errstate(all="ignore"):
        if target is DataType.Bool:
            return np.asarray(_widened(x, source) != 0)
        if target.is_reduced_float:
            return np.asarray(_round_to_odd(x, source).astype(target.np))
        if source.is_float and target.is_integer:
            return _saturate(_widened(x, source), target)
        return np.asarray(x.astype(target.np))


def _widened(x: NDArray[Any], source: DataType) -> NDArray[Any]:
    """`x` as an array NumPy has comparisons for: reduced floats as f32, exactly."""
    return np.asarray(x.astype(np.float32)) if source.is_reduced_float else x


def _round_to_odd(x: NDArray[Any], source: DataType) -> NDArray[np.float32]:
    """`x` in f32; an inexact value gets the neighbour whose last bit is 1.

    A last bit that records "inexact" breaks ties the right way in any rounding to at most 22 bits.
    """
    if source is DataType.Int:
        # keep 53 bits, the lowest of them sticky, so that float64 is exact
        folded = (x & ~np.int64(0x3FF)) | np.where(x & 0x3FF, np.int64(0x400), np.int64(0))
        x = np.where(np.abs(x.astype(np.float64)) >= 2.0**53, folded, x)
    if source not in (DataType.Int, DataType.Int32, DataType.Double):
        return x.astype(np.float32)
    wide = x.astype(np.float64)
    nearest = wide.astype(np.float32)
    even = (nearest.view(np.uint32) & np.uint32(1)) == 0
    inexact = (nearest.astype(np.float64) != wide) & ~np.isnan(wide)
    towards = np.where(nearest.astype(np.float64) < wide, np.inf, -np.inf).astype(np.float32)
    return np.asarray(np.where(inexact & even, np.nextafter(nearest, towards), nearest), np.float32)


def _saturate(x: NDArray[Any], target: DataType) -> NDArray[Any]:
    """Truncate floats to integers of `target`, clamping to its range; NaN gives 0."""
    limits = np.iinfo(target.np)
    truncated = np.trunc(x)
    above = truncated >= float(limits.max)  # a maximum that is no float is compared rounded up
    below = truncated <= float(limits.min)
    inside = np.where(above | below | np.isnan(x), x.dtype.type(0), truncated)
    result = inside.astype(target.np)
    result = np.where(above, target.np.type(limits.max), result)
    return np.asarray(np.where(below, target.np.type(limits.min), result))
