"""What a picture of a pipeline shows: rows of spans, for stages and for warps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fuser.kir.core import Ring

StageState: TypeAlias = Literal["free", "filling", "full", "reading"]
Activity: TypeAlias = Literal[
    "issue",
    "compute",
    "wait full",
    "wait empty",
    "wait store",
    "wait copy",
    "meet",
    "other",
    "event",
]
STAGE_STATES: tuple[StageState, ...] = ("filling", "full", "reading", "free")


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasts from `start` to `stop`.

    Attributes
    ----------
    what
        A `StageState`, an `Activity`, or the name of a phase.
    trip
        Which trip it belongs to; None: none.
    text
        What is written into its box instead of the trip.
    """

    start: float
    stop: float
    what: str
    trip: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the picture: spans in order that do not overlap."""

    name: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class RingRows:
    """A ring: one row per stage; the spans of a row leave no gap.

    Attributes
    ----------
    trips
        How many were begun.
    """

    ring: Ring
    stages: tuple[Row, ...]
    trips: int

    def of_trip(self, trip: int) -> Iterator[Span]:
        """Yield what happens to the stage of a trip, in order."""
        for row in self.stages:
            yield from (s for s in row.spans if s.trip == trip)


@dataclass(frozen=True, slots=True)
class Timeline:
    """One block of a kernel over time.

    Attributes
    ----------
    title, notes
        What is shown; lines that explain it.
    rings, warps
        Rows of stages by ring, and of warps; warps that do the same at the same times share one.
    phases
        Pre-prologue, prologue, main...: a row of their own.
    stop
        When it ends.
    fault
        What went wrong at `stop`, line by line; empty: nothing.
    unit
        What one unit of time is; of a counterexample: a step.
    """

    title: str
    rings: tuple[RingRows, ...]
    warps: tuple[Row, ...]
    phases: tuple[Span, ...]
    stop: float
    notes: tuple[str, ...] = ()
    fault: tuple[str, ...] = ()
    unit: Literal["time", "step"] = "time"

    def spans(self) -> Iterator[Span]:
        """Yield every span of stages and warps."""
        for ring in self.rings:
            for row in ring.stages:
                yield from row.spans
        for row in self.warps:
            yield from row.spans


def joined(spans: list[Span], new: Span) -> None:
    """Append a span, or lengthen the last one if `new` goes on with the same."""
    if new.stop <= new.start:
        return
    if spans:
        last = spans[-1]
        trip = last.trip if new.trip is None else new.trip
        same = last.trip in (None, trip) or new.trip is None
        if last.what == new.what and last.stop == new.start and same and last.text == new.text:
            spans[-1] = Span(last.start, new.stop, new.what, trip, new.text)
            return
    spans.append(new)
