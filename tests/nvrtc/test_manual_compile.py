"""Kernels of hand-made schedules compile for Hopper, without spills or local memory."""

import pytest
from manual_schedules import CASES, program

from fuser.codegen.emit import emit
from fuser.runtime.nvrtc import compile_cubin

pytestmark = pytest.mark.nvrtc


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_compiles(case, rng):
    (kernel,) = program(case.build(), case.inputs(rng, -1)).kernels
    cubin = compile_cubin(emit(kernel), kernel.name, on_spill="raise")
    assert cubin.image[:4] == b"\x7fELF"
