"""A run on the GPU: ceilings before and after, in between every workload and the user's file."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import gpu, user_file
from benchmarks.ceilings import CEILINGS, PEAKS
from benchmarks.measure import Job, measure
from benchmarks.operations import count_operations
from benchmarks.peers import Peer, implementations
from benchmarks.results import Results
from benchmarks.runner import Step, keep
from benchmarks.timing import Timer, host_microseconds
from benchmarks.workloads import WORKLOADS, Case
from fuser import FusionDefinition
from fuser.api.execute import bind

CEILING_SECONDS, OURS_SECONDS, COMPILE_SECONDS, PEER_SECONDS = 2.0, 0.7, 2.5, 0.3


def steps(
    cases: list[Case], swept: list[Case], calls: list[user_file.Call], peers: list[Peer],
    repetitions: int, folder: Path,
) -> list[Step]:  # fmt: skip
    """Return the steps of a run; compiled kernels are kept in `folder`, which is empty."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")  # torch.compile begins cold
    device = gpu.TorchDevice(repetitions)
    seconds = OURS_SECONDS + sum(
        COMPILE_SECONDS if peer.name == "compile" else PEER_SECONDS for peer in peers
    )

    def rows(case: Case, number: int) -> Callable[[Results], None]:
        def run(results: Results) -> None:
            job = make_job(case, peers, folder / str(number))
            keep(measure(job, device), results.rows, results)

        return run

    def sweep(case: Case) -> Callable[[Results], None]:
        def run(results: Results) -> None:
            job = make_job(case, peers, folder / "swept")
            keep(measure(job, device, brief=True), results.sweeps, results)

        return run

    def users(call: user_file.Call, number: int) -> Callable[[Results], None]:
        def run(results: Results) -> None:
            job = user_file.job_on_gpu(call, folder / f"user{number}")
            keep(measure(job, device), results.rows, results)

        return run

    return [
        Step("ceilings", CEILING_SECONDS, lambda results: begin(results, device, peers, folder)),
        *(Step(case.name, seconds, rows(case, n)) for n, case in enumerate(cases)),
        *(Step(f"{case.name} (picture)", seconds / 2, sweep(case)) for case in swept),
        *(Step(call.name, OURS_SECONDS, users(call, n)) for n, call in enumerate(calls)),
        Step("ceilings", CEILING_SECONDS, lambda results: add_ceilings(results, device.timer)),
    ]


def make_job(case: Case, peers: list[Peer], folder: Path) -> Job:
    """Return a workload with inputs and reference on the GPU."""
    inputs = [gpu.make_input(spec) for spec in case.inputs]
    expected = gpu.reference(case, inputs)
    fd = case.build()
    sizes = bind(fd, inputs, case.workload.manual).env
    return Job(
        case.name, case.workload.name, case.workload.ceiling, inputs,
        implementations(case, inputs, peers, folder),
        lambda outputs: gpu.check(outputs, expected), count_operations(fd, sizes),
    )  # fmt: skip


def add_ceilings(results: Results, timer: Timer) -> None:
    """Measure what the hand-written kernels reach; a second time gives the mean of both."""
    for found, kernels in ((results.ceilings, CEILINGS), (results.peaks, PEAKS)):
        for name, kernel in kernels.items():
            value = kernel(timer)
            found[name] = round(statistics.mean((found.get(name, value), value)), 1)
    for name, call in _additions().items():
        cost = host_microseconds(call, torch.cuda.synchronize)
        results.host[name] = round(min(results.host.get(name, cost), cost), 2)


def _additions() -> dict[str, Callable[[], Any]]:
    """Return the same addition by torch and by fuser, for their host costs."""
    x, y, out = (torch.randn(1024, 1024, device="cuda") for _ in range(3))
    with FusionDefinition() as fd:
        a, b = (fd.define_tensor(shape=[-1, -1], contiguity=[True, True]) for _ in range(2))
        fd.add_output(fd.ops.add(a, b))
    add = fd.compile([x, y])
    return {
        "torch.add(x, y)": lambda: torch.add(x, y),
        "fuser's add(x, y)": lambda: add(x, y),
        "torch.add(x, y, out=o)": lambda: torch.add(x, y, out=out),
        "fuser's add(x, y, out=o)": lambda: add(x, y, out=out),
    }


def begin(results: Results, device: gpu.TorchDevice, peers: list[Peer], folder: Path) -> None:
    """Compile something small, which imports what compiling needs; then measure the ceilings."""
    first = Case(WORKLOADS[0], WORKLOADS[0].small)
    inputs = [gpu.make_input(spec) for spec in first.inputs]
    for implementation in implementations(first, inputs, peers, folder / "first"):
        if implementation.compiles:
            implementation.make()()
    add_ceilings(results, device.timer)
