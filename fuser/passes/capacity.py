"""Whether a kernel's arrays fit: shared ones into those of a block, local ones of a thread.

Shared are the stages of all rings, and what else is in shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from fuser.core.errors import ScheduleError
from fuser.kir.core import Kernel, walk_stmts
from fuser.kir.stmts import DeclareRegisters
from fuser.kir.verify import shared_bytes_available
from fuser.schedule.circular import CircularBuffer
from fuser.schedule.schedule import Schedule

BARRIER_BYTES = 8

LOCAL_BYTES = 512 * 1024
"""Local memory of a thread, where registers are that have no place: what CUDA gives it."""


def check_shared(kernel: Kernel, schedule: Schedule) -> None:
    """Raise `ScheduleError` for more shared memory than a block has; say which S would fit."""
    needed, available = kernel.shared_bytes, shared_bytes_available(kernel)
    if needed <= available:
        return
    nbytes = {array.name: array.nbytes for array in kernel.shared}
    rings = rings_of(schedule, nbytes)
    text = f"{needed} bytes of shared memory; {available} are available to a block"
    if not rings:
        raise ScheduleError(f"{', '.join(sorted(nbytes))}: {text}")
    names = max(rings.values(), key=lambda names: sum(nbytes[name] for name in names))
    stages = schedule.tensors[names[0]].stages
    stage = sum(nbytes[name] for name in names) // stages
    fits = stages_that_fit(stage, stages, needed, available)
    some = f"{fits} stage fits" if fits == 1 else f"{fits} stages fit"
    advice = some if fits else "not one stage fits, so smaller tiles are needed"
    raise ScheduleError(
        f"{', '.join(names)}: circular-buffered with {stages} stages of {stage} bytes, in "
        f"all {text}, where {advice}"
    )


def check_local(kernel: Kernel) -> None:
    """Raise `ScheduleError` for an array of registers that not even local memory holds."""
    for stmt in walk_stmts(kernel.body):
        if not isinstance(stmt, DeclareRegisters):
            continue
        nbytes = stmt.size * stmt.dtype.nbytes
        if nbytes > LOCAL_BYTES:
            raise ScheduleError(
                f"{stmt.name}: {stmt.size} x {stmt.dtype.short} in the registers of each thread, "
                f"{nbytes} bytes; {LOCAL_BYTES} are available: needed fewer iterations right of "
                "the compute-at position, or some of them bound to threads"
            )


def rings_of(
    schedule: Schedule, nbytes: Mapping[str, int]
) -> dict[CircularBuffer | int, tuple[str, ...]]:
    """Return the shared tensors that have stages alike, by directive, stored tiles by number."""
    found: dict[CircularBuffer | int, tuple[str, ...]] = {}
    for name, ts in schedule.tensors.items():
        kind = ts.circular or ts.staging
        if kind and name in nbytes:
            found[kind] = (*found.get(kind, ()), name)
    return found


def stages_that_fit(stage: int, stages: int, needed: int, available: int) -> int:
    """Return the most stages of `stage` bytes with which no more than `available` are needed.

    A stage brings two barriers at most; the others of its ring are counted as what stays.
    """
    each = stage + 2 * BARRIER_BYTES
    return max(0, (available - (needed - each * stages)) // each)
