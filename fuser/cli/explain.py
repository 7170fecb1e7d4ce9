"""``python -m fuser explain``: every stage of every fusion of a script, as text or as a page."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.console import Console

from fuser.cli import pictures, show
from fuser.cli.arch import add_arch
from fuser.cli.command import Command
from fuser.cli.fusions import fusions_of
from fuser.cli.recorder import Record
from fuser.cli.run import facts_of, run_text
from fuser.cli.script import complain
from fuser.codegen.env import template
from fuser.core.errors import OptionError
from fuser.debug.page import Chapter, page
from fuser.debug.stages import STAGES, Snapshot, Stage, parse_stages, readable
from fuser.debug.trace import changed_lines

TITLES: dict[Stage, str] = {
    "fusion": "Fusion", "schedule": "Schedule", "nest": "Loop nest", "kir": "Kernel IR",
    "cuda": "CUDA", "ptx": "PTX", "sass": "SASS",
}  # fmt: skip


TIMELINE_HELP = "draw the circular buffers over time instead: an .svg, or a .png by matplotlib"


def configure(part: ArgumentParser) -> None:
    """Add the arguments of ``explain``."""
    part.add_argument("--html", metavar="OUT", help="write one self-contained page instead")
    part.add_argument("--timeline", metavar="OUT", help=TIMELINE_HELP)
    add_arch(part)
    part.add_argument(
        "--stages", metavar="LIST", help=f"of the text, some of {','.join(STAGES)} (all)"
    )
    part.add_argument("-v", "--verbose", action="store_true", help="full tracebacks of errors")
    part.add_argument("file", metavar="FILE.py")
    part.set_defaults(arguments=[])


def execute(args: Namespace) -> int:
    """Run the script, compile what it made, and print it."""
    err = show.console(stderr=True)
    try:
        stages = chosen_stages(args)
        pictures.check(args.timeline)
    except OptionError as error:
        return complain(err, "explain", str(error))
    outcome = fusions_of(args, err)
    status, records = outcome.status, outcome.recorder.records
    if not records:
        return status
    if args.timeline:
        status = status or pictures.write_timelines(Path(args.timeline), records, err)
        if not args.html:
            return status
    for record in records:
        if record.program is not None:
            record.compile(args.arch)
    failures = [found.failure for r in records for found in r.listings if found.failure]
    for failure in failures:
        complain(err, f"--arch {args.arch}", str(failure))
    status = status or (1 if failures else 0)
    if args.html:
        return write_page(Path(args.html), args.file, args.arch, records, err) or status
    out = show.console()
    for record in records:
        print_record(out, record, stages)
    return status


def chosen_stages(args: Namespace) -> frozenset[Stage]:
    """Return the stages to print, all without ``--stages``.

    Raises
    ------
    OptionError
        One is none, there is none, or the stages are not to be printed.
    """
    if args.stages is None:
        return frozenset(STAGES)
    if args.html or args.timeline:
        raise OptionError("--stages chooses of the text; needed neither --html nor --timeline")
    stages = parse_stages(args.stages, "--stages")
    if not stages:
        needed = f"needed some of {', '.join(STAGES)}, or all"
        raise OptionError(f"--stages: {args.stages!r} names no stage; {needed}")
    return stages


def print_record(out: Console, record: Record, stages: frozenset[Stage]) -> None:
    """Print the stages of one fusion, kernel by kernel."""
    show.heading(out, record.trace.title)
    show.facts(out, facts_of(record))
    for kernel in (None, *record.trace.kernels):
        for stage in STAGES:
            if stage in stages:
                print_stage(out, record.trace.of(kernel, stage))


def print_stage(out: Console, snapshots: tuple[Snapshot, ...]) -> None:
    """Print a stage after every step; lines that a pass changed stand out in colour."""
    before: str | None = None
    for taken in snapshots:
        title = TITLES[taken.stage] + (f" of {taken.kernel}" if taken.kernel else "")
        note = "" if taken.step == taken.stage else f"after {taken.step}"
        show.section(out, title, note)
        text = readable(taken)
        changed = changed_lines(before, text) if before is not None else ()
        show.code(out, text, taken.stage, changed)
        before = text


def write_page(path: Path, file: str, arch: str, records: list[Record], err: Console) -> int:
    """Write the page; its fusions are chapters."""
    chapters = [Chapter(r.trace, run_text(r), pictures.inline(r, n)) for n, r in enumerate(records)]
    text = page(Path(file).name, arch, chapters, TITLES, lambda name: template(name).render)
    try:
        path.write_text(text)
    except OSError as error:
        return complain(err, str(path), f"{error.strerror}; a file that can be written is needed")
    show.console().print(f"wrote {path}", markup=False, soft_wrap=True)
    return 0


COMMAND = Command(
    "explain",
    "show every stage of the fusions a script runs, or only defines",
    execute,
    configure,
    "Arguments after -- are passed to the script.",
)
