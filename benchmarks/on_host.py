"""A run without a GPU: how long compiling takes, and the interpreter; the rest is left out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import user_file
from benchmarks.results import OURS, Results, Row
from benchmarks.runner import Step
from benchmarks.workloads import WORKLOADS, Case, Input
from fuser import FusionDefinition
from fuser.api.execute import bind, forget, program_of
from fuser.codegen.emit import emit
from fuser.core.errors import BackendError
from fuser.runtime.cache import CubinCache
from fuser.runtime.executor import CudaProgram
from fuser.runtime.nvrtc import nvrtc_version

ARCH = "sm_90a"
INTERPRETED = 3
LEFT_OUT = "no CUDA device: device time, host cost, ceilings, sizes of the picture and peers"
SECONDS = 0.7


def steps(
    cases: list[Case], calls: list[user_file.Call], results: Results, caches: Path
) -> list[Step]:
    """Return the steps of a run; what it leaves out is said in the results.

    Parameters
    ----------
    caches
        An empty folder, for compiled kernels.
    """
    results.left_out.append(LEFT_OUT)
    folder: Path | None = caches
    try:
        nvrtc_version()
    except BackendError as error:
        results.left_out.append(f"compile time: {error}")
        folder = None

    def one(item: Case | user_file.Call, number: int) -> Callable[[Results], None]:
        def run(results: Results) -> None:
            add(item, folder and folder / str(number), results)

        return run

    def begin(results: Results) -> None:
        first = Case(WORKLOADS[0], WORKLOADS[0].small)
        if folder is not None:
            compile_ms(first.build, _untouched(first.inputs), False, folder / "first")

    items: list[Case | user_file.Call] = [*cases, *calls]
    return [
        Step("imports", SECONDS, begin),
        *(Step(item.name, SECONDS, one(item, n)) for n, item in enumerate(items)),
    ]


def add(item: Case | user_file.Call, folder: Path | None, results: Results) -> None:
    """Compile at the full size, interpret a small one, compare that with float64."""
    if isinstance(item, Case):
        row = Row(item.name, OURS, item.workload.name)
        manual, build = item.workload.manual, item.build
        small = Case(item.workload, item.workload.small)
        rng = np.random.default_rng(0)
        whole, inputs = _untouched(item.inputs), [random_array(rng, i) for i in small.inputs]
        fd = small.build()
    else:
        row = Row(item.name, OURS, item.family)
        manual, fd = item.manual, item.fd
        build = lambda: _uncompiled(item)  # noqa: E731
        whole, inputs = list(item.inputs), list(item.inputs)
    if folder is not None:
        first, second = (compile_ms(build, whole, manual, folder) for _ in range(2))
        row.cold_ms, row.warm_ms = round(first, 1), round(second, 1)
    fd.validate([user_file.copy_of(x) for x in inputs], backend="interpret", manual=manual)
    copies = [user_file.copy_of(x) for x in inputs]
    row.interpreter_ms = round(interpreter_ms(fd, copies, manual), 1)
    results.rows.append(row)


def compile_ms(
    build: Callable[[], FusionDefinition], inputs: Sequence[Any], manual: bool, folder: Path
) -> float:
    """Return the milliseconds from a definition to cubins; a new process finds `folder` so."""
    began = time.perf_counter()
    fd = build()
    program = program_of(fd, bind(fd, inputs, manual), manual)
    CudaProgram(program, emit, ARCH, cache=CubinCache(folder))
    return 1e3 * (time.perf_counter() - began)


def interpreter_ms(fd: FusionDefinition, inputs: Sequence[Any], manual: bool) -> float:
    """Return the median milliseconds of a run on the interpreter."""
    times: list[float] = []
    for _ in range(INTERPRETED):
        began = time.perf_counter()
        fd.execute(inputs, backend="interpret", manual=manual)
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)


def random_array(rng: np.random.Generator, spec: Input) -> Any:
    """Return a random input of a workload."""
    match spec.draw:
        case "normal":
            return rng.standard_normal(spec.shape, np.float32).astype(spec.dtype.np)
        case "uniform":
            return rng.random(spec.shape, np.float32).astype(spec.dtype.np)
        case "index":
            return rng.integers(spec.bound, size=spec.shape, dtype=spec.dtype.np)


def _untouched(specs: Sequence[Input]) -> list[Any]:
    """Return arrays of the full size, of which nothing is read: they take no memory."""
    return [np.empty(spec.shape, spec.dtype.np) for spec in specs]


def _uncompiled(call: user_file.Call) -> FusionDefinition:
    forget(call.fd, call.manual)
    return call.fd
