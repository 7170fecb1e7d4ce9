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


def integers(given: object, directive: str) -> tuple[int, ...]:
    """Return the axes of a sequence."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ScheduleError(f"{directive}: got {given!r}; a list of axes is needed")
    return tuple(integer(axis, f"{directive}: axis") for axis in cast("Iterable[object]", given))


def moves(given: object, directive: str) -> dict[int, int]:
    """Return a mapping of axes to axes."""
    if not isinstance(given, Mapping):
        raise ScheduleError(f"{directive}: got {given!r}; a dict {{old axis: new axis}} is needed")
    pairs = cast("Mapping[object, object]", given).items()
    return {
        integer(old, f"{directive}: axis"): integer(new, f"{directive}: axis") for old, new in pairs
    }
