"""Device time by events, with the L2 cache flushed before every repetition; host cost of a call.

The GPU spins before the first event, so that the host has queued the whole run before the GPU comes
to it: launching is then no part of device time. Whether it had is asked of the GPU after every
repetition, and a repetition that the host was late for does not count.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

HEAD_START_CYCLES = 1_000_000
"""How long the GPU spins at first: half a millisecond."""
MAX_CYCLES = 64 * HEAD_START_CYCLES
MIN_REPETITIONS = 30
HOST_BATCHES, HOST_CALLS = 5, 20
"""Calls of a batch: few enough that the queue of launches does not fill up and hold the host."""


class TimingError(RuntimeError):
    """A run cannot be timed."""


class Event(Protocol):
    """A point in the queue, as ``torch.cuda.Event`` is one."""

    def record(self) -> object:
        """Put the event at the end of the queue."""
        ...

    def query(self) -> bool:
        """Whether the GPU has come past it."""
        ...

    def synchronize(self) -> object:
        """Wait until the GPU has."""
        ...

    def elapsed_time(self, end: Any) -> float:
        """Return the milliseconds from this event to `end`."""
        ...


class Stream(Protocol):
    """A queue of work for a GPU."""

    def event(self) -> Event:
        """Return a new event that keeps the time."""
        ...

    def flush(self) -> None:
        """Queue the overwriting of the L2 cache."""
        ...

    def spin(self, cycles: int) -> None:
        """Queue a kernel that does nothing for so many cycles."""
        ...

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        ...


@dataclass(frozen=True, slots=True)
class Measurement:
    """Device time of a run.

    Attributes
    ----------
    ms
        Median, in milliseconds.
    low, high
        The tenth and the ninetieth percentile.
    discarded
        Repetitions that the host was late for; each was repeated.
    """

    ms: float
    low: float
    high: float
    discarded: int


class Timer:
    """Times callables that queue work on a stream.

    Parameters
    ----------
    repetitions
        Timed runs that count, at least `MIN_REPETITIONS`.

    Attributes
    ----------
    discarded
        Repetitions discarded so far, of all measurements.
    """

    def __init__(self, stream: Stream, repetitions: int = MIN_REPETITIONS, warmup: int = 5) -> None:
        if repetitions < MIN_REPETITIONS:
            raise ValueError(f"timer: {repetitions} repetitions; needed {MIN_REPETITIONS} or more")
        self.stream, self.repetitions, self.warmup = stream, repetitions, warmup
        self.discarded = 0

    def milliseconds(self, run: Callable[[], object]) -> float:
        """Return the median device time of `run`."""
        return self.measure(run).ms

    def measure(self, run: Callable[[], object]) -> Measurement:
        """Time `run`.

        Raises
        ------
        TimingError
            The host is late more often than not: `run` waits for the GPU.
        """
        for _ in range(self.warmup):
            run()
        self.stream.synchronize()
        start, end = self.stream.event(), self.stream.event()
        times: list[float] = []
        cycles, discarded = HEAD_START_CYCLES, 0
        with _no_collection():
            while len(times) < self.repetitions:
                ms = self._once(run, start, end, cycles)
                if ms is not None:
                    times.append(ms)
                    continue
                discarded += 1
                self.discarded += 1
                if discarded > self.repetitions:
                    raise TimingError(
                        f"timer: {discarded} repetitions discarded, {len(times)} good; the GPU was "
                        f"past the start before the run was queued, after a spin of {cycles} "
                        "cycles: needed a run that does not wait for the GPU"
                    )
                cycles = min(2 * cycles, MAX_CYCLES)
        low, *_, high = statistics.quantiles(times, n=10)
        return Measurement(statistics.median(times), low, high, discarded)

    def _once(
        self, run: Callable[[], object], start: Event, end: Event, cycles: int
    ) -> float | None:
        """Return the milliseconds of one repetition, None if the host was late for it."""
        self.stream.flush()
        self.stream.spin(cycles)
        start.record()
        run()
        end.record()
        # Past the start already: the GPU may have stood idle until the host queued the next launch.
        late = start.query()
        end.synchronize()
        return None if late else start.elapsed_time(end)


def host_microseconds(
    run: Callable[[], object],
    synchronize: Callable[[], object],
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return what a call of `run` costs the host: the median over batches of their means."""
    means: list[float] = []
    run()
    with _no_collection():
        for _ in range(HOST_BATCHES):
            synchronize()
            began = clock()
            for _ in range(HOST_CALLS):
                run()
            means.append((clock() - began) / HOST_CALLS)
    synchronize()
    return 1e6 * statistics.median(means)


@contextmanager
def _no_collection() -> Generator[None]:
    """Keep the garbage collector from running in the middle of a repetition."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
