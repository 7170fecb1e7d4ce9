"""Breadth-first exploration of a protocol: all states, or the shortest way to what is wrong."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from fuser.protocol.errors import Violation
from fuser.protocol.fold import Folding
from fuser.protocol.machine import Machine
from fuser.protocol.model import Model
from fuser.protocol.rules import check_end, finished, successors
from fuser.protocol.state import Event, State

MOST_STATES = 400_000
ASK_STATES = 256
"""After so many states, and before the first one, an exploration asks whether it may go on."""
GoOn: TypeAlias = Callable[[int], bool]
"""Told how many states have been explored; whether to go on."""


def for_ever(_: int) -> bool:
    """Never stop an exploration."""
    return True


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong, and the events that lead to the state before it.

    Attributes
    ----------
    kind, text
        As in `Violation`.
    events, state
        The shortest way there, and where it leads.
    """

    kind: str
    text: str
    events: tuple[Event, ...]
    state: State


@dataclass(frozen=True, slots=True)
class Explored:
    """The outcome of an exploration.

    Attributes
    ----------
    complete
        Whether no state is left to explore.
    stopped
        Whether `go_on` said no.
    one_run
        Whether all interleavings are one (`fuser.protocol.one_run`), and the states its.
    """

    states: int
    fault: Fault | None
    complete: bool
    stopped: bool = False
    one_run: bool = False


def explore(model: Model, most: int = MOST_STATES, go_on: GoOn = for_ever) -> Explored:
    """Explore every state of a model; stop at the first fault, at `most` states, or when told."""
    machine, folding = Machine(model), Folding(model)
    parents: dict[State, tuple[State | None, Event | None]] = {}
    queue = deque[State]()
    try:
        first = begin(machine)
    except Violation as wrong:
        return Explored(0, Fault(wrong.kind, wrong.text, (), nowhere(model)), True)
    for state in first:
        known = folding.canonical(state)
        if known not in parents:
            parents[known] = None, None
            queue.append(known)
    done = 0
    while queue:
        given_up = _given_up(len(parents), done, most, go_on)
        if given_up is not None:
            return given_up
        done += 1
        state = queue.popleft()
        moved = False
        try:
            for event, after in successors(machine, state):
                moved = True
                known = folding.canonical(after)
                if known not in parents:
                    parents[known] = state, event
                    queue.append(known)
            if not moved:
                judge_stuck(machine, state)
        except Violation as wrong:
            return Explored(len(parents), _fault(wrong, state, parents), True)
    return Explored(len(parents), None, True)


def begin(machine: Machine) -> list[State]:
    """Return the first states; raise `Violation` where a fill is wrong in every one of them."""
    model = machine.model
    if model.analysis.lost and model.makes_trips:
        raise Violation("WAW", model.analysis.lost)
    return machine.initial()


def _given_up(states: int, done: int, most: int, go_on: GoOn) -> Explored | None:
    """Return the outcome where no more states than `done` shall be explored."""
    if states > most:
        return Explored(states, None, False)
    if is_time_up(done, states, go_on):
        return Explored(states, None, False, True)
    return None


def is_time_up(done: int, states: int, go_on: GoOn) -> bool:
    """Ask now and then whether to go on."""
    return done % ASK_STATES == 0 and not go_on(states)


def judge_stuck(machine: Machine, state: State) -> None:
    """Judge a state without successors: the end, or a deadlock."""
    if finished(state):
        check_end(machine, state)
        return
    raise Violation("deadlock", "nobody can go on")


def _fault(
    wrong: Violation, state: State, parents: dict[State, tuple[State | None, Event | None]]
) -> Fault:
    events = list[Event]()
    at: State | None = state
    while at is not None:
        at, event = parents[at]
        if event is not None:
            events.append(event)
    return Fault(wrong.kind, wrong.text, tuple(reversed(events)), state)


def nowhere(model: Model) -> State:
    """Return a state before all others, for what is wrong before anything happens."""
    return State((), (), (), (), model.counting.initial())
