"""What every pointwise op means, said a second time: one element, Python's own arithmetic.

Floats are Python floats (float64), integers are Python ints that the caller wraps. Nothing here is
NumPy, so that a mistake in a row of the op table cannot repeat itself.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

inf, nan = math.inf, math.nan


def exact_fma(a, b, c):
    """a b + c, rounded once; in exact arithmetic where all three are finite."""
    if not all(math.isfinite(x) for x in (a, b, c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c  # the sign of a zero
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def quiet(function: Callable[..., float], overflow: float = inf) -> Callable[..., float]:
    """`function` with NaN for a domain error and `overflow` where it overflows."""

    def total(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return nan
        except OverflowError:
            return overflow

    return total


def odd(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: math.copysign(quiet(function)(abs(x)), x) if x == x else nan


def at(pole: float, value: float, function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: value if x == pole else quiet(function)(x)


def rounding(function: Callable[[float], int]) -> Callable[[Any], Any]:
    def whole(x: Any) -> Any:
        if isinstance(x, int) or not math.isfinite(x):
            return x
        return math.copysign(float(function(x)), x)

    return whole


def divide(a: float, b: float) -> float:
    if b != 0 or a != a:
        return a / b if b != 0 else nan
    return nan if a == 0 else math.copysign(inf, a) * math.copysign(1.0, b)


def truncate(a: int, b: int) -> int:
    return -1 if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def div(a: Any, b: Any) -> Any:
    return truncate(a, b) if isinstance(a, int) else divide(a, b)


def floordiv(a: Any, b: Any) -> Any:
    if isinstance(a, int):
        return -1 if b == 0 else a // b
    return rounding(math.floor)(divide(a, b))


def remainder(a: Any, b: Any) -> Any:
    if isinstance(a, int):
        return a if b == 0 else a % b
    if not math.isfinite(a) or b == 0 or b != b:
        return nan
    if math.isinf(b):
        return a if a == 0 or (a < 0) == (b < 0) else b
    exact = Fraction(a) - Fraction(b) * (Fraction(a) / Fraction(b)).__floor__()
    return math.copysign(0.0, a) if exact == 0 else float(exact)


def fmod(a: Any, b: Any) -> Any:
    if isinstance(a, int):
        return a if b == 0 else a - b * truncate(a, b)
    try:
        return math.fmod(a, b)
    except ValueError:
        return nan


def power(a: Any, b: Any) -> Any:
    if isinstance(a, int):
        return pow(a, b, 1 << 64) if b >= 0 else (a ** (-b % 2) if abs(a) == 1 else 0)
    is_odd = math.isfinite(b) and abs(b) < 2.0**53 and int(b) == b and int(b) % 2 == 1
    infinite = math.copysign(inf, a) if is_odd else inf
    if a == 0 and b < 0:
        return infinite
    try:
        return math.pow(a, b)
    except OverflowError:
        return infinite
    except ValueError:
        return nan


def maximum(a: Any, b: Any) -> Any:
    if a != a or b != b:
        return nan
    if a == b == 0 and isinstance(a, float):
        return b if math.copysign(1, a) < 0 else a
    return a if a > b else b


def minimum(a: Any, b: Any) -> Any:
    if isinstance(a, bool):
        return a and b
    return -maximum(-a, -b)


def bisect(function: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Root of a monotone ``function(x) = target``, to the last bit."""
    rising = function(high) > function(low)
    while low < (middle := (low + high) / 2) < high:
        if (function(middle) < target) == rising:
            low = middle
        else:
            high = middle
    return low


def log_erfc(x: float) -> float:
    """log(erfc(x)) by the asymptotic series, for x > 20: its twelfth term is below 1e-18."""
    square = x * x
    term, series = 1.0, 0.0
    for k in range(1, 13):
        term *= -(2 * k - 1) / (2 * square)
        series += term
    return math.log1p(series) - square - math.log(x * math.sqrt(math.pi))


def erfcinv(q: float) -> float:
    if not 0 <= q <= 2:
        return nan
    if q in (0, 2):
        return inf if q == 0 else -inf
    if q == 1:
        return 0.0
    if q < 1e-300:  # erfc is subnormal there
        return bisect(log_erfc, math.log(q), 20.0, 30.0)
    if 0.5 < q < 1.5:
        return bisect(math.erf, 1 - q, -1.0, 1.0)
    return bisect(math.erfc, q, 0.0, 30.0) if q < 1 else -bisect(math.erfc, 2 - q, 0.0, 30.0)


def erfinv(y: float) -> float:
    if abs(y) < 1e-9:
        return y * math.sqrt(math.pi) / 2
    if abs(y) < 0.5:
        return bisect(math.erf, y, -1.0, 1.0)
    return math.copysign(erfcinv(1 - abs(y)), y) if abs(y) <= 1 else nan


def lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        return inf


def sigmoid(x: float) -> float:
    e = quiet(math.exp)(-x)
    return 1 / (1 + e)


def tanh_argument(x: float) -> float:
    return 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)


def is_float(x: Any) -> bool:
    return isinstance(x, float)


def shifted_right(a: int, n: int, width: int) -> int:
    return a >> n if 0 <= n < width else (-1 if a < 0 else 0)


UNARY: dict[str, Callable[[Any], Any]] = {
    "set": lambda x: x,
    "abs": abs,
    "neg": operator.neg,
    "relu": lambda x: (0.0 if is_float(x) else 0) if x <= 0 else x,
    "reciprocal": lambda x: divide(1.0, x),
    "rsqrt": lambda x: divide(1.0, quiet(math.sqrt)(x)),
    "sqrt": quiet(math.sqrt),
    "exp": quiet(math.exp),
    "exp2": quiet(lambda x: math.pow(2.0, x)),
    "expm1": quiet(math.expm1),
    "log": at(0, -inf, math.log),
    "log2": at(0, -inf, math.log2),
    "log10": at(0, -inf, math.log10),
    "log1p": at(-1, -inf, math.log1p),
    "sin": quiet(math.sin),
    "cos": quiet(math.cos),
    "tan": quiet(math.tan),
    "sinh": odd(math.sinh),
    "cosh": quiet(math.cosh),
    "tanh": math.tanh,
    "asin": quiet(math.asin),
    "acos": quiet(math.acos),
    "atan": math.atan,
    "asinh": math.asinh,
    "acosh": quiet(math.acosh),
    "atanh": lambda x: math.copysign(inf, x) if abs(x) == 1 else quiet(math.atanh)(x),
    "erf": math.erf,
    "erfc": math.erfc,
    "erfinv": erfinv,
    "erfcinv": erfcinv,
    "lgamma": lgamma,
    "frac": lambda x: quiet(lambda v: math.fmod(v, 1.0))(x) + 0.0,
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * (math.erfc(-x / math.sqrt(2)) / 2),
    "gelu_tanh": lambda x: x * sigmoid(tanh_argument(x)),
    "ceil": rounding(math.ceil),
    "floor": rounding(math.floor),
    "round": rounding(round),
    "trunc": rounding(math.trunc),
    "signbit": lambda x: math.copysign(1.0, x) < 0 if is_float(x) else x < 0,
    "isfinite": math.isfinite,
    "isinf": math.isinf,
    "isnan": math.isnan,
    "isneginf": lambda x: x == -inf,
    "isposinf": lambda x: x == inf,
    "isreal": lambda x: True,
    "logical_not": operator.not_,
    "bitwise_not": lambda x: not x if isinstance(x, bool) else ~x,
}

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a or b if isinstance(a, bool) else a + b,
    "sub": operator.sub,
    "mul": lambda a, b: a and b if isinstance(a, bool) else a * b,
    "div": div,
    "truediv": divide,
    "floordiv": floordiv,
    "mod": remainder,
    "remainder": remainder,
    "fmod": fmod,
    "pow": power,
    "atan2": math.atan2,
    "minimum": minimum,
    "maximum": lambda a, b: a or b if isinstance(a, bool) else maximum(a, b),
    "gcd": math.gcd,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_or": lambda a, b: bool(a) or bool(b),
    "logical_xor": lambda a, b: bool(a) != bool(b),
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
}

# These depend on the width of the dtype: f(a, b, bits).
SIZED: dict[str, Callable[[Any, Any, int], Any]] = {
    "nextafter": lambda a, b, bits: next_float(a, b, bits),
    "bitwise_left_shift": lambda a, n, bits: a << n if 0 <= n < bits else 0,
    "bitwise_right_shift": shifted_right,
    "logical_right_shift": lambda a, n, bits: (a % (1 << bits)) >> n if 0 <= n < bits else 0,
}

MORE: dict[str, Callable[..., Any]] = {
    "where": lambda c, a, b: a if c else b,
    "clamp": lambda x, low, high: minimum(maximum(x, low), high),
    "threshold": lambda x, limit, value: value if x <= limit else x,
    "lerp": lambda a, b, w: a + w * (b - a) if w < 0.5 else b - (b - a) * (1 - w),
    "addcmul": lambda x, a, b, value: x + value * a * b,
    "fma": exact_fma,
}


def next_float(a: float, b: float, bits: int) -> float:
    """math.nextafter; for 32 bits by bisection between a and b over f32 steps."""
    if bits == 64 or a != a or b != b or a == b:
        return math.nextafter(a, b)
    step = 2.0**-149
    if a == 0:
        return math.copysign(step, b)
    if math.isinf(a):
        return math.copysign(float.fromhex("0x1.fffffep127"), a)
    mantissa, exponent = math.frexp(a)
    outward = (b > a) == (a > 0)
    at_power = abs(mantissa) == 0.5 and not outward
    step = max(math.ldexp(1.0, exponent - 24 - at_power), step)
    stepped = a + (step if b > a else -step)
    return stepped if stepped else math.copysign(0.0, a)
