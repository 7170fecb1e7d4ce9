"""The page of ``explain --html``: one file, a chapter per fusion, its stages side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TypeAlias

from fuser.debug.highlight import tokens
from fuser.debug.stages import STAGES, Snapshot, Stage, readable
from fuser.debug.trace import Trace, changed_lines

STACKED: tuple[Stage, ...] = ("fusion", "schedule", "nest")
"""Short stages, one below the other; every other stage is a column."""

Template: TypeAlias = Callable[..., str]
CLASSES = {
    "comment": "c", "keyword": "k", "type": "t", "number": "n", "call": "f", "register": "r",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chapter:
    """One fusion: what was recorded of it, and a few words about its runs.

    Attributes
    ----------
    pictures
        By kernel, an SVG element that stands above its stages.
    """

    trace: Trace
    note: str
    pictures: Mapping[str, str] = field(default_factory=dict[str, str])


class Page:
    """Renders from templates ``html/<part>.html.j2``, which hold no logic."""

    def __init__(self, titles: Mapping[Stage, str], template: Callable[[str], Template]) -> None:
        self.titles = titles
        self.template = template

    def part(self, part: str, /, **context: str | int) -> str:
        """Render one template."""
        return self.template(f"html/{part}.html.j2")(**context)

    def link(self, target: str, text: str, kind: str, hint: str) -> str:
        """Print a link of the header; `hint` is shown while the pointer is on it."""
        return self.part("link", href=f"#{target}", text=escape(text), kind=kind, hint=escape(hint))

    def chapter(self, number: int, chapter: Chapter) -> str:
        """Print a fusion: a row of columns for each kernel."""
        trace = chapter.trace
        kernels = trace.kernels or (None,)
        rows = [
            self.row(number, k, trace, kernel, chapter.pictures.get(kernel or "", ""))
            for k, kernel in enumerate(kernels)
        ]
        return self.part(
            "chapter",
            id=f"fusion{number}",
            title=escape(trace.title),
            note=escape(", ".join(part for part in (trace.shapes, chapter.note) if part)),
            rows="\n".join(rows),
        )

    def row(self, number: int, k: int, trace: Trace, kernel: str | None, picture: str) -> str:
        """Print the picture and the columns of one kernel."""
        names = frozenset(_names(trace))
        columns: dict[Stage, str] = {}
        for stage in STAGES:
            snapshots = trace.of(None if stage == "fusion" else kernel, stage)
            if snapshots:
                columns[stage] = self.column(stage, snapshots, names)
        stacked = "\n".join(columns.pop(stage) for stage in STACKED if stage in columns)
        stack = self.part("stack", columns=stacked)
        return self.part(
            "kernel",
            id=f"fusion{number}kernel{k}",
            name=escape(kernel or ""),
            schedule=escape(trace.schedules.get(kernel or "", "")),
            picture=self.part("picture", svg=picture) if picture else "",
            columns="\n".join((stack, *columns.values())),
        )

    def column(self, stage: Stage, snapshots: Sequence[Snapshot], names: frozenset[str]) -> str:
        """Print a stage after every step, one below the other."""
        steps: list[str] = []
        before: str | None = None
        for taken in snapshots:
            text = readable(taken)
            changed = changed_lines(before, text) if before is not None else frozenset[int]()
            if taken.step != stage:
                count = f"{len(changed)} lines changed" if before is not None else ""
                title = escape(f"after {taken.step}")
                steps.append(self.part("step_title", title=title, count=count))
            steps.append(self.part("step", code=code(text, stage, changed, names)))
            before = text
        return self.part("column", stage=stage, title=self.titles[stage], steps="\n".join(steps))


def page(
    file: str,
    arch: str,
    chapters: Sequence[Chapter],
    titles: Mapping[Stage, str],
    template: Callable[[str], Template],
) -> str:
    """Print the whole page.

    Parameters
    ----------
    template
        Returns the render function of a template by its path.
    """
    printer = Page(titles, template)
    links: list[str] = []
    for n, chapter in enumerate(chapters):
        trace = chapter.trace
        links.append(printer.link(f"fusion{n}", trace.title, "fusion", trace.shapes))
        links += [
            printer.link(f"fusion{n}kernel{k}", kernel, "kernel", trace.schedules.get(kernel, ""))
            for k, kernel in enumerate(trace.kernels)
        ]
    toggles = [printer.part("toggle", stage=s, title=titles[s]) for s in STAGES]
    return printer.part(
        "page",
        file=escape(file),
        arch=escape(arch),
        links="\n".join(links),
        toggles="\n".join(toggles),
        chapters="\n".join(printer.chapter(n, c) for n, c in enumerate(chapters)),
        style=printer.part("style"),
        script=printer.part("script"),
    )


def code(text: str, stage: Stage, changed: frozenset[int], names: frozenset[str]) -> str:
    """Print lines as spans; names of values carry their name, so that a page can find them."""
    lines: list[str] = []
    for number, line in enumerate(text.splitlines()):
        css = "l new" if number in changed else "l"
        inner = "".join(_span(kind, part, names) for kind, part in tokens(line, stage))
        lines.append(f'<span class="{css}">{inner}</span>')
    return "\n".join(lines)


def _span(kind: str, text: str, names: frozenset[str]) -> str:
    value = next((n for n in (text, text.removesuffix("_v")) if n in names), None)
    if value is not None and kind in ("name", "call"):
        return f'<span class="v" data-v="{value}">{escape(text)}</span>'
    css = CLASSES.get(kind)
    return f'<span class="{css}">{escape(text)}</span>' if css else escape(text)


def _names(trace: Trace) -> list[str]:
    """Return the names of the fusion's values, read from its text: ``name: dtype[...] = ...``."""
    lines = (line for taken in trace.of(None, "fusion") for line in taken.text.splitlines())
    return [line.partition(":")[0] for line in lines if ": " in line and " = " in line]
