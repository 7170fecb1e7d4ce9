"""Values of the user may have any name that kernels use for things of their own."""

from __future__ import annotations

import numpy as np
import pytest
from named_sums import CASES, build, inputs, interpret, lowered

from fuser.codegen.emit import emit
from fuser.codegen.prelude import words
from fuser.debug.stages import kernel_of
from fuser.fusion.names import is_valid_name

pytestmark = pytest.mark.unit

ALL = ("b", "e", "y")
"""An input, what is computed in between, the output."""
RENAMED = {"outlined": ALL, "register ring": ALL}
COLLISIONS = {
    "automatic": "scratch_f32", "block sum": "scratch_f32", "grid sum": "y_acc_arrivals",
    "outlined": "fusion_i1_0", "register ring": "i0_slot", "ring by threads": "x_cache_token",
    "ring by cp.async": "x_cache_full", "ring by bulk": "x_cache_empty",
    "ring by tma": "x_cache_map", "roles by tma": "x_cache_full",
    "roles by threads": "x_cache_empty",
}  # fmt: skip
"""A name that is among those of each case: that they are all tried is not vacuous."""


def names_of(case):
    """Return the names in the text of a case's kernel that a user could have chosen."""
    fd = build(case)
    source = kernel_of(emit(lowered(case, fd)))
    return sorted(n for n in words(source) if is_valid_name(n) and n not in fd.fusion)


@pytest.mark.parametrize("case", CASES)
def test_every_name_of_a_kernel_may_be_a_users(case, rng):
    arrays = inputs(rng)
    expected = arrays[1].astype("f8").sum(1)
    names = names_of(case)
    assert COLLISIONS[case] in names
    for value in RENAMED.get(case, ("b",)):
        for name in names:
            fd = build(case, **{value: name})
            assert name in words(emit(lowered(case, fd))), (value, name)
            np.testing.assert_array_equal(interpret(case, fd, arrays), expected, f"{value} {name}")
