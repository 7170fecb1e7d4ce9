"""Whether the stages of all rings, and what else is shared, fit into a block's shared memory."""

from __future__ import annotations

from collections.abc import Mapping

from fuser.core.errors import ScheduleError
from fuser.kir.core import Kernel
from fuser.kir.verify import shared_bytes_available
from fuser.schedule.circular import CircularBuffer
from fuser.schedule.schedule import Schedule

BARRIER_BYTES = 8


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
