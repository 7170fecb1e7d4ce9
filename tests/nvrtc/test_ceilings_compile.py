"""The hand-written kernels of the benchmarks compile, without spills, where there is no GPU."""

from __future__ import annotations

import pytest

from benchmarks.ceilings import FMA_CHAINS, FMA_UNROLLED, FOLDER
from benchmarks.ceilings.ring import RING_MAPS, RING_SUM
from fuser.runtime.nvrtc import compile_cubin

pytestmark = pytest.mark.nvrtc

RINGS = [("ring_sum", RING_SUM), *(("ring_map", ring) for ring in RING_MAPS)]


@pytest.mark.parametrize(("name", "ring"), RINGS, ids=lambda x: x if isinstance(x, str) else "")
def test_rings_compile_and_cover_their_tiles(name, ring):
    log = ring.compile(name, "sm_90a").log
    assert (log.spill_store_bytes, log.spill_load_bytes, log.stack_bytes) == (0, 0, 0)
    assert log.warnings == ()
    assert ring.tile_bytes % (16 * ring.readers) == 0  # every reader takes whole vectors
    blocks = ring.blocks_per_sm
    assert blocks * (ring.stages * ring.tile_bytes + log.shared_bytes + 1024) <= 228 * 1024
    assert blocks * (ring.readers + 32) <= 2048


def test_plain_map_compiles():
    text = (FOLDER / "plain_map.cu").read_text()
    assert compile_cubin(text, "plain_map", "sm_90a").log.spill_store_bytes == 0


def test_the_peak_of_arithmetic_is_multiply_adds_in_registers_of_full_multiprocessors():
    cubin = compile_cubin((FOLDER / "fma_peak.cu").read_text(), "fma_peak", "sm_90a")
    assert (cubin.log.spill_store_bytes, cubin.log.stack_bytes) == (0, 0)
    assert cubin.log.registers <= 65536 // 2048
    assert cubin.ptx.count("fma.rn.f32") == FMA_CHAINS * FMA_UNROLLED
