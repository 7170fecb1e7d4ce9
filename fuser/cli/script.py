"""Running a user's file, and telling what went wrong in it by the user's own lines."""

from __future__ import annotations

import linecache
import os
import runpy
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.text import Text

import fuser
from fuser.api.listen import listening
from fuser.cli import INTERRUPTED
from fuser.cli.recorder import Recorder
from fuser.core.errors import FuserError

BAD_INPUT = 2
_OURS = str(Path(fuser.__file__).resolve().parent) + os.sep


@dataclass(slots=True)
class Outcome:
    """What a script did.

    Attributes
    ----------
    status
        0, 1 when it raised, `BAD_INPUT` when it could not be run at all, `INTERRUPTED`, or its own
        exit status.
    variables
        Its module-level names.
    """

    status: int
    recorder: Recorder
    variables: dict[str, Any] = field(default_factory=dict[str, Any])


def run_script(file: str, arguments: Sequence[str], err: Console, *, verbose: bool) -> Outcome:
    """Run `file` as ``python file arguments...`` would, recording its fusions."""
    recorder = Recorder()
    path = Path(file)
    if what := unusable(path):
        return Outcome(complain(err, file, what), recorder)
    outcome = Outcome(0, recorder)
    with _as_main(path, arguments), listening(recorder):
        try:
            outcome.variables = runpy.run_path(str(path), run_name="__main__")
        except SystemExit as leave:
            outcome.status = _exit_status(leave, err)
        except BaseException as error:
            if wants_traceback(verbose):
                raise
            outcome.status = report(error, path, err)
    return outcome


def unusable(path: Path) -> str | None:
    """Return why there is no script of this name, and what is needed, or None."""
    if path.is_file():
        return None
    return f"{'is a folder' if path.is_dir() else 'no such file'}; a Python script is needed"


def whole(outcome: Outcome) -> Outcome:
    """Return an outcome; a script that was interrupted interrupts what would follow it, too."""
    if outcome.status == INTERRUPTED:
        raise KeyboardInterrupt
    return outcome


def wants_traceback(verbose: bool) -> bool:
    """Return whether errors are to be shown with our own frames."""
    return verbose or os.environ.get("FUSER_TRACEBACK", "0") not in ("", "0")


def complain(err: Console, subject: str, message: str) -> int:
    """Print why the input is no use; return `BAD_INPUT`."""
    err.print(Text.assemble(("error: ", "bold red"), f"{subject}: {message}"), soft_wrap=True)
    return BAD_INPUT


def report(error: BaseException, path: Path, err: Console) -> int:
    """Print an error by the user's file and line, without our frames; return the exit status."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, SyntaxError) and _is_file(error.filename, path):
        _plain(err, "".join(traceback.format_exception_only(error)).rstrip())
        return BAD_INPUT
    frames = _user_frames(error.__traceback__)
    if not isinstance(error, FuserError):
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
        lines += traceback.format_exception_only(error)
        _plain(err, "".join(lines).rstrip())
        return 1
    message, place = str(error), None
    if error.location is not None:
        place = (error.location.file, error.location.line)
        message = message.removeprefix(f"{error.location}: ")
    elif frames:
        place = (frames[-1].filename, frames[-1].lineno or 0)
    name = type(error).__name__
    if place is not None:
        _plain(err, f"{place[0]}:{place[1]}", "bold")
        source = linecache.getline(*place).strip()
        if source:
            _plain(err, f"    {source}")
    err.print(Text.assemble((f"{name}: ", "bold red"), message), soft_wrap=True)
    _plain(err, "(FUSER_TRACEBACK=1 or -v shows where inside fuser)", "bright_black")
    return 1


def _plain(err: Console, text: str, style: str = "") -> None:
    """Print a text as it is: no markup, no line breaks of our own."""
    err.print(Text(text, style=style), soft_wrap=True)


@contextmanager
def _as_main(path: Path, arguments: Sequence[str]) -> Generator[None]:
    """Give the script the ``sys.argv`` and ``sys.path`` it would have on its own."""
    argv, search = sys.argv, list(sys.path)
    sys.argv = [str(path), *arguments]
    sys.path[0:0] = [str(path.resolve().parent)]
    try:
        yield
    finally:
        sys.argv = argv
        sys.path[:] = search


def _exit_status(leave: SystemExit, err: Console) -> int:
    if leave.code is None or isinstance(leave.code, int):
        return leave.code or 0
    _plain(err, str(leave.code))
    return 1


def _is_file(name: str | None, path: Path) -> bool:
    return name is not None and Path(name).resolve() == path.resolve()


def _user_frames(tb: TracebackType | None) -> list[traceback.FrameSummary]:
    """Return the frames of the user's code: not ours, not the machinery that started it."""
    frames = traceback.extract_tb(tb)
    return [f for f in frames if not _is_machinery(f.filename)]


def _is_machinery(filename: str) -> bool:
    if filename.startswith("<frozen "):
        return True
    path = str(Path(filename).resolve())
    return path.startswith(_OURS) or path == str(Path(runpy.__file__).resolve())
