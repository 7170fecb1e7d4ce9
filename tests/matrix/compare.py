"""When an output is right: an interval around the float64 answer, rounded to the output dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.core.dtypes import DataType
from fuser.ops.convert import convert


def compare(
    what: str, got: np.ndarray, want: Any, dtype: DataType, allowed: Any = 0.0, also: Any = None
) -> None:
    """Fail unless `got` lies between the roundings of ``want - allowed`` and ``want + allowed``.

    With `allowed` 0 the output must be the correctly rounded number, sign of zero included. NaN
    matches NaN alone, and an infinity what rounds to it. `also` holds elements that are right too.
    """
    assert got.dtype == dtype.np, f"{what}: dtype {got.dtype}; expected {dtype.np}"
    want = np.asarray(want)
    assert got.shape == want.shape, f"{what}: shape {got.shape}; expected {want.shape}"
    if dtype.is_float:
        good = within(got, want.astype(np.float64), dtype, np.asarray(allowed, np.float64))
        if also is not None:
            good |= within(got, np.asarray(also, np.float64), dtype, np.zeros(()))
    else:
        good = got == want
        if dtype is DataType.Bool:
            good &= np.ascontiguousarray(got).view(np.uint8).reshape(got.shape) <= 1
    if good.all():
        return
    at = tuple(int(i) for i in np.argwhere(~good)[0])
    limit = np.broadcast_to(allowed, got.shape)[at]
    raise AssertionError(
        f"{what}: {int((~good).sum())} of {got.size} elements differ, first at {list(at)}: got "
        f"{got[at]!r}, expected {want[at]!r} +- {limit:.3g}"
    )


def within(got: np.ndarray, want: np.ndarray, dtype: DataType, allowed: np.ndarray) -> np.ndarray:
    """Return per element whether `got` is right; see `compare`."""
    with np.errstate(all="ignore"):
        slack = np.where(np.isfinite(want), allowed, 0.0)
        low, high = (wide(convert(want + s, dtype)) for s in (-slack, slack))
        value = wide(got)
        inside = (low <= value) & (value <= high)
    if dtype is DataType.Float8_e4m3fn:  # no infinity: past the end of the range it is NaN
        past = (np.isnan(low) | np.isnan(high)) & np.isnan(value)
        inside |= past | (np.isnan(low) & (value <= high)) | (np.isnan(high) & (value >= low))
    zeros = (value == 0) & (low == 0) & (high == 0)
    signs = np.signbit(value) == np.signbit(want)
    exact_zero = zeros & ((want == 0) | (slack == 0))
    numbers = inside & (signs | ~exact_zero)
    return np.where(np.isnan(want), np.isnan(value), numbers)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def ulp(want: Any, dtype: DataType) -> np.ndarray:
    """Unit in the last place of `dtype` at `want`."""
    info = np.finfo(dtype.compute.np)
    magnitude = np.abs(np.where(np.isfinite(want), want, 0.0))
    return np.maximum(magnitude * float(info.eps), float(info.smallest_subnormal))
