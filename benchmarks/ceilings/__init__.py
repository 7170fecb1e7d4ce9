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


FMA_TRIPS, FMA_CHAINS, FMA_UNROLLED = 256, 16, 8


def fma_peak(timer: Timer) -> float:
    """Return the TFLOP/s of float multiply-adds in registers."""
    import torch

    gpu = device(0)
    blocks, threads = gpu.sm_count * 8, 256
    out = torch.full((blocks * threads,), float("nan"), device="cuda")
    cubin = compile_cubin((FOLDER / "fma_peak.cu").read_text(), "fma_peak", gpu.arch)
    record = LaunchRecord(load_function(cubin.image, "fma_peak"), ("pointer", "f32", "f32", "i32"))
    stream = torch.cuda.current_stream().cuda_stream
    values = (out.data_ptr(), 0.5, 1.0, FMA_TRIPS)
    ms = timer.milliseconds(lambda: record.launch((blocks, 1, 1), (threads, 1, 1), values, stream))
    if not (out == 2.0 * FMA_CHAINS).all():  # where x = x / 2 + 1 ends, in floats exactly
        raise RuntimeError("ceiling fma_peak: wrong result; 32 was needed everywhere")
    flops = 2 * blocks * threads * FMA_TRIPS * FMA_CHAINS * FMA_UNROLLED
    return flops / ms / 1e9


CEILINGS: dict[str, Callable[[Timer], float]] = {
    "plain_map": plain_map,
    "ring_sum": ring_sum,
    "ring_map": ring_map,
}
"""GB/s of kernels that move memory."""

PEAKS: dict[str, Callable[[Timer], float]] = {"fp32_fma": fma_peak}
"""TFLOP/s of kernels that compute."""
