"""`convert`, the meaning of cast, against exact integer and rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fuser.core.dtypes import DataType
from fuser.ops.convert import convert

pytestmark = [pytest.mark.unit, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

SMALL = [d for d in DataType if d.nbytes <= 2]
REDUCED = [d for d in DataType if d.is_reduced_float]
INTEGERS = [d for d in DataType if d.is_integer]
WIDE = [DataType.Int32, DataType.Int, DataType.Float, DataType.Double]


def every_value(dtype: DataType) -> np.ndarray:
    """All values of an 8- or 16-bit dtype."""
    if dtype is DataType.Bool:
        return np.array([False, True])
    codes = np.arange(1 << (8 * dtype.nbytes), dtype=np.uint32)
    return codes.astype(f"u{dtype.nbytes}").view(dtype.np)


def wide_values(dtype: DataType) -> np.ndarray:
    """Random bit patterns, moderate values and extremes of a 32- or 64-bit dtype."""
    rng = np.random.default_rng(dtype.nbytes + len(dtype.short))
    bits = rng.integers(0, 256, 4000 * dtype.nbytes, dtype=np.uint8).view(dtype.np)
    moderate = (rng.normal(size=4000) * np.exp2(rng.integers(-20, 20, 4000))).astype(dtype.np)
    if dtype.is_float:
        ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 448, 464, 464.5, 57344, 61440, 65504, 65520]
        ends += [2.0**31, -(2.0**31), 2.0**31 - 128, 2.0**63, -(2.0**63)]
        ends += [127.5, -128.9, 255.9, 1e-45]
        return np.concatenate([bits, moderate, np.array(ends, dtype.np)])
    limits = np.iinfo(dtype.np)
    ends = [limits.min, limits.min + 1, -1, 0, 1, limits.max - 1, limits.max]
    return np.concatenate([bits, moderate, np.array(ends, dtype.np)])


def source_values(dtype: DataType) -> np.ndarray:
    return every_value(dtype) if dtype in SMALL else wide_values(dtype)


def near_ties(target: DataType) -> np.ndarray:
    """Float64 values on, just under and just over the midpoints of `target`."""
    table, _ = finite_table(target)
    rng = np.random.default_rng(7)
    low = rng.integers(0, len(table) - 1, 3000)
    middle = (table[low] + table[low + 1]) / 2
    near = [middle, np.nextafter(middle, np.inf), np.nextafter(middle, 0)]
    return np.concatenate([*near, *(-x for x in near)])


def finite_table(target: DataType) -> tuple[np.ndarray, np.ndarray]:
    """Non-negative finite values of a reduced float in ascending order, then the overflow point.

    The overflow point is where the next value would be if the exponent range went on.
    """
    values = every_value(target).astype(np.float64)
    codes = np.arange(len(values))
    keep = np.isfinite(values) & ~np.signbit(values)
    table, codes = values[keep], codes[keep]
    assert (np.diff(table) > 0).all()
    return np.append(table, 2 * table[-1] - table[-2]), np.append(codes, codes[-1] + 1)


def expected_reduced(x: np.ndarray, target: DataType) -> np.ndarray:
    """Nearest value of `target`, ties to the even code, for `x` in float64."""
    table, codes = finite_table(target)
    size = np.minimum(np.abs(x), table[-1])
    size = np.where(np.isnan(x), 0.0, size)
    above = np.searchsorted(table, size)
    below = np.maximum(above - 1, 0)
    middle = (table[below] + table[above]) / 2  # exact: both have at most 12 significant bits
    pick_above = (size > middle) | ((size == middle) & (codes[above] % 2 == 0))
    index = np.where(pick_above, above, below)
    overflow = np.nan if target is DataType.Float8_e4m3fn else np.inf
    result = np.where(index == len(table) - 1, overflow, table[index])
    return np.where(np.isnan(x), np.nan, np.copysign(result, x))


def assert_same(got: np.ndarray, want: np.ndarray, what: str) -> None:
    """Equal as float64 including the sign of zero; NaN equals NaN."""
    got64, want64 = got.astype(np.float64), np.asarray(want, np.float64)
    same = (got64 == want64) & (np.signbit(got64) == np.signbit(want64))
    same |= np.isnan(got64) & np.isnan(want64)
    bad = np.flatnonzero(~same)
    assert bad.size == 0, f"{what}: {bad.size} differ, first {got64[bad[:5]]} != {want64[bad[:5]]}"


@pytest.mark.parametrize("target", REDUCED, ids=repr)
@pytest.mark.parametrize("source", list(DataType), ids=repr)
def test_to_reduced_float_rounds_once(source: DataType, target: DataType) -> None:
    x = source_values(source)
    if source is DataType.Int:
        x = x[np.abs(x.astype(np.float64)) < 2.0**53]
    if source is DataType.Double:
        x = np.concatenate([x, near_ties(target)])
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
    got = convert(x, target)
    assert got.dtype == target.np
    assert_same(got, expected_reduced(wide, target), f"{source}->{target}")


def nearest_exactly(value: int, target: DataType) -> float:
    """Round an integer to the significant bits of `target`, with integers only."""
    bits = {DataType.BFloat16: 8, DataType.Float: 24, DataType.Double: 53}[target]
    drop = max(abs(value).bit_length() - bits, 0)
    kept, rest = abs(value) >> drop, abs(value) & ((1 << drop) - 1)
    half = 1 << (drop - 1) if drop else 1
    kept += rest > half or (rest == half and drop > 0 and kept % 2 == 1)
    return math.copysign(float(kept << drop), value)


@pytest.mark.parametrize("target", [DataType.BFloat16, DataType.Float, DataType.Double], ids=repr)
def test_int64_rounds_once(target: DataType) -> None:
    ties = [(1 << k) + (1 << (k - b)) for k in range(54, 62) for b in (8, 24)]
    listed = [*wide_values(DataType.Int).tolist(), *(t + d for t in ties for d in (-1, 0, 1))]
    x = np.array([*listed, *(-v for v in listed if v > -(2**63))], np.int64)
    assert_same(convert(x, target), [nearest_exactly(v, target) for v in x.tolist()], repr(target))


@pytest.mark.parametrize("target", INTEGERS, ids=repr)
@pytest.mark.parametrize("source", [d for d in DataType if d.is_float], ids=repr)
def test_float_to_integer_truncates_and_saturates(source: DataType, target: DataType) -> None:
    limits = np.iinfo(target.np)

    def exact(value: float) -> int:
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return int(limits.max if value > 0 else limits.min)
        return max(int(limits.min), min(int(limits.max), int(value)))

    x = source_values(source)
    got = convert(x, target)
    assert got.dtype == target.np
    with np.errstate(all="ignore"):
        assert got.tolist() == [exact(v) for v in x.astype(np.float64).tolist()]


@pytest.mark.parametrize("target", INTEGERS, ids=repr)
@pytest.mark.parametrize("source", [DataType.Bool, *INTEGERS], ids=repr)
def test_integer_to_integer_wraps(source: DataType, target: DataType) -> None:
    x = source_values(source)
    width, low = 8 * target.nbytes, int(np.iinfo(target.np).min)
    assert convert(x, target).tolist() == [(int(v) - low) % (1 << width) + low for v in x.tolist()]


@pytest.mark.parametrize("source", list(DataType), ids=repr)
def test_to_bool_is_not_zero_and_nan_is_true(source: DataType) -> None:
    x = source_values(source)
    with np.errstate(all="ignore"):
        assert convert(x, DataType.Bool).tolist() == [v != 0 for v in x.astype(np.float64).tolist()]


def test_double_to_float_is_the_nearest() -> None:
    x = wide_values(DataType.Double)
    x = x[np.abs(x) < 1e38]
    got = convert(x, DataType.Float)
    for value, y in zip(x.tolist(), got, strict=True):
        error = abs(Fraction(value) - Fraction(float(y)))
        for neighbour in (np.nextafter(y, np.float32(-4e38)), np.nextafter(y, np.float32(3.4e38))):
            assert error <= abs(Fraction(value) - Fraction(float(neighbour)))


@pytest.mark.parametrize("source", REDUCED, ids=repr)
@pytest.mark.parametrize("wide", [DataType.Float, DataType.Double], ids=repr)
def test_widening_is_exact_and_narrowing_returns(source: DataType, wide: DataType) -> None:
    x = every_value(source)
    assert_same(convert(x, wide), x.astype(np.float64), "widen")
    assert_same(convert(convert(x, wide), source), x.astype(np.float64), "round trip")


@pytest.mark.parametrize(
    ("value", "target", "want"),
    [
        (1 + 2.0**-8 + 2.0**-40, DataType.BFloat16, 1 + 2.0**-7),
        (1 + 2.0**-4 + 2.0**-40, DataType.Float8_e4m3fn, 1.125),
        (1000.0, DataType.Float8_e4m3fn, math.nan),
        (464.0, DataType.Float8_e4m3fn, 448.0),
        (-math.inf, DataType.Float8_e4m3fn, math.nan),
        (61440.0, DataType.Float8_e5m2, math.inf),
        (-61439.0, DataType.Float8_e5m2, -57344.0),
        (65520.0, DataType.Half, math.inf),
        (2.0**-149, DataType.Float, 2.0**-149),
        (2.0**-9, DataType.Float8_e4m3fn, 2.0**-9),
    ],
)
def test_documented_values(value: float, target: DataType, want: float) -> None:
    assert_same(convert(np.float64(value), target), np.float64(want), repr(target))


def test_result_is_a_new_array_of_the_same_shape() -> None:
    x = np.zeros((2, 0, 3), np.float32)
    assert convert(x, DataType.Half).shape == (2, 0, 3)
    y = np.ones(3, np.float32)
    assert not np.shares_memory(convert(y, DataType.Float), y)
