"""States of a protocol: where agents are, what barriers wait for, what stages hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from fuser.protocol.counts import Known
from fuser.protocol.errors import Violation
from fuser.protocol.model import Model

Write: TypeAlias = tuple[int, int, int]
"""A cell, and the array and trip that it is filled for."""


class Reader(NamedTuple):
    """What goes on to read a stage while its thread does, in the words of faults."""

    noun: str
    verb: str
    engine: str


READERS = (
    Reader("store", "stores", "the copy engine"),
    Reader("matrix product", "multiplies", "a matrix product"),
)
STORES, PRODUCTS = range(2)


class Barrier(NamedTuple):
    """An mbarrier: arrivals a phase takes, arrivals and bytes still pending, parity, visible."""

    arrivals: int
    pending: int
    tx: int
    phase: int
    fenced: bool


class Pending(NamedTuple):
    """A read that may still be going on: cells, the trip, and whether all lanes finish next.

    Attributes
    ----------
    reader
        Of `READERS`; -1: threads read.
    """

    cells: range
    array: int
    trip: int
    converged: bool
    reader: int = -1


Groups: TypeAlias = tuple[tuple[Pending, ...], ...]
"""Reads that go on while their thread does: the open group, the closed ones, the latest first."""
NO_GROUPS: tuple[Groups, ...] = (((),),) * len(READERS)


class Step(NamedTuple):
    """The next act of an agent, with its numbers."""

    kind: str
    cell: int
    number: int
    weight: int
    writes: tuple[tuple[int, int], ...]
    issued: bool
    token: tuple[int, ...]
    partial: bool
    fault: str


class Agent(NamedTuple):
    """Where an agent is: instruction, loop variables, trips filled and read by array, tokens.

    Attributes
    ----------
    groups
        Reads by stores of the copy engine, and by matrix products: one of each of `READERS`.
    hidden
        Cells that the agent has written and not shown to the asynchronous proxy.
    """

    pc: int
    v: tuple[int, ...]
    fills: tuple[int, ...]
    reads: tuple[int, ...]
    tokens: tuple[int, ...]
    pending: tuple[Pending, ...]
    step: Step
    groups: tuple[Groups, ...] = NO_GROUPS
    hidden: tuple[int, ...] = ()

    def ongoing(self) -> Iterator[Pending]:
        """Yield all reads that may still be going on."""
        yield from self.pending
        if self.groups != NO_GROUPS:
            yield from (read for groups in self.groups for group in groups for read in group)


class Flight(NamedTuple):
    """A copy that has not landed, or an arrival that nobody has seen.

    Attributes
    ----------
    cell
        Its barrier; -1: none.
    nbytes, arrivals
        What it takes off the pending bytes (an announcement: less than 0) and arrivals.
    writes
        Cells with arrays and trips; an arrival has none.
    reads
        Reads that are over when it takes effect.
    """

    cell: int
    nbytes: int
    arrivals: int
    writes: tuple[Write, ...]
    agent: int
    reads: tuple[Pending, ...] = ()


class Content(NamedTuple):
    """What a part of a stage holds: the array and trip it was filled for, whether it has landed."""

    array: int
    trip: int
    landed: bool


class State(NamedTuple):
    """A state of the whole protocol."""

    agents: tuple[Agent, ...]
    barriers: tuple[Barrier | None, ...]
    contents: tuple[Content | None, ...]
    flights: tuple[Flight, ...]
    known: Known


class Event(NamedTuple):
    """What happened: an agent's step (or the agents that met), or a flight that landed."""

    agents: tuple[int, ...]
    step: Step | None
    flight: Flight | None


PASS = Step("pass", -1, 0, 0, (), False, (), False, "")
NO_STEP = Step("start", -1, 0, 0, (), False, (), False, "")


def finishing(agent: Agent) -> tuple[Pending, ...]:
    """Return the reads that are over before the next act has its effect."""
    return tuple(p for p in agent.pending if p.converged or not agent.step.partial)


def fill(state: State, trips: tuple[Write, ...], *, landed: bool) -> State:
    """Return `state` with cells filled for trips."""
    contents = list(state.contents)
    for cell, array, trip in trips:
        held = contents[cell]
        if held is not None and not held.landed:
            raise Violation("WAW", "a stage is written while another copy into it is in flight")
        for a in state.agents:
            if a.groups != NO_GROUPS:
                _require_unread(cell, a)
        contents[cell] = Content(array, trip, landed)
    return State(state.agents, state.barriers, tuple(contents), state.flights, state.known)


def _require_unread(cell: int, agent: Agent) -> None:
    """Raise `Violation` where a cell may still be read while its thread goes on."""
    for reader, groups in zip(READERS, agent.groups, strict=True):
        if any(cell in read.cells for group in groups for read in group):
            raise Violation(
                "WAR", f"a stage is written while a {reader.noun} out of it may still read it"
            )


def launch(state: State, flight: Flight) -> State:
    """Put a copy or an arrival in flight; those of an agent stay in order."""
    flights = sorted((*state.flights, flight), key=lambda f: f.agent)
    return State(state.agents, state.barriers, state.contents, tuple(flights), state.known)


def barrier_name(model: Model, cell: int) -> str:
    """Return the name of a barrier."""
    for array, cells in model.barriers.items():
        if cell in cells:
            name, of, block = array.partition(" of ")
            return f"{name}[{cell - cells.start}]{of}{block}"
    raise AssertionError(cell)
