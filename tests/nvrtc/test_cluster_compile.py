"""Kernels of clusters compile for sm_90a; the SASS holds the instructions they stand for."""

from __future__ import annotations

import re

import pytest
from rings.cells import Cell, definition
from rings.families import L

from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.core.dtypes import DataType
from fuser.core.expr import ONE, ZERO, Const
from fuser.kir.core import BarrierArray, Kernel, SharedArray, TensorMapParam, TensorParam
from fuser.kir.stmts import MbarrierInit, TensorLoad
from fuser.runtime.nvrtc import compile_cubin, ptx_of
from fuser.runtime.sass import disassemble

pytestmark = pytest.mark.nvrtc


def count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text))


@pytest.mark.parametrize("blocks", [2, 4])
@pytest.mark.parametrize("kind", ["parity-mbarrier", "ws", "ws-regs"])
def test_rings(kind, blocks):
    tile = 512 if kind == "ws-regs" else 256
    cell = Cell("multicast", (L.tma, L.tma), type=kind, cluster=blocks, tile=tile)
    fd = definition(cell)
    (kernel,) = program_of(fd, bind(fd, cell.inputs(), True), True).kernels
    source = emit(kernel)
    ptx = ptx_of(source, kernel.name, "sm_90a")
    assert re.search(rf"\.reqnctapercluster\s+{blocks}, 1, 1", ptx)
    assert "cp.async.bulk.tensor.1d" in ptx
    assert ".multicast::cluster" in ptx
    assert "mbarrier.arrive.release.cluster.shared::cluster.b64" in ptx
    assert "mbarrier.try_wait.parity.acquire.cluster" in ptx
    assert count(r"barrier\.cluster\.arrive", ptx) == count(r"barrier\.cluster\.wait", ptx) == 2
    cubin = compile_cubin(source, kernel.name, "sm_90a", on_spill="raise")
    assert cubin.log.warnings == ()
    sass = disassemble(cubin.image)
    assert count(r"UTMALDG\.1D\.MULTICAST", sass) >= 1
    assert count(r"UTMALDG\.2D\b(?!\.MULTICAST)", sass) >= 1, "the rows of a block are its own"
    assert count(r"UCGABAR_ARV", sass) == count(r"UCGABAR_WAIT", sass) == 2
    assert count(r"SYNCS\.ARRIVE\.TRANS64\.RED", sass) >= 1, "remote arrive"


@pytest.mark.parametrize("kind", ["token-mbarrier", "parity-barrier", "token-barrier"])
def test_rings_of_tokens_and_of_barriers(kind):
    """One multicast for both blocks; a barrier of the cluster a trip instead of remote arrivals."""
    cell = Cell("multicast", (L.tma, L.tma), type=kind, cluster=2)
    fd = definition(cell)
    (kernel,) = program_of(fd, bind(fd, cell.inputs(), True), True).kernels
    source = emit(kernel)
    cubin = compile_cubin(source, kernel.name, "sm_90a", on_spill="raise")
    assert cubin.log.warnings == ()
    sass = disassemble(cubin.image)
    meets = kind.endswith("barrier") and not kind.endswith("mbarrier")
    assert count(r"UTMALDG\.1D\.MULTICAST", sass) >= 1
    assert count(r"UCGABAR_ARV", sass) == count(r"UCGABAR_WAIT", sass) == 2 + meets
    assert (count(r"SYNCS\.ARRIVE\.TRANS64\.RED", sass) >= 1) != meets, "remote arrive"
    assert count(r"BAR\.SYNC", sass) == 0, "no barrier of a block alone"
    waits = count(r"mbarrier\.try_wait\.parity", ptx_of(source, kernel.name, "sm_90a"))
    assert (waits == 0) == (kind == "token-barrier")


@pytest.mark.parametrize("rank", range(1, 6))
def test_multicast_of_every_rank(rank):
    """The prelude's functions for boxes of 1 to 5 dimensions."""
    extents = (64, 2, 1, 1, 1)[:rank]
    strides = tuple(Const(256 * 2**i) for i in range(rank - 1))
    dims = tuple(Const(n) for n in extents)
    x = TensorParam("x", DataType.Float, "in", Const(4096))
    x_map = TensorMapParam("x_map", "x", DataType.Float, dims, strides, extents)
    coords = (ZERO,) * rank
    load = TensorLoad("tile", ZERO, "x_map", coords, "b", ZERO, Const(3))
    kernel = Kernel(
        "k", (x, x_map), (SharedArray("tile", DataType.Float, 128, 128),),
        (Const(2), ONE, ONE), (Const(32), ONE, ONE), "i32",
        (MbarrierInit("b", ZERO, ONE), load),
        barriers=(BarrierArray("b", 1),), cluster=(2, 1, 1),
    )  # fmt: skip
    cubin = compile_cubin(emit(kernel), kernel.name, "sm_90a")
    assert count(rf"UTMALDG\.{rank}D\.MULTICAST", disassemble(cubin.image)) == 1
