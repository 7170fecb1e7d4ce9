"""``python -m benchmarks``: generated kernels beside ceilings and peers, all in one run.

NAMES are parts of names of workloads (all of them when none is given), or a FILE.py whose fusions
are measured on the inputs that the file executes them on. Without a GPU the runner times compiling
and the interpreter.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from benchmarks import table, user_file
from benchmarks.outputs import output_file, output_folder
from benchmarks.peers import PEERS, choose
from benchmarks.results import Results, load
from benchmarks.runner import run_steps
from benchmarks.timing import MIN_REPETITIONS
from benchmarks.workloads import NOT_YET, Case, Size, cases, swept_cases
from fuser.cli import INTERRUPTED
from fuser.cli.process import exit_status

BAD_INPUT = 2
OF_A_RUN = ("peers", "sizes", "no_sweep", "repetitions", "commit")
"""Options that an earlier run has had already."""


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status.

    It is 0, 1 when fuser failed at a workload, 2 for a bad command line, and 130 when Ctrl-C ended
    the run.
    """
    options = parser().parse_args(argv)
    try:
        if options.list:
            if options.source or options.json or options.plot:
                raise ValueError("--list lists only; needed no --from, --json or --plot beside it")
            print_list(options.names, options.sizes)
            return 0
        results = earlier(options) if options.source else run(options)
    except ValueError as error:
        refuse(str(error))
    print(table.text(results))
    try:
        if options.json:
            results.save(options.json)
        if options.plot:
            draw(results, options.plot)
    except ValueError as error:  # what was measured has been printed
        refuse(str(error))
    except OSError as error:
        refuse(f"{error.filename}: {error.strerror}; a file that can be written is needed")
    if results.interrupted and not options.source:
        return INTERRUPTED
    return 1 if results.failures else 0


def refuse(message: str) -> NoReturn:
    """End with `BAD_INPUT`; the line is one that the parser takes, so its usage would not help."""
    print(f"python -m benchmarks: error: {message}", file=sys.stderr)
    raise SystemExit(BAD_INPUT)


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    top.add_argument("names", nargs="*", metavar="NAMES")
    top.add_argument(
        "--peers", default="torch,compile", help="some of torch,compile,quack,liger, or empty"
    )
    top.add_argument(
        "--json", type=output_file, metavar="OUT", help="write the results to this file"
    )
    top.add_argument(
        "--plot", type=output_folder, metavar="OUT",
        help="write pictures and report.html into this folder",
    )  # fmt: skip
    top.add_argument(
        "--sizes", type=_sizes, default=(), metavar="RxC,...",
        help="rows x columns instead of the sizes of the table",
    )  # fmt: skip
    top.add_argument("--list", action="store_true", help="list workloads and peers; run nothing")
    top.add_argument(
        "--from", dest="source", type=Path, metavar="RESULTS.json",
        help="show or draw the results of an earlier run; run nothing",
    )  # fmt: skip
    top.add_argument("--no-sweep", action="store_true", help="leave out what only pictures show")
    top.add_argument("--repetitions", type=_repetitions, default=MIN_REPETITIONS, metavar="N")
    top.add_argument("--commit", help="what to record where there is no git checkout")
    return top


def earlier(options: argparse.Namespace) -> Results:
    """Return what the command line asks for of an earlier run.

    Raises
    ------
    ValueError
        There is no file of results, or not of such a workload.
    """
    for name in OF_A_RUN:
        if getattr(options, name) != parser().get_default(name):
            option = name.replace("_", "-")
            raise ValueError(f"--{option} is about a run; of the results of --from, NAMES choose")
    return load(options.source).only(options.names)


def selected(names: list[str], sizes: tuple[Size, ...]) -> list[Case]:
    """Return the workloads that each of `names` is part of a name of, all when there is none.

    Raises
    ------
    ValueError
        One is part of no name.
    """
    for name in names:
        if not name.strip() or not cases([name], sizes):
            raise ValueError(f"no workload is called {name!r}; --list prints their names")
    return cases(names, sizes)


def run(options: argparse.Namespace) -> Results:
    """Run what the command line asks for.

    Raises
    ------
    ValueError
        No workload or peer has such a name, or the user's file is no use.
    """
    from benchmarks.machine import machine
    from fuser.runtime.driver import device_available

    files = [name for name in options.names if name.endswith(".py")]
    names = [name for name in options.names if not name.endswith(".py")]
    if options.sizes and files and not names:
        raise ValueError(
            f"--sizes is about workloads, and {files[0]} runs at sizes of its own; needed no "
            "--sizes, or the name of a workload"
        )
    chosen = selected(names, options.sizes) if names or not files else []
    swept = [] if options.no_sweep or options.sizes or not chosen else swept_cases(names)
    calls = [call for file in files for call in user_file.calls_of(file)]
    peers, missing = choose([name for name in options.peers.split(",") if name])
    results = Results(machine(options.commit))
    if not names and not files:
        results.not_yet = dict(NOT_YET)
    with tempfile.TemporaryDirectory("", "fuser-benchmarks-", ignore_cleanup_errors=True) as caches:
        folder = Path(caches)
        if device_available():
            from benchmarks import on_gpu

            results.left_out += missing
            steps = on_gpu.steps(chosen, swept, calls, peers, options.repetitions, folder)
        else:
            from benchmarks import on_host

            steps = on_host.steps(chosen, calls, results, folder)
        return run_steps(steps, results)


def draw(results: Results, folder: Path) -> None:
    """Write the pictures and the page, and print where."""
    from benchmarks.page import page
    from benchmarks.plots import draw as draw_pictures

    pictures = draw_pictures(results, folder)
    report = folder / "report.html"
    report.write_text(page(results, pictures), encoding="utf-8")
    for path in (*pictures, report):
        print(f"wrote {path}")


def print_list(names: list[str], sizes: tuple[Size, ...]) -> None:
    """Print what there is to run, to compare with, and what is not there yet."""
    for case in selected(names, sizes):
        print(f"{case.name:40s} ceiling {case.workload.ceiling}")
    for missing, reason in NOT_YET:
        if not names or any(name in missing for name in names):
            print(f"{missing:40s} not yet: {reason}")
    for peer in PEERS.values():
        state = "installed" if peer.installed else f"not installed: pip install {peer.distribution}"
        print(f"peer {peer.name:35s} {state}")


def _sizes(text: str) -> tuple[Size, ...]:
    try:
        found = tuple(Size(*map(int, size.split("x"))) for size in text.split(","))
    except (ValueError, TypeError):
        found = ()
    if not found or any(min(size) < 1 for size in found):
        raise argparse.ArgumentTypeError(f"{text!r}; needed ROWSxCOLUMNS, as in 4096x4096,32x1024")
    return found


def _repetitions(text: str) -> int:
    if not text.isdecimal() or int(text) < MIN_REPETITIONS:
        raise argparse.ArgumentTypeError(f"{text!r}; needed a number of at least {MIN_REPETITIONS}")
    return int(text)


if __name__ == "__main__":
    raise SystemExit(exit_status(main))
