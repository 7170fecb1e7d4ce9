"""Every row of the op table and every cast, in every dtype, several outputs to a fusion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import ops_oracle

from fuser.api.definition import FusionDefinition
from fuser.core.dtypes import DataType
from fuser.fusion.dtypes import operand_dtypes, pointwise_types
from fuser.fusion.reference import evaluate
from fuser.ops import BY_NAME, POINTWISE, OpSpec, accepted_dtypes
from fuser.ops.convert import convert
from matrix.arrays import LAYOUTS, SHAPES, array, define
from matrix.compare import compare, ulp

Execute = Callable[[FusionDefinition, Sequence[Any]], list[np.ndarray]]

BATCH = 8
# Sums cancel: their error is relative to these magnitudes, not to the result. A product on the way
# that is subnormal has an absolute error, which the next factor scales: `tiny` is the smallest
# normal number.
MAGNITUDE: dict[str, Callable[..., Any]] = {
    "lerp": lambda tiny, a, b, w: (abs(a) + abs(b)) * (1 + abs(w)),
    "addcmul": lambda tiny, x, a, b, v: abs(x) + abs(v * a * b) + tiny * abs(b),
    "fma": lambda tiny, a, b, c: abs(a * b) + abs(c),
}
# Their NumPy meanings are good to 1e-13, enough for f32; in f64 Python's `math` is the reference.
SERIES = ("erf", "erfc", "erfinv", "erfcinv", "lgamma")
SERIES_ULPS = 1e-13 / float(np.finfo(np.float64).eps)


def batches() -> Iterator[tuple[str, DataType, tuple[OpSpec, ...]]]:
    """Ops of one arity that take one dtype, a few at a time: ``(id, dtype, ops)``."""
    for dtype in DataType:
        taken = [s for s in POINTWISE if dtype in accepted_dtypes(s)]
        for arity in (1, 2, 3, 4):
            some = [s for s in taken if s.arity == arity]
            for i in range(0, len(some), BATCH):
                part = tuple(some[i : i + BATCH])
                yield f"{dtype.short}-{part[0].name}-{part[-1].name}", dtype, part


def pairs(turn: int) -> Iterator[tuple[tuple[int, ...], str]]:
    """Every shape with one layout; over five successive turns every layout."""
    for i, shape in enumerate(SHAPES):
        yield shape, LAYOUTS[(i + turn) % len(LAYOUTS)]


def check_ops(
    execute: Execute,
    ops: Sequence[OpSpec],
    dtype: DataType,
    shape: tuple[int, ...],
    layout: str,
    rng: np.random.Generator,
    numpy_ulps: float = 0.0,
) -> None:
    """Run `ops` as outputs of one fusion and compare each with its meaning in float64.

    Parameters
    ----------
    numpy_ulps
        How far NumPy's own f32 and f64 functions may be from the exact value, where the backend
        is NumPy and the op is not correctly rounded.
    """
    arity = max(s.arity for s in ops)
    given = {"c": array(DataType.Bool, shape, layout, rng)}
    given |= {f"x{i}": array(dtype, shape, layout, rng) for i in range(arity)}
    with FusionDefinition() as fd:
        tensors = {name: define(fd, x, promise=layout == "contiguous") for name, x in given.items()}
        for spec in ops:
            operands = [tensors[f"x{i}"] for i in range(spec.arity)]
            if spec.promotion == "select":
                operands[0] = tensors["c"]
            fd.add_output(fd.ops.pointwise(spec.name, operands))
    outputs = execute(fd, list(given.values()))
    names = [a.name for a in fd.arguments]
    check_outputs(fd, dict(zip(names, given.values(), strict=True)), {}, outputs, numpy_ulps)


def check_outputs(
    fd: FusionDefinition,
    arrays: dict[str, np.ndarray],
    scalars: dict[str, Any],
    outputs: Sequence[np.ndarray],
    numpy_ulps: float = 0.0,
) -> None:
    """Compare outputs that are single ops on inputs with the reference."""
    precise = evaluate(fd.fusion, arrays, scalars, precise=True)
    for output, got in zip(fd.fusion.outputs, outputs, strict=True):
        value = fd.fusion.value(output.value)
        operands = fd.fusion.operands(value)
        what = f"{value.op} on {[o.dtype.short for o in operands]} {[o.shape for o in operands]}"
        want, limit, also = precise[value.name], 0.0, None
        if value.op in BY_NAME:
            given = [precise[o.name] for o in operands]
            converted = [
                convert(x, d) for x, d in zip(given, operand_dtypes(fd.fusion, value), strict=True)
            ]
            compute, _ = pointwise_types(fd.fusion, value.op, operands)
            want, limit, also = meaning(BY_NAME[value.op], compute, converted, numpy_ulps)
            want = np.broadcast_to(want, got.shape)
        compare(what, got, want, value.dtype, limit, also)


def meaning(
    spec: OpSpec, compute: DataType, operands: Sequence[np.ndarray], numpy_ulps: float
) -> tuple[np.ndarray, Any, Any]:
    """Return the answer of `spec` in float64, the allowed error, and what is right besides.

    A sum of products may overflow on the way in the compute dtype, or, contracted, not.
    """
    if not compute.is_float:
        return spec(*operands), 0.0, None
    exact = [x.astype(np.float64) if x.dtype == compute.np else x for x in operands]
    want, plain = spec(*exact), spec(*operands)
    if spec.in_compute_dtype:
        want = plain
    if spec.name in SERIES and compute is DataType.Double:
        python = [ops_oracle.UNARY[spec.name](v) for v in exact[0].reshape(-1).tolist()]
        want, numpy_ulps = np.array(python).reshape(exact[0].shape), numpy_ulps and SERIES_ULPS
    also = None
    if spec.name in MAGNITUDE:
        also = np.where(np.isfinite(plain), want, plain)
    bounds = spec.tolerance
    ulps = bounds.f64 if compute is DataType.Double else bounds.f32
    if ulps <= 0.5:  # NumPy's float64 rounded to f32 is the correctly rounded number
        return want, bounds.atol(compute), None
    scale = np.abs(want)
    if spec.name in MAGNITUDE:
        tiny = float(np.finfo(compute.np).tiny)
        with np.errstate(all="ignore"):
            scale = np.maximum(scale, MAGNITUDE[spec.name](tiny, *exact))
    return want, (ulps + numpy_ulps) * ulp(scale, compute) + bounds.atol(compute), also


def check_casts(
    execute: Execute, source: DataType, shape: tuple[int, ...], layout: str,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """Cast one input to every dtype."""
    x = array(source, shape, layout, rng)
    with FusionDefinition() as fd:
        t = define(fd, x)
        for target in DataType:
            fd.add_output(fd.ops.cast(t, target))
    check_outputs(fd, {fd.arguments[0].name: x}, {}, execute(fd, [x]))


def check_scalars(
    execute: Execute, ops: Sequence[OpSpec], dtype: DataType, rng: np.random.Generator,
    numpy_ulps: float = 0.0,
) -> None:  # fmt: skip
    """Binary ops with a Python number and with a scalar input on either side."""
    x = array(dtype, (7, 13), "contiguous", rng)
    number: Any = 2.25 if dtype.is_float else 3
    given: Any = -1.75 if dtype.is_float else 2
    with FusionDefinition() as fd:
        t = define(fd, x)
        s = fd.define_scalar(dtype=DataType.Double if dtype.is_float else DataType.Int)
        for spec in ops:
            for a, b in ((t, number), (number, t), (t, s), (s, t)):
                fd.add_output(fd.ops.pointwise(spec.name, [a, b]))
    outputs = execute(fd, [x, given])
    t_name, s_name = (a.name for a in fd.arguments)
    check_outputs(fd, {t_name: x}, {s_name: given}, outputs, numpy_ulps)


def check_against_python(
    execute: Execute, spec: OpSpec, dtype: DataType, rng: np.random.Generator, numpy_ulps: float
) -> None:
    """Compare with `ops_oracle`: Python's own arithmetic, element by element."""
    given = [array(dtype, (60,), "contiguous", rng) for _ in range(spec.arity)]
    if spec.promotion == "select":
        given[0] = array(DataType.Bool, (60,), "contiguous", rng)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.pointwise(spec.name, [define(fd, x) for x in given]))
    (got,) = execute(fd, given)
    value = fd.fusion.value(fd.fusion.outputs[0].value)
    compute, result = pointwise_types(fd.fusion, spec.name, fd.fusion.operands(value))
    wanted = operand_dtypes(fd.fusion, value)
    operands = [convert(x, d) for x, d in zip(given, wanted, strict=True)]
    elements = zip(*(plain_list(x) for x in operands), strict=True)
    answers = [python_answer(spec, compute, result, e) for e in elements]
    want = np.array(answers, np.float64 if result.is_float else result.np)
    _, limit, also = meaning(spec, compute, operands, numpy_ulps)
    slack: Any = 0.0
    if compute.is_float and spec.tolerance.f32 > 0.5:  # Python's own functions in float64
        slack = 4 * np.where(np.isfinite(want), ulp(want, DataType.Double), 0.0)
    compare(f"{spec.name} against Python", got, want, result, limit + slack, also)


def plain_list(x: np.ndarray) -> list[Any]:
    """Elements as Python numbers; ml_dtypes have none of their own."""
    dtype = DataType.from_numpy(x.dtype)
    plain: list[Any] = (x.astype(np.float32) if dtype.is_reduced_float else x).tolist()
    return plain


def python_answer(spec: OpSpec, compute: DataType, result: DataType, args: tuple[Any, ...]) -> Any:
    """Return what `ops_oracle` says; integers wrapped to the width of the result."""
    if spec.name in ops_oracle.SIZED:
        answer = ops_oracle.SIZED[spec.name](*args, 8 * compute.nbytes)
    else:
        tables = {1: ops_oracle.UNARY, 2: ops_oracle.BINARY}
        answer = tables.get(spec.arity, ops_oracle.MORE)[spec.name](*args)
    if not result.is_integer:
        return answer
    low, width = int(np.iinfo(result.np).min), 8 * result.nbytes
    return (int(answer) - low) % (1 << width) + low
