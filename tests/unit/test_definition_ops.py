"""Every operation of ``fd.ops`` means what NumPy says, with the dtype the rules say."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.fusion.reference import evaluate
from fuser.ops import BY_NAME, POINTWISE, accepted_dtypes

pytestmark = pytest.mark.unit

D = DataType


def run(build, *arrays, precise=False):
    """Define one input per array, return what `build` of them means."""
    fd = FusionDefinition()
    tensors = [
        fd.define_tensor(sizes=list(a.shape), strides=[1] * a.ndim, dtype=D.from_numpy(a.dtype))
        for a in arrays
    ]
    results = build(fd, *tensors)
    listed = list(results) if isinstance(results, tuple) else [results]
    for result in listed:
        fd.add_output(result)
    fd.fusion.verify()
    inputs = {t.name: a for t, a in zip(tensors, arrays, strict=True)}
    values = evaluate(fd.fusion, inputs, precise=precise)
    for result in listed:
        if not precise:
            assert values[result.name].dtype == result.dtype.np
    found = [values[result.name] for result in listed]
    return tuple(found) if isinstance(results, tuple) else found[0]


def floats(rng, *shape):
    return rng.uniform(0.1, 0.9, shape).astype(np.float32)


@pytest.mark.parametrize("spec", POINTWISE, ids=lambda spec: spec.name)
def test_every_row_is_a_documented_method(spec, rng):
    dtype = D.Float if D.Float in accepted_dtypes(spec) else accepted_dtypes(spec)[0]
    arrays = [floats(rng, 3, 4).astype(dtype.np) for _ in range(spec.arity)]
    if spec.name == "where":
        arrays[0] = arrays[0] > 0.5
    method = getattr(FusionDefinition().ops, spec.name)
    assert method.__doc__
    got = run(lambda fd, *t: getattr(fd.ops, spec.name)(*t), *arrays)
    np.testing.assert_array_equal(got, BY_NAME[spec.name](*arrays))


OPERATORS = {
    "+": (lambda a, b: a + b, D.Float), "-": (lambda a, b: a - b, D.Float),
    "*": (lambda a, b: a * b, D.Float), "/": (lambda a, b: a / b, D.Float),
    "%": (lambda a, b: a % b, D.Float), "**": (lambda a, b: a**b, D.Float),
    "//": (lambda a, b: a // b, D.Float), "<": (lambda a, b: a < b, D.Bool),
    "<=": (lambda a, b: a <= b, D.Bool), ">": (lambda a, b: a > b, D.Bool),
    ">=": (lambda a, b: a >= b, D.Bool), "==": (lambda a, b: a == b, D.Bool),
    "!=": (lambda a, b: a != b, D.Bool),
}  # fmt: skip


@pytest.mark.parametrize("symbol", OPERATORS)
def test_operators(symbol, rng):
    operator, dtype = OPERATORS[symbol]
    a, b = floats(rng, 5, 3), floats(rng, 5, 3)
    a[0] = b[0]
    got = run(lambda fd, x, y: operator(x, y), a, b)
    assert got.dtype == dtype.np
    np.testing.assert_allclose(got, operator(a, b), rtol=1e-6)
    np.testing.assert_allclose(run(lambda fd, x: operator(x, 0.5), a), operator(a, 0.5), rtol=1e-6)
    np.testing.assert_allclose(run(lambda fd, x: operator(0.5, x), a), operator(0.5, a), rtol=1e-6)


@pytest.mark.parametrize(
    "operator",
    [
        lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a ^ b, lambda a, b: ~a,
        lambda a, b: a << 3, lambda a, b: a >> 2, lambda a, b: -a, lambda a, b: abs(a),
        lambda a, b: a // b, lambda a, b: a % b, lambda a, b: 3 - a, lambda a, b: 6 & a,
        lambda a, b: 1 << (b & 7),
    ],
)  # fmt: skip
def test_integer_operators(operator, rng):
    a, b = rng.integers(-9, 9, (2, 6, 5), dtype=np.int32)
    b[b == 0] = 4
    got = run(lambda fd, x, y: operator(x, y), a, b)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, operator(a, b))


def test_python_scalars_do_not_promote(rng):
    bf16 = floats(rng, 4).astype(ml_dtypes.bfloat16)
    assert run(lambda fd, x: x * 0.1, bf16).dtype == np.float32
    assert run(lambda fd, x: fd.ops.where(x > 0.5, x, 0.0), bf16).dtype == bf16.dtype
    ints = rng.integers(0, 9, 4, dtype=np.int8)
    assert run(lambda fd, x: x + 1, ints).dtype == np.int8
    assert run(lambda fd, x: x + 0.5, ints).dtype == np.float32
    assert run(lambda fd, x: x * 0.1, floats(rng, 4)).dtype == np.float32
    assert run(lambda fd, x: np.float64(0.1) * x, bf16).dtype == np.float32
    double = run(lambda fd, x: x * fd.define_scalar(0.1), floats(rng, 4).astype(np.float64))
    assert double.dtype == np.float64


@pytest.mark.parametrize(
    ("a", "b", "dtype"),
    [(1.0, 0.01, D.Float), (1, 0.01, D.Float), (1, 2, D.Int), (True, 2, D.Int),
     (True, False, D.Bool), (D.Double, 1.0, D.Float), (D.Int32, 1, D.Int)],
)  # fmt: skip
def test_where_on_a_mask_and_two_scalars(a, b, dtype, rng):
    """A condition gives the shape and no dtype: scalars count as Bool, Int or Float as in torch."""
    x = rng.normal(size=(3, 5)).astype(np.float32)
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=D.Float)
        scalar = fd.define_scalar(a) if isinstance(a, D) else a
        chosen = fd.ops.where(t > 0, scalar, b)
        fd.add_output(chosen)
        fd.add_output(t * chosen)
    given = 7
    out, scaled = fd.execute([x, given] if isinstance(a, D) else [x], backend="interpret")
    want = np.where(x > 0, given if isinstance(a, D) else a, b)
    assert out.dtype == dtype.np
    np.testing.assert_array_equal(out, want.astype(dtype.np))
    assert scaled.dtype == np.float32
    np.testing.assert_array_equal(scaled, x * want.astype(np.float32))


REDUCTIONS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("dims", [None, [0], [-1], [0, 2], 1])
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions(op, dims, keepdim, rng):
    a = floats(rng, 3, 4, 5)
    axis = tuple(dims) if isinstance(dims, list) else dims
    got = run(lambda fd, x: getattr(fd.ops, op)(x, dims, keepdim=keepdim), a)
    wanted = REDUCTIONS[op](a.astype(np.float64), axis=axis, keepdims=keepdim)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=2e-6)


def test_reduction_dtypes(rng):
    bf16 = np.full(4096, 1, ml_dtypes.bfloat16)
    assert run(lambda fd, x: fd.ops.sum(x), bf16) == 4096  # accumulated in Float
    assert run(lambda fd, x: fd.ops.sum(x), bf16).dtype == bf16.dtype
    odd = np.full(4097, 1, ml_dtypes.bfloat16)
    assert run(lambda fd, x: fd.ops.sum(x, dtype=D.Float), odd) == 4097
    for dtype in (np.bool_, np.int8, np.uint8, np.int32, np.int64):
        ones = np.ones(300, dtype)
        total = run(lambda fd, x: fd.ops.sum(x), ones)
        assert (total, total.dtype) == (300, np.int64)
        assert run(lambda fd, x: fd.ops.max(x), ones).dtype == dtype
    big = np.array([2**53, 1], np.int64)
    assert run(lambda fd, x: fd.ops.sum(x), big) == 2**53 + 1
    assert run(lambda fd, x: fd.ops.sum(x, dtype=D.Int32), big) == 1  # wraps
    assert run(lambda fd, x: fd.ops.sum(x, dtype=D.Double), floats(rng, 4)).dtype == np.float64


def test_max_and_min_propagate_nan():
    a = np.array([[1, np.nan], [2, 3]], np.float32)
    np.testing.assert_array_equal(run(lambda fd, x: fd.ops.max(x, [1]), a), [np.nan, 3])
    np.testing.assert_array_equal(run(lambda fd, x: fd.ops.min(x, [1]), a), [np.nan, 2])


@pytest.mark.parametrize("correction", [0, 1])
@pytest.mark.parametrize("dims", [None, [1], [0, 2]])
@pytest.mark.parametrize("keepdim", [False, True])
def test_statistics(correction, dims, keepdim, rng):
    a = floats(rng, 3, 4, 5) + 1000
    axis = None if dims is None else tuple(dims)
    exact = a.astype(np.float64)
    mean = exact.mean(axis, keepdims=keepdim)
    variance = exact.var(axis, ddof=correction, keepdims=keepdim)
    options = {"correction": correction, "keepdim": keepdim}
    var, avg = run(lambda fd, x: fd.ops.var_mean(x, dims, **options), a)
    np.testing.assert_allclose(avg, mean, rtol=1e-6)
    np.testing.assert_allclose(var, variance, rtol=1e-3)  # a cancels 4 digits: 1000.5 in f32
    precise = run(lambda fd, x: fd.ops.var(x, dims, **options), a, precise=True)
    np.testing.assert_allclose(precise, variance, rtol=1e-9)
    got = run(lambda fd, x: fd.ops.mean(x, dims, keepdim), a)
    np.testing.assert_allclose(got, mean, rtol=1e-6)


def test_welford(rng):
    a = floats(rng, 6, 50)
    mean, squares, n = run(lambda fd, x: fd.ops.welford(x, [1]), a)
    np.testing.assert_allclose(mean, a.mean(1), rtol=1e-6)
    np.testing.assert_allclose(squares, a.astype(np.float64).var(1) * 50, rtol=1e-5)
    np.testing.assert_array_equal(n, np.full(6, 50))
    assert n.dtype == np.int64


def test_zero_dimensional():
    a = np.float32(3).reshape(())
    assert run(lambda fd, x: fd.ops.sum(x), a) == 3
    assert run(lambda fd, x: fd.ops.prod(x, dtype=D.Double), a).dtype == np.float64
    assert math.isnan(run(lambda fd, x: fd.ops.var(x), a))
    variance, mean = run(lambda fd, x: fd.ops.var_mean(x, correction=0), a)
    assert (variance, mean) == (0, 3)
    assert run(lambda fd, x: x[...] + x, a) == 6


def test_softmax_and_norms(rng):
    a, w, b = floats(rng, 4, 6) * 30, floats(rng, 6), floats(rng, 6)
    x = a.astype(np.float64)
    power = np.exp(x - x.max(0))
    np.testing.assert_allclose(
        run(lambda fd, t: fd.ops.softmax(t, 0), a), power / power.sum(0), rtol=1e-5
    )
    layer = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b
    got = run(lambda fd, t, u, v: fd.ops.layer_norm(t, [6], u, v), a, w, b)
    np.testing.assert_allclose(got, layer, rtol=1e-4, atol=1e-5)
    rms = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w
    got = run(lambda fd, t, u: fd.ops.rms_norm(t, [6], u), a, w)
    np.testing.assert_allclose(got, rms, rtol=1e-5)


@pytest.mark.parametrize("diagonal", [-2, 0, 1])
def test_triu(diagonal, rng):
    a = rng.integers(1, 9, (2, 4, 5), dtype=np.int32)
    got = run(lambda fd, x: fd.ops.triu(x, diagonal), a)
    np.testing.assert_array_equal(got, np.triu(a, diagonal))


def test_gelu_clamp_addcmul(rng):
    a, b = floats(rng, 50) * 6 - 3, floats(rng, 50)
    x = a.astype(np.float64)
    exact = np.array([v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
    np.testing.assert_allclose(run(lambda fd, t: fd.ops.gelu(t), a), exact, rtol=1e-4, atol=1e-6)
    tanh = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    got = run(lambda fd, t: fd.ops.gelu(t, approximate="tanh"), a)
    np.testing.assert_allclose(got, tanh, rtol=1e-4, atol=1e-6)
    for low, high in ((None, 0.5), (-0.5, None), (-0.5, 0.5)):
        got = run(lambda fd, t, lo=low, hi=high: fd.ops.clamp(t, lo, hi), a)
        np.testing.assert_array_equal(got, np.clip(a, low, high))
    got = run(lambda fd, t, u: fd.ops.addcmul(t, t, u, value=2.0), a, b)
    np.testing.assert_allclose(got, x + 2 * x * b, rtol=1e-5, atol=1e-6)


def test_full_and_iota(rng):
    a = floats(rng, 3, 7)
    got = run(lambda fd, x: fd.ops.full([2, x.shape[1]], 1.5, D.Half), a)
    np.testing.assert_array_equal(got, np.full((2, 7), 1.5, np.float16))
    got = run(lambda fd, x: fd.ops.iota(x.shape[1], 5, -2, D.Int32), a)
    np.testing.assert_array_equal(got, 5 - 2 * np.arange(7))
    got = run(lambda fd, x: fd.ops.iota(4, 0.5, 0.25, D.BFloat16), a)
    np.testing.assert_array_equal(got.astype(np.float64), [0.5, 0.75, 1.0, 1.25])
    assert run(lambda fd, x: fd.ops.iota(4), a).dtype == np.int64


def test_sum_over_a_dimension_that_a_slice_made_1(rng):
    a = floats(rng, 3, 7)
    got = run(lambda fd, x: fd.ops.sum(x[:, :1], [1]), a)
    np.testing.assert_array_equal(got, a[:, 0])


def test_fusion_without_inputs():
    assert run(lambda fd: fd.ops.sum(fd.ops.full([10], 2.0, D.Float))) == 20


def test_pad_and_views_keep_the_dtype(rng):
    a = floats(rng, 4, 4).astype(ml_dtypes.bfloat16)
    for view in (
        lambda fd, x: fd.ops.pad(x, [1, 1], 0.5), lambda fd, x: fd.ops.cat([x, x], 1),
        lambda fd, x: fd.ops.reshape(x, [16]), lambda fd, x: fd.ops.permute(x, [1, 0]),
        lambda fd, x: x[1:], lambda fd, x: fd.ops.set(x),
    ):  # fmt: skip
        assert run(view, a).dtype == a.dtype


def test_scalars_compute_too():
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1], dtype=D.BFloat16)
    s = fd.define_scalar()
    n = fd.define_scalar(D.Int)
    y = x * (s + 1) * n
    assert y.dtype is D.Float
    fd.add_output(y)
    a = np.array([1, 2], ml_dtypes.bfloat16)
    got = evaluate(fd.fusion, {x.name: a}, {s.name: 0.5, n.name: 3})[y.name]
    np.testing.assert_array_equal(got, [4.5, 9])


def test_precise_rounds_scalars_but_not_casts():
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1], dtype=D.Float)
    y = fd.ops.cast(fd.ops.cast(x, D.BFloat16), D.Float) + 0.1
    fd.add_output(y)
    a = np.array([1.001], np.float32)
    (precise,) = evaluate(fd.fusion, {x.name: a}, precise=True)[y.name]
    assert precise == float(np.float32(1.001)) + float(np.float32(0.1))
    (rounded,) = evaluate(fd.fusion, {x.name: a})[y.name]
    assert rounded == np.float32(1) + np.float32(0.1)


def test_a_0d_full_is_a_tensor():
    fd = FusionDefinition()
    y = fd.ops.full([], 2, D.Half)
    fd.add_output(y + fd.ops.reshape(y, []))
    assert (y + 1.0).dtype is D.Float


def test_doubling_scalars_is_linear():
    fd = FusionDefinition()
    s = fd.define_scalar(D.Int)
    for _ in range(200):
        s = s + s
    x = fd.define_tensor(shape=[-1], dtype=D.Int8)
    assert (x + s).dtype is D.Int8
