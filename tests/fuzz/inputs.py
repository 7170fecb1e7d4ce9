"""Input arrays of random fusions: element values by dtype, and how they lie in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.core.dtypes import DataType
from fuser.ops.convert import convert

LAYOUTS = (
    "contiguous", "permuted", "strided", "offset", "sliced", "expanded", "reversed",
)  # fmt: skip
WRITABLE = ("contiguous", "permuted", "strided", "offset", "sliced")


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """An input tensor of a random fusion.

    Attributes
    ----------
    sizes
        Extents of the first call.
    symbolic
        Per dimension whether another call may have another extent.
    layout
        One of `LAYOUTS`.
    values
        ``"small"`` quarters and integers, ``"normal"`` floats, ``"special"`` with infinities, NaN,
        zeros of both signs, subnormals and the ends of the range.
    """

    dtype: DataType
    sizes: tuple[int, ...]
    symbolic: tuple[bool, ...]
    layout: str
    values: str
    seed: int

    def array(self, renamed: dict[int, int] | None = None) -> Any:
        """Return the array of one call; `renamed` maps symbolic extents of the first call."""
        new = renamed or {}
        sizes = tuple(
            new.get(n, n) if s else n for n, s in zip(self.sizes, self.symbolic, strict=True)
        )
        rng = np.random.default_rng((self.seed, *sizes))
        return laid_out(elements(rng, self.dtype, sizes, self.values), self.layout, rng)


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """A scalar input of a random fusion."""

    dtype: DataType
    number: float

    def array(self, renamed: dict[int, int] | None = None) -> float:
        """Return the number; scalars stay as they are."""
        return self.number


def elements(rng: np.random.Generator, dtype: DataType, sizes: Sequence[int], values: str) -> Any:
    """Return a contiguous array of random elements."""
    shape = tuple(sizes)
    if dtype is DataType.Bool:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.is_integer:
        return _integers(rng, dtype, shape, values)
    if values == "small":
        # sums of thousands of these are exact in f32, whatever the order
        return convert(rng.integers(-16, 17, shape) / 4.0, dtype)
    array = convert(rng.standard_normal(shape) * 2, dtype)
    if values == "special" and array.size:
        specials = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-40, -3e38, 448.0, 65504.0, 1e300]
        chosen = np.asarray(rng.random(shape) < 0.2)
        array[chosen] = convert(rng.choice(specials, int(chosen.sum())), dtype)
    return array


def _integers(
    rng: np.random.Generator, dtype: DataType, shape: tuple[int, ...], values: str
) -> Any:
    limits = np.iinfo(dtype.np)
    if values == "special":
        array = rng.integers(limits.min, limits.max, shape, dtype.np, endpoint=True)
    else:
        array = rng.integers(max(limits.min, -9), 10, shape).astype(dtype.np)
    return np.asarray(array)


def laid_out(array: Any, layout: str, rng: np.random.Generator) -> Any:
    """Return an equal array that lies in memory as `layout` says (some layouts repeat elements)."""
    if array.ndim == 0 or layout == "contiguous":
        return np.asarray(array)
    if layout == "expanded":
        firsts = tuple(slice(0, 1) if rng.random() < 0.6 else slice(None) for _ in array.shape)
        return np.broadcast_to(np.ascontiguousarray(array[firsts]), array.shape)
    if layout == "permuted":
        order = tuple(int(d) for d in rng.permutation(array.ndim))
        base = np.ascontiguousarray(np.transpose(array, order))
        return np.transpose(base, tuple(int(d) for d in np.argsort(order)))
    if layout == "offset":
        memory = np.empty(array.size + 1, array.dtype)
        view = memory[1:].reshape(array.shape)
    elif layout == "sliced":
        larger = tuple(n + int(rng.integers(0, 4)) for n in array.shape)
        where = tuple(
            slice(a := int(rng.integers(0, m - n + 1)), a + n)
            for n, m in zip(array.shape, larger, strict=True)
        )
        view = np.empty(larger, array.dtype)[where]
    else:
        steps = [int(rng.integers(1, 4)) for _ in array.shape]
        larger = tuple(n * s for n, s in zip(array.shape, steps, strict=True))
        sign = -1 if layout == "reversed" else 1
        view = np.empty(larger, array.dtype)[tuple(slice(None, None, s) for s in steps)]
        view = view[tuple(slice(None, None, sign) for _ in steps)]
    view[...] = array
    return view
