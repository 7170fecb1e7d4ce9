"""What can be wrong with a pipeline, and why a question about it may have no answer."""

from __future__ import annotations

from fuser.core.errors import FuserError


class Unsupported(FuserError):
    """A kernel does something that the abstract protocol has no rule for."""


class Undecided(Exception):
    """A value depends on an unknown trip count in a way that no case distinction ends."""


class Violation(Exception):
    """The protocol is wrong here.

    Parameters
    ----------
    kind
        One of a few words: ``deadlock``, ``RAW``, ``WAR``, ...
    text
        Who did what, and what was needed.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text
