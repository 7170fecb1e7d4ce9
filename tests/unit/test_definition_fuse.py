"""``@fuser.fuse``, ``fuser.ops`` and ``fd.validate`` on a stand-in for the execution."""

from __future__ import annotations

import re
from itertools import product

import ml_dtypes
import numpy as np
import pytest

import fuser
from fuser import DataType, FusionDefinition
from fuser.core.errors import DefinitionError, InputError, ResultMismatchError
from fuser.fusion.reference import evaluate
from fuser.ops import POINTWISE

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def executed(monkeypatch):
    """Execute by the reference; list the definitions that ran."""
    ran = []

    def execute(fd, inputs, **options):
        ran.append(fd)
        fd.fusion.verify()
        arrays, scalars = fd.named_inputs(inputs)
        values = evaluate(fd.fusion, arrays, scalars)
        for output in fd.fusion.outputs:
            if output.alias_of:
                arrays[output.alias_of][...] = values[output.value]
        return [values[o.value].copy() for o in fd.fusion.outputs if not o.alias_of]

    monkeypatch.setattr(FusionDefinition, "execute", execute)
    return ran


def traces(ran):
    return len({id(fd) for fd in ran})


def test_operators_broadcast_as_numpy_does(executed, rng):
    @fuser.fuse
    def f(x, y, scale):
        return fuser.ops.exp(x * scale) + y

    x, y = rng.random((4, 1, 5), np.float32), rng.random((3, 5), np.float32)
    np.testing.assert_allclose(f(x, y, 0.5), np.exp(x * np.float32(0.5)) + y, rtol=1e-6)
    np.testing.assert_allclose(f(x, y, 0.25), np.exp(x * np.float32(0.25)) + y, rtol=1e-6)
    np.testing.assert_allclose(f(x[:2], y, scale=1.0), np.exp(x[:2]) + y, rtol=1e-6)
    assert traces(executed) == 2  # a keyword is another way to call; values and sizes are not
    assert [v.name for v in executed[0].fusion.inputs] == ["x", "y", "scale"]
    f(x[:1], y, 0.5)
    f(x.astype(np.float64), y, 0.5)
    f(x[..., ::-1].copy(), y, 0.5)
    assert traces(executed) == 4


def test_strides_choose_the_trace(executed, rng):
    @fuser.fuse
    def f(x):
        return x + 1

    x = rng.random((6, 4), np.float32)
    for array in (x, x.T, x[::2], x[:, ::2], np.broadcast_to(x[0], (6, 4)), x):
        np.testing.assert_array_equal(f(array), array + 1)
    assert traces(executed) == 5


def test_ints_are_passed_unless_the_trace_needs_them(executed, rng):
    @fuser.fuse
    def f(x, n, axis=-1):
        return fuser.ops.sum(x * n, axis)

    x = rng.random((4, 5), np.float32)
    for n in (2, 3):
        np.testing.assert_allclose(f(x, n), (x * n).sum(-1), rtol=1e-6)
        np.testing.assert_allclose(f(x, n, 0), (x * n).sum(0), rtol=1e-6)
        np.testing.assert_allclose(f(x, n, 1), (x * n).sum(1), rtol=1e-6)
    assert traces(executed) == 3


def test_ints_in_python_control_flow(executed):
    @fuser.fuse
    def f(x, repeats, flag, mode="up"):
        for _ in range(repeats + 1):
            x = x * 2 if flag else x * 3
        return -x if mode == "down" else x

    x = np.ones(3, np.int32)
    np.testing.assert_array_equal(f(x, 2, True), x * 8)
    np.testing.assert_array_equal(f(x, 1, False), x * 9)
    np.testing.assert_array_equal(f(x, 1, False, mode="down"), x * -9)
    assert traces(executed) == 3


def test_tuples_in_and_out(rng):
    x = rng.random(4, np.float32)

    @fuser.fuse
    def g(pair, options):
        a, b = pair
        return a + b * options["k"], a - b

    got = g((x, x * 2), {"k": 2.0})
    assert isinstance(got, tuple)
    np.testing.assert_allclose(got[0], x * 5, rtol=1e-6)
    np.testing.assert_allclose(got[1], -x, rtol=1e-6)


def test_what_is_returned_must_be_tensors(rng):
    @fuser.fuse
    def f(a):
        return a, 3

    with pytest.raises(DefinitionError, match="f: returned 3; a tensor or a tuple of tensors is"):
        f(rng.random(4, np.float32))


def test_a_tuple_of_one_stays_a_tuple(rng):
    x = rng.random(4, np.float32)
    assert isinstance(fuser.fuse(lambda a: (a + 1,))(x), tuple)
    assert isinstance(fuser.fuse(lambda a: a + 1)(x), np.ndarray)


def test_fused_functions_nest(executed, rng):
    @fuser.fuse
    def square(a):
        return a * a

    @fuser.fuse
    def f(a):
        return square(a) + square(a + 1)

    x = rng.random(4, np.float32)
    np.testing.assert_allclose(f(x), x * x + (x + 1) ** 2, rtol=1e-6)
    assert len(executed) == 1


def test_shapes_while_tracing(rng):
    @fuser.fuse
    def mean(a):
        return fuser.ops.sum(a, -1) / a.shape[-1]

    for n in (3, 7):
        x = rng.random((2, n), np.float32)
        np.testing.assert_allclose(mean(x), x.mean(-1), rtol=1e-6)

    @fuser.fuse
    def bad(a):
        return a if a.size(0) > 3 else -a  # `size` is a scalar of the fusion whatever the array

    with pytest.raises(DefinitionError, match="is used as a truth value, and its value is"):
        bad(x)


def test_an_extent_that_decides_the_trace_is_part_of_it(rng):
    traced = []

    @fuser.fuse
    def f(a, b, steps):
        traced.append(a.shape)
        for _ in range(min(a.shape[0], steps)):
            b = b + 1.0
        return b if a.shape[1] > 3 else -b

    def expected(a, b, steps):
        b = b + min(a.shape[0], steps)
        return b if a.shape[1] > 3 else -b

    for rows, columns, n, steps in [(2, 4, 5, 9), (4, 4, 5, 9), (2, 3, 5, 9), (2, 4, 5, 1)]:
        a, b = rng.random((rows, columns), np.float32), rng.random(n, np.float32)
        np.testing.assert_allclose(f(a, b, steps), expected(a, b, steps), rtol=1e-6)
    finished = len(traced)
    np.testing.assert_allclose(f(a, b[:3], 1), expected(a, b[:3], 1), rtol=1e-6)
    assert len(traced) == finished, "the extents of b decide nothing: no trace of their own"


def test_functions_run_at_once_on_arrays(rng):
    x = rng.random((3, 4), np.float32)
    np.testing.assert_allclose(fuser.ops.exp(x), np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(fuser.ops.sum(x, [0], keepdim=True), x.sum(0, keepdims=True))
    np.testing.assert_array_equal(fuser.ops.cat([x, x], dim=1), np.concatenate([x, x], 1))
    variance, mean = fuser.ops.var_mean(x, 0)
    np.testing.assert_allclose((variance, mean), (x.var(0, ddof=1), x.mean(0)), rtol=1e-5)
    assert "gelu" in dir(fuser.ops)
    assert "definition" not in dir(fuser.ops)
    assert fuser.ops.sum.__doc__.startswith("Sum;")
    with pytest.raises(AttributeError, match=r"ops\.nonsense: is no operation"):
        fuser.ops.nonsense  # noqa: B018


def test_repr_of_a_trace(rng):
    @fuser.fuse
    def f(x, b):
        return (x + b)[1:]

    fd = f.definition(rng.random((4, 5), np.float32), rng.random(5, np.float32))
    namespace = {}
    exec(repr(fd), namespace)
    assert namespace["fd"].fusion == fd.fusion


def softmax_in(dtype):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=dtype)
        y = fd.ops.cast(fd.ops.softmax(x), dtype)
        fd.add_output(y)
    return fd


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16, DataType.Half])
def test_validate_accepts_what_rounding_explains(dtype, rng):
    x = (rng.standard_normal((33, 129)) * 8).astype(dtype.np)
    fd = softmax_in(dtype)
    (got,) = fd.validate([x])
    assert got.dtype == dtype.np
    fd.validate([x], [got])


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16])
@pytest.mark.parametrize("factor", [1.02, np.nan, 0])
def test_validate_names_the_worst_element(dtype, factor, rng, monkeypatch):
    x = (rng.standard_normal((33, 129)) * 8).astype(dtype.np)
    fd = softmax_in(dtype)
    right = FusionDefinition.execute

    def wrong(self, inputs, **options):
        (y,) = right(self, inputs, **options)
        at = np.unravel_index(np.argmax(y.astype(np.float64)), y.shape)
        wrong.at = [int(i) for i in at]
        y[at] *= dtype.np.type(factor)
        return [y]

    monkeypatch.setattr(FusionDefinition, "execute", wrong)
    with pytest.raises(ResultMismatchError, match=r"output 0 \(y\): 1 of 4257 elements") as caught:
        fd.validate([x])
    assert re.search(re.escape(f"at {wrong.at}, where it is"), str(caught.value))


def test_validate_integers_exactly_and_aliases():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.Int)
        fd.add_output(x + 1, x)
        fd.add_output(x * 3)
    array = np.array([2**53, 5])
    fd.validate([array.copy()])
    with pytest.raises(ResultMismatchError, match=r"output 1 \(t\d+\): 1 of 2 elements differ"):
        fd.validate([array.copy()], [np.array([3 * 2**53 + 1, 15])])
    with pytest.raises(ResultMismatchError, match=r"shape is \[2\]; the reference has \[3\]"):
        fd.validate([array.copy()], [np.ones(3, np.int64)])


@pytest.mark.parametrize("n", [20, 60, 1000])
def test_validate_allows_any_order_of_a_sum(n, monkeypatch, rng):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, None])
        fd.add_output(fd.ops.sum(x, [1]))

    def one_after_the_other(self, inputs, **options):
        (rows,) = inputs
        threads = 1 if n <= 60 else 20
        parts = np.zeros((threads, len(rows)), np.float32)
        for i in range(n):
            parts[i % threads] += rows[:, i]
        return [np.add.accumulate(parts, 0)[-1]]

    rows = np.broadcast_to(rng.standard_normal(200).astype(np.float32)[:, None], (200, n))
    monkeypatch.setattr(FusionDefinition, "execute", one_after_the_other)
    fd.validate([rows])
    monkeypatch.setattr(FusionDefinition, "execute", lambda *_: [rows[:, :-1].sum(1)])
    with pytest.raises(ResultMismatchError):
        fd.validate([rows])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_validate_wants_one_reference_per_returned_output(count):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(x + 1, x)
        fd.add_output(x * 3)
        fd.add_output(x * 5)
    text = f"validate: got {count} reference outputs; the definition returns 2: t"
    with pytest.raises(InputError, match=text):
        fd.validate([np.ones(2, np.float32)], [np.ones(2, np.float32)] * count)


def test_validate_accepts_overflow_of_the_output_dtype():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.Half)
        fd.add_output(fd.ops.cast(x * x, DataType.Half))
        fd.add_output(fd.ops.cast(x * x, DataType.Float8_e4m3fn))
    fd.validate([np.array([1000, -3, np.inf, np.nan], np.float16)])
    assert np.isnan(np.float32(1e6).astype(ml_dtypes.float8_e4m3fn).astype(np.float32))


EDGES = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, 0.3, -7.0, "max", "tiny", "smallest_subnormal"]
STEPPING = [s for s in POINTWISE if s.in_compute_dtype]


@pytest.mark.parametrize("dtype", [d for d in DataType if d.is_float and d.nbytes > 1], ids=repr)
@pytest.mark.parametrize("spec", STEPPING, ids=lambda spec: spec.name)
def test_validate_takes_steps_of_the_compute_dtype(spec, dtype):
    """From infinity towards 0 comes the largest Float, not that of the reference's Double."""
    info = ml_dtypes.finfo(dtype.np)
    numbers = [getattr(info, e) if isinstance(e, str) else e for e in EDGES]
    a, b = np.array(list(product(numbers, numbers)), np.float64).astype(dtype.np).T
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor(shape=[-1], contiguity=True, dtype=dtype) for _ in range(2))
        fd.add_output(fd.ops.pointwise(spec.name, [x, y]))
        fd.add_output(fd.ops.pointwise(spec.name, [x * 0.1, y]))
    got, _ = fd.validate([a, b])
    np.testing.assert_array_equal(got, spec(*(m.astype(dtype.compute.np) for m in (a, b))))


def test_functions_without_tensors_add_to_the_fusion_being_written(executed, rng):
    def ramp(n):
        return fuser.ops.iota(n, 0, 2)

    @fuser.fuse
    def f(x):
        return x * ramp(4) + fuser.ops.full([4], 0.5, DataType.Float)

    x = rng.random((3, 4), np.float32)
    expected = x * np.arange(0, 8, 2) + np.float32(0.5)
    np.testing.assert_allclose(f(x), expected, rtol=1e-6)
    assert len(executed) == 1

    with FusionDefinition() as outer:
        a = outer.define_tensor(shape=[4], contiguity=True)
        with FusionDefinition() as inner:
            inner.add_output(fuser.ops.full([2], 1, DataType.Int))
        outer.add_output(a + fuser.ops.full([4], 0.5, DataType.Float))
        np.testing.assert_array_equal(fuser.ops.add(x, 1), x + 1)  # arrays: at once
    np.testing.assert_array_equal(outer.execute([x[0]])[0], x[0] + np.float32(0.5))
    np.testing.assert_array_equal(inner.execute([])[0], [1, 1])
    np.testing.assert_array_equal(ramp(3), [0, 2, 4])  # nothing is being written: at once


def test_a_definition_left_by_an_error_is_not_written_to_any_more():
    @fuser.fuse
    def broken(x):
        raise KeyError("mine")

    with pytest.raises(KeyError), FusionDefinition():
        raise KeyError("mine")
    with pytest.raises(KeyError):
        broken(np.ones(2, np.float32))
    assert isinstance(fuser.ops.iota(3), np.ndarray)


def test_fused_functions_nest_with_tensors_in_containers(executed, rng):
    @fuser.fuse
    def inner(layer):
        return layer["x"] * layer["scales"][0]

    @fuser.fuse
    def outer(x, y):
        return inner({"x": x, "scales": [y]}) + 1

    x, y = rng.random((2, 3, 4), np.float32)
    np.testing.assert_allclose(outer(x, y), x * y + 1, rtol=1e-6)
    assert len(executed) == 1
