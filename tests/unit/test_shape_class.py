"""What compiled code may rely on: the width of index arithmetic."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.api.execute import bind
from fuser.api.shape_class import INDEX_LIMIT
from fuser.core.expr import ONE

pytestmark = pytest.mark.unit

X = np.arange(12, dtype=np.float32)


def index_type(build, *scalars):
    """Return the index type of one call of ``build(fd, x, *scalars)`` and its result."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        given = [fd.define_scalar(DataType.Int) for _ in scalars]
        fd.add_output(build(fd, x, *given))
    inputs = [X, *scalars]
    (result,) = fd.execute(inputs, backend="interpret")
    return bind(fd, inputs).cls.index, result


@pytest.mark.parametrize("end", [12, 100, INDEX_LIMIT])
@pytest.mark.parametrize("given", [True, False])
def test_small_numbers_are_indexed_in_32_bits(end, given):
    build = lambda fd, x, e=end: fd.ops.slice(x, [2], [e])  # noqa: E731
    index, result = index_type(build, *([end] if given else []))
    assert index == "i32"
    np.testing.assert_array_equal(result, X[2:])


@pytest.mark.parametrize("number", [INDEX_LIMIT + 1, 2**31, 2**40, 2**61, -(2**40)])
@pytest.mark.parametrize("given", [True, False])
def test_a_large_number_in_an_index_needs_64_bits(number, given):
    build = lambda fd, x, e=number: fd.ops.slice(x, [0], [e])  # noqa: E731
    index, result = index_type(build, *([number] if given else []))
    assert index == "i64"
    np.testing.assert_array_equal(result, X[: max(0, number)])


def test_elements_of_iota_are_not_wrapped():
    index, result = index_type(lambda fd, x: fd.ops.iota(5, 3, 2**30))
    assert index == "i64"
    np.testing.assert_array_equal(result, 3 + np.arange(5) * 2**30)


def test_a_large_scalar_outside_indices_changes_nothing():
    index, result = index_type(lambda fd, x, s: x + s, 2**40)
    assert index == "i32"
    np.testing.assert_array_equal(result, X + np.float32(2**40))


def normalised(fd, x):
    """Softmax: two values per row, of extent 1, are read by all of the row."""
    e = fd.ops.exp(x - fd.ops.max(x, [1], True))
    return e / fd.ops.sum(e, [1], True)


@pytest.mark.parametrize(
    "build",
    [lambda fd, x: x * 2.0, lambda fd, x: fd.ops.sum(x, [1]), lambda fd, x: fd.ops.sum(x, [0]),
     normalised],
    ids=["map", "rows", "columns", "softmax"],
)  # fmt: skip
def test_row_counts_share_a_class(build):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        fd.add_output(build(fd, x))
    base = np.zeros((130, 64), np.float32)
    assert len({bind(fd, [base[:rows]]).cls for rows in range(1, 130)}) == 1


@pytest.mark.parametrize("dtype", [DataType.Int8, DataType.Half, DataType.Float, DataType.Double])
def test_row_counts_that_decide_the_width_of_vectors_make_three_classes(dtype):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        fd.add_output(fd.ops.permute(x, [1, 0]))
    base = np.zeros((1000, 64), dtype.np)
    classes = {bind(fd, [base[:rows]]).cls for rows in range(1, 1001)}
    assert len(classes) <= 3
    whole = 16 // dtype.nbytes
    divisible = [dict(cls.multiples).get("x_size0", 1) for cls in classes]
    assert sorted(divisible)[0] == 1
    assert max(divisible) == whole  # vectors of 16 bytes where they fit


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("ones", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_a_dimension_of_one_element_has_the_stride_of_its_place(order, ones):
    """As it has with more elements, so that vectors and boxes find the row: same code for both."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1] * 3, contiguity=[False, False, True], stride_order=order)
        fd.add_output(x + x)
    inner = sorted(range(3), key=lambda d: order[d])
    found = []
    for few in ((), ones):
        sizes = [1 if d in few else 4 + d for d in range(3)]
        memory = np.arange(16**3, dtype=np.float32).reshape([16] * 3)
        memory = memory.transpose(np.argsort(inner[::-1]))
        view = memory[tuple(slice(n) for n in sizes)]
        found.append(bind(fd, [view]).cls.inputs[0][1].strides)
        (y,) = fd.execute([view], backend="interpret")
        np.testing.assert_array_equal(y, view + view)
    many, few_strides = found
    assert few_strides[inner[0]] == many[inner[0]] == ONE
    kept = [d for d in range(3) if d not in ones]
    assert [few_strides[d] for d in kept] == [many[d] for d in kept]
