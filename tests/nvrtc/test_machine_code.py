"""Kernels that tests compile together have the machine code of kernels compiled alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machine_code import MachineCode, disassembled
from rings.cells import Cell, L, definition

from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.core.dtypes import DataType
from fuser.core.errors import CompileError
from fuser.core.expr import ONE, Const, Var
from fuser.kir.core import Kernel, TensorParam
from fuser.kir.scalar import Element
from fuser.kir.stmts import DeclareRegisters, For, Store
from fuser.runtime.nvrtc import compile_cubin
from fuser.runtime.sass import disassemble
from fuser.sass.parse import parse

pytestmark = pytest.mark.nvrtc

CELLS = [
    Cell("registers", (L.set,), 3, 2, dtype=DataType.Int8),
    Cell("single_dim", (L.tma,), type="ws"),
    Cell("single_dim", (L.cp_async,), dtype=DataType.BFloat16),
]


def kernel_of(cell: Cell) -> Kernel:
    (kernel,) = program_of(fd := definition(cell), bind(fd, cell.inputs(), True), True).kernels
    return kernel


def instructions(sass: str) -> list[tuple[int, str, str]]:
    (code,) = parse(sass)
    return [(i.address, i.guard, i.opcode) for i in code.instructions]


def test_it_is_the_code_of_a_kernel_alone():
    together = disassembled([kernel_of(cell) for cell in CELLS])
    for cell, (log, sass) in zip(CELLS, together, strict=True):
        kernel = kernel_of(cell)
        alone = compile_cubin(emit(kernel), kernel.name, "sm_90a")
        assert instructions(sass) == instructions(disassemble(alone.image)), cell
        assert (log.registers, log.stack_bytes) == (alone.log.registers, alone.log.stack_bytes)


def test_findings_are_those_of_one_kernel():
    """An array with an index that no unrolling makes constant is in local memory."""
    f32, tx, i = DataType.Float, Var("tx"), Var("i")
    x, y = TensorParam("x", f32, "in", Const(4096)), TensorParam("y", f32, "out", Const(4096))
    body = (
        DeclareRegisters("r", f32, 64),
        For("i", Const(64), (Store("r", i, Element("x", tx + i, f32)),)),
        Store("y", tx, Element("r", tx % 64, f32)),
    )
    bad = Kernel("k", (x, y), (), (ONE, ONE, ONE), (Const(64), ONE, ONE), "i32", body)
    good = replace(bad, body=(Store("y", tx, Element("x", tx, f32)),))
    code = MachineCode(["good", "bad"], {"good": good, "bad": bad}.__getitem__)
    assert "STG" in code["good"]
    with pytest.raises(CompileError, match=r"^kernel bad: \d+ bytes of local memory per thread"):
        _ = code["bad"]
