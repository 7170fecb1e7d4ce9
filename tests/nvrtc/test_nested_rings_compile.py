"""Rings inside of roles and behind them: the loops of machine code, and its registers."""

from __future__ import annotations

import re

import numpy as np
import pytest
from manual_schedules import program
from nested_rings import HANDED, ROLES, Case, L
from sass_loops import require_marked_loops
from side_by_side import LESS, MORE, both

from fuser.codegen.emit import emit
from fuser.runtime.cache import CUBINS
from fuser.runtime.sass import disassemble

pytestmark = pytest.mark.nvrtc


@pytest.mark.parametrize(
    "case", [Case(L.tma, ROLES, 2, 2), Case(L.cp_async, HANDED, 1, 0)], ids=str
)
def test_loops_of_rings_that_consumers_run(case: Case, rng: np.random.Generator) -> None:
    (kernel,) = program(case.fusion(), case.inputs(rng, 2, 2)).kernels
    require_marked_loops(case, kernel)


def test_registers_go_back_before_others_are_taken() -> None:
    """168 a thread is what the kernel begins with, and what a block of 384 threads may have."""
    x = np.ones(4096, np.float32)
    (kernel,) = program(both(LESS, L.tma, False, 256, MORE), [x, x]).kernels
    require_marked_loops("both", kernel)
    cubin = CUBINS.get(emit(kernel), kernel.name, "sm_90a", on_spill="raise")
    assert "C7508" not in str(cubin.log)
    assert cubin.log.registers == 168
    found = re.findall(r"USETMAXREG\.(\w+)\.CTAPOOL (?:UP\d, )?(0x\w+)", disassemble(cubin.image))
    changes = sorted((what, int(count, 16)) for what, count in found)
    gives = [("DEALLOC", count) for count in (24, 40, 168)]
    assert changes == [*gives, *(("TRY_ALLOC", count) for count in (168, 232, 240))]
