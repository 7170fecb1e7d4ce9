"""Rings in registers on the loop of a ring with barriers, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from shared_trips import CASES, Case

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", CASES, ids=str)
def test_numbers_of_every_count_of_trips(case: Case, rng: np.random.Generator) -> None:
    fd = case.fusion()
    s = case.stages
    for trips in (0, 1, s - 1, s, s + 1, 3 * s + 1, 200) if case.trips < 0 else (case.trips,):
        x, z = case.inputs(rng, trips)
        (y,) = fd.manual_execute([x, z], backend="cuda")
        np.testing.assert_array_equal(y, case.expected(x, z))
