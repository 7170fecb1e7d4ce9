"""One workload: every implementation is checked, and only then is any of them timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.results import OURS, Row
from benchmarks.timing import Timer, host_microseconds


class CheckError(RuntimeError):
    """An implementation's result is wrong."""


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to compute a workload.

    Attributes
    ----------
    make
        Return what runs it once and returns its outputs. It begins at the definition and knows
        nothing from earlier in the process: what is faster the second time is so by the disk.
    compiles
        Whether that is worth measuring.
    """

    name: str
    make: Callable[[], Callable[[], Any]]
    compiles: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A workload with its inputs in place.

    Attributes
    ----------
    check
        Return the relative error of outputs; raise `CheckError` if they are wrong.
    """

    name: str
    family: str
    ceiling: str
    inputs: list[Any]
    implementations: list[Implementation]
    check: Callable[[tuple[Any, ...]], float]
    operations: int | None = None


class Device(Protocol):
    """Where jobs run: a GPU, or what stands in for one in the tests."""

    timer: Timer

    def synchronize(self) -> None:
        """Wait until all that was queued is done."""
        ...

    def poison(self, outputs: tuple[Any, ...]) -> None:
        """Overwrite outputs, so that their memory, used again, holds no right results."""
        ...

    def nbytes(self, array: Any) -> int:
        """Return the bytes of an array."""
        ...


@dataclass(slots=True)
class Outcome:
    """What a job gave: rows, peers that were no use here and why, and what fuser got wrong."""

    rows: list[Row] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Ready:
    """An implementation that has computed the right thing."""

    implementation: Implementation
    call: Callable[[], Any]
    row: Row


def measure(
    job: Job, device: Device, *, brief: bool = False, clock: Callable[[], float] = time.perf_counter
) -> Outcome:
    """Check every implementation of a job, then time those that are right.

    Parameters
    ----------
    brief
        Device time only, neither host cost nor compile time.
    """
    outcome = Outcome()
    ready = [r for i in job.implementations if (r := _checked(job, i, device, outcome, clock))]
    for item in ready:
        row = item.row
        try:
            found = device.timer.measure(item.call)
            if not brief:
                cost = host_microseconds(item.call, device.synchronize, clock)
                row.host_us = round(cost, 2)
                if item.implementation.compiles:
                    row.warm_ms = round(_first_call(item.implementation, device, clock)[2], 1)
        except Exception as error:  # of any of the libraries that are compared
            _refuse(job, item.implementation, error, outcome)
            continue
        row.us, row.low_us = round(1e3 * found.ms, 2), round(1e3 * found.low, 2)
        row.high_us, row.discarded = round(1e3 * found.high, 2), found.discarded
        row.GBps = round(row.bytes / found.ms / 1e6, 1)
        if brief:
            row.cold_ms = None
        outcome.rows.append(row)
    return outcome


def _checked(
    job: Job, implementation: Implementation, device: Device, outcome: Outcome,
    clock: Callable[[], float],
) -> _Ready | None:  # fmt: skip
    """Run an implementation twice and check the second result; say why if it is no use."""
    try:
        call, outputs, cold_ms = _first_call(implementation, device, clock)
        device.poison(outputs)
        del outputs  # the next call is given the poisoned memory
        outputs = as_tuple(call())
        relative = job.check(outputs)
        nbytes = sum(map(device.nbytes, (*job.inputs, *outputs)))
    except Exception as error:
        _refuse(job, implementation, error, outcome)
        return None
    row = Row(
        job.name, implementation.name, job.family, error=relative, bytes=nbytes,
        operations=job.operations, ceiling=job.ceiling,
        cold_ms=round(cold_ms, 1) if implementation.compiles else None,
    )  # fmt: skip
    return _Ready(implementation, call, row)


def _first_call(
    implementation: Implementation, device: Device, clock: Callable[[], float]
) -> tuple[Callable[[], Any], tuple[Any, ...], float]:
    """Return the call, its outputs, and the milliseconds from the definition to them."""
    device.synchronize()
    began = clock()
    call = implementation.make()
    outputs = as_tuple(call())
    device.synchronize()
    return call, outputs, 1e3 * (clock() - began)


def _refuse(job: Job, implementation: Implementation, error: Exception, outcome: Outcome) -> None:
    lines = str(error).strip().splitlines() or [""]
    text = f"{implementation.name}, {job.name}: {type(error).__name__}: {lines[0]}"
    ours = implementation.name == OURS
    (outcome.failures if ours else outcome.left_out).append(text)


def as_tuple(outputs: Any) -> tuple[Any, ...]:
    """Return outputs as a tuple."""
    return tuple(outputs) if isinstance(outputs, list | tuple) else (outputs,)
