"""Reductions in two stages whose splits make more parts than there are elements."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from manual_schedules import run_checked

from fuser import FusionDefinition
from fuser.core.errors import ScheduleError

pytestmark = pytest.mark.protocol

OPS = {"sum": np.sum, "max": np.max, "prod": np.prod}
AGAIN = (None, (0, 3, True), (0, 3, False), (1, 3, True), (1, 3, False))
CELLS = list(product(OPS, (1, 2, 4, 5, 8), (True, False), AGAIN, (True, False), (0, -2)))


def reduced(extent, op, factor, inner, again, merged, axis):
    """Return ``op(x, 0)`` of x[extent, 2], split once or twice, reduced over one axis first."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[extent, 2], contiguity=True)
        y = getattr(fd.ops, op)(x, [0])
        fd.add_output(y)
    y.split(0, factor, inner)
    if again is not None:
        y.split(*again)
        if merged:
            y.merge(again[0])
    y.rfactor([axis])  # from the left, or the last of the reduced ones: behind is the kept one
    return fd


@pytest.mark.parametrize("extent", [1, 2, 4, 9, 33, -1])
def test_parts_beyond_the_extent_are_not_read(extent, rng):
    """Every factor around the extent, from either side, split once more from either side."""
    run = 0
    for i in rng.choice(len(CELLS), 16, replace=False):
        fd = reduced(extent, *CELLS[i])
        if extent < 0:
            fd.sched.inline_most()
        rows = int(rng.integers(1, 12)) if extent < 0 else extent
        a = rng.integers(1, 3, (rows, 2)).astype("f4")
        try:
            (got,) = run_checked(fd, [a], seed=0)
        except ScheduleError as error:  # of an unknown extent some stages fit no registers
            if extent < 0 and "a constant extent is needed" in str(error):
                continue
            raise
        expected = OPS[CELLS[i][0]](a.astype("f8"), 0)
        np.testing.assert_array_equal(got, expected, err_msg=f"{rows} rows: {CELLS[i]}")
        run += 1
    assert run >= 5
