"""Device time by CUDA events, with the L2 cache flushed before every repetition."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

FLUSH_BYTES = 256 * 2**20
HEAD_START_CYCLES = 1_000_000
"""The GPU spins this long before the first event, so that launching is not part of device time."""


class Timer:
    """Times callables that queue work on torch's current stream.

    Parameters
    ----------
    repetitions
        Timed runs; the median counts.
    """

    def __init__(self, repetitions: int = 30, warmup: int = 5) -> None:
        self.repetitions, self.warmup = repetitions, warmup
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def milliseconds(self, run: Callable[[], object]) -> float:
        """Return the median device time of `run` in milliseconds."""
        for _ in range(self.warmup):
            run()
        torch.cuda.synchronize()
        times: list[float] = []
        for _ in range(self.repetitions):
            self._flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(HEAD_START_CYCLES)
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        return statistics.median(times)
