"""States up to a shift of all trips by whole periods: what makes them finitely many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fuser.protocol.counts import UNUSED, Count, Known
from fuser.protocol.errors import Unsupported
from fuser.protocol.model import Model
from fuser.protocol.program import LoopRange, Program, indices
from fuser.protocol.repeats import (
    decided_by,
    grows,
    is_foldable,
    moves_along,
    repeats_since,
    starts_at,
)
from fuser.protocol.state import NO_GROUPS, Agent, Content, Flight, Pending, State
from fuser.protocol.values import Compiled


class Round(NamedTuple):
    """After how many trips everything repeats, and from which trip on."""

    trips: int
    since: int


@dataclass(slots=True)
class Folding:
    """Canonical states of one model.

    Attributes
    ----------
    parts
        By agent, the instructions behind which trips count anew.
    pinned
        By level, agent and instruction: the trips of a loop to come, or of the loop around it,
        count from 0.
    ahead
        By level, agent and instruction: the loops over the last trips that come next. Their trips
        follow from the count, which must not be forgotten before.
    owed
        By level, agent and instruction: whether what comes behind the loops depends on the count.
    rounds
        By level; none where nothing is folded.
    """

    model: Model
    pinned: tuple[tuple[tuple[bool, ...], ...], ...] = field(init=False)
    ahead: tuple[tuple[tuple[tuple[LoopRange, ...], ...], ...], ...] = field(init=False)
    owed: tuple[tuple[tuple[bool, ...], ...], ...] = field(init=False)
    parts: tuple[tuple[int, ...], ...] = field(init=False)
    rounds: tuple[Round, ...] = field(init=False)

    def __post_init__(self) -> None:
        levels, agents = range(len(self.model.folds)), self.model.agents
        self.parts = self.model.partings or ((),) * len(agents)
        self.pinned = tuple(self._pinned(level) for level in levels)
        self.ahead = tuple(
            tuple(self._ahead(level, p, parts) for p, parts in zip(agents, self.parts, strict=True))
            for level in levels
        )
        self.owed = tuple(
            tuple(self._owed(level, a, p) for a, p in enumerate(agents)) for level in levels
        )
        folded = [level for level in levels if self.model.folds[level]]
        self.rounds = tuple(self._round(level) for level in folded)

    def _round(self, level: int) -> Round:
        """Return after how many trips states repeat, and from which on.

        Raises
        ------
        Unsupported
            They do not. A round of an unrolled loop is several trips: how many are left when the
            loop is over then depends on the count, which would be forgotten.
        """
        period, levels = self.model.analysis.period, len(self.model.folds)
        for program in self.model.agents:
            for loop in (loop for loop in program.loops if loop.level == level):
                if grows(loop, level, period) and not is_foldable(loop, level, period):
                    raise Unsupported("its loops make several trips at a time, as unrolled ones do")
        inside = {e.text: e for e in self._deciding(level)}
        behind = {
            e.text: e for a, p in enumerate(self.model.agents)
            for pc in self._behind(level, a, p) for e in indices(p.code[pc])
        }  # fmt: skip
        for trips in range(self.model.folds[level], period + 1, self.model.folds[level]):
            since = [
                repeats_since(e, level, trips, period, levels)
                for e in (*inside.values(), *behind.values())
            ]
            known = [n for n in since if n is not None]
            if period % trips == 0 and len(known) == len(since):
                return Round(trips, max(known, default=0))
        if any(repeats_since(e, level, period, period, levels) is None for e in behind.values()):
            raise Unsupported(
                "what it does behind its loops depends on how many trips they made, as of "
                "unrolled loops whose last round is not whole"
            )
        raise Unsupported("what its loops do depends on the trip beyond stage and parity")

    def _deciding(self, level: int) -> Iterator[Compiled]:
        """Yield what decides what is done in the loops that are folded."""
        period = self.model.analysis.period
        for program in self.model.agents:
            for loop in program.loops:
                if loop.level == level and is_foldable(loop, level, period):
                    for instruction in program.code[loop.enter : loop.exit]:
                        yield from decided_by(instruction, level)

    def _behind(self, level: int, a: int, program: Program) -> Iterator[int]:
        """Yield the instructions behind the loops of a level that depend on its count."""
        spans = [range(loop.enter, loop.exit) for loop in program.loops if loop.level == level]
        for pc, instruction in enumerate(program.code):
            if not self.pinned[level][a][pc] and not any(pc in span for span in spans):
                if any(level in e.counts for e in indices(instruction)):
                    yield pc

    def _owed(self, level: int, a: int, program: Program) -> tuple[bool, ...]:
        behind = tuple(self._behind(level, a, program))
        stops = self._stops(level, program, self.parts[a])
        return tuple(any(pc <= at < stop for at in behind) for pc, stop in enumerate(stops))

    def _stops(self, level: int, program: Program, parts: tuple[int, ...]) -> Iterator[int]:
        """Yield, by instruction, where what counts its trips ends."""
        around = [loop for loop in program.loops if loop.level == level - 1]
        for pc in range(len(program.code)):
            stop = min((o.exit for o in around if o.enter < pc < o.exit), default=len(program.code))
            yield min((stop, *(parting for parting in parts if pc <= parting)))

    def _ahead(
        self, level: int, program: Program, parts: tuple[int, ...]
    ) -> tuple[tuple[LoopRange, ...], ...]:
        period = self.model.analysis.period
        loops = [
            loop for loop in program.loops
            if loop.level == level and moves_along(loop, level, period)
        ]  # fmt: skip
        return tuple(
            tuple(loop for loop in loops if pc < loop.enter < stop)
            for pc, stop in enumerate(self._stops(level, program, parts))
        )

    def to_come(self, level: int, a: int, agent: Agent, count: Count) -> list[int]:
        """Return where an agent is among the trips of a level, or at least will be."""
        if len(agent.v) > level:
            return [agent.v[level]]
        begin = [starts_at(loop, level, count[0]) for loop in self.ahead[level][a][agent.pc]]
        return [*begin, count[0]] if self.owed[level][a][agent.pc] else begin

    def shift(self, level: int, least: int) -> int:
        """Return by how many trips states may be shifted in which nobody is before `least`."""
        trips, since = self.rounds[level]
        return max(least - since, 0) // trips * trips

    def _pinned(self, level: int) -> tuple[tuple[bool, ...], ...]:
        period = self.model.analysis.period
        result = list[tuple[bool, ...]]()
        for program, parts in zip(self.model.agents, self.parts, strict=True):
            flags = [False] * len(program.code)
            for loop in (loop for loop in program.loops if loop.level == level):
                folds = is_foldable(loop, level, period) and loop.step == 1
                first = 0 if not moves_along(loop, level, period) else loop.enter + 1
                first = max(first, 1 + max((pc for pc in parts if pc < loop.enter), default=-1))
                last = loop.enter + 1 if folds else loop.exit
                for pc in range(first, last):
                    flags[pc] = True
            result.append(tuple(flags))
        return tuple(result)

    def canonical(self, state: State) -> State:
        """Return the representative of a state."""
        folds = self.model.folds
        if folds and folds[0]:
            state = self.fold_inner(state) if len(folds) > 1 else state
            state = self.fold_outer(state)
        return self.forget(self.relative(state))

    # ---- what stages hold --------------------------------------------------------------------

    def relative(self, state: State) -> State:
        """Count the trips of every array from the agent that is last."""
        bases = tuple(
            min((n for a in state.agents for n in (a.fills[k], a.reads[k]) if n >= 0), default=0)
            for k in range(len(self.model.arrays))
        )
        if not any(bases):
            return state
        agents = tuple(lower_agent(agent, bases) for agent in state.agents)
        contents = tuple(
            c and Content(c.array, c.trip - bases[c.array], c.landed) for c in state.contents
        )
        flights = tuple(lower_flight(f, bases) if f.writes or f.reads else f for f in state.flights)
        return State(agents, state.barriers, contents, flights, state.known)

    def forget(self, state: State) -> State:
        """Drop what stages hold that everybody has read, and reads that are over already."""
        flights = state.flights
        if any(f.reads for f in flights):
            flights = tuple(self.still_read(state, f) if f.reads else f for f in flights)
        last = self.last_read(state)
        contents = tuple(
            None if c is not None and c.landed and c.trip < last[c.array] else c
            for c in state.contents
        )
        return State(state.agents, state.barriers, contents, flights, state.known)

    def still_read(self, state: State, f: Flight) -> Flight:
        """Return a flight without reads that its agent is done with."""
        pending = state.agents[f.agent].pending
        reads = tuple(p for p in f.reads if p in pending)
        return Flight(f.cell, f.nbytes, f.arrivals, f.writes, f.agent, reads)

    def last_read(self, state: State) -> list[int]:
        """Return the earliest trip of each array that somebody may still read."""
        last = list[int]()
        for k in range(len(self.model.arrays)):
            trips = [a.reads[k] for a in state.agents if a.reads[k] >= 0]
            trips += [p.trip for a in state.agents for p in a.ongoing() if p.array == k]
            last.append(min(trips, default=0))
        return last

    # ---- trips -------------------------------------------------------------------------------

    def fold_outer(self, state: State) -> State:
        """Shift the trips of level 0."""
        outer, base, inner = state.known
        agents = state.agents
        if any(self.pinned[0][a][agent.pc] for a, agent in enumerate(agents)):
            return state
        inside = [n for a, agent in enumerate(agents) for n in self.to_come(0, a, agent, outer)]
        if not inside:
            return state._replace(known=(UNUSED, 0, ()))
        least = min(inside)
        if len(self.model.folds) > 1 and least > base:
            inner, base = inner[least - base :], least
        shift = self.shift(0, least)
        if not shift:
            return state._replace(known=(outer, base, inner))
        moved = tuple(shifted(agent, shift) for agent in agents)
        known = lowered(outer, shift), (base - shift if len(self.model.folds) > 1 else 0), inner
        return state._replace(agents=moved, known=known)

    def fold_inner(self, state: State) -> State:
        """Shift the trips of level 1 in every outer iteration that all agents have reached."""
        _, base, inner = state.known
        if any(self.pinned[0][a][agent.pc] and not agent.v for a, agent in enumerate(state.agents)):
            return state
        for offset in range(len(inner)):
            state = self.fold_iteration(state, base + offset, offset)
        return state

    def fold_iteration(self, state: State, iteration: int, offset: int) -> State:
        """Shift the trips of level 1 in one outer iteration."""
        inner = state.known[2]
        values = list[int]()
        for a, agent in enumerate(state.agents):
            if not agent.v or agent.v[0] > iteration:
                continue
            if agent.v[0] < iteration or self.pinned[1][a][agent.pc]:
                return state
            values += self.to_come(1, a, agent, inner[offset])
        if not values:
            return replaced(state, offset, UNUSED)
        shift = self.shift(1, min(values))
        if not shift:
            return state
        moved = tuple(
            agent._replace(v=(agent.v[0], agent.v[1] - shift, *agent.v[2:]))
            if len(agent.v) > 1 and agent.v[0] == iteration
            else agent
            for agent in state.agents
        )
        return replaced(state._replace(agents=moved), offset, lowered(inner[offset], shift))


def shifted(agent: Agent, shift: int) -> Agent:
    """Return an agent `shift` outer trips earlier."""
    v = tuple(value - shift if level == 0 else value for level, value in enumerate(agent.v))
    return agent._replace(v=v)


def lowered(count: Count, shift: int) -> Count:
    """Return a count that is `shift` smaller."""
    return count[0] - shift, count[1]


def replaced(state: State, offset: int, count: Count) -> State:
    """Return `state` with another inner count."""
    outer, base, inner = state.known
    known: Known = outer, base, (*inner[:offset], count, *inner[offset + 1 :])
    return state._replace(known=known)


def lower_agent(agent: Agent, bases: tuple[int, ...]) -> Agent:
    """Return an agent whose trips of arrays are counted from `bases`."""
    fills = tuple(n - b if n >= 0 else n for n, b in zip(agent.fills, bases, strict=True))
    reads = tuple(n - b if n >= 0 else n for n, b in zip(agent.reads, bases, strict=True))
    pending = lower_reads(agent.pending, bases) if agent.pending else ()
    groups = agent.groups
    if groups != NO_GROUPS:
        groups = tuple(tuple(lower_reads(g, bases) for g in of_kind) for of_kind in groups)
    return agent._replace(fills=fills, reads=reads, pending=pending, groups=groups)


def lower_flight(f: Flight, bases: tuple[int, ...]) -> Flight:
    """Return a flight whose trips are counted from `bases`."""
    writes = tuple((cell, array, trip - bases[array]) for cell, array, trip in f.writes)
    reads = lower_reads(f.reads, bases)
    return Flight(f.cell, f.nbytes, f.arrivals, writes, f.agent, reads)


def lower_reads(reads: tuple[Pending, ...], bases: tuple[int, ...]) -> tuple[Pending, ...]:
    """Return reads whose trips are counted from `bases`."""
    return tuple(p._replace(trip=p.trip - bases[p.array]) for p in reads)
