"""What an act does to barriers, stages and copies in flight."""

from __future__ import annotations

from collections.abc import Iterator

from fuser.protocol import groups
from fuser.protocol.errors import Undecided, Violation
from fuser.protocol.machine import Machine
from fuser.protocol.model import WARP
from fuser.protocol.reads import judge
from fuser.protocol.state import (
    Agent,
    Barrier,
    Content,
    Event,
    Flight,
    Pending,
    State,
    Step,
    barrier_name,
    fill,
)

BLOCKING = ("wait", "wait_token", "sync", "end")
TOUCHING = ("wait", "wait_token", "inval", "init")


def successors(m: Machine, state: State) -> Iterator[tuple[Event, State]]:
    """Yield every step that may come next, with its states.

    A copy lands, and an arrival counts, where its barrier matters next: earlier, nobody could tell.

    Raises
    ------
    Violation
        A step that is possible and wrong.
    """
    touched = {agent.step.cell for agent in state.agents if agent.step.kind in TOUCHING}
    for flight in dict.fromkeys(state.flights):
        if flight.cell in touched:
            yield Event((), None, flight), _in_order(m, state, flight)
    for a in range(len(state.agents)):
        yield from moves(m, state, a)


def moves(m: Machine, state: State, a: int) -> Iterator[tuple[Event, State]]:
    """Yield what agent `a` may do next; it is the first one of those who meet, or moves alone."""
    agent = state.agents[a]
    if agent.step.kind == "sync":
        yield from _meet(m, state, a)
    elif agent.step.kind != "end" and is_ready(state, agent):
        yield from _act(m, state, a)


def finished(state: State) -> bool:
    """Whether all agents are at their ends."""
    return all(agent.step.kind == "end" for agent in state.agents)


def check_end(m: Machine, state: State) -> None:
    """Raise `Violation` where a kernel must not end."""
    groups.check_end(state)
    for flight in state.flights:
        if flight.writes:
            raise Violation("exit", "the block ends with a copy in flight")
        state = landed(m, state, flight)
    for cell, barrier in enumerate(state.barriers):
        if barrier is not None and (barrier.pending != barrier.arrivals or barrier.tx):
            raise Violation("exit", f"the block ends in the middle of a phase of {name(m, cell)}")
    for a, agent in enumerate(state.agents):
        for read in agent.pending:
            judge(m.model, state, a, read)


def name(m: Machine, cell: int) -> str:
    """Return the name of a barrier."""
    return barrier_name(m.model, cell)


def is_ready(state: State, agent: Agent) -> bool:
    """Whether what an agent waits for has happened, or it does not wait."""
    step = agent.step
    if step.fault or step.kind not in ("wait", "wait_token"):
        return True
    barrier = state.barriers[step.cell]
    if barrier is None:
        return True
    if step.kind == "wait":
        return barrier.phase != step.number
    held = [agent.tokens[t] for t in step.token if agent.tokens[t] >= 0]
    return not held or all(barrier.phase != token for token in held)


def _act(m: Machine, state: State, a: int) -> Iterator[tuple[Event, State]]:
    agent = state.agents[a]
    step = agent.step
    pending = _read_on(m, state, a)
    if step.fault:
        raise Violation("bounds", f"{m.model.agents[a].name}: {step.fault}")
    changed = _effect(m, state, a, step)
    event = Event((a,), step, None)
    if step.kind == "pass":
        pending, pc = agent.pending, agent.pc
    else:
        pc = agent.pc + 1
    for after in m.advance(changed, a, pc, pending):
        yield event, after


def _read_on(m: Machine, state: State, a: int) -> tuple[Pending, ...]:
    """Judge the reads that may have lasted until now; return those that may last longer."""
    agent = state.agents[a]
    for read in agent.pending:
        judge(m.model, state, a, read)
    return tuple(p for p in agent.pending if agent.step.partial and not p.converged)


def _meet(m: Machine, state: State, a: int) -> Iterator[tuple[Event, State]]:
    """Let agents pass that have all come to the same barrier of threads."""
    step = state.agents[a].step
    met = [
        b for b, other in enumerate(state.agents)
        if other.step.kind == "sync" and other.step.cell == step.cell
    ]  # fmt: skip
    present = sum(m.model.agents[b].threads for b in met)
    if met[0] != a:
        return
    for other in (state.agents[b].step.weight for b in met):
        if other != step.weight:
            raise Violation("sync", f"a barrier of {step.weight} threads meets one of {other}")
    if present < step.weight:
        return
    if present > step.weight:
        raise Violation("sync", f"{present} threads meet at a barrier of {step.weight}")
    for b in met:
        state = _caught_up(m, state, b)
    state = parted(m, state, met)
    states = [state]
    for b in met:
        pending = _read_on(m, state, b)
        states = [t for s in states for t in m.advance(s, b, state.agents[b].pc + 1, pending)]
    event = Event(tuple(met), step, None)
    for after in states:
        yield event, after


def parted(m: Machine, state: State, met: list[int]) -> State:
    """Count trips anew behind a meeting of all agents that parts the kernel."""
    if not m.model.partings:
        return state
    at = [(state.agents[b].pc, m.model.partings[b]) for b in met]
    numbers = {pcs.index(pc) if pc in pcs else None for pc, pcs in at}
    if numbers == {None}:
        return state
    if len(numbers) > 1:
        raise Undecided("threads meet at different barriers between its parts")
    return state._replace(known=m.model.counting.initial())


def _caught_up(m: Machine, state: State, a: int) -> State:
    """Let all arrivals of an agent take effect: it has gone on to a barrier of threads."""
    for flight in state.flights:
        if flight.agent == a and not flight.writes:
            state = landed(m, state, flight)
    return state


def _in_order(m: Machine, state: State, flight: Flight) -> State:
    """Let a flight land, if it is an arrival behind the earlier ones of its agent."""
    if not flight.writes:
        for earlier in state.flights[: state.flights.index(flight)]:
            if earlier.agent == flight.agent and not earlier.writes:
                state = landed(m, state, earlier)
    return landed(m, state, flight)


def _effect(m: Machine, state: State, a: int, step: Step) -> State:
    match step.kind:
        case "init":
            return _init(m, state, a, step)
        case "fence":
            barriers = tuple(b and b._replace(fenced=True) for b in state.barriers)
            return state._replace(barriers=barriers)
        case "inval":
            return _inval(m, state, a, step)
        case "wait":
            _live(m, state, a, step)
            return state
        case "wait_token":
            _live(m, state, a, step)
            return _spend(m, state, a, step)
        case "pass":
            return state
        case "write":
            fills = state.agents[a].fills
            trips = tuple((cell, array, fills[array]) for array, cell in step.writes)
            return groups.hide(m.stored, fill(state, trips, landed=True), a, step)
        case _ if step.kind in groups.ACTS:
            return groups.effect(m.model, state, a, step)
        case _:
            raise AssertionError(step.kind)


def _spend(m: Machine, state: State, a: int, step: Step) -> State:
    """Use up the tokens of a wait: each stands for one arrival."""
    agent = state.agents[a]
    held = [t for t in step.token if agent.tokens[t] >= 0]
    if not held:
        what = name(m, step.cell)
        raise Violation("token", f"{_who(m, a)} waits on {what} without an arrival of its own")
    tokens = tuple(-1 if t in held else token for t, token in enumerate(agent.tokens))
    agents = list(state.agents)
    agents[a] = agent._replace(tokens=tokens)
    return state._replace(agents=tuple(agents))


def _who(m: Machine, a: int) -> str:
    return m.model.agents[a].name


def _live(m: Machine, state: State, a: int, step: Step) -> Barrier:
    barrier = state.barriers[step.cell]
    if barrier is None:
        raise Violation(
            "dead barrier", f"{_who(m, a)} uses {name(m, step.cell)}, which is not initialised"
        )
    return barrier


def _put(state: State, cell: int, barrier: Barrier | None) -> State:
    cells = state.barriers
    barriers = (*cells[:cell], barrier, *cells[cell + 1 :])
    return State(state.agents, barriers, state.contents, state.flights, state.known)


def _init(m: Machine, state: State, a: int, step: Step) -> State:
    if state.barriers[step.cell] is not None or step.weight > 1:
        raise Violation("init", f"{_who(m, a)} initialises {name(m, step.cell)}, which is in use")
    return _put(state, step.cell, Barrier(step.number, step.number, 0, 0, False))


def _inval(m: Machine, state: State, a: int, step: Step) -> State:
    barrier = _live(m, state, a, step)
    waiting = [
        _who(m, b) for b, other in enumerate(state.agents)
        if other.step.kind in ("wait", "wait_token") and other.step.cell == step.cell
    ]  # fmt: skip
    if waiting:
        raise Violation(
            "inval", f"{_who(m, a)} invalidates {name(m, step.cell)}, and {waiting[0]} waits on it"
        )
    if any(flight.cell == step.cell for flight in state.flights):
        raise Violation("inval", f"{name(m, step.cell)} is invalidated with a copy in flight")
    if barrier.pending != barrier.arrivals or barrier.tx:
        raise Violation("inval", f"{name(m, step.cell)} is invalidated in the middle of a phase")
    return _put(state, step.cell, None)


def _taken(m: Machine, state: State, cell: int, arrivals: int, nbytes: int, each: int = 0) -> State:
    """Take arrivals off what is pending and add bytes; end the phase when nothing is.

    Parameters
    ----------
    each
        Arrivals of one warp, where several arrive one after the other: what the phase does not
        take is the next one's; 0: all arrive at once.
    """
    barrier = state.barriers[cell]
    assert barrier is not None
    if each and arrivals > barrier.pending >= each and barrier.pending % each == 0:
        rest = arrivals - barrier.pending
        state = _taken(m, state, cell, barrier.pending, nbytes)
        return _taken(m, state, cell, rest, 0, each)
    pending, tx = barrier.pending - arrivals, barrier.tx + nbytes
    if pending < 0:
        raise Violation(
            "arrivals",
            f"{name(m, cell)}: {arrivals} arrivals at once, {barrier.pending} are pending",
        )
    if pending or tx > 0:
        left = Barrier(barrier.arrivals, pending, tx, barrier.phase, barrier.fenced)
        return _put(state, cell, left)
    if tx < 0:
        raise Violation("tx", f"{name(m, cell)}: {-tx} bytes more have landed than were announced")
    if any(flight.cell == cell and flight.writes for flight in state.flights):
        raise Violation("tx", f"{name(m, cell)}: the phase ends with a copy in flight")
    arrivals = barrier.arrivals
    ended = Barrier(arrivals, arrivals, 0, 1 - barrier.phase, barrier.fenced)
    return _put(state, cell, ended)


def landed(m: Machine, state: State, flight: Flight) -> State:
    """Return the state after a copy has landed, or an arrival has counted."""
    flights = list(state.flights)
    flights.remove(flight)
    contents = list(state.contents)
    for cell, array, trip in flight.writes:
        contents[cell] = Content(array, trip, True)
    for read in flight.reads:
        if read in state.agents[flight.agent].pending:
            judge(m.model, state, flight.agent, read)
    if flight.reads:
        agents = list(state.agents)
        agent = agents[flight.agent]
        longer = tuple(p for p in agent.pending if p not in flight.reads)
        agents[flight.agent] = agent._replace(pending=longer)
        state = state._replace(agents=tuple(agents))
    left = tuple(flights)
    state = State(state.agents, state.barriers, tuple(contents), left, state.known)
    if flight.cell < 0:
        return state
    if state.barriers[flight.cell] is None:
        raise Violation("dead barrier", f"a copy lands on {name(m, flight.cell)}, no barrier")
    warps = max(1, m.model.agents[flight.agent].threads // WARP)
    each = 0 if flight.arrivals % warps else flight.arrivals // warps
    return _taken(m, state, flight.cell, flight.arrivals, -flight.nbytes, each)
