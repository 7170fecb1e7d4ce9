"""Random walks through a protocol, for one that has too many states to explore them all."""

from __future__ import annotations

import random

from fuser.protocol.errors import Violation
from fuser.protocol.explore import (
    ASK_STATES,
    Explored,
    Fault,
    GoOn,
    begin,
    for_ever,
    judge_stuck,
    nowhere,
)
from fuser.protocol.machine import Machine
from fuser.protocol.model import Model
from fuser.protocol.rules import successors
from fuser.protocol.state import Event

SEED = 0


def sample(model: Model, walks: int, go_on: GoOn = for_ever) -> Explored:
    """Walk through a model at random, `walks` times; stop at the first fault, or when told.

    Every step that may come next is judged, not only the one that is taken. The walks are always
    the same ones (`SEED`).
    """
    machine, rng, states = Machine(model), random.Random(SEED), 0
    state, events = nowhere(model), list[Event]()
    try:
        first = begin(machine)
        for _ in range(walks):
            state, events = rng.choice(first), list[Event]()
            while steps := list(successors(machine, state)):
                if states % ASK_STATES == 0 and not go_on(states):
                    return Explored(states, None, False, True)
                event, state = rng.choice(steps)
                events.append(event)
                states += 1
            judge_stuck(machine, state)
    except Violation as wrong:
        return Explored(states, Fault(wrong.kind, wrong.text, tuple(events), state), False)
    return Explored(states, None, False)
