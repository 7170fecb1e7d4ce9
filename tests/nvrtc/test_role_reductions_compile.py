"""Threads of a role meet at ``bar.sync id, n`` in what ptxas makes of their reductions."""

from __future__ import annotations

import re

import pytest
from role_fusions import FUSIONS, Options, kernel_of

from fuser import DataType
from fuser.codegen.emit import emit
from fuser.kir.core import Kernel, walk_stmts
from fuser.kir.stmts import BlockReduce, NamedBarrier
from fuser.runtime.nvrtc import compile_cubin
from fuser.runtime.sass import disassemble

pytestmark = pytest.mark.nvrtc

BARRIER = re.compile(r"BAR\.SYNC\S* (0x[0-9a-f]+)(?:, (0x[0-9a-f]+))?")


def sass_of(kernel: Kernel) -> str:
    """Compile without warnings or spills; return the machine code."""
    cubin = compile_cubin(emit(kernel), kernel.name, "sm_90a", on_spill="raise")
    assert cubin.log.warnings == ()
    sass = disassemble(cubin.image)
    assert not re.search(r"\b(LDL|STL)\b", sass)
    return sass


@pytest.mark.parametrize("registers", [False, True], ids=["ws", "ws-regs"])
@pytest.mark.parametrize("name", FUSIONS)
def test_barriers_and_their_threads(name, registers):
    o = Options(registers=registers)
    kernel = kernel_of(FUSIONS[name].build(o), FUSIONS[name].inputs(o, 3))
    sass = sass_of(kernel)
    found = [(int(number, 16), threads) for number, threads in BARRIER.findall(sass)]
    assert {number for number, _ in found} == {0, 1}
    assert {int(threads, 16) for number, threads in found if number} == {o.threads}
    ours = [s for s in walk_stmts(kernel.body) if isinstance(s, BlockReduce | NamedBarrier)]
    assert sum(number == 1 for number, _ in found) >= len(ours)
    assert not any(threads for number, threads in found if not number)


@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Half, DataType.Int8],
                         ids=lambda d: d.short)  # fmt: skip
def test_rows_of_whole_warps_go_through_shuffles(dtype):
    """Two reductions of 5 steps each, and the one that tells roles apart."""
    o = Options(dtype=dtype, columns=768)
    sass = sass_of(kernel_of(FUSIONS["centred"].build(o), FUSIONS["centred"].inputs(o, 3)))
    assert len(re.findall(r"SHFL\.BFLY", sass)) == 10
    assert len(re.findall(r"SHFL\.IDX", sass)) == 1
