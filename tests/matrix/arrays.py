"""Inputs of the matrix: values of every dtype with its special ones, shapes and layouts."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

from fuser.api.definition import FusionDefinition
from fuser.core.dtypes import DataType
from fuser.ops.convert import convert
from fuser.runtime.arrays import byte_bounds, view_of

SHAPES = ((), (0, 2, 1), (1,), (5, 0, 3), (11,), (37, 1, 130))
LARGE = (1024, 1024)
LAYOUTS = ("contiguous", "transposed", "strided", "expanded", "misaligned")


def special_values(dtype: DataType) -> list[Any]:
    """Values at which implementations differ: ends of the range, zeros, NaN, halfway cases."""
    if dtype is DataType.Bool:
        return [False, True]
    if dtype.is_integer:
        limits = np.iinfo(dtype.np)
        ends = [limits.min, limits.min + 1, limits.max - 1, limits.max, 0, 1, 2, 3, 7, 31]
        return ends + ([-1, -2, -7] if dtype.kind == "int" else [])
    info = ml_dtypes.finfo(dtype.np)
    ends = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 2.5, -2.5, 3.5, np.inf, -np.inf, np.nan, 100.25]
    ends += [float(s * v) for v in (info.max, info.tiny, info.smallest_subnormal) for s in (1, -1)]
    return [*ends, float(info.tiny) / 4 * 3, 448.0, 464.0, 57344.0, 61440.0, 2.0**31, -(2.0**63)]


def values(dtype: DataType, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` values: a quarter special ones, the others of many magnitudes."""
    special = special_values(dtype)
    chosen = rng.integers(0, len(special), count)
    if dtype is DataType.Bool:
        return chosen.astype(np.bool_)
    if dtype.is_integer:
        limits = np.iinfo(dtype.np)
        wide = rng.integers(limits.min, limits.max, count, dtype=dtype.np, endpoint=True)
        small = rng.integers(max(-9, int(limits.min)), 70, count).astype(dtype.np)
        usual = np.where(rng.random(count) < 0.5, wide, small)
        marked = np.array(special, dtype.np)[chosen]
    else:
        wide = rng.normal(size=count) * np.exp2(rng.integers(-12, 7, count))
        usual = convert(np.where(rng.random(count) < 0.5, wide, rng.uniform(-1, 1, count)), dtype)
        marked = convert(np.array(special, np.float64), dtype)[chosen]
    return np.where(rng.random(count) < 0.25, marked, usual).astype(dtype.np)


def array(
    dtype: DataType, shape: tuple[int, ...], layout: str, rng: np.random.Generator
) -> np.ndarray:
    """An array of random and special values, laid out in memory as `layout` says."""
    count = int(np.prod(shape, dtype=np.int64))
    return arrange(values(dtype, count, rng).reshape(shape), layout)


def arrange(x: np.ndarray, layout: str) -> np.ndarray:
    """Return the elements of `x` in another memory layout; gaps hold bytes nobody may see.

    ``expanded`` repeats the first element of a dimension with stride 0.
    """
    if layout == "transposed":
        return np.array(x, order="F")
    if layout == "strided" and x.ndim:
        steps = [2] + [1] * (x.ndim - 2) + [3] * (x.ndim > 1)
        base = poisoned(tuple(n * s for n, s in zip(x.shape, steps, strict=True)), x.dtype)
        return filled(base[tuple(slice(None, None, s) for s in steps)], x)
    if layout == "expanded" and x.ndim and x.size:
        axis = int(np.argmax(x.shape))
        return np.broadcast_to(np.ascontiguousarray(x.take([0], axis)), x.shape)
    if layout == "misaligned":
        return filled(poisoned((x.size + 1,), x.dtype)[1:].reshape(x.shape), x)
    return np.array(x, order="C")


def poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """An array of bytes 0xA5 (True for bool): neither zero nor a usual number."""
    count = int(np.prod(shape, dtype=np.int64))
    raw = np.full(count * dtype.itemsize, 1 if dtype == np.bool_ else 0xA5, np.uint8)
    return raw.view(dtype).reshape(shape)


def spanned_bytes(x: np.ndarray) -> np.ndarray:
    """A copy of the bytes from the first element of `x` to its last, gaps included."""
    low, high = byte_bounds(view_of(x))
    return np.frombuffer(ctypes.string_at(low, high - low), np.uint8)


def filled(target: np.ndarray, x: np.ndarray) -> np.ndarray:
    target[...] = x
    return target


def define(
    fd: FusionDefinition, x: np.ndarray, *, static: bool = False, promise: bool = False
) -> Any:
    """Add an input for `x`: extents symbolic or as they are, contiguity promised or not."""
    shape = [n if static or n == 1 else -1 for n in x.shape] if promise or static else [-1] * x.ndim
    return fd.define_tensor(shape=shape, contiguity=promise, dtype=DataType.from_numpy(x.dtype))
