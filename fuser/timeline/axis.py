"""Where times are on a picture, and which of them are left out when there are too many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuser.timeline.timeline import Timeline

WIDEST = 1500.0
"""Pixels that the rows of a picture may take."""
SCALES = {"time": (1.5, 6.0), "step": (78.0, 78.0)}
"""Pixels of a unit, at least and at most; the least may make a picture wider than `WIDEST`."""
BREAK = 28.0
"""Pixels of what stands for the times left out."""
MOST_TRIPS, HEAD, TAIL = 20, 11, 5
"""More trips than the first number are not drawn, but so many at the beginning and the end."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps the times of some windows to pixels.

    Attributes
    ----------
    windows
        What is shown, in order.
    left
        Where the first one begins.
    left_out
        What is not shown, in words; empty: all is.
    """

    windows: tuple[tuple[float, float], ...]
    scale: float
    left: float
    left_out: str = ""

    @property
    def right(self) -> float:
        """Where the last window ends."""
        return self.left + sum((b - a) * self.scale + BREAK for a, b in self.windows) - BREAK

    def offsets(self) -> Iterator[tuple[float, float, float]]:
        """Yield begin, end and first pixel of every window."""
        x = self.left
        for begin, end in self.windows:
            yield begin, end, x
            x += (end - begin) * self.scale + BREAK

    def breaks(self) -> Iterator[float]:
        """Yield the first pixel of every gap."""
        for begin, end, x in list(self.offsets())[:-1]:
            yield x + (end - begin) * self.scale

    def pieces(self, start: float, stop: float) -> Iterator[tuple[float, float]]:
        """Yield first pixel and width of the parts of a span that are shown."""
        for begin, end, x in self.offsets():
            a, b = max(start, begin), min(stop, end)
            if b > a:
                yield x + (a - begin) * self.scale, (b - a) * self.scale

    def ticks(self, unit: str) -> Iterator[tuple[float, float]]:
        """Yield round times and their pixels; a step is at its beginning."""
        step = next(s for s in (1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1e3) if s * self.scale > 60)
        for begin, end, x in self.offsets():
            at = -(-begin // step) * step
            while at <= end - (unit == "step"):
                yield at, x + (at - begin) * self.scale
                at += step


def axis_of(timeline: Timeline, left: float) -> Axis:
    """Return an axis that shows a whole timeline, or its beginning and end."""
    left_out = ""
    windows: tuple[tuple[float, float], ...] = ((0.0, timeline.stop),)
    lives = sorted(
        (span.start, span.stop)
        for ring in timeline.rings[:1]
        for row in ring.stages
        for span in row.spans
        if span.what == "filling"
    )
    if len(lives) > MOST_TRIPS:
        head, tail = lives[HEAD][1], lives[-TAIL][0]
        windows = (0.0, head), (tail, timeline.stop)
        left_out = f"Not drawn: what follows trip {HEAD}, up to the {TAIL} trips before the end."
    total = sum(b - a for a, b in windows)
    least, most = SCALES[timeline.unit]
    return Axis(windows, min(most, max(least, WIDEST / max(total, 1.0))), left, left_out)
