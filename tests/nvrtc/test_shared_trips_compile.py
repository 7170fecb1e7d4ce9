"""Registers that run ahead on the loop of a ring with barriers stay in registers."""

from __future__ import annotations

import numpy as np
import pytest
from manual_schedules import program
from sass_loops import require_marked_loops
from shared_trips import Case, L

from fuser import Pipelined, WarpSpecialized
from fuser.codegen.emit import emit
from fuser.runtime.cache import CUBINS

pytestmark = pytest.mark.nvrtc

CASES = [
    Case(), Case(Pipelined("token", "barrier"), 4, 3, 3, 2, load=L.cp_async),
    Case(source="elsewhere"), Case(WarpSpecialized()),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_slots_are_registers_and_loops_are_marked(case: Case, rng: np.random.Generator) -> None:
    (kernel,) = program(case.fusion(), case.inputs(rng, 4)).kernels
    require_marked_loops(case, kernel)
    cubin = CUBINS.get(emit(kernel), kernel.name, "sm_90a", on_spill="ignore")
    assert cubin.log.stack_bytes == 0
