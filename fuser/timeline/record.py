"""From a kernel to its timeline: one block runs on the checked interpreter, by the clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from fuser.core.errors import InputError, ProtocolError
from fuser.core.expr import evaluate
from fuser.interp.checked import WARP, Warps
from fuser.interp.launch import Launch, bind
from fuser.kir.core import Kernel, ScalarParam, TensorParam, walk_stmts
from fuser.kir.stmts import Roles
from fuser.sim.agent import Array
from fuser.timeline.clock import Clock, Costs
from fuser.timeline.sizes import few_trips
from fuser.timeline.timeline import RingRows, Row, Span, Timeline
from fuser.timeline.watch import Fill, RingLog, Watch

TRIP = 12.0
"""Units of time that the statements of a trip take together."""
COPY = 2.5 * TRIP
"""A copy takes as long as two and a half trips: with fewer trips ahead, warps wait."""
MOST_STEPS = 40_000
SAMPLE_STEPS = 6_000
"""Statements run to find out how many a trip has."""
LARGEST_BYTES = 2**28


def record(
    kernel: Kernel, sizes: Mapping[str, int], *, copy: float = COPY, whole: bool = False
) -> Timeline:
    """Run block 0 (or cluster 0) of a kernel with a ring; return what block 0 does over time.

    Parameters
    ----------
    sizes
        Of a call: every size and stride of the kernel. Those that decide on the number of trips
        are cut to about a dozen trips.
    copy
        How long copies take; the statements of a trip take 12 together.
    whole
        Leave the sizes as they are.

    Returns
    -------
    Timeline
        Up to the failure, where the run fails; `Timeline.fault` says why.

    Raises
    ------
    InputError
        The kernel has no ring, or its tensors are too large to be made up.
    """
    if not kernel.rings:
        raise InputError(f"kernel {kernel.name}: has no circular buffer; needed one to draw")
    cut, said = (dict(sizes), ()) if whole else few_trips(kernel, sizes)
    launch = bind(kernel, cut, *_made_up(kernel, cut))
    work = _work(launch, kernel)
    watch, clock = _begin(launch, kernel, Costs(work, copy))
    fault, done = "", True
    try:
        with np.errstate(all="ignore"):
            done = clock.run(MOST_STEPS)
            if done:
                clock.warps.finish()
    except ProtocolError as error:
        fault = str(error)
    notes = [_time_note(copy)]
    if said:
        notes.append(f"Sizes cut so that trips are few: {', '.join(said)}.")
    if not done:
        notes.append(f"Stopped after {watch.rings[0].most} trips; there are more.")
    return _timeline(kernel, watch, notes, fault)


def _time_note(copy: float) -> str:
    return (
        "Time is a model, not a measurement: an arrival or the issue of a copy takes 1, the "
        f"statements that use a trip {TRIP:g} together, a copy {copy:g} from issue to landing."
    )


def _begin(launch: Launch, kernel: Kernel, costs: Costs) -> tuple[Watch, Clock]:
    tensors = {
        name: replace(memory, data=memory.data.copy()) if memory.writable else memory
        for name, memory in launch.tensors.items()
    }
    warps = Warps.of(replace(launch, tensors=tensors), np.arange(kernel.cluster_size))
    watch = Watch(kernel, warps.machine, warps.monitor)
    warps.machine.monitor = watch
    return watch, Clock(warps, watch, costs)


def _work(launch: Launch, kernel: Kernel) -> float:
    """Return how long a computing statement takes when those of a trip take `TRIP`."""
    watch, clock = _begin(launch, kernel, Costs(1.0, 1.0))
    try:
        with np.errstate(all="ignore"):
            clock.run(SAMPLE_STEPS)
    except ProtocolError:
        pass
    busiest = 1.0
    for log in watch.warps.values():
        by_trip: dict[int, float] = {}
        for span in log.spans:
            if span.what == "compute" and span.trip is not None:
                by_trip[span.trip] = by_trip.get(span.trip, 0.0) + span.stop - span.start
        busiest = max(busiest, *by_trip.values(), 1.0)
    return round(TRIP / busiest * 1024) / 1024  # sums of such numbers are exact


def _made_up(kernel: Kernel, sizes: Mapping[str, int]) -> tuple[dict[str, Array], dict[str, float]]:
    """Return zeros for tensors and ones for scalars: a pipeline does not depend on values."""
    arrays: dict[str, Array] = {}
    for p in kernel.params:
        if not isinstance(p, TensorParam):
            continue
        numel = int(evaluate(p.numel, sizes))
        if numel * p.dtype.nbytes > LARGEST_BYTES:
            raise InputError(
                f"kernel {kernel.name}: {p.name} has {numel * p.dtype.nbytes} bytes, and its sizes "
                f"do not decide on the trips; needed at most {LARGEST_BYTES} to draw it"
            )
        arrays[p.name] = np.zeros(numel, p.dtype.np)
    return arrays, {p.name: 1.0 for p in kernel.params if isinstance(p, ScalarParam)}


# ---- rows ----------------------------------------------------------------------------------------


def _timeline(kernel: Kernel, watch: Watch, notes: list[str], fault: str) -> Timeline:
    ends = [s.stop for log in watch.warps.values() for s in log.spans]
    stop = max([watch.now, *ends])
    rings = tuple(_ring_rows(log, stop, bool(fault)) for log in watch.rings)
    kinds = ", ".join(r.ring.name for r in rings)
    return Timeline(
        f"{kernel.name}: ring {kinds}" if len(rings) == 1 else f"{kernel.name}: rings {kinds}",
        rings,
        tuple(_warp_rows(kernel, watch)),
        tuple(_contiguous(watch.phases)),
        stop,
        tuple(notes),
        tuple(fault.splitlines()),
    )


def _ring_rows(log: RingLog, stop: float, failed: bool) -> RingRows:
    kept = failed and bool(log.ring.empty)
    rows = tuple(
        Row(f"stage {number}", tuple(_life(fills, stop, kept)))
        for number, fills in enumerate(log.stages)
    )
    return RingRows(log.ring, rows, log.most)


def _life(fills: list[Fill], stop: float, kept: bool) -> Iterator[Span]:
    """Yield the spans of a stage; in between it is free.

    The last trips of a ring are never given back: they end with their last read, unless `kept`.
    """
    at = 0.0
    for fill in fills:
        full = stop if fill.full is None else fill.full
        free = fill.last if fill.free is None and not kept else fill.free
        end = stop if free is None else min(free, stop)
        first = end if fill.first is None else fill.first
        parts = (
            (at, fill.begin, "free", None), (fill.begin, full, "filling", fill.trip),
            (full, first, "full", fill.trip), (first, end, "reading", fill.trip),
        )  # fmt: skip
        yield from (Span(a, b, what, trip) for a, b, what, trip in parts if b > a)
        at = max(end, full)
    if stop > at:
        yield Span(at, stop, "free")


def _warp_rows(kernel: Kernel, watch: Watch) -> Iterator[Row]:
    """Yield a row per warp, one for all that do the same at the same times."""
    alike: dict[tuple[str, tuple[Span, ...]], list[int]] = {}
    for number, log in enumerate(watch.warps.values()):
        alike.setdefault((_role(kernel, number), tuple(log.spans)), []).append(number)
    for (role, spans), numbers in alike.items():
        yield Row(f"{_numbers(numbers)}{role}", spans)


def _numbers(warps: list[int]) -> str:
    """Print ``warp 0`` or ``warps 1-3, 5``."""
    ranges: list[list[int]] = []
    for warp in warps:
        if ranges and ranges[-1][-1] == warp - 1:
            ranges[-1].append(warp)
        else:
            ranges.append([warp])
    text = ", ".join(f"{r[0]}" if len(r) == 1 else f"{r[0]}\u2013{r[-1]}" for r in ranges)
    return f"warp {text}" if len(warps) == 1 else f"warps {text}"


def _role(kernel: Kernel, warp: int) -> str:
    for stmt in walk_stmts(kernel.body):
        for role in stmt.roles if isinstance(stmt, Roles) else ():
            for part, (_, threads) in enumerate(role.parts):
                if warp * WARP in threads:
                    number = f" {part}" if role.groups > 1 else ""
                    return f" · {role.name.partition(' of ')[0]}{number}"
    return ""


def _contiguous(phases: list[Span]) -> Iterator[Span]:
    """Yield phases that last until the next one begins."""
    for span, after in zip(phases, (*phases[1:], None), strict=False):
        yield span if after is None else Span(span.start, after.start, span.what)
