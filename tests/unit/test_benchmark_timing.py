"""The benchmarks' timer on a fake GPU: host time never gets into device time."""

from __future__ import annotations

import gc

import pytest
from fake_stream import MS_PER_CYCLE, FakeStream

from benchmarks.timing import HEAD_START_CYCLES, MAX_CYCLES, Timer, TimingError, host_microseconds

pytestmark = pytest.mark.unit

WARMUP = 5


def test_device_time_of_a_run_of_two_kernels():
    stream = FakeStream()
    found = Timer(stream).measure(stream.kernels(0.1, 0.088))
    assert found.ms == pytest.approx(0.188)
    assert (found.low, found.high) == (pytest.approx(0.188), pytest.approx(0.188))
    assert found.discarded == 0
    assert stream.spins == [HEAD_START_CYCLES] * 30


def test_a_host_that_is_late_does_not_count_and_the_spin_gets_longer():
    stream = FakeStream()
    run = stream.kernels(0.1, 0.088, pauses=lambda call: 0.5 if call in {9, 20, 21} else 0.0)
    timer = Timer(stream)
    found = timer.measure(run)
    assert found.ms == found.high == pytest.approx(0.188)
    assert (found.discarded, timer.discarded) == (1, 1), "longer spins covered the later pauses"
    assert stream.spins == [HEAD_START_CYCLES] * 5 + [2 * HEAD_START_CYCLES] * 26


def test_a_host_that_is_always_late_is_given_time():
    """The 513 us of a 188 us kernel: most repetitions were late, so the median was wrong too."""
    stream = FakeStream()
    run = stream.kernels(0.1, 0.088, pauses=lambda _: 0.6)
    start, end = stream.event(), stream.event()
    stream.spin(HEAD_START_CYCLES)
    start.record()
    run()
    end.record()
    assert start.elapsed_time(end) > 0.7, "this is what a timer that does not ask would report"
    found = Timer(stream).measure(run)
    assert found.ms == pytest.approx(0.188)
    assert found.discarded == 2
    assert stream.spins[-1] == 4 * HEAD_START_CYCLES


def test_every_measurement_begins_with_the_short_spin():
    stream = FakeStream()
    timer = Timer(stream)
    timer.measure(stream.kernels(0.1, pauses=lambda _: 0.6))
    first = len(stream.spins)
    timer.measure(stream.kernels(0.1))
    assert set(stream.spins[first:]) == {HEAD_START_CYCLES}
    assert timer.discarded == 1


def test_a_run_that_waits_for_the_gpu_is_refused():
    stream = FakeStream()

    def waits() -> None:
        stream.queue(0.1)
        stream.synchronize()

    with pytest.raises(TimingError, match=r"31 repetitions discarded, 0 good; .*64000000 cycles"):
        Timer(stream).measure(waits)
    assert max(stream.spins) == MAX_CYCLES


def test_the_median_is_of_what_counts():
    stream = FakeStream()
    times = iter([0.0] * WARMUP + [0.1] * 14 + [0.2] * 16)
    found = Timer(stream).measure(lambda: stream.queue(next(times)))
    assert (found.ms, found.low, found.high) == tuple(map(pytest.approx, (0.2, 0.1, 0.2)))


def test_fewer_repetitions_than_make_a_median_are_refused():
    with pytest.raises(ValueError, match="29 repetitions; needed 30 or more"):
        Timer(FakeStream(), repetitions=29)


def test_the_garbage_collector_is_off_while_it_counts_and_on_again_after():
    stream = FakeStream()
    states = []

    def run() -> None:
        states.append(gc.isenabled())
        stream.queue(0.1)

    Timer(stream).measure(run)
    assert states == [True] * WARMUP + [False] * 30
    assert gc.isenabled()


def test_host_cost_is_of_the_call_alone():
    stream = FakeStream()

    def run() -> None:
        stream.host += 0.010
        stream.queue(0.5)

    cost = host_microseconds(run, stream.synchronize, lambda: stream.host / 1e3)
    assert cost == pytest.approx(15.0)


def test_a_pause_in_one_batch_does_not_move_the_host_cost():
    stream = FakeStream()
    run = stream.kernels(0.01, pauses=lambda call: 5.0 if call == 30 else 0.0)
    cost = host_microseconds(run, stream.synchronize, lambda: stream.host / 1e3)
    assert cost == pytest.approx(5.0)


def test_the_fake_spins_as_long_as_the_gpu():
    assert 0.4 < HEAD_START_CYCLES * MS_PER_CYCLE < 0.6
