"""How long a check may take, and a line on a terminal that says how far it is."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from time import monotonic

from rich.console import Console
from rich.status import Status

from fuser.cli import show


def seconds(text: str) -> float:
    """Return the value of ``--limit``."""
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not (limit > 0 and isfinite(limit)):
        raise ArgumentTypeError(f"{text!r}; needed a number of seconds above 0")
    return limit


@dataclass(slots=True)
class Progress:
    """Told by an exploration how far it is; says whether it may go on.

    Attributes
    ----------
    console
        Where the line is shown, if it is a terminal.
    limit
        Seconds; None: for ever.
    now
        The clock, in seconds.
    what
        What is being checked.
    """

    console: Console
    limit: float | None = None
    now: Callable[[], float] = monotonic
    what: str = ""
    status: Status | None = None
    begin: float = field(init=False)

    def __post_init__(self) -> None:
        self.begin = self.now()

    def __call__(self, states: int) -> bool:
        """Note that so many states have been explored of what is being checked."""
        passed = self.now() - self.begin
        if self.status is not None:
            of = "" if self.limit is None else f" of {self.limit:g}"
            line = f"checking {self.what}: {show.plural(states, 'state')}, {passed:.0f}{of} s"
            self.status.update(line)
        return self.limit is None or passed < self.limit

    @contextmanager
    def about(self, what: str) -> Generator[None]:
        """Show the line while `what` is checked; nothing may be printed meanwhile."""
        self.what = what
        if not self.console.is_terminal:
            yield
            return
        with self.console.status(f"checking {what}") as self.status:
            yield
        self.status = None
