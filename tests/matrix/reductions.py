"""Reductions and what is built of them, over every subset of dimensions, beside NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations
from typing import Any

import numpy as np

from fuser.api.definition import FusionDefinition
from fuser.core.dtypes import DataType
from fuser.fusion.reference import evaluate
from fuser.ops.convert import convert
from matrix.arrays import LAYOUTS, SHAPES, arrange, define, values
from matrix.compare import compare, ulp
from matrix.pointwise import Execute

Dims = tuple[int, ...]
D = DataType


def subsets(rank: int) -> list[Dims]:
    return list(chain.from_iterable(combinations(range(rank), k) for k in range(rank + 1)))


def cases() -> Iterator[tuple[str, DataType, tuple[int, ...], str]]:
    """Every dtype and shape with one layout; each is then reduced over every subset."""
    for i, dtype in enumerate(DataType):
        for j, shape in enumerate(SHAPES):
            layout = LAYOUTS[(i + j) % len(LAYOUTS)]
            yield (
                f"{dtype.short}-{'x'.join(map(str, shape)) or 'scalar'}-{layout}",
                dtype,
                shape,
                layout,
            )


def terms(dtype: DataType, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """What is summed and compared: floats of magnitude 1/2 to 2 and -0, any integers."""
    count = int(np.prod(shape, dtype=np.int64))
    if not dtype.is_float:
        return values(dtype, count, rng).reshape(shape)
    x = rng.uniform(0.5, 2.0, count) * rng.choice([-1.0, 1.0], count)
    x[rng.random(count) < 0.02] = -0.0
    return convert(x, dtype).reshape(shape)


def factors(
    dtype: DataType, shape: tuple[int, ...], layout: str, rng: np.random.Generator
) -> np.ndarray:
    """What is multiplied: no product of some of them leaves 2**-100 to 2**100.

    Partial products that overflow or vanish make the result depend on the order: inf * 0 is NaN.
    """
    count = int(np.prod(shape, dtype=np.int64))
    if not dtype.is_float:
        return values(dtype, count, rng).reshape(shape)
    x = rng.choice([-1.0, 1.0], count)
    kept, times = np.unique(arrange(np.arange(count).reshape(shape), layout), return_counts=True)
    if kept.size:
        repeats = int(times.max())
        chosen = rng.choice(kept, min(kept.size, max(1, 100 // repeats)), replace=False)
        spread = min(1.0, 100 / (len(chosen) * repeats))
        x[chosen] *= np.exp2(rng.uniform(-spread, spread, len(chosen)))
    return convert(x, dtype).reshape(shape)


def wild(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Floats with NaN and both infinities in some of the rows; zeros in others."""
    dtype = DataType.from_numpy(x.dtype)
    if dtype.is_float and x.size:
        flat = x.reshape(-1)
        for value in (np.nan, np.inf, -np.inf, np.inf):
            at = rng.integers(0, x.size, max(1, x.size // 300))
            flat[at] = convert(np.full(len(at), value), dtype)
        flat[: x.size // 4] = convert(rng.choice([0.0, -0.0], x.size // 4), dtype)
    return x


# -- sum, prod, max, min -------------------------------------------------------------------------


def requested(dtype: DataType, turn: int) -> DataType | None:
    """What ``dtype=`` asks for: nothing, or a wider one of the same kind."""
    if dtype.is_float:
        return (None, D.Float, D.Double)[turn % 3]
    return (None, D.Int, D.Double, D.Float)[turn % 4]


def check_reductions(
    execute: Execute, dtype: DataType, shape: tuple[int, ...], layout: str,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """The four reductions over every subset of dimensions."""
    for turn, dims in enumerate(subsets(len(shape))):
        for special in (False, True):
            x, y = terms(dtype, shape, rng), factors(dtype, shape, layout, rng)
            if special:
                x, y = wild(x, rng), wild(y, rng)
            check_reduction(execute, arrange(x, layout), arrange(y, layout), dims, turn)


def check_reduction(execute: Execute, x: np.ndarray, y: np.ndarray, dims: Dims, turn: int) -> None:
    """sum, max and min of `x` and prod of `y`, in one fusion."""
    dtype = DataType.from_numpy(x.dtype)
    keepdim, wanted = turn % 2 == 1, requested(dtype, turn)
    if wanted and wanted.is_float and dtype.is_integer:  # products must fit f32
        y = (y % 64 == 1).astype(y.dtype) + np.ones((), y.dtype)
    named: Any = list(dims) if dims or x.ndim == 0 else []
    with FusionDefinition() as fd:
        static = turn % 3 == 2
        t, u = define(fd, x, static=static), define(fd, y, static=static)
        sources = {"sum": x, "prod": y, "max": x, "min": x}
        for op in sources:
            reduce = getattr(fd.ops, op)
            fd.add_output(reduce(u if op == "prod" else t, named, keepdim=keepdim, dtype=wanted))
    results = execute(fd, [x, y])
    for (op, source), got in zip(sources.items(), results, strict=True):
        widened = D.Int if op in ("sum", "prod") and not dtype.is_float else dtype
        result = wanted or widened
        want, limit = reduced(op, source, result, dims, keepdim)
        compare(f"{op} of {dtype.short}{list(x.shape)} over {list(dims)}", got, want, result, limit)
    names = [a.name for a in fd.arguments]
    precise = evaluate(fd.fusion, dict(zip(names, (x, y), strict=True)), {}, precise=True)
    total = precise[fd.fusion.outputs[0].value]
    assert total.shape == results[0].shape


def check_full_size(
    execute: Execute, dtype: DataType, shape: tuple[int, ...], dims: Dims, rng: np.random.Generator
) -> None:
    """sum, max and min of many elements (a product of so many is 0 or infinite)."""
    x = terms(dtype, shape, rng)
    with FusionDefinition() as fd:
        t = define(fd, x)
        for op in ("sum", "max", "min"):
            fd.add_output(getattr(fd.ops, op)(t, list(dims)))
    for op, got in zip(("sum", "max", "min"), execute(fd, [x]), strict=True):
        result = D.Int if op == "sum" and not dtype.is_float else dtype
        want, limit = reduced(op, x, result, dims, False)
        compare(f"{op} of {dtype.short}{list(shape)} over {list(dims)}", got, want, result, limit)


def reduced(
    op: str, x: np.ndarray, result: DataType, dims: Dims, keepdim: bool
) -> tuple[np.ndarray, Any]:
    """Return a reduction in float64 (integers: in the accumulation dtype) and its error bound."""
    source = DataType.from_numpy(x.dtype)
    accumulate = result.compute
    if not result.is_float and op in ("sum", "prod"):
        accumulate = D.Int
    exact = source.is_float and result.is_float
    a = x.astype(np.float64) if exact else convert(x, accumulate)
    if accumulate.is_float and not exact:
        a = a.astype(np.float64)
    if not dims:
        return convert(a, result) if not result.is_float else a, 0.0
    ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[op]
    empty = int(np.prod([x.shape[d] for d in dims], dtype=np.int64)) == 0
    initial = {"sum": 0, "prod": 1, "max": lowest(accumulate), "min": highest(accumulate)}[op]
    with np.errstate(all="ignore"):
        want = np.asarray(
            ufunc.reduce(a, axis=dims, keepdims=keepdim, dtype=a.dtype, initial=initial)
            if empty or op in ("sum", "prod")
            else ufunc.reduce(a, axis=dims, keepdims=keepdim)
        )
        if not accumulate.is_float:
            return convert(want, result), 0.0
        if op in ("max", "min"):
            return signed_zeros(op, a, want, dims, keepdim), 0.0
        # the error of summation is relative to the sum of magnitudes and grows with the root of
        # the number of roundings, which are as often up as down unless the elements are equal
        count = max(1, int(np.prod([x.shape[d] for d in dims], dtype=np.int64)))
        scale = ufunc.reduce(np.abs(a), axis=dims, keepdims=keepdim)
    if count == 1:
        return want, 0.0
    roundings = count if 0 in x.strides else 1 + np.sqrt(count)
    return want, roundings * ulp(scale, accumulate)


def signed_zeros(op: str, a: np.ndarray, want: np.ndarray, dims: Dims, keepdim: bool) -> np.ndarray:
    """max prefers +0 and min -0, which NumPy leaves open."""
    zero = a == 0
    plus = (zero & ~np.signbit(a)).any(axis=dims, keepdims=keepdim)
    minus = (zero & np.signbit(a)).any(axis=dims, keepdims=keepdim)
    positive = plus if op == "max" else ~minus
    return np.where(want == 0, np.where(positive, 0.0, -0.0), want)


def lowest(dtype: DataType) -> Any:
    if dtype.is_float:
        return -np.inf
    return False if dtype is D.Bool else np.iinfo(dtype.np).min


def highest(dtype: DataType) -> Any:
    if dtype.is_float:
        return np.inf
    return True if dtype is D.Bool else np.iinfo(dtype.np).max


# -- statistics and norms --------------------------------------------------------------------------

STATISTICS_DTYPES = (*(d for d in D if d.is_float), D.Int32, D.UInt8)


def check_statistics(
    execute: Execute, dtype: DataType, shape: tuple[int, ...], layout: str, mean: float,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """var, var_mean and welford over every subset of dimensions; the mean may dwarf the spread."""
    x = arrange(convert(rng.normal(mean, 1.0, shape), dtype), layout)
    for turn, dims in enumerate(subsets(len(shape))):
        keepdim, correction = turn % 2 == 1, turn % 3
        with FusionDefinition() as fd:
            t = define(fd, x)
            fd.add_output(fd.ops.var(t, list(dims), correction=correction, keepdim=keepdim))
            for part in fd.ops.var_mean(t, list(dims), correction=correction, keepdim=keepdim):
                fd.add_output(part)
            for part in fd.ops.welford(t, list(dims)):
                fd.add_output(part)
        results = execute(fd, [x])
        names = (
            "alone var",
            "paired var",
            "paired mean",
            "welford mean",
            "welford m2",
            "welford n",
        )
        want = statistics(x, dims, correction)
        for name, got in zip(names, results, strict=True):
            expected, limit = want[name.split()[1]]
            kept = keepdim and "welford" not in name
            to = expected.shape if kept else squeezed(expected, dims)
            where = f"{name} of {dtype.short}{list(shape)} over {list(dims)}"
            result = D.Int if name == "welford n" else dtype.compute if dtype.is_float else D.Float
            compare(where, got, expected.reshape(to), result, limit.reshape(to))


def squeezed(x: np.ndarray, dims: Dims) -> tuple[int, ...]:
    return tuple(n for d, n in enumerate(x.shape) if d not in dims)


def statistics(
    x: np.ndarray, dims: Dims, correction: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return var, mean, m2 and n with their error bounds, dimensions kept."""
    dtype = DataType.from_numpy(x.dtype)
    wide = dtype.compute if dtype.is_float else D.Float
    a = convert(x, wide).astype(np.float64)
    count = int(np.prod([x.shape[d] for d in dims], dtype=np.int64))
    with np.errstate(all="ignore"):
        mean = np.asarray(a.sum(dims, keepdims=True) / count)
        m2 = np.asarray(((a - mean) ** 2).sum(dims, keepdims=True))
        spread = np.abs(a - mean).sum(dims, keepdims=True)
        size = np.abs(a).sum(dims, keepdims=True) / count
        mean_error = (2 + np.sqrt(count)) * ulp(size, wide)
        # each deviation inherits the error of the mean and rounds; then they are summed
        error = (4 + np.sqrt(count)) * ulp(m2, wide)
        error = error + 2 * spread * mean_error + count * mean_error**2
        degrees = np.float64(max(count - correction, 0))
        var, var_error = m2 / degrees, error / degrees
        var_error = np.where(np.isfinite(var_error), var_error + ulp(var, wide), 0.0)
    n = np.full(mean.shape, count)
    return {"var": (var, var_error), "mean": (mean, mean_error), "m2": (m2, error), "n": (n, n * 0)}


NORM_SHAPES = ((11,), (1,), (37, 130), (5, 769), (3, 4, 16), (2, 0), (0, 7))


def check_norms(
    execute: Execute, dtype: DataType, shape: tuple[int, ...], layout: str, rng: np.random.Generator
) -> None:
    """softmax, layer_norm and rms_norm along the last dimension, with weights and without."""
    x = arrange(convert(rng.normal(0.5, 2.0, shape), dtype), layout)
    w, b = (convert(rng.normal(size=shape[-1:]), dtype) for _ in range(2))
    with FusionDefinition() as fd:
        t, weight, bias = define(fd, x), define(fd, w), define(fd, b)
        last = [shape[-1]]
        fd.add_output(fd.ops.softmax(t, -1))
        fd.add_output(fd.ops.layer_norm(t, last, weight, bias, eps=1e-5))
        fd.add_output(fd.ops.layer_norm(t, last))
        fd.add_output(fd.ops.rms_norm(t, last, weight, eps=1e-6))
    outputs = execute(fd, [x, w, b])
    a, aw, ab = (v.astype(np.float64) for v in (x, w, b))
    with np.errstate(all="ignore"):
        top = a.max(-1, keepdims=True) if a.size else np.zeros((*shape[:-1], 1))
        e = np.exp(a - top)
        softmax = e / e.sum(-1, keepdims=True)
        n = shape[-1]
        mean = a.sum(-1, keepdims=True) / n
        var = ((a - mean) ** 2).sum(-1, keepdims=True) / n
        plain = (a - mean) / np.sqrt(var + 1e-5)
        rms = a / np.sqrt((a * a).sum(-1, keepdims=True) / n + 1e-6)
    wide = dtype.compute
    eps = float(np.finfo(wide.np).eps)
    chain_error = (8 + np.sqrt(max(n, 1))) * eps
    biggest = np.abs(a).max(initial=0.0) * eps  # what subtracting the maximum or the mean costs
    limits = {
        "softmax": (chain_error + 4 * biggest) * softmax,
        "layer_norm": chain_error * (np.abs(plain * aw) + np.abs(ab) + 1),
        "layer_norm, plain": chain_error * (np.abs(plain) + 1),
        "rms_norm": chain_error * np.abs(rms * aw),
    }
    wants = (softmax, plain * aw + ab, plain, rms * aw)
    for (name, limit), got, want in zip(limits.items(), outputs, wants, strict=True):
        compare(f"{name} of {dtype.short}{list(shape)}", got, want, wide, limit)
