"""Layout promises of a definition, checked at every call."""

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.core.errors import InputError


def definition(shape, contiguity, stride_order=None):
    with FusionDefinition() as fd:
        order = {} if stride_order is None else {"stride_order": stride_order}
        x = fd.define_tensor(shape=shape, contiguity=contiguity, dtype=DataType.Float, **order)
        fd.add_output(fd.ops.neg(x))
    return fd


def run(fd, array):
    (out,) = fd.execute([array], backend="interpret")
    np.testing.assert_array_equal(out, -array)


BASE = np.arange(6 * 8, dtype=np.float32).reshape(6, 8)


def test_a_row_major_array_keeps_every_promise():
    run(definition([-1, -1], [True, True]), BASE)


@pytest.mark.parametrize(
    ("array", "dim", "stride", "needed"),
    [(BASE[:, ::2], 1, 2, 1), (BASE.T, 1, 8, 1), (BASE[:, :4], 0, 8, 4)],
    ids=["strided", "transposed", "columns"],
)
def test_a_broken_promise_names_the_input_and_both_strides(array, dim, stride, needed):
    fd = definition([-1, -1], [True, True])
    message = (
        f"input x: stride of dimension {dim} is {stride} elements; the definition promises a "
        f"contiguous dimension, which needs {needed}"
    )
    with pytest.raises(InputError, match=message):
        run(fd, array)


@pytest.mark.parametrize("array", [BASE[:, ::2], BASE.T, BASE[:, :4], BASE[::2]])
def test_without_a_promise_any_layout_runs(array):
    run(definition([-1, -1], [False, False]), array)


def test_only_the_promised_dimension_counts():
    run(definition([-1, -1], [False, True]), BASE[:, :4])


def test_size_one_and_empty_dimensions_have_no_stride():
    fd = definition([-1, -1], [True, True])
    run(fd, np.lib.stride_tricks.as_strided(BASE, (1, 8), (1000 * 4, 4)))
    run(fd, BASE[:0, ::2])


def test_stride_order_says_which_dimension_is_innermost():
    run(definition([-1, -1], [True, True], [0, 1]), BASE.T)
