"""Every matrix product compiles for Hopper: one instruction each, no spills, no notes of ptxas."""

import itertools
import os

import pytest
from machine_code import disassembled

from fuser.core.dtypes import DataType
from fuser.core.expr import ONE, ZERO, Const, Var
from fuser.kir.core import Kernel, SharedArray, TensorParam, Unroll
from fuser.kir.matrix import MatrixLayout
from fuser.kir.scalar import Element, Literal
from fuser.kir.stmts import (
    DeclareRegisters,
    For,
    Scoped,
    Store,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)
from fuser.sass.report import read_sass

pytestmark = pytest.mark.nvrtc

F32 = DataType.Float
IV, THREAD = Var("i"), Var("thread")
MAJORS = list(itertools.product(("k", "mn"), repeat=2))
EXPLORING = os.environ.get("FUSER_HYPOTHESIS") == "explore"
SHIFTS = range(len(MAJORS)) if EXPLORING else range(1)
"""By which the operands' majors go on from one width to the next: all of them, or one each."""
WIDTHS = (range(8, 129, 8), range(136, 257, 8))
"""Of the products of one kernel."""


def product(n, majors, dtype):
    """Return one product in braces, with accumulators of its own."""
    count = n // 2
    a, b = (MatrixLayout(major, "128B", 8192, 1024) for major in majors)
    return Scoped((
        DeclareRegisters("d", F32, count),
        For("i", Const(count), (Store("d", IV, Literal(0.0, F32)),), Unroll("full")),
        WgmmaFence("d", count),
        Wgmma("d", ZERO, "a", ZERO, a, "b", ZERO, b, n, dtype),
        WgmmaCommit(),
        WgmmaWait(0, "the product is complete", "d", count),
        Store("y", THREAD + 128 * n, Element("d", Const(count - 1), F32)),
    ))  # fmt: skip


def kernel(products, dtype):
    shared = SharedArray("a", dtype, 4096, 1024), SharedArray("b", dtype, 16384, 1024)
    y = TensorParam("y", F32, "out", Const(128 * 257))
    block = (Const(128), ONE, ONE)
    return Kernel("products", (y,), shared, (ONE, ONE, ONE), block, "i32", tuple(products))


@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Half], ids=lambda d: d.short)
def test_every_width(dtype):
    first = 2 * (dtype is DataType.Half)
    kernels = [
        kernel([product(n, MAJORS[(first + shift + n // 8) % 4], dtype) for n in widths], dtype)
        for widths, shift in itertools.product(WIDTHS, SHIFTS)
    ]
    for log, sass in disassembled(kernels):
        assert log.warnings == log.notes == ()
        assert log.spill_store_bytes == log.spill_load_bytes == log.stack_bytes == 0
        assert read_sass(sass).hgmma == len(WIDTHS[0])
