"""``python -m fuser run``: a user's script, and which kernels its fusions became."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser, Namespace

from rich.console import Console

from fuser.cli import show
from fuser.cli.command import Command
from fuser.cli.recorder import Record
from fuser.cli.script import complain, run_script, whole
from fuser.core.expr import ONE, Expr
from fuser.kir.core import Kernel


def configure(part: ArgumentParser) -> None:
    """Add the arguments of ``run``."""
    part.add_argument("-v", "--verbose", action="store_true", help="full tracebacks of errors")
    part.add_argument("file", metavar="FILE.py")
    rest = part.add_argument("arguments", nargs=REMAINDER, help="passed to the script")
    rest.required = False  # argparse names it beside a missing FILE.py, and takes none of it


def execute(args: Namespace) -> int:
    """Run the script; the summary follows its own output, also when it fails."""
    err = show.console(stderr=True)
    outcome = run_script(args.file, args.arguments, err, verbose=args.verbose)
    out = show.console()
    for record in outcome.recorder.records:
        summary(out, record)
    if outcome.status == 0 and not outcome.recorder.records:
        return complain(
            err, args.file, "runs no fusion; needed an execute() or a call of a @fuse function"
        )
    return whole(outcome).status


def summary(out: Console, record: Record) -> None:
    """Print one fusion: kernels, schedules, backend, times."""
    show.heading(out, record.trace.title)
    if record.program is None:
        out.print("  compilation failed")
        return
    rows = [("shapes", record.trace.shapes)] if record.trace.shapes else []
    for kernel in record.program.kernels:
        rows.append((kernel.name, record.trace.schedules.get(kernel.name, "")))
        rows.append(("", shape_text(kernel)))
    rows.append(("compiled", f"to kernel IR in {show.duration(record.build_seconds)}"))
    rows.append(("ran", run_text(record)))
    show.facts(out, rows)


def shape_text(kernel: Kernel) -> str:
    """Print the launch shape of a kernel over its sizes."""
    return f"grid {_extents(kernel.grid)}, block {_extents(kernel.block)}, {kernel.index} indices"


def _extents(extents: tuple[Expr, ...]) -> str:
    """Print launch extents up to the last that is not 1."""
    count = max((i + 1 for i, e in enumerate(extents) if e != ONE), default=1)
    return ", ".join(map(repr, extents[:count]))


def facts_of(record: Record) -> list[tuple[str, str]]:
    """Return the shapes of a record and where it ran, as ``name  value``."""
    shapes = [("shapes", record.trace.shapes)] if record.trace.shapes else []
    return [*shapes, ("ran", run_text(record))]


def run_text(record: Record) -> str:
    """Print backend and times of the runs."""
    if not record.seconds:
        return "never: the schedule set by hand, for made-up sizes" if record.by_hand else "never"
    first, times = record.seconds[0], len(record.seconds)
    best = f", best of {times} {show.duration(min(record.seconds))}" if times > 1 else ""
    return f"on {record.backend}, first {show.duration(first)}{best}"


COMMAND = Command("run", "run a script and say what its fusions became", execute, configure)
