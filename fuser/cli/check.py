"""``python -m fuser check``: are the pipelines of a script's fusions right, for every N."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from fuser.api.listen import title_of
from fuser.cli import pictures, show
from fuser.cli.check_matrix import run_matrix
from fuser.cli.command import Command
from fuser.cli.fusions import lower, only_defined
from fuser.cli.progress import Progress, seconds
from fuser.cli.recorder import Record
from fuser.cli.run import facts_of
from fuser.cli.script import Outcome, complain, run_script, whole
from fuser.core.errors import OptionError
from fuser.protocol.story import tell
from fuser.protocol.verdict import Verdict, check


def configure(part: ArgumentParser) -> None:
    """Add the arguments of ``check``."""
    part.add_argument("-v", "--verbose", action="store_true", help="full tracebacks of errors")
    part.add_argument(
        "--matrix", action="store_true",
        help="check every form of pipeline this package makes, and their mutants",
    )  # fmt: skip
    part.add_argument(
        "--family", metavar="TEXT",
        help="of the matrix, only the families whose names contain TEXT",
    )  # fmt: skip
    part.add_argument(
        "--timeline", metavar="OUT",
        help="draw how the first wrong pipeline goes wrong: an .svg, or a .png by matplotlib",
    )  # fmt: skip
    part.add_argument(
        "--limit", metavar="SECONDS", type=seconds,
        help="stop checking after so long, and say what was proved and what was not",
    )  # fmt: skip
    part.add_argument("file", metavar="FILE.py", nargs="?")
    part.set_defaults(arguments=[])


def execute(args: Namespace) -> int:
    """Check the matrix, or every kernel that a script's fusions became."""
    err = show.console(stderr=True)
    if args.family is not None and not args.matrix:
        return complain(err, "check", "--family chooses of the matrix; needed --matrix, too")
    if args.matrix and args.limit is not None:
        return complain(err, "check", "--limit is about FILE.py; of the matrix, --family chooses")
    if (args.file is None) != args.matrix:
        return complain(err, "check", "needs FILE.py or --matrix, and not both")
    if args.matrix:
        status = run_matrix(lambda family: (args.family or "") in family.name)
        if status is None:
            return complain(
                err, "check", f"no family of the matrix has {args.family!r} in its name"
            )
        return status
    try:
        pictures.check(args.timeline)
    except OptionError as error:
        return complain(err, "check", str(error))
    outcome = whole(run_script(args.file, args.arguments, err, verbose=args.verbose))
    by_hand = [fd for fd in only_defined(outcome) if fd.directives]
    outcome.status = outcome.status or lower(by_hand, outcome, err)
    out, progress = show.console(), Progress(err, args.limit)
    judged = [(r, v) for r in outcome.recorder.records for v in judge(out, r, progress)]
    conclude(out, judged, args.limit)
    verdicts = [verdict for _, verdict in judged]
    if outcome.status == 0 and not outcome.recorder.records:
        return complain(err, args.file, nothing_to_check(outcome))
    status = outcome.status or int(not all(v.ok for v in verdicts))
    if args.timeline and verdicts:
        return pictures.write_counterexample(Path(args.timeline), verdicts, err) or status
    return status


def nothing_to_check(outcome: Outcome) -> str:
    """Say why a script without an error has nothing to check, and what was needed."""
    defined = ", ".join(map(title_of, only_defined(outcome)))
    needed = "needed an execute() or a call of a @fuse function"
    if not defined:
        return f"runs no fusion; {needed}"
    return (
        f"runs no fusion, and no schedule is set by hand in what it only defines ({defined}), so "
        f"there is nothing to check; {needed}, or a schedule set by hand"
    )


def judge(out: Console, record: Record, progress: Progress) -> list[Verdict]:
    """Print the verdict of every kernel of a fusion; return them."""
    if record.program is None:
        return []
    show.heading(out, record.trace.title)
    if record.by_hand:
        show.facts(out, facts_of(record))
    verdicts = list[Verdict]()
    for kernel in record.program.kernels:
        with progress.about(kernel.name):
            verdicts.append(check(kernel, go_on=progress))
        report(out, verdicts[-1])
    return verdicts


def conclude(out: Console, judged: list[tuple[Record, Verdict]], limit: float | None) -> None:
    """Say what was left when time was up; kernels of several fusions may have one name."""
    left = [
        f"{verdict.kernel} of {record.trace.title} on {record.trace.shapes}"
        for record, verdict in judged
        if verdict.reach == "stopped"
    ]
    if not left:
        return
    out.print()
    decided = f"{len(judged) - len(left)} of {show.plural(len(judged), 'kernel')} decided"
    line = f"--limit {limit:g} is over: {decided}, not {'; '.join(left)}"
    out.print(line, markup=False, soft_wrap=True)


def report(out: Console, verdict: Verdict) -> None:
    """Print one verdict, with the story of what is wrong."""
    rings = ", ".join(f"{name} ({show.plural(n, 'stage')})" for name, n in verdict.rings)
    rows: list[tuple[str, str | Text]] = [(verdict.kernel, sentence(verdict))]
    if rings:
        rows.append(("", f"rings: {rings}"))
    if verdict.note and verdict.reach != "no pipeline":
        rows.append(("", f"not proved: {verdict.note}"))
    show.facts(out, rows)
    if verdict.fault is not None and verdict.model is not None:
        for line in tell(verdict.model, verdict.fault):
            out.print(f"  {line}", markup=False, soft_wrap=True)


def sentence(verdict: Verdict) -> str:
    """Return what a verdict says."""
    states = show.plural(verdict.states, "state")
    trips = " x ".join(map(str, verdict.trips))
    match verdict.reach:
        case "no pipeline":
            return verdict.note or "has no pipeline"
        case "proved":
            run = "; all interleavings are one run" if verdict.one_run else ""
            return f"proved for all N, in {states}{run}"
        case "explored":
            return f"explored up to N = {trips}, in {states}; nothing is wrong"
        case "sampled":
            each = f"{verdict.walks} random interleavings of each number of trips"
            return f"sampled up to N = {trips}, {each}, in {states}; nothing is wrong"
        case "wrong":
            at = f" with N = {trips}" if trips else ""
            return f"wrong{at}, found after {states}"
        case "stopped":
            so_far = f"up to N = {trips} nothing is wrong" if trips else "nothing was wrong so far"
            return f"not decided: stopped after {states}; {so_far}"
        case "unknown":
            return f"cannot be checked, after {states}"


COMMAND = Command(
    "check",
    "prove that the pipelines of a script's fusions are right",
    execute,
    configure,
    "Arguments after -- are passed to the script.",
)
