"""Hand-written kernels: what the machine can do, measured in the same run as everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.ceilings.ring import ARRAY_BYTES, FOLDER, ring_map, ring_sum
from fuser.runtime.driver import device, load_function
from fuser.runtime.launch import LaunchRecord
from fuser.runtime.nvrtc import compile_cubin

if TYPE_CHECKING:  # torch is imported by what times, so that compiling needs neither it nor a GPU
    from benchmarks.timing import Timer


def plain_map(timer: Timer) -> float:
    """Return the GB/s of ``y = 2x + 1`` on 1 GiB arrays with plain 16-byte accesses."""
    import torch

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


CEILINGS: dict[str, Callable[[Timer], float]] = {
    "plain_map": plain_map,
    "ring_sum": ring_sum,
    "ring_map": ring_map,
}
