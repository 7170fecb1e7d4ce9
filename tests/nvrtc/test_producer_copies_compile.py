"""Copies by the threads of a producer role: their loops, and that nothing spills."""

from __future__ import annotations

import re

import pytest
from rings.cells import Cell, definition
from rings.families import L

from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.runtime.nvrtc import compile_cubin

pytestmark = pytest.mark.nvrtc


@pytest.mark.parametrize("kind", ["ws", "ws-regs"])
@pytest.mark.parametrize("second", [L.cp_async, L.set], ids=lambda load: load.name)
def test_loops_of_the_producers_threads(second, kind):
    cell = Cell("pointwise", (L.tma, second), 3, 2, kind, tile=1024, edge="whole")
    fd, inputs = definition(cell), cell.inputs()
    (kernel,) = program_of(fd, bind(fd, inputs, True), True).kernels
    text = emit(kernel)
    first, step = (64, 32) if kind == "ws" else (256, 128)
    loop = rf"for \(idx (e\w*) = thread - {first}; \1 < {first}; \1 \+= {step}\)"
    assert re.search(loop, text), text
    assert "== 0 &&" not in text.split("// producer of")[1]
    compile_cubin(text, kernel.name, "sm_90a", on_spill="raise")
