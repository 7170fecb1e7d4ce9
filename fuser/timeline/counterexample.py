"""What the checker found wrong, as a timeline: a column per step of the story."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fuser.core.errors import InputError
from fuser.kir.core import Ring
from fuser.protocol.model import Model
from fuser.protocol.rules import is_ready
from fuser.protocol.state import Agent, Barrier, Event, State, barrier_name
from fuser.protocol.story import is_told, replay, tell
from fuser.protocol.verdict import Verdict
from fuser.timeline.timeline import RingRows, Row, Span, Timeline, joined

WAITS = ("wait", "wait_token")


def counterexample(verdict: Verdict) -> Timeline:
    """Return the story of a verdict that is wrong; the numbers of steps are those of `tell`.

    Raises
    ------
    InputError
        Nothing is wrong.
    """
    model, fault = verdict.model, verdict.fault
    if model is None or fault is None:
        raise InputError(f"kernel {verdict.kernel}: nothing is wrong; needed a failing verdict")
    moments = list(replay(model, fault))
    last = moments[-1][2] if moments else None
    columns = [moment for moment in moments if is_told(moment[0])]
    made = [moment[2] for moment in moments if not is_told(moment[0])]
    states = [*made[-1:], *(after for _, _, after in columns)]
    first = len(columns) + 1 - len(states)
    story = _Story(model, tuple(columns), tuple(states), first)
    trips = verdict.trips[-1] if verdict.trips else 0
    with_n = f" with N = {' x '.join(map(str, verdict.trips))}" if verdict.trips else ""
    told = tell(model, fault)
    end = next(n for n, line in enumerate(told) if line.strip().startswith(f"{fault.kind}:"))
    return Timeline(
        f"{verdict.kernel}: {fault.kind}{with_n}",
        tuple(story.rings(trips)) if last is not None else (),
        tuple(story.warps()) if last is not None else (),
        (),
        float(len(columns) + 2),
        tuple(told[:end]),
        tuple(line.strip() for line in told[end:]),
        "step",
    )


@dataclass(frozen=True, slots=True)
class _Story:
    """Columns of events, and the states behind them: those of `first` and later columns."""

    model: Model
    columns: tuple[tuple[Event, State, State], ...]
    states: tuple[State, ...]
    first: int

    # ---- stages ------------------------------------------------------------------------------

    def rings(self, trips: int) -> Iterator[RingRows]:
        """Yield the stages of every array."""
        known = {name: ring for ring in self.model.analysis.kernel.rings for name in ring.arrays}
        for number, (array, cells) in enumerate(self.model.stages.items()):
            count = len(cells) // len(self.model.parts[array])
            ring = known.get(array, Ring(array, (array,), count, 0, "", ""))
            rows = tuple(
                Row(f"stage {stage}", tuple(self.stage(number, array, stage)))
                for stage in range(count)
            )
            yield RingRows(replace(ring, name=array, arrays=(array,)), rows, trips)

    def stage(self, number: int, array: str, stage: int) -> list[Span]:
        """Return what a stage holds, column by column; the last one is where it goes wrong."""
        spans: list[Span] = []
        seen = dict[int, None]()
        if self.first:
            joined(spans, Span(0, self.first, "free"))
        for at, state in enumerate((*self.states, self.states[-1]), self.first):
            what, trip = self.held(state, number, array, stage, seen)
            start = float(at)
            if spans and spans[-1].what == what and spans[-1].trip == trip:
                spans[-1] = replace(spans[-1], stop=start + 1)
            else:
                spans.append(Span(start, start + 1, what, trip))
        return spans

    def held(
        self, state: State, number: int, array: str, stage: int, seen: dict[int, None]
    ) -> tuple[str, int | None]:
        """Return the state of a stage and the trip in it, which joins those `seen` there."""
        parts = len(self.model.parts[array])
        cells = self.model.stages[array][stage * parts : (stage + 1) * parts]
        contents = [c for c in (state.contents[cell] for cell in cells) if c is not None]
        if not contents:
            return "free", None
        trip = max(c.trip for c in contents)
        seen[trip] = None
        counts = [agent.reads[number] for agent in state.agents if agent.reads[number] >= 0]
        pending = [p for a in state.agents for p in a.ongoing()]
        reading = any(p.array == number and p.trip == trip for p in pending)
        full, empty = (self.barrier(state, array, stage, what) for what in ("full", "empty"))
        if not all(c.landed for c in contents):
            return "filling", trip
        if not reading and counts and all(count > trip for count in counts):
            kept = empty is not None and empty.phase != len(seen) % 2  # a phase for every trip
            return ("reading", trip) if kept else ("free", None)
        if reading or any(count > trip for count in counts):
            return "reading", trip
        begun = full is not None and full.pending != full.arrivals
        return ("filling" if begun else "full"), trip  # threads fill, and not all have arrived

    def barrier(self, state: State, array: str, stage: int, what: str) -> Barrier | None:
        """Return the full or empty barrier of a stage."""
        for ring in self.model.analysis.kernel.rings:
            cells = self.model.barriers.get(getattr(ring, what))
            if array in ring.arrays and cells is not None:
                return state.barriers[cells[stage]]
        return None

    # ---- warps -------------------------------------------------------------------------------

    def warps(self) -> Iterator[Row]:
        """Yield what every agent does and waits for, and what lands."""
        for a, program in enumerate(self.model.agents):
            done: list[Span] = []
            for span in self.warp(a):
                joined(done, span)
            yield Row(program.name, tuple(done))
        spans = [
            Span(at, at + 1, "event", None, self.landing(event, after))
            for at, (event, _, after) in enumerate(self.columns, 1)
            if event.flight is not None
        ]
        if spans:
            yield Row("takes effect", tuple(spans))

    def warp(self, a: int) -> Iterator[Span]:
        """Yield the steps of an agent, and its waits in between."""
        acts = {at: m for at, m in enumerate(self.columns, 1) if a in m[0].agents}
        for at, state in enumerate((*self.states, self.states[-1]), self.first):
            if at in acts and at <= len(self.columns):
                yield self.act(at, a, *acts[at])
                continue
            agent = state.agents[a]
            blocking = agent.step.kind in WAITS or agent.step.kind == "sync"
            if blocking and not (agent.step.kind in WAITS and is_ready(state, agent)):
                text = self.short(agent.step.cell) if agent.step.kind in WAITS else "barrier"
                yield Span(at, at + 1, self.waiting(agent), None, text)

    def act(self, at: int, a: int, event: Event, before: State, after: State) -> Span:
        """Return the step of one agent; copies that it issues on the way say more than the step."""
        issued = [
            f.writes[0][1]
            for f in after.flights
            if f.agent == a and f.writes and f not in before.flights
        ]
        if event.step is not None and event.step.kind == "write":  # by the threads themselves
            contents = (after.contents[cell] for _, cell in event.step.writes)
            issued += [content.trip for content in contents if content is not None]
        if issued:
            trips = f"{min(issued)}" if len(set(issued)) == 1 else f"{min(issued)}-{max(issued)}"
            return Span(at, at + 1, "issue", None, f"copy {trips}")
        step = event.step
        assert step is not None
        passed = f"sees {self.short(step.cell)}" if step.kind in WAITS else ""
        named = {"sync": "barrier", "pass": "next", "wait_read": "stores read", "show": "fence"}
        words = named.get(step.kind, step.kind)
        return Span(at, at + 1, "event", None, passed or words)

    def waiting(self, agent: Agent) -> str:
        """Return the activity of an agent that waits."""
        rings = self.model.analysis.kernel.rings
        if agent.step.kind == "sync" or agent.step.cell < 0:
            return "meet"
        name = barrier_name(self.model, agent.step.cell).partition("[")[0]
        kinds = {ring.full: "wait full" for ring in rings}
        kinds |= {ring.empty: "wait empty" for ring in rings}
        return kinds.get(name, "meet")  # a turn of consumer groups

    def short(self, cell: int) -> str:
        """Name a barrier by what it is to its ring."""
        if cell < 0:
            return "no barrier"
        name = barrier_name(self.model, cell)
        array, _, index = name.partition("[")
        rings = self.model.analysis.kernel.rings
        if len(rings) == 1:
            array = {rings[0].full: "full", rings[0].empty: "empty"}.get(array, array)
        return f"{array}[{index}"

    def landing(self, event: Event, after: State) -> str:
        """Say what takes effect."""
        flight = event.flight
        assert flight is not None
        if flight.writes:
            return f"copy {flight.writes[0][1]} lands"
        return f"arrival {self.short(flight.cell)}" if flight.cell >= 0 else "arrival"
