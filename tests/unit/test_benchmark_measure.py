"""One workload of the benchmarks: nothing is timed that was not checked."""

from __future__ import annotations

import numpy as np
import pytest
from fake_stream import FakeStream

from benchmarks.measure import CheckError, Implementation, Job, measure
from benchmarks.results import OURS, Results, against, best_peer
from benchmarks.timing import Timer

pytestmark = pytest.mark.unit


class FakeDevice:
    """Arrays are NumPy's, time is the fake stream's."""

    def __init__(self) -> None:
        self.stream = FakeStream()
        self.timer = Timer(self.stream)
        self.poisoned = 0

    def synchronize(self) -> None:
        self.stream.synchronize()

    def clock(self) -> float:
        return self.stream.host / 1e3

    def poison(self, outputs) -> None:
        self.poisoned += 1
        for out in outputs:
            out[...] = np.nan

    def nbytes(self, array) -> int:
        return array.nbytes


X = np.arange(250_000, dtype=np.float32)


class Fake:
    """An implementation of 2x: a kernel of `ms`, compiled for as long as `compile_ms` says."""

    def __init__(self, device, name, ms, *, out=lambda x: 2 * x, compile_ms=(), host_ms=0.0):
        self.device, self.name, self.ms, self.out = device, name, ms, out
        self.compile_ms, self.host_ms = iter(compile_ms), host_ms
        self.calls = 0

    def make(self):
        self.device.stream.host += next(self.compile_ms, 0.0)
        return self.call

    def call(self):
        self.calls += 1
        self.device.stream.host += self.host_ms
        self.device.stream.queue(self.ms)
        return self.out(X)

    def implementation(self, compiles=False) -> Implementation:
        return Implementation(self.name, self.make, compiles)


def check(outputs) -> float:
    (out,) = outputs
    if not np.array_equal(out, 2 * X):
        raise CheckError("output 0: wrong\nand a second line")
    return 1e-3


def job(*fakes, compiles=()) -> Job:
    implementations = [fake.implementation(fake.name in compiles) for fake in fakes]
    return Job("double 250000", "double", "plain_map", [X], implementations, check, X.size)


def test_a_row_of_everything_that_is_measured():
    device = FakeDevice()
    ours = Fake(device, OURS, 0.5, compile_ms=(300.0, 40.0), host_ms=0.005)
    eager = Fake(device, "eager", 1.0)
    outcome = measure(job(ours, eager, compiles={OURS}), device, clock=device.clock)
    assert (outcome.failures, outcome.left_out) == ([], [])
    row, peer = outcome.rows
    assert (row.workload, row.family, row.implementation) == ("double 250000", "double", OURS)
    assert (row.us, row.low_us, row.high_us, row.discarded) == (500.0, 500.0, 500.0, 0)
    assert (row.bytes, row.GBps, row.operations) == (2_000_000, 4.0, 250_000)
    assert (row.host_us, row.error) == (10.0, 1e-3)
    assert (row.cold_ms, row.warm_ms) == (300.5, 40.5)
    assert (peer.us, peer.host_us, peer.cold_ms, peer.warm_ms) == (1000.0, 5.0, None, None)
    assert against(row, best_peer(outcome.rows)) == 2.0


def test_nothing_is_timed_before_everything_is_checked():
    device = FakeDevice()
    seen = []

    class Timed(Timer):
        def measure(self, run):
            seen.append([fake.calls for fake in fakes])
            return super().measure(run)

    device.timer = Timed(device.stream)
    fakes = [Fake(device, name, 0.5) for name in (OURS, "eager", "quack")]
    measure(job(*fakes), device, clock=device.clock)
    assert seen[0] == [2, 2, 2]
    assert device.poisoned == 3


def test_a_peer_that_is_wrong_or_fails_is_left_out_by_name_and_never_timed():
    device = FakeDevice()

    def fails(x):
        raise OSError("no such kernel")

    ours, wrong = Fake(device, OURS, 0.5), Fake(device, "quack", 0.1, out=lambda x: 3 * x)
    broken = Fake(device, "liger", 0.1, out=fails)
    outcome = measure(job(ours, wrong, broken), device, clock=device.clock)
    assert [row.implementation for row in outcome.rows] == [OURS]
    assert outcome.left_out == [
        "quack, double 250000: CheckError: output 0: wrong",
        "liger, double 250000: OSError: no such kernel",
    ]
    assert outcome.failures == []
    assert wrong.calls == 2


def test_our_own_mistake_is_a_failure_and_the_peers_are_timed_all_the_same():
    device = FakeDevice()
    wrong, eager = Fake(device, OURS, 0.1, out=lambda x: 1 * x), Fake(device, "eager", 1.0)
    outcome = measure(job(wrong, eager), device, clock=device.clock)
    assert outcome.failures == ["fuser, double 250000: CheckError: output 0: wrong"]
    assert [row.implementation for row in outcome.rows] == ["eager"]


def test_memory_with_right_results_of_before_does_not_pass():
    """An implementation that writes nothing is handed what the one before it left."""
    device = FakeDevice()
    memory = np.empty_like(X)

    def writes(x):
        np.multiply(x, 2, out=memory)
        return memory

    lazy = Fake(device, "lazy", 0.1, out=lambda x: memory)
    outcome = measure(job(Fake(device, OURS, 0.5, out=writes), lazy), device, clock=device.clock)
    assert outcome.left_out == ["lazy, double 250000: CheckError: output 0: wrong"]


def test_a_peer_that_waits_for_the_gpu_is_left_out():
    device = FakeDevice()

    def waits(x):
        device.synchronize()
        return 2 * x

    ours, waiting = Fake(device, OURS, 0.5), Fake(device, "eager", 0.1, out=waits)
    outcome = measure(job(ours, waiting), device, clock=device.clock)
    (text,) = outcome.left_out
    assert text.startswith("eager, double 250000: TimingError: timer: 31 repetitions discarded")


def test_discarded_repetitions_are_counted():
    device = FakeDevice()
    ours = Fake(device, OURS, 0.5, host_ms=0.6)
    outcome = measure(job(ours), device, clock=device.clock)
    assert (outcome.rows[0].us, outcome.rows[0].discarded) == (500.0, 1)
    assert Results({}, rows=outcome.rows, sweeps=outcome.rows).discarded == 2


def test_a_brief_measurement_is_of_device_time_alone():
    device = FakeDevice()
    ours = Fake(device, OURS, 0.5, compile_ms=(300.0, 40.0))
    outcome = measure(job(ours, compiles={OURS}), device, brief=True, clock=device.clock)
    (row,) = outcome.rows
    assert (row.us, row.host_us, row.cold_ms, row.warm_ms) == (500.0, None, None, None)
    assert ours.calls == 2 + 5 + 30
