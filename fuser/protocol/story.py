"""A counterexample as a story: who does what, what barriers wait for, who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator

from fuser.protocol.explore import Fault
from fuser.protocol.machine import Machine
from fuser.protocol.model import Model
from fuser.protocol.program import Act
from fuser.protocol.rules import successors
from fuser.protocol.state import PRODUCTS, Agent, Event, Flight, State, barrier_name


def tell(model: Model, fault: Fault) -> list[str]:
    """Return the story of a fault, one line a step."""
    lines = list[str]()
    states = list(replay(model, fault))
    told = [moment for moment in states if is_told(moment[0])]
    if len(told) < len(states):
        lines.append("  0. the barriers are initialised")
    for number, (event, before, after) in enumerate(told, 1):
        what = _event(model, event, before)
        lines.append(f"{number:3}. {what}{_consequence(model, before, after)}")
    lines.append(f"     {fault.kind}: {fault.text}")
    last = states[-1][2] if states else None
    if last is not None:
        lines += _standstill(model, last)
    return lines


def is_told(event: Event) -> bool:
    """Whether an event has a number of its own; what makes the barriers has none."""
    return event.step is None or event.step.kind not in ("init", "fence")


def replay(model: Model, fault: Fault) -> Iterator[tuple[Event, State, State]]:
    """Yield the events again with true trip numbers, and the states before and after each."""
    if not fault.events:
        return
    machine = Machine(model)
    open_ = machine.initial()
    for event in fault.events:
        step = next(
            (
                (happened, before, after)
                for before in open_
                for happened, after in _possible(machine, before)
                if happened[:2] == event[:2] and _alike(happened.flight, event.flight)
            ),
            None,
        )
        if step is None:
            return
        yield step
        open_ = [step[2]]


def _possible(machine: Machine, state: State) -> Iterator[tuple[Event, State]]:
    from fuser.protocol.errors import Violation

    try:
        yield from successors(machine, state)
    except Violation:
        return


def _alike(a: Flight | None, b: Flight | None) -> bool:
    """Whether two flights are the same but for how trips are counted."""
    if a is None or b is None:
        return a is b
    cells = [w[0] for w in a.writes], [w[0] for w in b.writes]
    return a[:3] == b[:3] and a.agent == b.agent and cells[0] == cells[1]


def _event(model: Model, event: Event, before: State) -> str:
    if event.flight is not None:
        flight = event.flight
        who = model.agents[flight.agent].name
        where = f" on {barrier_name(model, flight.cell)}" if flight.cell >= 0 else ""
        if flight.writes:
            return f"the copy of {who} into {_stage(model, flight)} lands{where}"
        return f"the arrival of {who}{where} counts"
    names = " and ".join(model.agents[a].name for a in event.agents)
    step = event.step
    assert step is not None
    agent = before.agents[event.agents[0]]
    trip = f" in trip {agent.v[-1]}" if agent.v else ""
    act = model.agents[event.agents[0]].code[agent.pc]
    why = f" ({act.why})" if isinstance(act, Act) and act.why else ""
    where = f" {barrier_name(model, step.cell)}" if 0 <= step.cell and step.kind != "sync" else ""
    words = {
        "wait": "passes the wait on", "wait_token": "passes the wait on", "sync": "meet",
        "init": "initialises", "inval": "invalidates", "fence": "fences", "write": "writes",
        "pass": "goes to the next outer trip", "store": "issues a store of a stage",
        "commit": "commits its stores", "wait_read": "waits until its stores have read",
        "show": "shows what it has written to the copy engine",
    }  # fmt: skip
    return f"{names}{trip}: {words.get(step.kind, step.kind)}{where}{why}"


def _stage(model: Model, flight: Flight) -> str:
    cell, number, trip = flight.writes[0]
    array = model.arrays[number]
    stage = (cell - model.stages[array].start) // len(model.parts[array])
    return f"stage {stage} of {array} for trip {trip}"


def _products(model: Model, before: Agent, after: Agent) -> Iterator[str]:
    """Yield which stages an agent has begun to multiply out of."""
    known = {(p.cells, p.trip) for p in before.ongoing() if p.reader == PRODUCTS}
    for p in after.ongoing():
        if p.reader == PRODUCTS and (p.cells, p.trip) not in known:
            array = model.arrays[p.array]
            stage = (p.cells.start - model.stages[array].start) // len(model.parts[array])
            yield f"a product out of stage {stage} of {array}, of trip {p.trip}"


def _consequence(model: Model, before: State, after: State) -> str:
    """Return what an event made agents issue, and which phases it ended."""
    parts = list[str]()
    for program, was, now in zip(model.agents, before.agents, after.agents, strict=True):
        parts += [f"{program.name} issues {what}" for what in _products(model, was, now)]
    for cell, (old, new) in enumerate(zip(before.barriers, after.barriers, strict=True)):
        if old is not None and new is not None and old.phase != new.phase:
            parts.append(f"ends a phase of {barrier_name(model, cell)}")
    fresh = [f for f in after.flights if after.flights.count(f) > before.flights.count(f)]
    for flight in dict.fromkeys(fresh):
        who = model.agents[flight.agent].name
        if flight.writes:
            parts.append(f"{who} issues a copy into {_stage(model, flight)}")
        elif flight.nbytes < 0:
            where = barrier_name(model, flight.cell)
            parts.append(f"{who} arrives on {where} and announces {-flight.nbytes} bytes")
        else:
            parts.append(f"{who} arrives on {barrier_name(model, flight.cell)}")
    return "; " + "; ".join(parts) if parts else ""


def _standstill(model: Model, state: State) -> Iterator[str]:
    """Yield what every agent is at, and what barriers in use wait for."""
    for program, agent in zip(model.agents, state.agents, strict=True):
        yield f"     {program.name} {_place(model, agent)}"
    waited = {a.step.cell for a in state.agents if a.step.kind in ("wait", "wait_token")}
    for cell, barrier in enumerate(state.barriers):
        if barrier is None:
            continue
        if cell in waited or barrier.pending != barrier.arrivals or barrier.tx:
            arrivals = f"{barrier.pending} of {barrier.arrivals} arrivals"
            where = barrier_name(model, cell)
            yield f"     {where}: {arrivals} and {barrier.tx} bytes pending"
    for flight in state.flights:
        if flight.writes:
            yield f"     in flight: {_stage(model, flight)}"


def _place(model: Model, agent: Agent) -> str:
    step = agent.step
    trip = f", trip {agent.v[-1]}" if agent.v else ""
    if step.kind == "end":
        return "has ended"
    if step.kind in ("wait", "wait_token"):
        what = barrier_name(model, step.cell) if step.cell >= 0 else "no barrier"
        parity = f" for parity {step.number}" if step.kind == "wait" else ""
        return f"waits on {what}{parity}{trip}"
    return (
        f"is at a barrier of threads{trip}" if step.kind == "sync" else f"is at {step.kind}{trip}"
    )
