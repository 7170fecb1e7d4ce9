"""A proof that all interleavings are one: a single run of a protocol, with what each step knows.

One run is followed, for every number of trips: agents go on in order, and what they have issued
lands at once. With every step it is noted which steps come before it in every run
(`fuser.protocol.happens_before`). Where no step can change places with one that it conflicts with,
no other run has another outcome, so all of them are as right as this one; it takes as many states
as the loops have steps, where all interleavings are exponentially many. Anything else proves
nothing, and is left to `fuser.protocol.explore`.

Why that holds. Take any run R of one number of trips, and let its first steps be steps of the run E
that was followed, together with all that E knows to come before each of them; so every barrier and
every stage is as it was in E after the steps on it. The next step of R is the next one of its agent
in E, or a landing of E. It finds what it found in E:

* a wait that ended by the m-th end of a phase knew of the end m - 1 before, and at m - 1 its parity
  does not let it pass; and its own end is known at the end m + 1, which cannot have come yet;
* an arrival or a copy knew of the end of the phase before, so it counts in the same phase; within
  a phase arrivals and bytes only add up, and the phase cannot end while some are missing;
* agents that meet know of the last meeting at that barrier, so the same ones meet;
* what a stage holds, who may still read it, and what the copy engine has been shown, is of steps
  that it knows, and later ones of E know this one.

So it does the same, nothing is wrong with it, and it knows the same steps before it. And the first
step of E that R has not made can be made: nobody is stuck. That is the condition for one
interleaving to stand for all in dynamic partial-order reduction (Flanagan and Godefroid, POPL
2005), and for named barriers the one of Weft (Sharma, Bauer and Aiken, PLDI 2015).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from fuser.protocol.counts import Known
from fuser.protocol.errors import Undecided, Violation
from fuser.protocol.explore import Explored, GoOn, begin, for_ever, is_time_up
from fuser.protocol.fold import Folding
from fuser.protocol.happens_before import NOBODY, Bits, Clocks, Order, Unordered
from fuser.protocol.machine import ISSUED, Machine, Stretch
from fuser.protocol.model import Model
from fuser.protocol.rules import check_end, finished, landed, moves, parted
from fuser.protocol.state import PRODUCTS, STORES, Agent, Event, Flight, Groups, State, Step

MOST_STEPS = 20_000
"""Of one model: a run that does not repeat by then is none that repeats."""
ON_BARRIERS = {
    "wait": Clocks.wait,
    "wait_token": Clocks.wait,
    "init": Clocks.init,
    "inval": Clocks.inval,
}
Trail: TypeAlias = tuple[tuple[int, tuple[Stretch, ...]], ...]
"""What agents went through up to their next acts."""


def follow(model: Model, go_on: GoOn = for_ever) -> Explored | None:
    """Follow one run of a model for every number of trips.

    Returns
    -------
    None where that does not prove that every run is right, be it wrong or not.
    """
    run = Run(Machine(model), Folding(model))
    try:
        queue = deque(run.first())
        known = set(queue)
        done = 0
        while queue:
            if is_time_up(done, len(known), go_on):
                return Explored(len(known), None, False, True)
            if len(known) > MOST_STEPS:
                return None
            done += 1
            for after in run.next(*queue.popleft()):
                if after not in known:
                    known.add(after)
                    queue.append(after)
    except (Violation, Unordered, Undecided):
        return None
    return Explored(len(known), None, True, one_run=True)


@dataclass(slots=True)
class Run:
    """The run that is followed: states, each with what is unknown to whom."""

    machine: Machine
    folding: Folding
    bits: Bits = field(default_factory=Bits)

    def first(self) -> Iterator[tuple[State, Order]]:
        """Yield the states before anybody's first act."""
        m = self.machine
        states = begin(m)
        agents, barriers = range(len(m.model.agents)), len(states[0].barriers)
        order = Order((0,) * len(agents), (NOBODY,) * barriers, (NOBODY,) * barriers)
        starts = [(a, 0, tuple[int, ...]()) for a in agents]
        trails = _trails(m, starts, m.model.counting.initial())
        for state, trail in zip(states, trails, strict=True):
            yield self.landing(Clocks(self.bits, order), trail, state)

    def next(self, state: State, order: Order) -> Iterator[tuple[State, Order]]:
        """Yield the states after the next step: several where trip counts are decided."""
        for a in range(len(state.agents)):
            steps = list(moves(self.machine, state, a))
            if steps:
                break
        else:
            if not finished(state):
                raise Unordered
            self.end(state, order)
            return
        trails = self.trails(state, steps[0][0])
        for (event, after), trail in zip(steps, trails, strict=True):
            clocks = Clocks(self.bits, order)
            for a in event.agents:
                self.act(clocks, a, state, after.agents[a])
            if state.agents[event.agents[0]].step.kind == "sync":
                clocks.meet(event.agents, state.agents[event.agents[0]].step.cell)
            yield self.landing(clocks, trail, after)

    def trails(self, state: State, event: Event) -> Iterator[Trail]:
        """Yield what the agents of a step went through, in the order of its states."""
        m, met = self.machine, event.agents
        known = state.known
        if state.agents[met[0]].step.kind == "sync":
            known = parted(m, state, list(met)).known
        starts = list[tuple[int, int, tuple[int, ...]]]()
        for a in met:
            agent = state.agents[a]
            starts.append((a, agent.pc + (agent.step.kind != "pass"), agent.v))
        return _trails(m, starts, known)

    def end(self, state: State, order: Order) -> None:
        """Judge the end, before which every copy has landed."""
        check_end(self.machine, state)
        unknown = NOBODY
        for of_agent in order.agents:
            unknown &= of_agent
        for cell in range(len(state.contents)):
            if unknown & self.bits.all_of("land", cell):
                raise Unordered

    # ---- steps -------------------------------------------------------------------------------

    def act(self, clocks: Clocks, a: int, state: State, after: Agent) -> None:
        """Let an agent do what it stands before; the reads before that are over."""
        agent = state.agents[a]
        step = agent.step
        if step.kind == "pass":
            return
        if not step.partial:
            clocks.learn(a, self.bits.but_for("read", a, _cells(agent.groups[PRODUCTS])))
        on_barrier = ON_BARRIERS.get(step.kind)
        if on_barrier is not None:
            on_barrier(clocks, a, step.cell)
        elif step.kind == "fence":
            for cell, barrier in enumerate(state.barriers):
                if barrier is not None and not barrier.fenced:
                    clocks.fence(a, cell)
        else:
            self.act_on_stages(clocks, a, agent)
        clocks.learn(a, self.bits.but_for("store", a, _cells(after.groups[STORES])))

    def act_on_stages(self, clocks: Clocks, a: int, agent: Agent) -> None:
        """Let an agent write a stage, show what it wrote, or store out of one."""
        step = agent.step
        if step.kind == "show" and not step.partial:
            for cell in agent.hidden:
                clocks.happen(self.bits.bit("show", cell, a), (a,))
        for _, cell in step.writes:
            if step.kind == "write":
                clocks.fill(a, cell, landed=True)
            elif step.kind == "store" and step.issued:
                clocks.read_by_engine(a, cell, "store")

    def issue(self, clocks: Clocks, a: int, step: Step) -> None:
        """Let an agent issue what takes effect later, but for that effect."""
        if step.kind == "arrive":
            clocks.use(clocks.agents[a], step.cell)
            if step.token:
                clocks.observe(a, step.cell, "end")
        elif step.kind in ("copy", "cp_async"):
            if step.cell < 0:
                raise Unordered  # nobody can tell when it lands
            clocks.use(clocks.agents[a], step.cell)
            if step.kind == "copy":
                clocks.require(clocks.agents[a], self.bits.bit("fence", step.cell))
            landed_now = step.kind == "copy" and not step.issued
            for _, cell in step.writes:
                clocks.fill(a, cell, landed=landed_now)

    def landing(self, clocks: Clocks, trail: Trail, state: State) -> tuple[State, Order]:
        """Let agents go through their trails, and land what they have issued there."""
        for a, stretches in trail:
            for stretch in stretches:
                for what, _, cells in stretch.notes:
                    for cell in cells:
                        if what == "read":
                            clocks.read(a, cell)
                        elif what == "product":
                            clocks.read_by_engine(a, cell, "read")
                if stretch.step.kind in ISSUED:
                    self.issue(clocks, a, stretch.step)
        flights = state.flights
        unknown = [self.unknown_to(clocks, state, flight) for flight in flights]
        for flight, others in zip(flights, unknown, strict=True):
            state = self.land(clocks, state, flight, others)
        return self.folding.canonical(state), clocks.order()

    def unknown_to(self, clocks: Clocks, state: State, flight: Flight) -> int:
        """Return what a flight does not know: less than its agent, which has not seen it land."""
        agent, known = state.agents[flight.agent], 0
        for cell, _, _ in flight.writes:
            known |= self.bits.bit("land", cell)
        going_on = {c for read in agent.ongoing() if read not in flight.reads for c in read.cells}
        for cell in {c for read in flight.reads for c in read.cells} - going_on:
            known |= self.bits.bit("read", cell, flight.agent)
        return clocks.agents[flight.agent] & ~known

    def land(self, clocks: Clocks, state: State, flight: Flight, unknown: int) -> State:
        """Land a copy, or let an arrival count."""
        before = state.barriers[flight.cell]
        if before is None or flight.arrivals > before.pending:
            raise Unordered
        if flight.arrivals <= 0 and flight.nbytes <= 0:
            raise Unordered  # the phase might end without it
        if flight.writes:
            event = self.bits.bit("copy", flight.cell)
        else:
            event = self.bits.bit("arrive", flight.cell, flight.agent)
        clocks.arrive(unknown, flight.cell, event)
        state = landed(self.machine, state, flight)
        after = state.barriers[flight.cell]
        if after is not None and after.phase != before.phase:
            clocks.end_phase(flight.cell)
        return state


def _trails(
    m: Machine, starts: list[tuple[int, int, tuple[int, ...]]], known: Known
) -> Iterator[Trail]:
    """Yield what agents go through one after the other, each from its instruction on."""
    if not starts:
        yield ()
        return
    (a, pc, v), *others = starts
    for way in m.ways(a, pc, v, known):
        for rest in _trails(m, others, way[-1].known):
            yield ((a, way), *rest)


def _cells(groups: Groups) -> set[int]:
    return {cell for group in groups for read in group for cell in read.cells}
