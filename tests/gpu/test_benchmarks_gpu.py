"""The benchmarks on a GPU: its timer on a real queue, and a run of every workload, small."""

from __future__ import annotations

import time

import pytest

from benchmarks.__main__ import main
from benchmarks.results import OURS, by_workload, load
from benchmarks.timing import HEAD_START_CYCLES, Timer, TimingError
from benchmarks.workloads import WORKLOADS, Size

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]


@pytest.fixture
def stream():
    from benchmarks.gpu import TorchStream

    return TorchStream()


def run(*, pause: float = 0.0) -> None:
    """Queue two kernels, and be slow about the second."""
    torch.cuda._sleep(200_000)
    if pause:
        time.sleep(pause)
    torch.cuda._sleep(200_000)


def test_a_pause_of_the_host_is_noticed_and_is_not_in_the_time(stream):
    found = Timer(stream).measure(run)
    assert found.discarded <= 3
    late = Timer(stream).measure(lambda: run(pause=0.002))
    assert late.discarded > 0
    assert late.ms == pytest.approx(found.ms, rel=0.1)


def test_the_spin_is_shorter_than_that_pause(stream):
    """Without the question the pause would be in the time: the test above can fail."""
    start, end = stream.event(), stream.event()
    stream.spin(HEAD_START_CYCLES)
    start.record()
    run(pause=0.002)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 1.0


def test_a_run_that_waits_is_refused(stream):
    def waits() -> None:
        torch.cuda._sleep(1000)
        torch.cuda.synchronize()

    with pytest.raises(TimingError, match="needed a run that does not wait for the GPU"):
        Timer(stream).measure(waits)


@pytest.mark.slow
def test_a_small_run_of_every_workload_is_right_everywhere(tmp_path, capsys):
    out = tmp_path / "r.json"
    arguments = ["--sizes", "512x1024,304x2000", "--peers", "torch", "--json", str(out)]
    status = main(arguments)
    results = load(out)
    assert (status, results.failures, results.left_out) == (0, [], [])
    groups = by_workload(results.rows)
    assert len(groups) == 2 * len(WORKLOADS)
    for rows in groups.values():
        assert [row.implementation for row in rows] == [OURS, "torch eager"]
        ours = rows[0]
        assert ours.us > 0
        assert ours.host_us > 0
        assert ours.cold_ms > 0
        assert ours.warm_ms > 0
        assert ours.of_ceiling > 0
    # Of all: one alone may be late where tests share the machine.
    mine = [rows[0] for rows in groups.values()]
    assert sum(row.cold_ms for row in mine) > sum(row.warm_ms for row in mine)
    assert set(results.ceilings) == {"plain_map", "ring_sum", "ring_map"}
    assert 20 < results.peaks["fp32_fma"] < 200
    assert results.machine["gpu"] == torch.cuda.get_device_name()


@pytest.mark.parametrize("size", [Size(512, 1024), Size(304, 2000)])
def test_float64_references_are_within_the_limits_of_eager_torch(size):
    """A peer that computes in bf16 must not be refused for it: the limits are not too tight."""
    from benchmarks import gpu, in_torch
    from benchmarks.measure import as_tuple
    from benchmarks.workloads import Case

    for workload in WORKLOADS:
        case = Case(workload, size)
        inputs = [gpu.make_input(spec) for spec in case.inputs]
        outputs = as_tuple(getattr(in_torch, workload.torch)(*inputs))
        gpu.check(outputs, gpu.reference(case, inputs))


def test_a_single_wrong_element_is_noticed():
    from benchmarks import gpu
    from benchmarks.measure import CheckError

    want = torch.randn(4096, 4096, device="cuda", dtype=torch.float64)
    out = want.float()
    assert gpu.check((out,), (want,)) < 1e-6
    out[17, 33] += 1e-3
    with pytest.raises(CheckError, match=r"relative error .*, of an element"):
        gpu.check((out,), (want,))
    out[17, 33] = float("nan")
    with pytest.raises(CheckError, match="relative error nan"):
        gpu.check((out,), (want,))
