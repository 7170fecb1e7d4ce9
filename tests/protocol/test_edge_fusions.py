"""Kinds of fusions that random ones have found broken, each over its whole small range."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.core.errors import InputError

pytestmark = pytest.mark.protocol


def run(build, *inputs, static=False):
    """Define one input per array or int, return the outputs of `build` on the interpreter."""
    with FusionDefinition() as fd:
        given = [
            fd.define_scalar(DataType.Int) if isinstance(x, int)
            else fd.define_tensor(
                shape=[n if static or n == 1 else -1 for n in x.shape],
                dtype=DataType.from_numpy(x.dtype),
            )
            for x in inputs
        ]  # fmt: skip
        results = build(fd, *given)
        for result in results if isinstance(results, tuple) else (results,):
            fd.add_output(result)
    return fd, fd.execute(list(inputs), backend="interpret")


@pytest.mark.parametrize("n", [1, 2, 5])
def test_slice_bounds_given_at_run_time_may_be_negative(n):
    x = np.arange(n, dtype=np.float32)
    for start, end in itertools.product(range(-7, 8), repeat=2):
        _, (got,) = run(lambda fd, x, a, b: fd.ops.slice(x, [a], [b], [2]), x, start, end)
        np.testing.assert_array_equal(got, x[start:end:2], err_msg=f"{start}:{end} of {n}")


@pytest.mark.parametrize(("before", "after"), [(-2, 1), (0, -3), (-1, -1), (2, 0), (3, -4)])
def test_pad_widths_given_at_run_time_may_be_negative(before, after):
    x = np.arange(6, dtype=np.float32)
    _, (got,) = run(lambda fd, x, a, b: fd.ops.pad(x, [a, b], 9.0), x, before, after)
    padded = np.pad(x, (max(before, 0), max(after, 0)), constant_values=9)
    np.testing.assert_array_equal(got, padded[max(-before, 0) : len(padded) - max(-after, 0)])


SHAPES = [s for r in (1, 2, 3) for s in itertools.product((0, 1, 3), repeat=r) if 0 in s]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("static", [True, False], ids=["constants", "symbolic"])
def test_empty_tensors(shape, static):
    x = np.ones(shape, np.float32)
    dims = range(len(shape))

    def build(fd, t):
        ops = fd.ops
        flat = ops.reshape(t, [-1]) if len(shape) == 1 else ops.permute(t, list(dims)[::-1])
        sums = [ops.sum(t, list(d)) for r in dims for d in itertools.combinations(dims, r + 1)]
        return flat, ops.cat([t, t + 1.0], len(shape) - 1), ops.max(t, [0]), *sums

    _, (flat, cat, top, *sums) = run(build, x, static=static)
    assert flat.shape == x.T.shape
    assert cat.shape == np.concatenate([x, x], -1).shape
    np.testing.assert_array_equal(top, np.max(x, 0, initial=-np.inf))
    every = [d for r in dims for d in itertools.combinations(dims, r + 1)]
    for got, d in zip(sums, every, strict=True):
        np.testing.assert_array_equal(got, x.sum(d))


def test_an_extent_that_is_provably_zero_launches_nothing():
    x = np.ones((5, 4), np.float32)
    fd, (got,) = run(lambda fd, t: fd.ops.sum(fd.ops.slice(t, [0, 1], [5, 1]), [0]), x)
    assert got.shape == (0,)
    assert program_of(fd, bind(fd, [x])).kernels == ()


@pytest.mark.parametrize("kept", list(itertools.product((1, 2), repeat=2)), ids=str)
@pytest.mark.parametrize("length", [1, 2, 31, 33, 700])
@pytest.mark.parametrize("static", [True, False], ids=["constants", "symbolic"])
def test_reductions_that_keep_extents_of_one(kept, length, static):
    x = np.random.default_rng(0).integers(-9, 9, (kept[0], length, kept[1]))
    _, (total, top) = run(
        lambda fd, t: (fd.ops.sum(t, [1]), fd.ops.max(t, [1], keepdim=True)), x, static=static
    )
    np.testing.assert_array_equal(total, x.sum(1))
    np.testing.assert_array_equal(top, x.max(1, keepdims=True))


def _read_only(x):
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (np.arange(6.0)[::-1], r"strides are \[-1\]"),
        (np.broadcast_to(np.arange(6.0), (3, 6)), r"strides are \[0, 1\]"),
        (_read_only(np.arange(6.0)), "read-only"),
    ],
    ids=["reversed", "expanded", "read-only"],
)
def test_an_output_is_not_written_into_an_array_that_cannot_hold_it(array, what):
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1] * array.ndim, dtype=DataType.Double)
        fd.add_output(t + 1.0, t)
    before = array.copy()
    with pytest.raises(InputError, match=f"input t: an output is written into it.*{what}"):
        fd.execute([array], backend="interpret")
    np.testing.assert_array_equal(array, before)


def test_an_output_is_written_into_an_empty_array():
    array = np.empty((4, 0, 6))[::2, :, ::3]
    assert array.strides[0] == 0
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1, -1, -1], dtype=DataType.Double)
        fd.add_output(t + 1.0, t)
    assert fd.execute([array], backend="interpret") == []


@pytest.mark.parametrize("step", [1, 2])
def test_an_output_is_written_into_a_strided_array(step):
    base = np.arange(12.0)
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1], dtype=DataType.Double)
        fd.add_output(t + 1.0, t)
    assert fd.execute([base[::step]], backend="interpret") == []
    np.testing.assert_array_equal(base, np.arange(12.0) + (np.arange(12) % step == 0))


@pytest.mark.parametrize("shape", [(1, 3, 40, 4), (3, 1, 40, 4), (1, 1, 3, 40, 4), (3, 4, 40, 1)])
@pytest.mark.parametrize("keepdim", [True, False])
def test_reductions_of_one_dimension_between_kept_ones_of_extent_one(shape, keepdim):
    """Leading extents of 1 and symbolic kept extents: the result is found where it was computed."""
    x = np.random.default_rng(0).integers(-9, 9, shape)
    axis = shape.index(40)
    _, (total, shifted) = run(
        lambda fd, t: (
            s := fd.ops.sum(t, [axis], keepdim=keepdim),
            fd.ops.broadcast(s + 1, [True, *[False] * s.ndim]),
        ),
        x,
    )
    np.testing.assert_array_equal(total, x.sum(axis, keepdims=keepdim))
    np.testing.assert_array_equal(shifted[0], total + 1)


@pytest.mark.parametrize("shape", [(3, 16, 5), (1, 24, 40), (2, 8, 3)])
def test_reductions_beside_a_symbolic_extent_split_by_reshape(shape):
    """Nothing says that the extent divides; the result is found by the loops it shares."""
    x = np.random.default_rng(0).integers(-9, 9, shape)
    n, m = shape[0], shape[2]
    _, (total, kept) = run(
        lambda fd, t: (
            fd.ops.sum(fd.ops.reshape(t, [n if n == 1 else t.size(0), 8, -1, t.size(2)]), [3]),
            fd.ops.max(fd.ops.reshape(t, [-1, 8, t.size(2)]), [2], keepdim=True),
        ),
        x,
    )
    np.testing.assert_array_equal(total, x.reshape(n, 8, -1, m).sum(3))
    np.testing.assert_array_equal(kept, x.reshape(-1, 8, m).max(2, keepdims=True))


EMPTY_VIEWS = {
    "none of the columns": (slice(None, None, -1), slice(0), slice(None)),
    "none of the rows": (slice(0), slice(None, None, -1), slice(None, None, -1)),
    "none, backwards in twos": (slice(None, None, -2), slice(None, None, -1), slice(0, 0, -1)),
    "transposed": (slice(None, None, -1), slice(None), slice(0)),
    "expanded": (slice(None), slice(None), slice(0)),
}


@pytest.mark.parametrize("promise", ["example", "contiguous", "nothing"])
@pytest.mark.parametrize("what", EMPTY_VIEWS)
def test_strides_of_an_array_without_elements_mean_nothing(what, promise):
    """Backwards, in steps, transposed, repeated: reductions and pads give their fill."""
    array = np.ones((4, 3, 2), np.float32)
    array = np.broadcast_to(array[:1], array.shape) if what == "expanded" else array
    array = array[EMPTY_VIEWS[what]]
    array = array.transpose(2, 0, 1) if what == "transposed" else array
    assert array.size == 0
    with FusionDefinition() as fd:
        if promise == "example":
            x = fd.from_pytorch(array)
        else:
            x = fd.define_tensor(shape=[-1] * 3, contiguity=promise == "contiguous")
        for d in range(3):
            fd.add_output(fd.ops.sum(x, [d]))
        fd.add_output(fd.ops.pad(x, [1, 0, 0, 2, 1, 1], 3.0))
        fd.add_output(x * 2.0)
    got = fd.execute([array], backend="interpret")
    padded = np.pad(array, ((1, 1), (0, 2), (1, 0)), constant_values=3.0)
    expected = [*(array.sum(d) for d in range(3)), padded, array * 2]
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)
