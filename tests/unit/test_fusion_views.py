"""Index maps against NumPy, over every output coordinate of random small shapes."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.core.errors import InputError
from fuser.core.expr import Const, Var, evaluate
from fuser.fusion.attrs import SplitDimAttrs
from fuser.fusion.bind import bind_sizes
from fuser.fusion.graph import FusionGraph
from fuser.fusion.reference import evaluate as reference
from fuser.fusion.views import VIEW_OPS, operand_access, reshape_groups

pytestmark = pytest.mark.unit


def check_access(graph: FusionGraph, arrays, scalars=None) -> int:
    """Compare every element of every view value with what its index map says; count views."""
    values = reference(graph, arrays, scalars or {})
    sizes = bind_sizes(graph, arrays, scalars or {})
    views = [v for v in graph.values if v.op in VIEW_OPS]
    for view in views:
        names = [f"i{d}" for d in range(view.rank)]
        result = values[view.name]
        for at in np.ndindex(result.shape):
            env = {**sizes, **dict(zip(names, at, strict=True))}
            sources = graph.operands(view)[: 1 if view.op == "pad" else None]
            found = []
            for k, source in enumerate(sources):
                access = operand_access(graph, view, k, [Var(n) for n in names])
                if evaluate(access.guard, env):
                    where = tuple(int(evaluate(c, env)) for c in access.coords)
                    assert all(0 <= i < n for i, n in zip(where, values[source.name].shape,
                                                          strict=True))  # fmt: skip
                    found.append(values[source.name][where])
                elif view.op == "pad":
                    found.append(values[access.fill.name].astype(result.dtype))
                elif view.op == "split_dim":
                    found.append(result.dtype.type(access.fill))
            assert len(found) == 1, f"{view.name}{at}: {len(found)} operands supply it"
            assert found[0] == result[at], f"{view.name}{at}"
    return len(views)


def make(shape, static, rng):
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[n if static or n == 1 else -1 for n in shape], dtype=DataType.Int32)
    array = rng.integers(0, 10_000, shape, dtype=np.int32)
    return fd, x, array


def expect(fd, y, x, array, wanted):
    fd.add_output(y)
    fd.fusion.verify()
    got = reference(fd.fusion, {x.name: array})[y.name]
    np.testing.assert_array_equal(got, wanted)
    assert check_access(fd.fusion, {x.name: array}) >= 1


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_permute(static, seed):
    rng = np.random.default_rng(seed)
    fd, x, array = make(tuple(rng.integers(1, 5, rng.integers(1, 5))), static, rng)
    dims = list(map(int, rng.permutation(array.ndim)))
    expect(fd, fd.ops.permute(x, dims), x, array, array.transpose(dims))


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_slice(static, seed):
    rng = np.random.default_rng(seed)
    fd, x, array = make(tuple(rng.integers(0, 7, rng.integers(1, 4))), static, rng)
    starts, ends = rng.integers(-8, 9, (2, array.ndim)).tolist()
    strides = rng.integers(1, 4, array.ndim).tolist()
    index = tuple(slice(*t) for t in zip(starts, ends, strides, strict=True))
    expect(fd, fd.ops.slice(x, starts, ends, strides), x, array, array[index])


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_unfold(static, seed):
    """Windows as torch has them: they overlap, touch or leave elements out."""
    rng = np.random.default_rng(seed)
    fd, x, array = make(tuple(rng.integers(1, 7, rng.integers(1, 4))), static, rng)
    dim = int(rng.integers(-array.ndim, array.ndim))
    size, step = int(rng.integers(1, array.shape[dim] + 1)), int(rng.integers(1, 4))
    count = (array.shape[dim] - size) // step + 1
    windows = [array.take(range(i * step, i * step + size), dim) for i in range(count)]
    wanted = np.moveaxis(np.stack([np.moveaxis(w, dim, -1) for w in windows]), 0, dim % array.ndim)
    expect(fd, fd.ops.unfold(x, dim, size, step), x, array, wanted)


@pytest.mark.parametrize("size", [1, 4, 7])
@pytest.mark.parametrize("step", [1, 2])
def test_windows_of_a_size_known_at_execution(size, step, rng):
    fd, x, array = make((3, 7), False, rng)
    n, s = fd.define_scalar(DataType.Int), fd.define_scalar(DataType.Int)
    y = fd.ops.unfold(x, 1, n, s)
    fd.add_output(y)
    given = {x.name: array}, {n.name: size, s.name: step}
    got = reference(fd.fusion, *given)[y.name]
    np.testing.assert_array_equal(
        got, np.lib.stride_tricks.sliding_window_view(array, size, 1)[:, ::step]
    )
    assert check_access(fd.fusion, *given) == 1


@pytest.mark.parametrize(
    ("size", "step", "text"),
    [
        (8, 1, "unfold of t0: dimension 1 is shorter than a window: size 1 of t0 is 7; at least 8"),
        (0, 1, "unfold of t0: size is below 1: s1 is 0; at least 1 is needed"),
        (2, 0, "unfold of t0: step is below 1: s2 is 0; at least 1 is needed"),
    ],
)
def test_windows_that_there_are_not(size, step, text, rng):
    fd, x, array = make((3, 7), False, rng)
    n, s = fd.define_scalar(DataType.Int), fd.define_scalar(DataType.Int)
    fd.add_output(fd.ops.unfold(x, 1, n, s))
    with pytest.raises(InputError, match=re.escape(text)):
        fd.execute([array, size, step], backend="interpret")


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize(
    "index",
    [
        (..., 1), (slice(None), None), (-1,), (slice(-2, None), ..., slice(None, -1)),
        (None, ..., None), (2, 3, 1), (slice(1, None), -2, slice(None, None, 2)),
    ],
)  # fmt: skip
def test_indexing(static, index, rng):
    fd, x, array = make((3, 4, 5), static, rng)
    expect(fd, x[index], x, array, array[index])


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_pad_and_crop(static, seed):
    rng = np.random.default_rng(seed)
    fd, x, array = make(tuple(rng.integers(1, 5, rng.integers(1, 4))), static, rng)
    widths, index, pads = [], [], []
    for n in array.shape:
        before, after = int(rng.integers(-1, 4)), int(rng.integers(-1, 4))
        if n + min(before, 0) + min(after, 0) < 1:  # see test_pad_of_a_crop_to_nothing
            before, after = 0, 0
        widths = [before, after, *widths]
        index.append(slice(max(-before, 0), n - max(-after, 0)))
        pads.append((max(before, 0), max(after, 0)))
    cropped = array[tuple(index)]
    expect(fd, fd.ops.pad(x, widths, 7), x, array, np.pad(cropped, pads, constant_values=7))


def test_pad_of_a_crop_to_nothing(rng):
    fd, x, array = make((1,), False, rng)
    expect(fd, fd.ops.pad(x, [-1, 3], 7), x, array, np.full(3, 7))


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_cat(static, seed):
    rng = np.random.default_rng(seed)
    shape = list(map(int, rng.integers(1, 4, rng.integers(1, 4))))
    dim = int(rng.integers(0, len(shape)))
    fd = FusionDefinition()
    tensors, arrays = [], {}
    for _ in range(int(rng.integers(1, 4))):
        shape[dim] = int(rng.integers(0, 4))
        extents = [n if static or n == 1 else -1 for n in shape]
        t = fd.define_tensor(shape=extents, dtype=DataType.Int32)
        tensors.append(t)
        arrays[t.name] = rng.integers(0, 10_000, shape, dtype=np.int32)
    y = fd.ops.cat(tensors, dim)
    fd.add_output(y)
    fd.fusion.verify()
    got = reference(fd.fusion, arrays)[y.name]
    np.testing.assert_array_equal(got, np.concatenate(list(arrays.values()), dim))
    check_access(fd.fusion, arrays)


def factorings(n, rng):
    shape = []
    while n > 1:
        divisors = [d for d in range(2, n + 1) if n % d == 0]
        shape.append(int(rng.choice(divisors)))
        n //= shape[-1]
    for _ in range(int(rng.integers(0, 2))):
        shape.insert(int(rng.integers(0, len(shape) + 1)), 1)
    return shape


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_reshape(static, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.choice([1, 12, 24, 36]))
    fd, x, array = make(tuple(factorings(n, rng)), static, rng)
    new = factorings(n, rng)
    asked = list(new)
    if asked and rng.integers(2):
        asked[int(rng.integers(len(asked)))] = -1
    expect(fd, fd.ops.reshape(x, asked), x, array, array.reshape(new))


@pytest.mark.parametrize(
    ("old", "new"), [((2, 1, 0, 3, 1), (5, 0)), ((0, 4), (-1, 4)), ((3, 0), (0,)), ((), (1, 1))]
)
@pytest.mark.parametrize("static", [True, False])
def test_reshape_without_elements_or_dimensions(old, new, static, rng):
    fd, x, array = make(old, static, rng)
    expect(fd, fd.ops.reshape(x, list(new)), x, array, array.reshape(new))


def test_reshape_by_sizes_of_the_input(rng):
    fd, x, array = make((3, 8), False, rng)
    n, m = fd.ops.shape(x)
    y = fd.ops.reshape(x, [n, m // 4, 4])
    expect(fd, y, x, array, array.reshape(3, 2, 4))


def test_reshape_keeps_matching_dimensions_apart():
    n, m = Var("n"), Var("m")

    def groups(old, new):
        as_exprs = [tuple(Const(e) if isinstance(e, int) else e for e in s) for s in (old, new)]
        return reshape_groups(*as_exprs)

    assert groups((n, 4096), (n, 32, 128)) == [((0,), (0,)), ((1,), (1, 2))]
    assert groups((n, m, 4, 6), (n, m * 4, 2, 3)) == [((0,), (0,)), ((1, 2), (1,)), ((3,), (2, 3))]
    assert groups((2, 3, 5), (6, 5)) == [((0, 1), (0,)), ((2,), (1,))]
    assert groups((1, n, 1), (n, 1)) == [((1,), (0,))]
    assert groups((n, m), (m, n)) == [((0, 1), (0, 1))]


@pytest.mark.parametrize("static", [True, False])
def test_broadcasts(static, rng):
    fd, x, array = make((3, 1, 4), static, rng)
    y = fd.ops.broadcast_in_dim(x, [2, 3, 5, 4], [1, 2, 3])
    expect(fd, y, x, array, np.broadcast_to(array, (2, 3, 5, 4)))
    z = fd.ops.expand(x, [-1, 6, -1])
    expect(fd, z, x, array, np.broadcast_to(array, (3, 6, 4)))
    s = fd.ops.squeeze(x, [1])
    expect(fd, s, x, array, array[:, 0])
    b = fd.ops.broadcast(s, [True, False, True, False, True])
    expect(fd, b, x, array, array[:, 0][None, :, None, :, None])


@pytest.mark.parametrize("factor", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("static", [True, False])
def test_split_dim(factor, static, rng):
    fd, x, array = make((2, 7, 3), static, rng)
    g = fd.fusion
    extents = x.value.shape
    outer = (extents[1] + (factor - 1)) // factor
    shape = (extents[0], outer, Const(factor), extents[2])
    attrs = SplitDimAttrs(1, Const(factor), -5)
    y = g.add("split_dim", (x.name,), DataType.Int32, shape, attrs)
    g.add_output(y)
    g.verify()
    rounded = math.ceil(7 / factor)
    padded = np.pad(array, [(0, 0), (0, rounded * factor - 7), (0, 0)], constant_values=-5)
    got = reference(g, {x.name: array})[y.name]
    np.testing.assert_array_equal(got, padded.reshape(2, rounded, factor, 3))
    check_access(g, {x.name: array})


def test_pointwise_pins_broadcast_dimensions():
    fd = FusionDefinition()
    x = fd.define_tensor(shape=[-1, 1, 4])
    y = fd.define_tensor(shape=[1, -1, 4])
    z = fd.ops.add(x, y)
    i, j, k = Var("i"), Var("j"), Var("k")
    left, right = (operand_access(fd.fusion, z.value, n, (i, j, k)) for n in range(2))
    assert left.coords == (i, Const(0), k)
    assert right.coords == (Const(0), j, k)
    scaled = fd.ops.mul(z, 2.0)
    assert operand_access(fd.fusion, scaled.value, 1, (i, j, k)).coords == ()


def test_every_view_op_is_checked_here():
    text = Path(__file__).read_text()
    missing = [op for op in sorted(VIEW_OPS) if f"ops.{op}(" not in text and f'"{op}"' not in text]
    assert not missing
