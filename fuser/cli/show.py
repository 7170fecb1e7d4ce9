"""How the commands print: headings, stages with colours, facts that fit 80 columns."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from fuser.debug.highlight import Kind, tokens
from fuser.debug.stages import Stage

STYLES: dict[Kind, str] = {
    "comment": "bright_black",
    "keyword": "magenta",
    "type": "cyan",
    "number": "yellow",
    "call": "blue",
    "register": "green",
    "name": "",
    "": "",
}
CHANGED = "bold on grey19"
MAX_WIDTH = 100


def console(*, stderr: bool = False) -> Console:
    """Return a console whose rules and tables stay readable on very wide terminals."""
    out = Console(stderr=stderr, highlight=False)
    if out.width > MAX_WIDTH:
        out.width = MAX_WIDTH
    return out


def heading(out: Console, text: str) -> None:
    """Print the title of a fusion."""
    out.print()
    out.print(Rule(Text(text, style="bold"), align="left", style="bold green"))


def section(out: Console, title: str, note: str = "") -> None:
    """Print the title of a stage."""
    out.print()
    line = Text(title, style="bold green")
    out.print(line.append(f"  {note}", style="bright_black") if note else line)


def code(out: Console, text: str, stage: Stage, changed: Iterable[int] = ()) -> None:
    """Print a stage; long lines are the terminal's to wrap, so pipes get them whole."""
    marked = frozenset(changed)
    for number, line in enumerate(text.splitlines()):
        printed = Text("  ")
        for kind, part in tokens(line, stage):
            printed.append(part, style=STYLES[kind])
        if number in marked:
            printed.stylize(CHANGED)
        out.print(printed, soft_wrap=True)


def facts(out: Console, rows: Iterable[tuple[str, str | Text]]) -> None:
    """Print ``name  value`` lines."""
    listed = [(name, Text(v) if isinstance(v, str) else v) for name, v in rows]
    indent = max(len(name) for name, _ in listed) + 4
    for name, value in listed:
        for number, line in enumerate(value.wrap(out, max(20, out.width - indent))):
            line.rstrip()
            label = Text(f"  {name if number == 0 else ''}".ljust(indent), style="bold")
            out.print(Text.assemble(label, line), soft_wrap=True)


def duration(seconds: float) -> str:
    """Print a time with three digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1 or unit == "us":
            return f"{seconds * scale:.3g} {unit}"
    raise AssertionError(seconds)


def size(nbytes: int) -> str:
    """Print a number of bytes in its largest binary unit."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes} B"


def plural(count: int, noun: str) -> str:
    """Print ``1 kernel`` or ``2 kernels``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
