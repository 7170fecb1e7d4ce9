"""The command line: its parser, and which module answers which command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import metadata

from fuser.cli import cache, check, demo, explain, run, sass, show
from fuser.cli.command import DOCTOR
from fuser.cli.script import complain, wants_traceback
from fuser.core.errors import OptionError

DISTRIBUTION = "fuser-cuda"
COMMANDS = (
    demo.COMMAND, run.COMMAND, explain.COMMAND, check.COMMAND, sass.COMMAND, cache.COMMAND, DOCTOR,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0, 1 when something failed, 2 for bad input."""
    given, for_script = split_arguments(sys.argv[1:] if argv is None else argv)
    args = parser().parse_args(given)
    if for_script:
        args.arguments = [*getattr(args, "arguments", ()), *for_script]
    try:
        status: int = args.execute(args)
    except OptionError as error:  # of the environment, which is read where it is needed
        if wants_traceback(getattr(args, "verbose", False)):
            raise
        return complain(show.console(stderr=True), args.command, str(error))
    return status


def split_arguments(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what stands before and after ``--``: our arguments and the script's."""
    words = list(argv)
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


def parser() -> argparse.ArgumentParser:
    """Build the parser; every command adds its own part."""
    top = argparse.ArgumentParser(
        prog="python -m fuser",
        description="Fusions of tensor operations as CUDA kernels for Hopper GPUs.",
        epilog="FUSER_DUMP=fusion,schedule,nest,kir,cuda,ptx,sass writes the stages of every "
        "fusion a program compiles into FUSER_DUMP_DIR (fuser_dump).",
    )
    top.add_argument("--version", action="version", version=f"fuser {version()}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        part = commands.add_parser(
            command.name, help=command.text, description=command.text, epilog=command.epilog
        )
        command.configure(part)
        part.set_defaults(execute=command.execute, command=command.name)
    return top


def version() -> str:
    """Return the installed version."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "(not installed: runs from its source)"
