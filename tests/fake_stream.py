"""A host and a GPU with clocks of their own: what the benchmarks' timer sees, without a GPU."""

from __future__ import annotations

from collections.abc import Callable

MS_PER_CYCLE = 1 / 1_980_000
LAUNCH_MS = 0.005


class FakeEvent:
    def __init__(self, stream: FakeStream) -> None:
        self.stream = stream
        self.at = float("nan")

    def record(self) -> None:
        self.stream.queue(0.0)
        self.at = self.stream.gpu

    def query(self) -> bool:
        return self.at <= self.stream.host

    def synchronize(self) -> None:
        self.stream.host = max(self.stream.host, self.at)

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.at - self.at


class FakeStream:
    """The GPU starts a piece of work when the host has queued it and the one before is done.

    Attributes
    ----------
    host, gpu
        The time on the host, and when the GPU will have done all that is queued; milliseconds.
    spins
        Cycles of every spin.
    """

    def __init__(self) -> None:
        self.host = self.gpu = 0.0
        self.spins: list[int] = []

    def queue(self, ms: float) -> None:
        self.host += LAUNCH_MS
        self.gpu = max(self.gpu, self.host) + ms

    def event(self) -> FakeEvent:
        return FakeEvent(self)

    def flush(self) -> None:
        self.queue(0.06)

    def spin(self, cycles: int) -> None:
        self.spins.append(cycles)
        self.queue(cycles * MS_PER_CYCLE)

    def synchronize(self) -> None:
        self.host = max(self.host, self.gpu)

    def kernels(self, *ms: float, pauses: Callable[[int], float] = lambda call: 0.0):
        """Return a run of kernels; the host pauses before each, by the number of the call."""
        calls = iter(range(10**9))

        def run() -> None:
            call = next(calls)
            for kernel in ms:
                self.host += pauses(call)
                self.queue(kernel)

        return run
