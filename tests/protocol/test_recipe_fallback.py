"""A schedule that cannot be lowered gives way to the next recipe."""

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.schedule.recipes import CATALOG


@pytest.mark.parametrize("last", [2, 4, 8])
def test_a_permuted_input_behind_a_reshape_through_the_tile(last):
    x = np.random.default_rng(0).integers(-99, 99, (130, 2, 2, 4, last))
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1] * 5, dtype=DataType.Int)
        p = fd.ops.permute(t, [4, 1, 2, 3, 0])
        fd.add_output(fd.ops.reshape(p, [-1, 5, 4, last]))
    (out,) = fd.execute([x], backend="interpret")
    np.testing.assert_array_equal(out, x.transpose(4, 1, 2, 3, 0).reshape(-1, 5, 4, last))


def test_every_recipe_is_a_function_that_may_decline():
    assert [recipe.__name__ for recipe in CATALOG] == ["transpose", "pointwise", "reduction"]
