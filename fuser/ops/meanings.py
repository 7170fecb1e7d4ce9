"""NumPy meanings that no single ufunc has: edge cases of integer, sign-of-zero and NaN arithmetic.

Arguments are arrays of one compute dtype and results keep it, unless said otherwise.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

import fuser.ops.special as special
from fuser.core.dtypes import DataType
from fuser.ops.spec import Array


def _is_float(x: Any) -> bool:
    return np.asarray(x).dtype.kind == "f"


def _constant(x: Any, value: float) -> Any:
    return np.asarray(x).dtype.type(value)


def _select(condition: Any, a: Any, b: Any) -> Any:
    return cast(Any, np.where(condition, a, b))


# -- unary ---------------------------------------------------------------------------------------


def same(x: Array) -> Any:
    """A copy of x, any dtype."""
    return np.array(x)


def reciprocal(x: Array) -> Any:
    """1 / x."""
    return _constant(x, 1) / x


def rsqrt(x: Array) -> Any:
    """1 / sqrt(x); -inf at -0."""
    return _constant(x, 1) / np.sqrt(x)


def frac(x: Array) -> Any:
    """The part of x after the point, with the sign of x; NaN for infinities."""
    return x - np.trunc(x)


def relu(x: Array) -> Any:
    """max(x, 0); NaN stays, -0 becomes +0."""
    zero = _constant(x, 0)
    return np.maximum(x, zero) + zero


def sigmoid(x: Array) -> Any:
    """1 / (1 + exp(-x)), without overflow of exp."""
    one, small = _constant(x, 1), np.exp(-np.abs(x))
    return _select(np.less(x, 0), small, one) / (one + small)


def silu(x: Array) -> Any:
    """x sigmoid(x); NaN at -inf."""
    return x * sigmoid(x)


def gelu(x: Array) -> Any:
    """x Phi(x), Phi the normal distribution function; NaN at -inf."""
    half = _constant(x, 0.5)
    return x * (half * special.erfc(x * _constant(x, -math.sqrt(0.5))))


def gelu_tanh(x: Array) -> Any:
    """x (1 + tanh(u)) / 2 with u = sqrt(2/pi) (x + 0.044715 x**3), as x sigmoid(2u)."""
    scale = _constant(x, 2.0 * math.sqrt(2.0 / math.pi))
    return x * sigmoid(x * (scale + scale * _constant(x, 0.044715) * x * x))


def keep_integers(name: str) -> Any:
    """Return the rounding ufunc `name`, which leaves integers as they are."""
    ufunc = getattr(np, name)

    def rounding(x: Array) -> Any:
        return ufunc(x) if _is_float(x) else np.asarray(x).copy()

    return rounding


def signbit(x: Array) -> Any:
    """Whether the sign bit is set (also of -0 and NaN), any float dtype and integers -> bool."""
    is_float = DataType.from_numpy(np.asarray(x).dtype).is_float
    return np.signbit(x) if is_float else np.less(x, 0)


def isneginf(x: Array) -> Any:
    """x == -inf -> bool."""
    return np.equal(x, -np.inf)


def isposinf(x: Array) -> Any:
    """x == inf -> bool."""
    return np.equal(x, np.inf)


def isreal(x: Array) -> Any:
    """Always true: there are no complex dtypes -> bool."""
    return np.ones(np.shape(x), np.bool_)


# -- binary --------------------------------------------------------------------------------------


def maximum(a: Array, b: Array) -> Any:
    """The larger; NaN if either is, and -0 < +0."""
    larger = np.maximum(a, b)
    if not _is_float(larger):
        return larger
    return np.where((a == 0) & (b == 0), np.add(a, b), larger)


def minimum(a: Array, b: Array) -> Any:
    """The smaller; NaN if either is, and -0 < +0."""
    smaller = np.minimum(a, b)
    if not _is_float(smaller):
        return smaller
    return np.where((a == 0) & (b == 0), -np.subtract(-a, b), smaller)


def _guarded(a: Array, b: Array) -> tuple[Any, Any, Any]:
    """``(b == 0, b == -1, b made 1 in both cases)``: the divisors that trap or overflow."""
    zero = np.equal(b, 0)
    minus_one = np.equal(b, -1) & (np.asarray(b).dtype.kind == "i")
    return zero, minus_one, np.where(zero | minus_one, _constant(b, 1), b)


def _quotient(a: Array, b: Array, towards_zero: bool) -> Any:
    zero, minus_one, safe = _guarded(a, b)
    quotient = np.floor_divide(a, safe)
    if towards_zero:
        inexact = np.remainder(a, safe) != 0
        quotient = quotient + (inexact & ((a < 0) != (safe < 0))).astype(quotient.dtype)
    quotient = np.where(minus_one, np.subtract(_constant(a, 0), a), quotient)
    all_ones = ~np.zeros((), np.asarray(a).dtype)
    return np.where(zero, all_ones, quotient)


def div(a: Array, b: Array) -> Any:
    """a / b; integers truncate, x / 0 has all bits set, INT_MIN / -1 wraps to INT_MIN."""
    return np.true_divide(a, b) if _is_float(a) else _quotient(a, b, towards_zero=True)


def floordiv(a: Array, b: Array) -> Any:
    """floor(a / b) with a rounded quotient for floats; integers as in `div` but rounded down."""
    return np.floor(np.true_divide(a, b)) if _is_float(a) else _quotient(a, b, towards_zero=False)


def _integer_remainder(a: Array, b: Array, ufunc: Any) -> Any:
    zero, minus_one, safe = _guarded(a, b)
    rest = _select(minus_one, _constant(a, 0), ufunc(a, safe))
    return np.where(zero, a, rest)


def remainder(a: Array, b: Array) -> Any:
    """Rest with the sign of b (Python's %); x % 0 is x for integers, NaN for floats."""
    if not _is_float(a):
        return _integer_remainder(a, b, np.remainder)
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def fmod(a: Array, b: Array) -> Any:
    """Rest with the sign of a (C's %); x % 0 is x for integers, NaN for floats."""
    return np.fmod(a, b) if _is_float(a) else _integer_remainder(a, b, np.fmod)


def power(a: Array, b: Array) -> Any:
    """a**b; integer powers wrap, negative integer exponents truncate (0 for 0**-n)."""
    if _is_float(a):
        return np.power(a, b)
    negative = b < 0
    result = np.power(a, np.where(negative, _constant(b, 0), b))
    odd = np.bitwise_and(b, _constant(b, 1)) != 0
    inverse = _select(a == 1, _constant(a, 1), _constant(a, 0))
    if np.asarray(a).dtype.kind == "i":
        inverse = _select(a == -1, _select(odd, _constant(a, -1), _constant(a, 1)), inverse)
    return np.where(negative, inverse, result)


def logical_right_shift(a: Array, count: Array) -> Any:
    """a >> count filled with zeros; 0 when count is negative or at least the width."""
    dtype = np.asarray(a).dtype
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = np.asarray(a).view(unsigned)
    return np.right_shift(bits, np.asarray(count).astype(unsigned)).view(dtype)


# -- ternary and more ----------------------------------------------------------------------------


def clamp(x: Array, low: Array, high: Array) -> Any:
    """min(max(x, low), high): `high` wins when low > high; NaN of any operand propagates."""
    return minimum(maximum(x, low), high)


def threshold(x: Array, limit: Array, value: Array) -> Any:
    """`value` where x <= limit, else x (so NaN stays)."""
    return np.where(np.less_equal(x, limit), value, x)


def lerp(a: Array, b: Array, weight: Array) -> Any:
    """a + weight (b - a), from the nearer end so that weight 1 gives b exactly."""
    near_a = weight < 0.5
    one = _constant(weight, 1)
    return np.where(near_a, a + weight * (b - a), b - (b - a) * (one - weight))


def addcmul(x: Array, a: Array, b: Array, value: Array) -> Any:
    """x + value a b."""
    return x + value * a * b


def fma(a: Array, b: Array, c: Array) -> Any:
    """a b + c without rounding the product: in a wider type, so that it cannot overflow either."""
    dtype = np.asarray(a).dtype
    wide = np.float64 if dtype == np.float32 else np.longdouble
    return (np.multiply(a, b, dtype=wide) + c).astype(dtype)
