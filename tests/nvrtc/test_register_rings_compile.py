"""Rings in registers compile for sm_90a, and stay in registers: nothing is in local memory."""

from __future__ import annotations

import re

import numpy as np
import pytest
from machine_code import MachineCode
from rings.cells import Cell, L, P, definition
from rings.families import staged
from rings.matrix import SLOTS

from fuser import DataType, FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.kir.core import Kernel
from fuser.runtime.nvrtc import compile_cubin
from fuser.runtime.sass import disassemble

pytestmark = pytest.mark.nvrtc


def kernel_of(fd: FusionDefinition, inputs: list[np.ndarray]) -> Kernel:
    (kernel,) = program_of(fd, bind(fd, inputs, True), True).kernels
    return kernel


def sass_of(fd: FusionDefinition, inputs: list[np.ndarray]) -> str:
    """Return the machine code of a schedule's kernel, which must have no stack."""
    kernel = kernel_of(fd, inputs)
    cubin = compile_cubin(emit(kernel), kernel.name, "sm_90a", on_spill="raise")
    assert cubin.log.stack_bytes == 0
    return disassemble(cubin.image)


def in_local_memory(sass: str) -> list[str]:
    return re.findall(r"\b(?:LDL|STL)\b.*", sass)


def of_cells(cells: list[Cell]) -> MachineCode[Cell]:
    return MachineCode(cells, lambda cell: kernel_of(definition(cell), cell.inputs()))


ALONE = of_cells(
    [
        Cell("registers", (L.set,), slots, ahead, dtype=dtype)
        for dtype in (DataType.Float, DataType.Int8)
        for slots, ahead in SLOTS
    ]
)


@pytest.mark.parametrize("cell", ALONE.items, ids=str)
def test_from_global_memory(cell):
    assert not in_local_memory(ALONE[cell])


INSIDE = (
    ("parity-mbarrier", L.tma, 4096),
    ("parity-barrier", L.cp_async, 1024),
    ("ws", L.bulk, 4096),
    ("ws-regs", L.tma, 1024),
)
NESTED = of_cells(
    [
        Cell("nested", (load,), type=kind, slots=slots, ahead=ahead, tile=tile)
        for first, (kind, load, tile) in enumerate(INSIDE)
        for slots, ahead in SLOTS[first % 2 :: 2]
    ]
)
"""Every distance in one pipelined and one specialised ring."""


@pytest.mark.parametrize("cell", NESTED.items, ids=str)
def test_inside_a_ring(cell):
    """4096 elements are 32 trips, more than are unrolled: the rounds of the inner loop are not."""
    assert not in_local_memory(NESTED[cell])


def test_many_registers_a_slot():
    """Loops over the elements of a slot that are too long to be unrolled by themselves."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    part = x.cache_after()
    for t in (y, part):
        t.split(0, 32 * 64)
        t.split(1, 64)
        t.axis(2).parallelize(P.block_x)
    part.inline_at(y, 1)
    part.circular_buffer(2)
    assert not in_local_memory(sass_of(fd, [np.ones(9999, "f4")]))


def test_vectors():
    """A slot is loaded from a tile by 16 bytes at once."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 1024], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    tile = staged(x, L.tma)
    part = tile.cache_after()
    for t in (y, part):
        t.split(1, 128)
        t.split(2, 4)
        t.axis(2).parallelize(P.block_x)
        t.axis(3).parallelize(P.vectorize)
    tile.split(1, 256)
    tile.axis(2).parallelize(P.tma)
    part.inline_at(y, 2)
    tile.inline_at(part, 1)
    part.circular_buffer(3)
    sass = sass_of(fd, [np.ones((5, 1024), "f4")])
    assert not in_local_memory(sass)
    assert len(re.findall(r"LDS\.128", sass)) == 8
    assert len(re.findall(r"STG\.E\.128", sass)) == 8


def test_loads_come_before_the_use_of_the_trip_before():
    """With P = 2 two loads of a tile are under way when the first of it is used."""
    cell = Cell("registers", (L.set,), 3, 2, tile=64)
    lines = sass_of(definition(cell), cell.inputs()).splitlines()
    order = [m[1] for line in lines if (m := re.search(r"\b(LDG|STG)\.E", line))]
    assert order[:3] == ["LDG", "LDG", "LDG"], order
