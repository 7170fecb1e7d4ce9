"""Where in the user's file something was written."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import FrameType

_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of the user's program.

    Attributes
    ----------
    file
        Path as the interpreter knows it.
    line
        1-based line number.
    function
        Name of the enclosing function.
    """

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def caller_location() -> SourceLocation | None:
    """Return the innermost frame outside this package, or None when there is none."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    if frame is None:
        return None
    return SourceLocation(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def _is_ours(frame: FrameType) -> bool:
    # By package, not by path: generated methods have no path, and a user's file may lie beside us.
    return (frame.f_globals.get("__package__") or "").partition(".")[0] == _PACKAGE
