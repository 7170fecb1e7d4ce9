"""Tiles that consumers of a ring with roles load: machine code has the loops that PTX marks."""

from __future__ import annotations

import numpy as np
import pytest
from manual_schedules import program
from nested_rings import HANDED, ROLES, Case, L
from sass_loops import require_marked_loops

pytestmark = pytest.mark.nvrtc


@pytest.mark.parametrize(
    "case", [Case(L.tma, ROLES, 2, 2), Case(L.cp_async, HANDED, 1, 0)], ids=str
)
def test_loops_of_rings_that_consumers_run(case: Case, rng: np.random.Generator) -> None:
    (kernel,) = program(case.fusion(), case.inputs(rng, 2, 2)).kernels
    require_marked_loops(case, kernel)
