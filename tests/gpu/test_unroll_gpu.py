"""Unrolled loops on a GPU: trips around the copies, into poisoned memory."""

from __future__ import annotations

import pytest
from matrix.on_gpu import poisoned_memory
from unroll_cases import IDS, RUNS, run

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("case", "copies"), RUNS, ids=IDS)
def test_trips_around_the_copies(case, copies, rng):
    with poisoned_memory():
        run(case, copies, rng, backend="cuda")
