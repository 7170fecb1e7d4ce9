"""Hand-written kernels: what the machine can do, measured in the same run as everything else."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.timing import Timer
from fuser.runtime.driver import device, load_function
from fuser.runtime.launch import LaunchRecord
from fuser.runtime.nvrtc import compile_cubin

FOLDER = Path(__file__).parent
ARRAY_BYTES = 2**30


def plain_map(timer: Timer) -> float:
    """Return the GB/s of ``y = 2x + 1`` on 1 GiB arrays with plain 16-byte accesses."""
    x = torch.randn(ARRAY_BYTES // 4, device="cuda")
    y = torch.full_like(x, float("nan"))
    cubin = compile_cubin((FOLDER / "plain_map.cu").read_text(), "plain_map", device(0).arch)
    record = LaunchRecord(load_function(cubin.image, "plain_map"), ("pointer", "pointer"))
    stream = torch.cuda.current_stream().cuda_stream
    grid = (ARRAY_BYTES // 16 // 128, 1, 1)
    pointers = (x.data_ptr(), y.data_ptr())
    ms = timer.milliseconds(lambda: record.launch(grid, (128, 1, 1), pointers, stream))
    if not torch.equal(y, 2 * x + 1):
        raise RuntimeError("ceiling plain_map: wrong result; y = 2x + 1 was needed everywhere")
    return 2 * ARRAY_BYTES / ms / 1e6


CEILINGS = {"plain_map": plain_map}
