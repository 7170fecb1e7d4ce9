"""What a directive was given: of the kind it needs, or a `ScheduleError` that shows the value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import cast

from fuser.core.errors import ScheduleError


def integer(given: object, what: str) -> int:
    """Return an int; `what` begins the error text. True is none, though Python calls it one."""
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise ScheduleError(f"{what} {given!r}; an int is needed")
    return int(given)


def flag(given: object, what: str) -> bool:
    """Return a bool; `what` begins the error text."""
    if not isinstance(given, bool):
        raise ScheduleError(f"{what} {given!r}; True or False is needed")
    return given


def items(given: object, directive: str, of: str) -> tuple[object, ...]:
    """Return the items of a sequence; `of` says what they are."""
    if not isinstance(given, str | bytes | Mapping) and isinstance(given, Iterable):
        try:
            return tuple(cast("Iterable[object]", given))
        except TypeError:  # some can only be iterated by their class: arrays of rank 0, tensors
            pass
    raise ScheduleError(f"{directive}: got {given!r}; a list of {of} is needed")


def integers(given: object, directive: str) -> tuple[int, ...]:
    """Return the axes of a sequence."""
    return tuple(integer(axis, f"{directive}: axis") for axis in items(given, directive, "axes"))


def moves(given: object, directive: str) -> dict[int, int]:
    """Return a mapping of axes to axes."""
    if not isinstance(given, Mapping):
        raise ScheduleError(f"{directive}: got {given!r}; a dict {{old axis: new axis}} is needed")
    pairs = cast("Mapping[object, object]", given).items()
    return {
        integer(old, f"{directive}: axis"): integer(new, f"{directive}: axis") for old, new in pairs
    }
