"""Rings with unrolled loops around their trip loop on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from unrolled_rings import CASES, Case

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_tile_is_the_trips_own(case: Case, rng: np.random.Generator) -> None:
    fd = case.fusion()
    for trips in (1, 2, 5, 33):
        x = rng.integers(-99, 100, case.shape(trips)).astype("f4")
        (y,) = fd.manual_execute([x], backend="cuda")
        np.testing.assert_array_equal(y, 2 * x.astype("f8") + 1)
