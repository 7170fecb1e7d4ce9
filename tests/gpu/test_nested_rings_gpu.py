"""Tiles loaded inside the loop of another ring, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from nested_rings import CASES, ONCE, Case, Once

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tiles_inside_of_a_ring(case: Case, rng: np.random.Generator) -> None:
    fd = case.fusion()
    for trips, inner in ((1, 1), (2, 3), (5, 2), (33, 9)):
        x, w = case.inputs(rng, trips, inner)
        (y,) = fd.manual_execute([x, w], backend="cuda")
        np.testing.assert_array_equal(y, x.astype("f8") + w[:, None])


@pytest.mark.parametrize("once", ONCE, ids=str)
def test_a_tile_that_is_loaded_before_the_roles_part(once: Once, rng: np.random.Generator) -> None:
    fd = once.fusion()
    for trips in (1, 2, 3, 4, 10, 100):
        x, b = once.inputs(rng, trips)
        (y,) = fd.manual_execute([x, b], backend="cuda")
        np.testing.assert_array_equal(y, x.astype("f8") + b)
