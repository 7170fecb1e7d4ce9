"""Bug reports on values: reductions, NaN, zeros, rounding, dtypes, repeatability."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.api.definition import FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.core.dtypes import DataType
from fuser.ops.convert import convert
from matrix.arrays import array, define
from matrix.compare import compare, ulp
from matrix.pointwise import Execute
from matrix.reductions import signed_zeros

D = DataType
Rng = np.random.Generator
LENGTHS = [1, 2, 9, 31, 32, 33, 63, 65, 129, 513, 1025, 5000]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [D.Float, D.Half, D.Int32, D.UInt8, D.Double], ids=repr)
def test_case_3_the_initial_value_never_leaks(
    execute: Execute, length: int, dtype: DataType, rng: Rng
) -> None:
    x = convert(rng.integers(3, 99, (length, 5)), dtype)
    for dims, shape in (([0], (length, 5)), ([1], (5, length)), ([0, 1], (length, 5))):
        y = x.reshape(shape)
        with FusionDefinition() as fd:
            t = define(fd, y)
            for op in ("min", "max"):
                fd.add_output(getattr(fd.ops, op)(t, dims))
            if dtype.is_float:
                fd.add_output(fd.ops.max(fd.ops.neg(t), dims))
        results = execute(fd, [y])
        a = y.astype(np.float64)
        wants = [a.min(tuple(dims)), a.max(tuple(dims)), -a.min(tuple(dims))]
        for got, want in zip(results, wants, strict=False):
            result = DataType.from_numpy(got.dtype)
            compare(f"over {dims}", got, convert(want, result), result)


@pytest.mark.parametrize("n", [1, 31, 769, 1023, 1025])
@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16], ids=repr)
def test_case_5_variance_of_padded_rows(
    execute: Execute, n: int, dtype: DataType, rng: Rng
) -> None:
    x = convert(rng.normal(1000.0, 1.0 if dtype is D.Float else 30.0, (7, n)), dtype)
    with FusionDefinition() as fd:
        t = define(fd, x)
        for part in fd.ops.var_mean(t, [1], correction=0):
            fd.add_output(part)
    var, mean = execute(fd, [x])
    a = x.astype(np.float64)
    mean_error = (2 + np.sqrt(n)) * ulp(a.mean(1), D.Float)
    want = a.var(1)
    compare("mean", mean, a.mean(1), D.Float, mean_error)
    limit = (6 + np.sqrt(n)) * ulp(want, D.Float) + 2 * np.sqrt(want) * mean_error + mean_error**2
    compare("var", var, want, D.Float, limit)


@pytest.mark.parametrize("dtype", [d for d in D if d.is_float] + [D.Int32], ids=repr)
def test_case_19_reductions_of_a_scalar_tensor(execute: Execute, dtype: DataType) -> None:
    x = convert(np.array(3.5 if dtype.is_float else 3), dtype)
    with FusionDefinition() as fd:
        t = define(fd, x)
        for op in ("sum", "prod", "max", "min", "mean"):
            fd.add_output(getattr(fd.ops, op)(t))
        for correction in (0, 1):
            for part in fd.ops.var_mean(t, None, correction=correction):
                fd.add_output(part)
    *values, var0, mean0, var1, mean1 = execute(fd, [x])
    number = float(x)
    assert [float(v) for v in (*values, mean0, mean1)] == [number] * 7
    assert float(var0) == 0.0
    assert np.isnan(float(var1))


@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16, D.Half, D.Double, D.Float8_e5m2], ids=repr)
@pytest.mark.parametrize("length", [1, 7, 33, 600])
def test_case_44_nan_wins_wherever_it_is(
    execute: Execute, dtype: DataType, length: int, rng: Rng
) -> None:
    places = sorted({0, length // 2, length - 1})
    x = convert(rng.normal(size=(len(places) + 1, length)), dtype)
    for row, at in enumerate(places):
        x[row, at] = np.nan
    other = convert(rng.normal(size=x.shape), dtype)
    with FusionDefinition() as fd:
        t, o = define(fd, x), define(fd, other)
        for op in ("max", "min"):
            fd.add_output(getattr(fd.ops, op)(t, [1]))
        for op in ("maximum", "minimum"):
            fd.add_output(fd.ops.pointwise(op, (t, o)))
            fd.add_output(fd.ops.pointwise(op, (o, t)))
    outputs = execute(fd, [x, other])
    isnan = np.isnan(x.astype(np.float32))
    for got in outputs[:2]:
        assert np.array_equal(np.isnan(got.astype(np.float32)), isnan.any(1))
    for got in outputs[2:]:
        assert np.array_equal(np.isnan(got), isnan)


@pytest.mark.parametrize("dtype", [D.Float, D.Double, D.BFloat16, D.Half], ids=repr)
def test_case_46_negative_zero_is_kept(execute: Execute, dtype: DataType) -> None:
    x = convert(np.array([-0.0, 0.0, -1.0, 2.0]), dtype)
    with FusionDefinition() as fd:
        t = define(fd, x)
        zero = fd.define_scalar(-0.0)
        positive = fd.ops.gt(t, 0.0)
        for y in (
            fd.ops.add(t, t), fd.ops.add(t, zero), fd.ops.sqrt(t), fd.ops.rsqrt(t),
            fd.ops.where(positive, t, fd.ops.cast(fd.ops.expm1(t), dtype)), fd.ops.mul(t, 1.0),
            fd.ops.neg(t), fd.ops.trunc(t), fd.ops.relu(t),
        ):  # fmt: skip
            fd.add_output(y)
    a = x.astype(np.float64)
    with np.errstate(all="ignore"):
        rsqrt = 1 / np.sqrt(a)
        elu = np.where(a > 0, a, np.expm1(a))
    wants = [a + a, a + -0.0, np.sqrt(a), rsqrt, elu, a, -a, np.trunc(a), [0.0, 0.0, 0.0, 2.0]]
    for output, got, want in zip(fd.fusion.outputs, execute(fd, [x]), wants, strict=True):
        value = fd.fusion.value(output.value)
        want = np.asarray(want)
        allowed = np.where(want == 0, 0.0, 2 * ulp(want, value.dtype))
        compare(value.op, got, want, value.dtype, allowed)


def test_case_48_division_of_negatives_and_near_integers(execute: Execute) -> None:
    a = np.array([-7, 7, -7, 7, 0, -1, 6, -6], np.int32)
    b = np.array([2, -2, -2, 2, 5, 5, 3, 3], np.int32)
    x = np.array([1.0, 0.3, 6.0, -1.0, 4.2, 1e8, -0.0, 5.9999995], np.float32)
    y = np.array([0.1, 0.1, 0.2, 0.1, 0.7, 3.0, 2.0, 1.0], np.float32)
    with FusionDefinition() as fd:
        ta, tb, tx, ty = (define(fd, v) for v in (a, b, x, y))
        for op, p, q in (("div", ta, tb), ("floordiv", ta, tb), ("truediv", ta, tb),
                         ("floordiv", tx, ty), ("div", tx, ty), ("remainder", ta, tb),
                         ("fmod", ta, tb)):  # fmt: skip
            fd.add_output(fd.ops.pointwise(op, (p, q)))
    truncated, floored, true, floor_f, div_f, rest, c_rest = execute(fd, [a, b, x, y])
    assert truncated.tolist() == [-3, -3, 3, 3, 0, 0, 2, -2]
    assert floored.tolist() == [-4, -4, 3, 3, 0, -1, 2, -2]
    assert rest.tolist() == [1, -1, -1, 1, 0, 4, 0, 0]
    assert c_rest.tolist() == [-1, 1, -1, 1, 0, -1, 0, 0]
    compare("truediv", true, a / b, D.Float)
    compare("div", div_f, x.astype(np.float64) / y, D.Float)
    compare("floordiv", floor_f, np.floor((x / y).astype(np.float32)), D.Float)


@pytest.mark.parametrize("dtype", [D.BFloat16, D.Half, D.Float8_e4m3fn, D.Float8_e5m2], ids=repr)
@pytest.mark.parametrize("length", [255, 4096, 4097, 70_001])
def test_case_49_reduced_floats_accumulate_in_f32(
    execute: Execute, dtype: DataType, length: int
) -> None:
    x = np.ones((2, length), dtype.np)
    with FusionDefinition() as fd:
        t = define(fd, x)
        fd.add_output(fd.ops.sum(t, [1], dtype=D.Float))
        fd.add_output(fd.ops.sum(t, [1]))
        fd.add_output(fd.ops.mean(t, [1]))
        fd.add_output(fd.ops.sum(fd.ops.permute(t, [1, 0]), [0], dtype=D.Float))
    wide, narrow, mean, outer = execute(fd, [x])
    want = np.full(2, float(length))
    compare("sum in f32", wide, want, D.Float)
    compare("outer sum in f32", outer, want, D.Float)
    compare("sum", narrow, want, dtype)
    compare("mean", mean, np.ones(2), D.Float)


@pytest.mark.parametrize("source", [D.Float, D.Double, D.BFloat16, D.Int32], ids=repr)
def test_case_51_casts_past_the_end_of_fp8(execute: Execute, source: DataType) -> None:
    x = convert(np.array([1000.0, -1000.0, 448.0, 464.0, 480.0, 57344.0, 65536.0, 1e6]), source)
    with FusionDefinition() as fd:
        t = define(fd, x)
        fd.add_output(fd.ops.cast(t, D.Float8_e4m3fn))
        fd.add_output(fd.ops.cast(t, D.Float8_e5m2))
    for got, target in zip(execute(fd, [x]), (D.Float8_e4m3fn, D.Float8_e5m2), strict=True):
        compare(f"cast to {target.short}", got, x.astype(np.float64), target)
    assert np.isnan(float(execute(fd, [x])[0][0]))  # e4m3fn overflows to NaN, as elsewhere


@pytest.mark.parametrize("dtype", [D.BFloat16, D.Half, D.Float, D.Int32, D.Float8_e5m2], ids=repr)
def test_case_52_python_floats_bring_no_f64(execute: Execute, dtype: DataType, rng: Rng) -> None:
    x = array(dtype, (9, 64), "contiguous", rng)
    with FusionDefinition() as fd:
        t = define(fd, x)
        s = fd.define_scalar(dtype=D.Double)
        branch = fd.ops.where(t > 0.25, t * 2.0, 1.5)
        chosen = (fd.ops.where(t > 0.25, a, 0.25) for a in (1.5, s))  # no tensor in the branches
        for y in (t * 0.5, 0.5 - t, t / 3.0, branch, *chosen, t * s, fd.ops.pow(t * 1.0, 2.0),
                  fd.ops.layer_norm(t, [64]), fd.ops.mean(t)):  # fmt: skip
            fd.add_output(y)
            assert y.dtype is D.Float
    execute(fd, [x, 0.75])
    # Lowered here: a GPU may have run what an earlier process kept, without the bodies.
    kernels = program_of(fd, bind(fd, [x, 0.75])).kernels
    assert kernels
    for kernel in kernels:
        body = emit(kernel).split('extern "C"')[1]
        lines = [line for line in body.splitlines() if "double" in line and "double s" not in line]
        assert not [line for line in lines if "(float)" not in line], body


@pytest.mark.parametrize("shape", [(2, 1 << 20), (1, 1_000_003)], ids=str)
def test_case_65_softmax_of_a_megabyte_row(
    execute: Execute, shape: tuple[int, int], rng: Rng
) -> None:
    x = rng.normal(size=shape).astype(np.float32)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.softmax(define(fd, x), -1))
    (got,) = execute(fd, [x])
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    want = e / e.sum(1, keepdims=True)
    eps = float(np.finfo(np.float32).eps)
    compare("softmax", got, want, D.Float, (16 + 8 * np.abs(x).max()) * eps * want)


def test_case_67_integers_stay_integers(execute: Execute) -> None:
    big = np.array([2**53 + 1, 1, 2**62 - 1, -5, 2**53 + 1], np.int64)
    low = np.array([-(2**63), 2**63 - 1, 5, -5, 0], np.int64)
    by = np.array([-1, -1, 0, 0, 0], np.int64)
    with FusionDefinition() as fd:
        t, a, b = (define(fd, v) for v in (big, low, by))
        for y in (fd.ops.sum(t), fd.ops.div(a, b), fd.ops.floordiv(a, b), fd.ops.remainder(a, b),
                  fd.ops.fmod(a, b), fd.ops.abs(a), fd.ops.neg(a), fd.ops.max(t)):  # fmt: skip
            fd.add_output(y)
    total, div, floor, rest, c_rest, size, negative, top = execute(fd, [big, low, by])
    exact = sum(int(v) for v in big)
    assert int(total) == exact
    quotients = [-(2**63), -(2**63) + 1, -1, -1, -1]
    assert div.tolist() == floor.tolist() == quotients
    assert rest.tolist() == c_rest.tolist() == [0, 0, 5, -5, 0]
    assert size.tolist() == [-(2**63), 2**63 - 1, 5, 5, 0]
    assert negative.tolist() == [-(2**63), -(2**63) + 1, -5, 5, 0]
    assert int(top) == 2**62 - 1


@pytest.mark.parametrize("length", [2, 33, 700])
def test_case_69_extremes_of_zeros_and_nans(execute: Execute, length: int, rng: Rng) -> None:
    x = rng.choice([0.0, -0.0], (9, length)).astype(np.float32)
    x[0], x[1], x[2] = 0.0, -0.0, np.nan
    with FusionDefinition() as fd:
        t = define(fd, x)
        fd.add_output(fd.ops.max(t, [1]))
        fd.add_output(fd.ops.min(t, [1]))
    a = x.astype(np.float64)
    for op, got in zip(("max", "min"), execute(fd, [x]), strict=True):
        want = signed_zeros(op, a, getattr(a, op)(1), (1,), False)
        compare(op, got, want, D.Float)


@pytest.mark.parametrize("length", [77, 5000, 100_000])
def test_case_73_runs_are_bitwise_equal(
    execute: Execute, repeats: int, length: int, rng: Rng
) -> None:
    x = rng.normal(size=(3, length)).astype(np.float32)
    with FusionDefinition() as fd:
        t = define(fd, x)
        outputs: list[Any] = [fd.ops.sum(t), fd.ops.sum(t, [1]), fd.ops.softmax(t, -1)]
        for y in (*outputs, *fd.ops.var_mean(t, [0, 1])):
            fd.add_output(y)
    first = execute(fd, [x])
    for _ in range(repeats):
        for a, b in zip(first, execute(fd, [x]), strict=True):
            assert a.tobytes() == b.tobytes()
