"""Unrolled loops on a GPU: trips around the copies, into poisoned memory."""

from __future__ import annotations

import numpy as np
import pytest
from matrix.on_gpu import poisoned_memory
from unroll_cases import IDS, RUNS, run

from benchmarks.unroll_table import ROWS

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("case", "copies"), RUNS, ids=IDS)
def test_trips_around_the_copies(case, copies, rng):
    with poisoned_memory():
        run(case, copies, rng, backend="cuda")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_filters_of_the_table(row, rng):
    fd, inputs = row.build()
    inputs[0] = rng.standard_normal(inputs[0].shape).astype(np.float32)
    with poisoned_memory():
        fd.validate(inputs, manual=True, backend="cuda")
