"""A timeline as a drawing: phases, rows of stages, rows of warps, legend, what went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuser.timeline.axis import BREAK, Axis, axis_of
from fuser.timeline.drawing import Drawing, Line, Rect, Text, text_width
from fuser.timeline.timeline import RingRows, Row, Span, Timeline

MARGIN, ROW, GAP, BAND_LINE, HANG = 16.0, 22.0, 5.0, 13.0, 20.0
TITLE, HEADING, LABEL, SMALL = 17.0, 12.5, 11.0, 10.0
DIM, GRID, WRONG = "#5b6470", "#e4e6e9", "#b3261e"


@dataclass(frozen=True, slots=True)
class Look:
    """How a kind of span is drawn, and what the legend says of it.

    Colours are of the set of Okabe and Ito, which those with a colour vision deficiency can tell
    apart; lightness and hatching tell them apart in grey.
    """

    fill: str
    ink: str
    words: str
    hatch: str = ""
    stroke: str = "#8a9099"
    numbered: bool = True
    """Whether its boxes bear the number of a trip."""


STAGES = {
    "filling": Look("#fff1d0", "#4a3200", "copy in flight", "#f3cf85", "#c98500"),
    "full": Look("#8fcdf4", "#06283f", "full, not read yet", "", "#2a7fb5"),
    "reading": Look("#007a5a", "#ffffff", "being read", "", "#00523c"),
    "free": Look("#ffffff", DIM, "free", "", "#d5d8dc", numbered=False),
}
WARPS = {
    "issue": Look("#e69f00", "#1f1500", "issues copies", "", "#a87400"),
    "compute": Look("#007a5a", "#ffffff", "computes", "", "#00523c"),
    "wait full": Look("#ffffff", "#06283f", "waits for a full stage", "#a9d6f2", "#56b4e9"),
    "wait empty": Look("#ffffff", "#5a2300", "waits for a free stage", "#f0b48f", "#d55e00"),
    "wait store": Look(
        "#ffffff", "#4b1d3f", "waits for its stores", "#e3b3d0", "#cc79a7", numbered=False
    ),
    "wait product": Look(
        "#ffffff", "#00382a", "waits for its products", "#9fd3c3", "#007a5a", numbered=False
    ),
    "wait copy": Look(
        "#ffffff", "#4a3200", "waits for its copies", "#f3cf85", "#c98500", numbered=False
    ),
    "meet": Look("#ffffff", DIM, "waits for other warps", "#d0d3d8", "#9aa0a8", numbered=False),
    "other": Look("#dccbe6", "#3a2149", "other work", "", "#a98bbd", numbered=False),
    "event": Look("#f2f3f5", "#1f2328", "step", "", "#8a9099", numbered=False),
}
PHASE_ROW = "loop of warp 0"
PHASES = ("#eef1f5", "#dfe4ea")
LOOKS = STAGES | WARPS


def draw(timeline: Timeline) -> Drawing:
    """Lay a timeline out."""
    names = [row.name for ring in timeline.rings for row in ring.stages]
    names += [row.name for row in timeline.warps]
    names += [PHASE_ROW] if timeline.phases else []
    left = MARGIN + max((text_width(n, LABEL) for n in names), default=0.0) + 10
    page = _Page(timeline, axis_of(timeline, left))
    page.head()
    page.phases()
    for ring in timeline.rings:
        page.section(_ring_title(ring))
        for row in ring.stages:
            page.row(row)
    page.section("Warps")
    for row in timeline.warps:
        page.row(row)
    page.time()
    page.foot()
    return page.done()


def _ring_title(ring: RingRows) -> str:
    r = ring.ring
    arrays = "" if r.arrays == (r.name,) else f" ({', '.join(r.arrays)})"
    return (
        f"Ring {r.name}{arrays}: S = {r.stages}, P = {r.prefetch}, {r.kind}; N = {ring.trips} trips"
    )


class _Page:
    """A drawing that grows downwards; `y` is where it goes on."""

    def __init__(self, timeline: Timeline, axis: Axis) -> None:
        self.timeline, self.axis = timeline, axis
        self.right = max(axis.right, axis.left + 700)
        self.drawing = Drawing(timeline.title, self.right + MARGIN, 0)
        self.y = MARGIN
        self.rows_top = 0.0

    def add(self, *shapes: Rect | Text | Line) -> None:
        """Add shapes."""
        self.drawing.shapes += shapes

    def head(self) -> None:
        """Write the title and the legend."""
        self.add(Text(MARGIN, self.y + TITLE / 2, self.timeline.title, TITLE, bold=True))
        self.y += TITLE + 10
        used = {s.what for s in self.timeline.spans()}
        self.legend("Stages", {k: v for k, v in STAGES.items() if k in used})
        self.legend("Warps", {k: v for k, v in WARPS.items() if k in used})
        self.y += GAP

    def legend(self, name: str, looks: dict[str, Look]) -> None:
        """Write a line of the legend."""
        if not looks:
            return
        x, middle = MARGIN, self.y + 8
        self.add(Text(x, middle, name, LABEL, DIM, bold=True))
        x += 56
        for look in looks.values():
            self.add(Rect(x, self.y + 1, 24, 14, look.fill, look.stroke, look.hatch))
            if look.numbered:
                self.add(Text(x + 12, middle, "n", SMALL, look.ink, "middle"))
            self.add(Text(x + 30, middle, look.words, LABEL))
            x += 30 + text_width(look.words, LABEL) + 16
        self.right = max(self.right, x - MARGIN)
        self.y += 20

    def phases(self) -> None:
        """Draw the loops of the pipeline as bands over all rows, with their names."""
        self.rows_top = self.y
        if not self.timeline.phases:
            return
        top = self.y + 2 * BAND_LINE  # names that their bands are too narrow for stand above
        narrow: list[tuple[float, str]] = []
        self.add(Text(self.axis.left - 8, top + 9, PHASE_ROW, SMALL, DIM, anchor="end"))
        for number, span in enumerate(self.timeline.phases):
            need = text_width(span.what, SMALL)
            for x, width in self.axis.pieces(span.start, span.stop):
                self.add(Rect(x, top, width, 18, PHASES[number % 2], "", "", span.what))
                if need <= width:
                    self.add(Text(x + width / 2, top + 9, span.what, SMALL, DIM, "middle"))
                else:
                    narrow.append((x, span.what))
        self.names_above(narrow, top)
        self.rows_top = top
        self.y = top + 18 + GAP

    def names_above(self, names: list[tuple[float, str]], bottom: float) -> None:
        """Write names above their bands, on two lines; one that has no room on either is left."""
        taken = [self.right, self.right]
        for x, name in reversed(names):
            need = text_width(name, SMALL)
            begin = min(x, self.right - need)
            line = next((k for k in (0, 1) if begin + need <= taken[k]), None)
            if line is None:
                continue
            taken[: line + 1] = [begin - 4] * (line + 1)
            middle = bottom - BAND_LINE * (line + 0.5)
            self.add(Line(x, middle + 6, x, bottom, "#9aa0a8"))
            self.add(Text(begin, middle, name, SMALL, DIM))

    def section(self, title: str) -> None:
        """Write the heading of some rows."""
        self.y += GAP
        width = text_width(title, HEADING)
        self.add(Rect(MARGIN, self.y, width, 19, "#ffffff"))  # over the lines of the grid
        self.add(Text(MARGIN, self.y + 9, title, HEADING, bold=True))
        self.y += 22

    def row(self, row: Row) -> None:
        """Draw one row."""
        self.add(Text(self.axis.left - 8, self.y + ROW / 2, row.name, LABEL, anchor="end"))
        for span in row.spans:
            self.box(span, row.name)
        self.y += ROW + 3

    def box(self, span: Span, row: str) -> None:
        """Draw a span, with its trip if there is room."""
        look = LOOKS[span.what]
        trip = "" if span.trip is None else f" {span.trip}"
        words = f"{row}, trip{trip}: {look.words}" if trip else f"{row}: {look.words}"
        hint = f"{words}, {span.start:g} to {span.stop:g}"
        text = span.text or trip.strip()
        for x, width in self.axis.pieces(span.start, span.stop):
            self.add(Rect(x, self.y, width, ROW, look.fill, look.stroke, look.hatch, hint))
            size = next((s for s in (LABEL, SMALL, 8.5) if text_width(text, s) <= width - 2), None)
            if text and size is not None:
                at = x + width / 2, self.y + ROW / 2
                if look.hatch:
                    w = text_width(text, size) + 1
                    self.add(Rect(at[0] - w / 2, at[1] - size / 2 - 1, w, size + 2, look.fill))
                self.add(Text(*at, text, size, look.ink, "middle"))

    def time(self) -> None:
        """Draw the axis of time, the lines that go up from it, and what is left out."""
        bottom = self.y + 2
        grid: list[Rect | Text | Line] = []
        for at, x in self.axis.ticks(self.timeline.unit):
            grid.append(Line(x, self.rows_top + 18, x, bottom + 4, GRID))
            place = x + self.axis.scale / 2 if self.timeline.unit == "step" else x
            self.add(Text(place, bottom + 12, f"{at:g}", SMALL, DIM, "middle"))
        self.drawing.shapes[0:0] = grid
        self.add(Line(self.axis.left, bottom, self.axis.right, bottom, "#9aa0a8"))
        self.add(
            Text(self.axis.left - 8, bottom + 12, self.timeline.unit, SMALL, DIM, anchor="end")
        )
        for x in self.axis.breaks():
            self.add(Rect(x, self.rows_top, BREAK, bottom - self.rows_top + 4, "#ffffff"))
            middle = (self.rows_top + bottom) / 2
            self.add(Text(x + BREAK / 2, middle, "···", 16, DIM, "middle"))
        if self.timeline.fault:
            x = self.axis.right
            self.add(Line(x, self.rows_top, x, bottom + 4, WRONG, 2.5))
        self.y = bottom + 26

    def foot(self) -> None:
        """Write what went wrong, and the notes."""
        for number, line in enumerate(self.timeline.fault):
            self.paragraph(line, WRONG if number == 0 else "#1f2328", bold=number == 0)
        notes = [*self.timeline.notes]
        if self.axis.left_out:
            notes.append(self.axis.left_out)
        for note in notes:
            self.paragraph(note, DIM)

    def paragraph(self, text: str, colour: str, *, bold: bool = False) -> None:
        """Write a text in as many lines as it takes."""
        x = MARGIN + 4 * (len(text) - len(text.lstrip()))
        for line in wrapped(text, (self.right - x - HANG) / text_width("n", LABEL)):
            self.add(Text(x, self.y + 7, line, LABEL, colour, bold=bold))
            x = MARGIN + HANG
            self.y += 16

    def done(self) -> Drawing:
        """Return the drawing at its full extent."""
        self.drawing.width = self.right + MARGIN
        self.drawing.height = self.y + MARGIN / 2
        return self.drawing


def wrapped(text: str, most: float) -> Iterator[str]:
    """Yield the lines of a text that has up to `most` letters a line; no word is cut."""
    line = ""
    for word in text.split():
        if line and len(line) + len(word) > most:
            yield line.rstrip()
            line = ""
        line += f"{word} "
    yield line.rstrip()
