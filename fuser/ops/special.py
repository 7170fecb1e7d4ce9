"""erf, erfc, erfinv, erfcinv and lgamma on arrays.

Each is a Chebyshev series on a finite interval (coefficients interpolated from the scalar functions
of `math` at first use) joined to a closed form, an asymptotic series or Halley's iteration; good to
about 1e-13, which is exact for every dtype but float64. In float64 erf and erfc are those of `math`
and their inverses end in a step with them: a few ulp, so that a float64 result of a GPU can be
judged against them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

F64: TypeAlias = NDArray[np.float64]

_BLOCK = 1 << 15  # elements per block: all temporaries stay in the second-level cache
_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
_ERFCX_SCALE = 3.75


def _blocked(function: Callable[[F64], F64], x: Any) -> NDArray[Any]:
    """Apply `function` to float64 blocks of `x`; the result has the dtype and shape of `x`."""
    array = np.asarray(x)
    flat = array.reshape(-1)
    out = np.empty(flat.shape, array.dtype)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            out[block] = function(flat[block].astype(np.float64))
    return out.reshape(array.shape)


_erf_exact = np.frompyfunc(math.erf, 1, 1)
_erfc_exact = np.frompyfunc(math.erfc, 1, 1)


def _elementwise(function: np.ufunc, x: F64) -> F64:
    return np.asarray(function(x), np.float64)


def _is_double(x: Any) -> bool:
    return np.asarray(x).dtype == np.float64


def _fit(function: Callable[[float], float], terms: int) -> F64:
    """Chebyshev coefficients interpolating `function` on [-1, 1]."""
    angles = (np.arange(terms) + 0.5) * (math.pi / terms)
    values = np.array([function(math.cos(a)) for a in angles])
    coefficients = 2.0 / terms * np.cos(np.outer(np.arange(terms), angles)) @ values
    coefficients[0] /= 2.0
    return np.asarray(coefficients, np.float64)


@cache
def _erf_series() -> F64:
    """Series of erf(x) / x in 2 x**2 - 1, for |x| <= 1."""

    def ratio(t: float) -> float:
        x = math.sqrt((t + 1.0) / 2.0)
        return math.erf(x) / x

    return _fit(ratio, 18)


def _scaled_erfc(x: float) -> float:
    """exp(x**2) erfc(x) for x >= 0."""
    if x < 20.0:
        return math.exp(x * x) * math.erfc(x)
    term, total = 1.0, 1.0
    for k in range(1, 12):
        term *= -(2 * k - 1) / (2.0 * x * x)
        total += term
    return total / (x * math.sqrt(math.pi))


@cache
def _erfcx_series() -> F64:
    """Series of (1 + 2x) exp(x**2) erfc(x) in (x - k) / (x + k), for x >= 0."""

    def scaled(t: float) -> float:
        x = _ERFCX_SCALE * (1.0 + t) / (1.0 - t)
        return (1.0 + 2.0 * x) * _scaled_erfc(x)

    return _fit(scaled, 44)


def _exp_minus_square(x: F64) -> F64:
    """exp(-x**2) without the error that rounding x**2 would cause in the tail."""
    high = np.round(x * 16.0) / 16.0
    return np.asarray(np.exp(-high * high) * np.exp((high - x) * (high + x)))


def _erfcx_positive(x: F64) -> F64:
    """exp(x**2) erfc(x), for x >= 0."""
    t = (x - _ERFCX_SCALE) / (x + _ERFCX_SCALE)
    return np.asarray(np.polynomial.chebyshev.chebval(t, _erfcx_series()) / (1.0 + 2.0 * x))


def _erfc_positive(x: F64) -> F64:
    bounded = np.minimum(x, 30.0)
    return np.asarray(_erfcx_positive(bounded) * _exp_minus_square(bounded))


def _erf_small(x: F64) -> F64:
    return np.asarray(x * np.polynomial.chebyshev.chebval(2.0 * x * x - 1.0, _erf_series()))


def _erf_block(x: F64) -> F64:
    out = np.empty_like(x)
    small = np.abs(x) <= 1.0
    out[small] = _erf_small(x[small])
    large = x[~small]
    out[~small] = np.copysign(1.0 - _erfc_positive(np.abs(large)), large)
    return out


def _erfc_block(x: F64) -> F64:
    out = np.empty_like(x)
    small = np.abs(x) <= 0.5
    out[small] = 1.0 - _erf_small(x[small])
    large = x[~small]
    tail = _erfc_positive(np.abs(large))
    out[~small] = np.where(large < 0.0, 2.0 - tail, tail)
    return out


def erf(x: Any) -> NDArray[Any]:
    """Error function, in the dtype of `x`."""
    return _elementwise(_erf_exact, x) if _is_double(x) else _blocked(_erf_block, x)


def erfc(x: Any) -> NDArray[Any]:
    """1 - erf(x), accurate where erf is close to 1."""
    return _elementwise(_erfc_exact, x) if _is_double(x) else _blocked(_erfc_block, x)


def _inverse_guess(product: F64) -> F64:
    """|erfinv(y)| to about 2e-3, from ``1 - y**2``."""
    log = np.log(product)
    mean = 2.0 / (math.pi * 0.147) + log / 2.0
    return np.asarray(np.sqrt(np.sqrt(mean * mean - log / 0.147) - mean))


def _halley(x: F64, error: F64) -> F64:
    """One step towards the root of an f with ``f'' = -2x f'`` and ``error = f / f'``."""
    return np.asarray(x - error / (1.0 + x * error))


def _polished(x: F64, error: F64) -> F64:
    """A last step with the exact function, where its error is a finite number."""
    error = error / (_TWO_OVER_SQRT_PI * _exp_minus_square(x))
    return np.where(np.isfinite(error), x - error, x)


def _invert_tail(q: F64) -> F64:
    """The x > 0 with erfc(x) = q, for 0 < q <= 1/2; both sides scaled by exp(x**2)."""
    log_q = np.log(q)
    x = _inverse_guess(q * (2.0 - q))
    for _ in range(4):
        x = _halley(x, (np.exp(x * x + log_q) - _erfcx_positive(x)) / _TWO_OVER_SQRT_PI)
    return _polished(x, q - _elementwise(_erfc_exact, x))


def _invert_middle(y: F64) -> F64:
    """The x with erf(x) = y, for |y| < 1/2."""
    x = np.copysign(_inverse_guess(1.0 - y * y), y)
    for _ in range(3):
        x = _halley(x, (_erf_block(x) - y) / (_TWO_OVER_SQRT_PI * np.exp(-x * x)))
    x = _polished(x, _elementwise(_erf_exact, x) - y)
    return np.where(np.abs(y) < 1e-8, y / _TWO_OVER_SQRT_PI, x)


def _erfinv_block(y: F64) -> F64:
    out = np.full_like(y, np.nan)
    size = np.abs(y)
    middle, tail = size < 0.5, (size >= 0.5) & (size < 1.0)
    out[middle] = _invert_middle(y[middle])
    out[tail] = np.copysign(_invert_tail(1.0 - size[tail]), y[tail])
    return np.where(size == 1.0, np.copysign(np.inf, y), out)


def _erfcinv_block(q: F64) -> F64:
    out = np.full_like(q, np.nan)
    low, middle, high = (q > 0.0) & (q <= 0.5), (q > 0.5) & (q < 1.5), (q >= 1.5) & (q < 2.0)
    out[low] = _invert_tail(q[low])
    out[middle] = _invert_middle(1.0 - q[middle])
    out[high] = -_invert_tail(2.0 - q[high])
    return np.where(q == 0.0, np.inf, np.where(q == 2.0, -np.inf, out))


def erfinv(y: Any) -> NDArray[Any]:
    """The x with erf(x) = y; infinite at -1 and 1, NaN outside."""
    return _blocked(_erfinv_block, y)


def erfcinv(q: Any) -> NDArray[Any]:
    """The x with erfc(x) = q; infinite at 0 and 2, NaN outside."""
    return _blocked(_erfcinv_block, q)


@cache
def _lgamma_series() -> F64:
    """Series of lgamma(x) / ((x - 1) (x - 2)) for 1/2 <= x <= 3, regular at both zeros."""

    def ratio(t: float) -> float:
        x = 1.75 + 1.25 * t
        return math.lgamma(x) / ((x - 1.0) * (x - 2.0))

    return _fit(ratio, 45)


_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


def _lgamma_large(x: F64) -> F64:
    """Stirling's series, for x >= 10."""
    inverse = 1.0 / x
    square = inverse * inverse
    series = np.zeros_like(x)
    for coefficient in reversed(_STIRLING):
        series = series * square + coefficient
    # (x - 1/2) (log x - 1) rather than ... - x: finite up to the overflow threshold itself
    return np.asarray(
        (x - 0.5) * (np.log(x) - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5 + series * inverse)
    )


def _lgamma_positive(x: F64) -> F64:
    shifted, product = x.copy(), np.ones_like(x)
    for _ in range(7):  # down to (2, 3] from at most 10
        step = (shifted > 3.0) & (x < 10.0)
        shifted = np.where(step, shifted - 1.0, shifted)
        product = np.where(step, product * shifted, product)
    tiny = shifted < 0.5
    argument = np.clip(np.where(tiny, shifted + 1.0, shifted), 0.5, 3.0)
    series = np.polynomial.chebyshev.chebval((argument - 1.75) / 1.25, _lgamma_series())
    small = series * (argument - 1.0) * (argument - 2.0) + np.log(product)
    small = np.where(tiny, small - np.log(shifted), small)
    return np.where(x < 10.0, small, _lgamma_large(np.maximum(x, 10.0)))


def _lgamma_block(x: F64) -> F64:
    size = np.abs(x)
    positive = np.where(np.isinf(size), np.inf, _lgamma_positive(size))
    fraction = size - np.floor(size)
    sine = np.sin(math.pi * np.minimum(fraction, 1.0 - fraction))
    reflected = np.log(math.pi / (size * sine)) - positive
    reflected = np.where(fraction == 0.0, np.inf, reflected)
    tiny = size < 1e-17  # 1/x dominates, and the reflection would overflow
    negative = np.where(tiny, -np.log(size), reflected)
    at_pole = np.isinf(x) | (x == 0.0)
    return np.where((x > 0.0) | at_pole, positive, np.where(np.isnan(x), x, negative))


def lgamma(x: Any) -> NDArray[Any]:
    """log |gamma(x)|; infinite at 0 and the negative integers and at both infinities."""
    return _blocked(_lgamma_block, x)
