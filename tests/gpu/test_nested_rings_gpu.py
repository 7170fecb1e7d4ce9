"""Tiles loaded inside the loop of another ring, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from nested_rings import CASES, ONCE, Case, Once
from side_by_side import BEHIND, both, sums_of_rows

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


@pytest.mark.parametrize(("first", "threads", "second", "load"), BEHIND, ids=str)
def test_a_ring_behind_registers_handed_over(first, threads, second, load, rng) -> None:
    """Few trips, too: producers are then done before consumers have taken their registers."""
    fd = both(second, load, False, threads, first)
    for one, other in ((1, 1), (1, 3), (3, 1), (2, 7), (7, 2), (200, 300)):
        a, b = (rng.integers(-9, 10, 128 * n - 4 * (n > 1)).astype("f4") for n in (one, other))
        for _ in range(5):
            y, z = fd.manual_execute([a, b], backend="cuda")
            np.testing.assert_array_equal(y, a.astype("f8") * 2)
            np.testing.assert_array_equal(z, b.astype("f8") * 3)


def test_work_of_all_threads_behind_registers_handed_over(rng: np.random.Generator) -> None:
    fd = sums_of_rows()
    for rows, columns in ((1, 4), (2, 512), (300, 20 * 512 + 8)):
        x = rng.integers(-9, 10, (rows, columns)).astype("f4")
        (s,) = fd.manual_execute([x], backend="cuda")
        np.testing.assert_array_equal(s, x.astype("f8").sum(1))
