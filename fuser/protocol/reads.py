"""What a read of a stage must find there."""

from __future__ import annotations

from fuser.protocol.errors import Violation
from fuser.protocol.model import Model
from fuser.protocol.state import READERS, Pending, State


def judge(model: Model, state: State, a: int, read: Pending) -> None:
    """Raise `Violation` unless a stage holds the trip that agent `a` reads."""
    array = model.arrays[read.array]
    who = model.agents[a].name
    does = "reads" if read.reader < 0 else READERS[read.reader].verb
    if not read.cells:
        raise Violation("bounds", f"{who} {does} a stage outside {array}")
    for cell in read.cells:
        content = state.contents[cell]
        if content is not None and content.array != read.array:
            other = model.arrays[content.array]
            raise Violation("RAW", f"{who} {does} {array}, and the stage holds {other}")
        if content is None or content.trip < read.trip:
            raise Violation("RAW", f"{who} {does} {array} before its copy is issued")
        if content.trip > read.trip:
            later = content.trip - read.trip
            raise Violation(
                "WAR", f"{who} {does} {array}, which is refilled for {later} trips later"
            )
        if not content.landed:
            raise Violation("RAW", f"{who} {does} {array} before its copy has landed")
