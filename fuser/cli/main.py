"""The command line: its parser, and which module answers which command."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import metadata

from fuser.cli import demo, doctor, explain, run

DISTRIBUTION = "fuser-cuda"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0, 1 when something failed, 2 for bad input."""
    args = parser().parse_args(argv)
    status: int = args.execute(args)
    return status


def parser() -> argparse.ArgumentParser:
    """Build the parser; every command's module adds its own part."""
    top = argparse.ArgumentParser(
        prog="python -m fuser",
        description="Fusions of tensor operations as CUDA kernels for Hopper GPUs.",
        epilog="FUSER_DUMP=fusion,schedule,nest,kir,cuda,ptx,sass writes the stages of every "
        "fusion a program compiles into FUSER_DUMP_DIR (fuser_dump).",
    )
    top.add_argument("--version", action="version", version=f"fuser {version()}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (demo, run, explain):
        command.add_parser(commands)
    add_doctor(commands)
    return top


def add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``doctor``, whose module knows nothing of the command line."""
    text = "say what this installation can do, and what a missing part costs"
    part = commands.add_parser("doctor", help=text, description=text)
    part.set_defaults(execute=lambda _: doctor.doctor())


def version() -> str:
    """Return the installed version."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "(not installed: runs from its source)"
