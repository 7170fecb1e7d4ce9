"""The hand-written rings: bulk copies into shared memory by one warp, read by all others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fuser.runtime.driver import device, load_function
from fuser.runtime.launch import LaunchRecord
from fuser.runtime.nvrtc import Cubin, compile_cubin

if TYPE_CHECKING:  # torch is imported by what times, so that compiling needs neither it nor a GPU
    from benchmarks.timing import Timer

FOLDER = Path(__file__).parent
ARRAY_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Ring:
    """Sizes of a ring kernel; bytes in flight per SM are their product, readers aside."""

    stages: int
    tile_bytes: int
    blocks_per_sm: int
    readers: int

    def compile(self, name: str, arch: str) -> Cubin:
        """Compile ``NAME.cu`` with these sizes."""
        sizes = {"STAGES": self.stages, "TILE_BYTES": self.tile_bytes, "READERS": self.readers}
        text = "".join(f"constexpr int {key} = {value};\n" for key, value in sizes.items())
        text += (FOLDER / "ring.cuh").read_text() + (FOLDER / f"{name}.cu").read_text()
        return compile_cubin(text, name, arch)

    def launcher(self, name: str, pointers: tuple[int, int]) -> Callable[[], None]:
        """Return what queues one run over `ARRAY_BYTES` on torch's current stream."""
        import torch

        gpu = device(0)
        function = load_function(self.compile(name, gpu.arch).image, name)
        nbytes = self.stages * self.tile_bytes
        record = LaunchRecord(function, ("pointer", "pointer", "i32"), nbytes)
        grid = (gpu.sm_count * self.blocks_per_sm, 1, 1)
        block = (self.readers + 32, 1, 1)
        values = (*pointers, ARRAY_BYTES // self.tile_bytes)
        stream = torch.cuda.current_stream().cuda_stream
        return lambda: record.launch(grid, block, values, stream)


RING_SUM = Ring(stages=4, tile_bytes=32768, blocks_per_sm=1, readers=256)
RING_MAPS = (  # which is best differs between chips: all are timed
    Ring(stages=6, tile_bytes=4096, blocks_per_sm=2, readers=256),
    Ring(stages=6, tile_bytes=4096, blocks_per_sm=2, readers=128),
    Ring(stages=4, tile_bytes=4096, blocks_per_sm=3, readers=128),
    Ring(stages=3, tile_bytes=4096, blocks_per_sm=4, readers=128),
)


def ring_sum(timer: Timer) -> float:
    """Return the GB/s of adding up 1 GiB of floats through a ring."""
    import torch

    # Small whole numbers: every order of adding them gives the same sum, so the check is exact.
    x = torch.randn(ARRAY_BYTES // 4, device="cuda").mul_(64).round_()
    total = torch.zeros(1, device="cuda")
    run = RING_SUM.launcher("ring_sum", (x.data_ptr(), total.data_ptr()))
    ms = timer.milliseconds(run)
    total.zero_()  # a run adds to it
    run()
    if (got := total.item()) != (want := x.sum(dtype=torch.float64).item()):
        raise RuntimeError(f"ceiling ring_sum: sum is {got}; {want} was needed")
    return ARRAY_BYTES / ms / 1e6


def ring_map(timer: Timer) -> float:
    """Return the GB/s of ``y = 2x + 1`` on 1 GiB arrays through the best of several rings."""
    import torch

    x = torch.randn(ARRAY_BYTES // 4, device="cuda")
    y = torch.empty_like(x)
    best = 0.0
    for ring in RING_MAPS:
        y.fill_(float("nan"))
        ms = timer.milliseconds(ring.launcher("ring_map", (x.data_ptr(), y.data_ptr())))
        if not torch.equal(y, 2 * x + 1):
            raise RuntimeError(f"ceiling ring_map, {ring}: wrong; y = 2x + 1 was needed everywhere")
        best = max(best, 2 * ARRAY_BYTES / ms / 1e6)
    return best
