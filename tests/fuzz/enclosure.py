"""The oracle: which results of a fusion are right, element by element.

The reference gives one right result. Around it an interval holds every result that the definition
allows: other orders of summation, another libm, contracted multiply-adds. An interval is carried
through the graph by evaluating operations at its ends, so an error is amplified here exactly as
the fusion amplifies it. Where that could jump (a comparison, a cast to int, a cancellation that
leaves no digits) the element is *open*: any value passes. Integers, Bool and moved data have no
interval and must be equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from fuser.core.dtypes import DataType
from fuser.fusion.attrs import FullAttrs, ReduceAttrs
from fuser.fusion.bind import bind_sizes
from fuser.fusion.dtypes import operand_dtypes
from fuser.fusion.graph import FusionGraph, Value
from fuser.fusion.reference import _Evaluator
from fuser.fusion.views import VIEW_OPS
from fuser.ops import BY_NAME, BY_REDUCTION
from fuser.ops.convert import convert

# monotone in every operand over the whole line: their ends bound even a wide interval
MONOTONE = frozenset(
    "add sub mul neg relu set cast where minimum maximum clamp exp exp2 expm1 sigmoid tanh atan "
    "asinh erf ceil floor round trunc lt le gt ge sqrt log log2 log10 log1p acosh".split()
)
# they jump between the ends of an interval, however short
JUMPY = frozenset("frac fmod remainder mod floordiv nextafter eq ne atan2 threshold".split())
PERIODIC = {"sin", "cos", "tan"}
SUMMED = {"addcmul", "fma", "lerp"}


@dataclass(frozen=True, slots=True)
class Enclosure:
    """Results allowed per element.

    Attributes
    ----------
    low, high
        Ends of the interval in the value's dtype; NaN in both where NaN is the only right result.
    known
        False where any result is right.
    """

    low: Any
    high: Any
    known: Any

    @property
    def exact(self) -> bool:
        """Whether every element has one right result."""
        return bool(np.all(same(self.low, self.high) & self.known))


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What the machine that is judged may do.

    Attributes
    ----------
    contracts
        It may round a multiply-add once.
    own_libm
        Its functions are not NumPy's: both may err by the tolerance of the op table.
    """

    contracts: bool
    own_libm: bool


NUMPY = Arithmetic(contracts=False, own_libm=False)
CUDA = Arithmetic(contracts=True, own_libm=True)


def enclose(
    graph: FusionGraph,
    arrays: Mapping[str, Any],
    scalars: Mapping[str, Any],
    arithmetic: Arithmetic,
) -> dict[str, Enclosure]:
    """Return the allowed results of every value."""
    sizes = bind_sizes(graph, arrays, scalars)
    evaluator = _Evaluator(graph, arrays, scalars, sizes, False)
    encloser = _Encloser(graph, evaluator, arithmetic, {})
    with np.errstate(all="ignore"):
        for name, reference in evaluator.run().items():
            found = encloser.value(graph.value(name), reference)
            encloser.found[name] = Enclosure(*_around(reference, found))
    return encloser.found


def _around(reference: Any, e: Enclosure) -> tuple[Any, Any, Any]:
    """Make sure that the reference itself is inside."""
    low, high = _wide(e.low), _wide(e.high)
    centre = _wide(reference)
    inside = same(centre, low) | same(centre, high) | ((low <= centre) & (centre <= high))
    assert np.all(inside | ~e.known), "the oracle excludes its own reference"
    return e.low, e.high, np.broadcast_to(e.known, reference.shape)


@dataclass(slots=True)
class _Encloser:
    graph: FusionGraph
    evaluator: _Evaluator
    arithmetic: Arithmetic
    found: dict[str, Enclosure]

    def value(self, value: Value, reference: Any) -> Enclosure:
        operands = [self.found[name] for name in self.graph.operand_names(value)]
        if not operands or (all(e.exact for e in operands) and self.is_exact(value)):
            return Enclosure(reference, reference, np.ones(reference.shape, np.bool_))
        if value.op in VIEW_OPS:
            return self.view(value, operands)
        if isinstance(value.attrs, ReduceAttrs):
            return self.reduction(value, value.attrs.dims, operands[0], reference)
        if isinstance(value.attrs, FullAttrs):
            (e,) = operands
            ends = (np.broadcast_to(convert(x, value.dtype), reference.shape)
                    for x in (e.low, e.high))  # fmt: skip
            return Enclosure(*ends, np.broadcast_to(e.known, reference.shape))
        return self.pointwise(value, operands, reference)

    def is_exact(self, value: Value) -> bool:
        """Whether equal operands give an equal result."""
        if isinstance(value.attrs, ReduceAttrs):
            return value.op in ("max", "min") or not self.accumulator(value).is_float
        if value.op == "signbit":
            return not self.arithmetic.own_libm
        spec = BY_NAME.get(value.op)
        return spec is None or not value.dtype.is_float or not self.error(spec.name, value.dtype)

    def accumulator(self, value: Value) -> DataType:
        return BY_REDUCTION[value.op].accumulate(self.graph.operands(value)[0].dtype)

    def error(self, op: str, dtype: DataType) -> float:
        """Return how many ulps of the result two right results may be apart."""
        bounds = BY_NAME[op].tolerance
        ulps = bounds.f64 if dtype is DataType.Double else bounds.f32
        if op == "mul" or ulps <= 0.5:
            return 1.0 if op == "mul" and self.arithmetic.contracts else 0.0
        # NumPy's own functions differ by an ulp between vector and scalar loops
        return 2 * ulps + 1 if self.arithmetic.own_libm else 1.0

    def view(self, value: Value, operands: Sequence[Enclosure]) -> Enclosure:
        ends = ([getattr(e, end) for e in operands] for end in ("low", "high", "known"))
        low, high, known = (np.asarray(self.evaluator._view(value, part)) for part in ends)
        return Enclosure(low, high, known)

    # ---- pointwise -----------------------------------------------------------------------

    def pointwise(self, value: Value, operands: Sequence[Enclosure], reference: Any) -> Enclosure:
        wanted = operand_dtypes(self.graph, value)
        ends = [
            [convert(e.low, d)] if e.exact else [convert(e.low, d), convert(e.high, d)]
            for e, d in zip(operands, wanted, strict=True)
        ]
        known = self.known(value, operands, ends, reference.shape)
        corners = [
            np.broadcast_to(self.apply(value, corner), reference.shape)
            for corner in itertools.product(*ends)
        ]
        wide = [_wide(c) for c in (reference, *corners)]
        nans = [np.isnan(c) for c in wide]
        known = known & (np.all(nans, axis=0) | ~np.any(nans, axis=0))
        low, high = np.fmin.reduce(wide), np.fmax.reduce(wide)
        low, high = self.rounded(value, ends, low, high)
        if not value.dtype.is_float:
            known = known & (low == high)
            return Enclosure(reference, reference, known)
        return Enclosure(_stored(low, value.dtype), _stored(high, value.dtype), known)

    def apply(self, value: Value, corner: Sequence[Any]) -> Any:
        return corner[0] if value.op == "cast" else BY_NAME[value.op](*corner)

    def known(
        self, value: Value, operands: Sequence[Enclosure], ends: Sequence[Any], shape: Any
    ) -> Any:
        """Return where the ends of the operands bound the result."""
        fits: list[Any] = []
        for e, pair in zip(operands, ends, strict=True):
            fine = e.known
            if len(pair) == 2:
                fine = fine & (same(*pair) | self.interval_fits(value.op, *map(_wide, pair)))
            fits.append(fine)
        if value.op == "where":
            chosen = np.where(ends[0][0], fits[1], fits[2])
            return np.broadcast_to(operands[0].known & chosen, shape)
        result = fits[0]
        if value.op == "signbit" and self.arithmetic.own_libm:
            # the sign of a NaN is the machine's choice, that of a zero the order of max and min
            x = _wide(ends[0][0])
            result = result & ~np.isnan(x) & (x != 0)
        for fine in fits[1:]:
            result = result & fine
        return np.broadcast_to(result, shape)

    def interval_fits(self, op: str, low: Any, high: Any) -> Any:
        if op in JUMPY or low.dtype.kind != "f":
            return np.zeros(np.shape(low), np.bool_)
        if op in MONOTONE:
            return np.ones(np.shape(low), np.bool_)
        size = np.maximum(np.abs(low), np.abs(high))
        return np.abs(high - low) < 1e-4 * (np.minimum(size, 1) if op in PERIODIC else size)

    def rounded(self, value: Value, ends: Sequence[Any], low: Any, high: Any) -> tuple[Any, Any]:
        """Widen by the error of the operation itself."""
        spec = BY_NAME.get(value.op)
        if spec is None or not value.dtype.is_float:
            return low, high
        ulps = self.error(spec.name, value.dtype)
        if not ulps:
            return low, high
        if value.op in SUMMED:  # their error is relative to the terms, not to the sum
            sizes = [np.maximum.reduce([np.abs(_wide(x)) for x in pair]) for pair in ends]
            a, b, c, *rest = sizes
            scale = {"addcmul": lambda: a + b * c * rest[0], "fma": lambda: a * b + c,
                     "lerp": lambda: (a + b) * (1 + c)}[value.op]()  # fmt: skip
        else:
            scale = np.maximum(np.abs(low), np.abs(high))
        limits = ml_dtypes.finfo(value.dtype.np)
        atol = spec.tolerance.atol(value.dtype) if self.arithmetic.own_libm else 0.0
        error = ulps * float(limits.eps) * scale + 2 * atol + float(limits.smallest_subnormal)
        error = np.where(np.isfinite(error), error, 0.0)
        return low - error, high + error

    # ---- reductions ----------------------------------------------------------------------

    def reduction(
        self, value: Value, dims: tuple[int, ...], e: Enclosure, reference: Any
    ) -> Enclosure:
        spec, dtype = BY_REDUCTION[value.op], self.accumulator(value)
        known = np.all(e.known, axis=dims)
        if not dtype.is_float:
            return Enclosure(reference, reference, known)
        low, high = _wide(e.low), _wide(e.high)
        if value.op in ("max", "min"):
            ends = [spec.ufunc.reduce(x, axis=dims, initial=spec.identity(dtype))
                    for x in (low, high)]  # fmt: skip
            return Enclosure(*(_stored(x, value.dtype) for x in ends), known)
        bound = _sum_bounds if value.op == "sum" else _product_bounds
        lowest, highest, fits = bound(low, high, dims, dtype)
        centre = _wide(reference)
        nan_or_inf = ~np.isfinite(low).all(axis=dims)
        # One infinite term decides, unless the finite ones overflow the other way before it comes.
        neutral = float(spec.identity(dtype))
        finite = (np.where(np.isfinite(x), x, neutral) for x in (low, high))
        others_fit = bound(*finite, dims, dtype)[2]
        kinds = np.where(np.isfinite(low) & (low != 0), neutral, low)
        decided = others_fit | np.isnan(spec.ufunc.reduce(kinds, axis=dims))
        exact = same(low, high).all(axis=dims) & nan_or_inf & decided
        known = known & (exact | (fits & ~nan_or_inf))
        lowest = np.where(exact, centre, _wide(_stored(lowest, value.dtype)))
        highest = np.where(exact, centre, _wide(_stored(highest, value.dtype)))
        return Enclosure(_stored(lowest, value.dtype), _stored(highest, value.dtype), known)


def _sum_bounds(low: Any, high: Any, dims: Any, dtype: DataType) -> tuple[Any, Any, Any]:
    """Return the ends of all sums in any order, and where no partial sum can overflow."""
    limits = np.finfo(dtype.np)
    size = np.maximum(np.abs(low), np.abs(high)).sum(axis=dims)
    count = np.prod([low.shape[d] for d in dims], dtype=np.float64)
    # both sides err by (n - 1) u per unit of the absolute sum, u = eps / 2
    error = max(count - 1, 0) * float(limits.eps) * size
    # multiples of 2**-6 whose absolute sum needs no more digits than there are: no error at all
    digits = 2.0 ** (limits.nmant + 1)
    grid = ((low * 64 == np.rint(low * 64)) & (low == high)).all(axis=dims)
    error = np.where(grid & (size * 64 <= digits), 0.0, error)
    slack = np.where(error > 0, float(np.finfo(np.float64).eps) * (count + 1) * size, 0.0)
    fits = size < float(limits.max) / 2
    return low.sum(axis=dims) - error - slack, high.sum(axis=dims) + error + slack, fits


def _product_bounds(low: Any, high: Any, dims: Any, dtype: DataType) -> tuple[Any, Any, Any]:
    limits = np.finfo(dtype.np)
    count = np.prod([low.shape[d] for d in dims], dtype=np.float64)
    centre = low.prod(axis=dims)
    scale = np.maximum(np.abs(low), np.abs(high))
    relative = np.where(scale > 0, (high - low) / np.where(scale > 0, scale, 1.0), 0.0)
    error = relative.sum(axis=dims) + max(count - 1, 0) * float(limits.eps)
    logs = np.log2(np.where(scale > 0, scale, 1.0))
    # neither the large nor the small factors alone leave the range, so no order of them does
    up, down = np.maximum(logs, 0).sum(axis=dims), np.minimum(logs, 0).sum(axis=dims)
    fits = (up < np.log2(float(limits.max)) - 1) & (down > np.log2(float(limits.tiny)) + 1)
    fits &= error < 0.1
    width = 1.2 * error * np.abs(centre)
    return centre - width, centre + width, fits


# ---- comparison --------------------------------------------------------------------------------


def judge(what: str, got: Any, dtype: DataType, allowed: Enclosure) -> int:
    """Raise `AssertionError` where `got` is not allowed; return how many elements were decided."""
    array = np.asarray(got)
    assert array.shape == allowed.known.shape, (
        f"{what}: shape {array.shape}; the reference has {allowed.known.shape}"
    )
    assert array.dtype == dtype.np, f"{what}: dtype {array.dtype}; needed {dtype}"
    x, low, high = _wide(array), _wide(allowed.low), _wide(allowed.high)
    with np.errstate(all="ignore"):
        right = same(x, low) | same(x, high) | ((low <= x) & (x <= high))
    wrong = ~right & allowed.known
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{what}: {int(wrong.sum())} of {x.size} elements are wrong; element {list(at)} is "
            f"{x[at]!r}; allowed is {low[at]!r} to {high[at]!r}"
        )
    return int(allowed.known.sum())


def same(a: Any, b: Any) -> Any:
    """Equal, or both NaN."""
    return (a == b) | ((a != a) & (b != b))


def _wide(array: Any) -> Any:
    """`array` in a dtype where comparing is exact: float64 for floats, integers as they are."""
    x = np.asarray(array)
    return x.astype(np.float64) if DataType.from_numpy(x.dtype).is_float else x


def _stored(x: Any, dtype: DataType) -> Any:
    return convert(np.asarray(x, np.float64), dtype)
