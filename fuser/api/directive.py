"""What every scheduling directive does: it changes the schedule whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from fuser.api.call import Call, Directed, Subject
from fuser.api.owner import Owner
from fuser.core.errors import ScheduleError
from fuser.core.location import SourceLocation, caller_location
from fuser.schedule.hand import HandSchedule

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Subject)


class directive:
    """Gives a directive the schedule it changes; errors name the tensor and the user's line.

    A refused directive leaves no trace.
    """

    def __init__(self, fd: Owner, name: str, what: str, *tensors: Subject) -> None:
        self.fd, self.name, self.what, self.tensors = fd, name, what, tensors
        self.location = caller_location()

    def __enter__(self) -> HandSchedule:
        for tensor in self.tensors:
            require_tensor(tensor, self.what, self.location)
            if tensor.fd is not self.fd:
                raise ScheduleError(
                    f"{self.what}: {tensor.name} belongs to another FusionDefinition; needed one "
                    "of this",
                    self.location,
                )
        hand = self.fd.hand
        self.before = {name: replace(ts) for name, ts in hand.tensors.items()}
        self.graph = hand.graph
        if hand.frozen:
            raise ScheduleError(
                f"{self.what}: the schedule has been executed; directives come before the first "
                "manual_execute",
                self.location,
            )
        if self.name and self.location is not None:
            hand.directed[self.name] = self.location
        return hand

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            return
        self.fd.hand.tensors, self.fd.hand.graph = self.before, self.graph
        if not isinstance(error, ScheduleError) or error.location is not None:
            return
        text = str(error)
        if self.name and not text.startswith(f"{self.name}: "):
            text = f"{self.name}: {text}"
        raise ScheduleError(text, self.location) from None


def on_tensor(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], R]:
    """Make a method a directive on its tensor, with its place in `repr(fd)`."""

    @wraps(method)
    def call(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        others = [a for a in (*args, *kwargs.values()) if isinstance(a, type(self))]
        with directive(self.fd, self.name, method.__name__, *others):
            result = method(self, *args, **kwargs)
        record(self.fd, Call(method.__name__, args, dict(kwargs), result), self)
        return result

    return cast("Callable[Concatenate[S, P], R]", call)


def record(fd: Owner, call: Call, tensor: Subject | None = None, axis: int | None = None) -> None:
    """Remember a directive for `repr(fd)`."""
    fd.directives.append(Directed(call, tensor, axis))


def require_tensor(given: object, what: str, location: SourceLocation | None = None) -> None:
    """Raise `ScheduleError` for anything that is no tensor."""
    if not isinstance(given, Subject):
        raise ScheduleError(f"{what}: got {given!r}; a tensor is needed", location)


def check_kind(directive: str, given: object, kind: type) -> None:
    """Raise `ScheduleError` for an argument of another kind."""
    if not isinstance(given, kind):
        raise ScheduleError(f"{directive}: got {given!r}; a {kind.__name__} is needed")
