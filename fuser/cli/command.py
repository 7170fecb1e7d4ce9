"""What the parser needs to know of a command."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass

from fuser.cli.doctor import doctor


def no_options(_: ArgumentParser) -> None:
    """Add nothing to the parser of a command."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command of ``python -m fuser``.

    Attributes
    ----------
    text, epilog
        What its help says before and after the options.
    configure
        Adds its arguments to a parser.
    execute
        Does it; returns the exit status.
    """

    name: str
    text: str
    execute: Callable[[Namespace], int]
    configure: Callable[[ArgumentParser], None] = no_options
    epilog: str = ""


def _doctor(_: Namespace) -> int:
    return doctor()


DOCTOR = Command(
    "doctor", "say what this installation can do, and what a missing part costs", _doctor
)
