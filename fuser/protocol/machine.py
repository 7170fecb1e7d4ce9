"""What the agents of a protocol may do next, and what they must not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from fuser.protocol.counts import Known
from fuser.protocol.errors import Undecided, Violation
from fuser.protocol.groups import ACTS, begun, effect, hide
from fuser.protocol.model import Model
from fuser.protocol.program import (
    Act,
    Branch,
    Converge,
    Counted,
    Enter,
    Head,
    Jump,
    Next,
    Program,
    Read,
)
from fuser.protocol.reads import judge
from fuser.protocol.state import (
    NO_STEP,
    PASS,
    PRODUCTS,
    Agent,
    Flight,
    Groups,
    Pending,
    State,
    Step,
    barrier_name,
    fill,
    finishing,
    launch,
)

LONGEST_STRETCH = 100_000
MOST_FLIGHTS = 400
"""An agent that has so much in flight goes on without ever waiting."""
ISSUED = ("arrive", "copy", "cp_async", "commit products", "wait products")
"""Acts that never wait: their effect comes any time later, like that of a copy, or nobody can tell
before the agent does something else, like the end of a group."""


Notes: TypeAlias = tuple[tuple[str, int, range], ...]
"""What an agent did on the way: reads of cells, trips counted by array, convergence."""


class Stretch(NamedTuple):
    """What an agent does on its own up to its next act."""

    known: Known
    pc: int
    v: tuple[int, ...]
    notes: Notes
    step: Step


@dataclass(slots=True)
class Machine:
    """Successors of states.

    Attributes
    ----------
    stored
        Ring arrays that the copy engine stores out of, or products read.
    """

    model: Model
    stretches: dict[tuple[int, int, tuple[int, ...], Known], tuple[Stretch, ...]] = field(
        default_factory=dict[tuple[int, int, tuple[int, ...], Known], tuple[Stretch, ...]]
    )
    stored: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        code = [i for program in self.model.agents for i in program.code]
        names = {i.barrier for i in code if isinstance(i, Act) and i.kind == "store"}
        names |= {i.array for i in code if isinstance(i, Read) and i.by_product}
        self.stored = frozenset(map(self.model.arrays.index, names))

    def initial(self) -> list[State]:
        """Return the states in which every agent is before its first act."""
        model = self.model
        blank = tuple(
            Agent(
                0, (), _counted(program, model.arrays, "fills"),
                _counted(program, model.arrays, "reads"), (-1,) * len(model.tokens), (), NO_STEP,
            )
            for program in model.agents
        )  # fmt: skip
        barriers = sum(len(cells) for cells in model.barriers.values())
        state = State(
            blank, (None,) * barriers, (None,) * model.cells, (),
            model.counting.initial(),
        )  # fmt: skip
        states = [state]
        for a in range(len(model.agents)):
            states = [t for s in states for t in self.advance(s, a, 0, ())]
        return states

    # ---- one agent on its own ----------------------------------------------------------------

    def advance(
        self, state: State, a: int, pc: int, pending: tuple[Pending, ...]
    ) -> Iterator[State]:
        """Yield `state` with agent `a` moved on to its next act; reads on the way are judged."""
        agent = state.agents[a]
        for known, at, v, notes, step in self.onward(a, pc, agent.v, state.known):
            fills, reads, now, groups = self.noted(state, a, pending, notes)
            moved = Agent(at, v, fills, reads, agent.tokens, now, step, groups, agent.hidden)
            agents = (*state.agents[:a], moved, *state.agents[a + 1 :])
            here = State(agents, state.barriers, state.contents, state.flights, known)
            if step.kind in ISSUED:
                issued = issue(self, here, a)
                if len(issued.flights) > MOST_FLIGHTS:
                    raise Undecided(f"{self.model.agents[a].name} goes on without waiting")
                yield from self.advance(issued, a, at + 1, issued.agents[a].pending)
            else:
                yield here

    def onward(self, a: int, pc: int, v: tuple[int, ...], known: Known) -> tuple[Stretch, ...]:
        """Return the ways of agent `a` to its next act."""
        key = a, pc, v, known
        if key not in self.stretches:
            self.stretches[key] = tuple(self.stretch(a, pc, v, known))
        return self.stretches[key]

    def ways(
        self, a: int, pc: int, v: tuple[int, ...], known: Known
    ) -> Iterator[tuple[Stretch, ...]]:
        """Yield the stretches that `advance` goes through, in the order of its states."""
        for stretch in self.onward(a, pc, v, known):
            if stretch.step.kind in ISSUED:
                rest = self.ways(a, stretch.pc + 1, stretch.v, stretch.known)
                yield from ((stretch, *more) for more in rest)
            else:
                yield (stretch,)

    def noted(
        self, state: State, a: int, now: tuple[Pending, ...], notes: Notes
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[Pending, ...], tuple[Groups, ...]]:
        """Return what agent `a` has filled and read, reads now, and what its groups read."""
        agent = state.agents[a]
        fills, reads, groups = agent.fills, agent.reads, agent.groups
        for what, array, cells in notes:
            if what == "read":
                read = Pending(cells, array, reads[array], False)
                judge(self.model, state, a, read)
                if read not in now:
                    now = (*now, read)
            elif what == "product":
                read = Pending(cells, array, reads[array], False, PRODUCTS)
                groups = begun(self.model, state, a, read, groups)
            elif what == "fills":
                fills = (*fills[:array], fills[array] + 1, *fills[array + 1 :])
            elif what == "reads":
                reads = (*reads[:array], reads[array] + 1, *reads[array + 1 :])
            else:
                now = tuple(p._replace(converged=True) for p in now)
        return fills, reads, now, groups

    def stretch(self, a: int, pc: int, v: tuple[int, ...], known: Known) -> Iterator[Stretch]:
        """Yield the ways to the next act; more than one where a trip count gets decided."""
        program = self.model.agents[a]
        open_: list[tuple[Known, int, tuple[int, ...], Notes]] = [(known, pc, v, ())]
        moves = 0
        while open_:
            moves += 1
            if moves > LONGEST_STRETCH:
                raise Undecided(f"{program.name} loops without an act")
            known, pc, v, notes = open_.pop()
            instruction = program.code[pc]
            if isinstance(instruction, Act):
                for refined, step in self.steps(instruction, v, known):
                    yield Stretch(refined, pc, v, notes, step)
                continue
            if isinstance(instruction, Next) and instruction.slot + 1 < len(self.model.folds):
                if moves > 1:  # an outer trip may be empty, and there may be any number of them
                    yield Stretch(known, pc, v, notes, PASS)
                    continue
            open_ += self.move(program, known, pc, v, notes)

    def move(
        self, program: Program, known: Known, pc: int, v: tuple[int, ...], notes: Notes
    ) -> Iterator[tuple[Known, int, tuple[int, ...], Notes]]:
        """Yield what one instruction that nobody else sees leads to."""
        arrays = self.model.arrays
        match program.code[pc]:
            case Read(array, stage, by_product):
                for refined, at in self.model.counting.decide(stage, v, known):
                    what = "product" if by_product else "read"
                    note = what, arrays.index(array), self.cells(array, at)
                    yield refined, pc + 1, v, (*notes, note)
            case Converge():
                yield known, pc + 1, v, (*notes, ("converge", 0, range(0)))
            case Counted(what, array):
                yield known, pc + 1, v, (*notes, (what, arrays.index(array), range(0)))
            case Next(slot, step, head):
                yield known, head, (*v[:slot], v[slot] + step), notes
            case Jump(target):
                yield known, target, v, notes
            case _:
                for refined, at, w in self.steer(program, known, pc, v):
                    yield refined, at, w, notes

    def steer(
        self, program: Program, known: Known, pc: int, v: tuple[int, ...]
    ) -> Iterator[tuple[Known, int, tuple[int, ...]]]:
        """Yield where loops and branches go."""
        decide = self.model.counting.decide
        match program.code[pc]:
            case Enter(slot, start):
                for refined, at in decide(start, v, known):
                    yield refined, pc + 1, (*v[:slot], at)
            case Head(slot, below, target):
                for refined, holds in decide(below, v, known):
                    yield (refined, pc + 1, v) if holds else (refined, target, v[:slot])
            case Branch(cond, target):
                for refined, holds in decide(cond, v, known):
                    yield refined, pc + 1 if holds else target, v
            case other:
                raise AssertionError(other)

    def cells(self, array: str, stage: int) -> range:
        """Return the cells of a stage; empty outside of the ring."""
        parts = len(self.model.parts[array])
        all_cells = self.model.stages[array]
        return all_cells[stage * parts : (stage + 1) * parts] if stage >= 0 else range(0)

    def steps(self, act: Act, v: tuple[int, ...], known: Known) -> Iterator[tuple[Known, Step]]:
        """Yield an act with its numbers."""
        exprs = [act.index, act.number, act.guard, act.token[1] if act.token else None]
        exprs += [stage for _, stage, _ in act.writes]
        open_: list[tuple[Known, list[int]]] = [(known, [])]
        for e in exprs:
            if e is None:
                open_ = [(k, [*values, 0]) for k, values in open_]
            else:
                open_ = [
                    (refined, [*values, value])
                    for k, values in open_
                    for refined, value in self.model.counting.decide(e, v, k)
                ]
        for refined, (index, number, guard, slot, *stages) in open_:
            yield refined, self.step(act, index, number, guard, slot, stages)

    def step(
        self, act: Act, index: int, number: int, guard: int, slot: int, stages: list[int]
    ) -> Step:
        """Return an act whose indices are known."""
        fault, cell = "", -1
        writes = list[tuple[int, int]]()
        if act.kind == "sync":
            cell = hash(act.barrier)
        elif act.kind == "store":
            number_of = self.model.arrays.index(act.barrier)
            writes = [(number_of, at) for at in self.cells(act.barrier, index)]
            fault = "" if writes else f"stage {index} is outside {act.barrier}"
        elif act.barrier:
            cells = self.model.barriers[act.barrier]
            if 0 <= index < len(cells):
                cell = cells[index]
            else:
                fault = f"{act.barrier}[{index}] is outside its {len(cells)} barriers"
        for (array, _, part), stage in zip(act.writes, stages, strict=True):
            where = self.cells(array, stage)
            if not where:
                fault = f"stage {stage} is outside {array}"
                continue
            at = where[self.model.parts[array].index(part)]
            writes.append((self.model.arrays.index(array), at))
        if act.kind == "arrive" and act.number is None:
            number = -1
        return Step(
            act.kind, cell, number, act.weight, tuple(writes),
            act.guard is None or bool(guard), self.token(act, slot), act.partial, fault,
        )  # fmt: skip

    def token(self, act: Act, slot: int) -> tuple[int, ...]:
        """Return the numbers of the token registers an act uses."""
        if act.token is None:
            return ()
        name, _, mask = act.token
        return tuple(
            number
            for number, (array, at, lanes) in enumerate(self.model.tokens)
            if array == name and at == slot and mask in (lanes, -1)
        )


def _counted(program: Program, arrays: tuple[str, ...], what: str) -> tuple[int, ...]:
    """Return 0 for every array whose trips an agent counts, -1 for others."""
    counted = {i.array for i in program.code if isinstance(i, Counted) and i.what == what}
    return tuple(0 if name in counted else -1 for name in arrays)


# ---- acts that never wait ------------------------------------------------------------------------


def issue(m: Machine, state: State, a: int) -> State:
    """Return the state after an act whose effect is still to come."""
    agent = state.agents[a]
    step = agent.step
    who = m.model.agents[a].name
    if step.fault:
        raise Violation("bounds", f"{who}: {step.fault}")
    if step.kind in ACTS:
        return effect(m.model, state, a, step)
    if step.cell >= 0 and state.barriers[step.cell] is None:
        what = barrier_name(m.model, step.cell)
        raise Violation("dead barrier", f"{who} uses {what}, which is not initialised")
    if step.kind == "arrive":
        return _arrive(state, a, step)
    state = _read_before(m, state, a)
    trips = tuple((cell, array, agent.fills[array]) for array, cell in step.writes)
    if step.kind == "cp_async":
        filled = hide(m.stored, fill(state, trips, landed=False), a, step)
        over = () if step.cell < 0 else finishing(agent)
        return launch(filled, Flight(step.cell, 0, step.weight, trips, a, over))
    barrier = state.barriers[step.cell]
    if barrier is not None and not barrier.fenced:
        what = barrier_name(m.model, step.cell)
        raise Violation("fence", f"{who}: the copy engine need not see {what} yet")
    filled = fill(state, trips, landed=not step.issued)
    return launch(filled, Flight(step.cell, step.number, 0, trips, a)) if step.issued else filled


def _read_before(m: Machine, state: State, a: int) -> State:
    """Judge and forget the reads that are over when an agent itself fills a stage."""
    agent = state.agents[a]
    over = finishing(agent)
    for read in over:
        judge(m.model, state, a, read)
    longer = tuple(p for p in agent.pending if p not in over)
    agents = (*state.agents[:a], agent._replace(pending=longer), *state.agents[a + 1 :])
    return state._replace(agents=agents)


def _arrive(state: State, a: int, step: Step) -> State:
    barrier = state.barriers[step.cell]
    agent = state.agents[a]
    over = finishing(agent)
    if step.token and barrier is not None:
        held = list(agent.tokens)
        for number in step.token:
            held[number] = barrier.phase
        agents = list(state.agents)
        agents[a] = agent._replace(tokens=tuple(held))
        state = state._replace(agents=tuple(agents))
    return launch(state, Flight(step.cell, -max(step.number, 0), step.weight, (), a, over))
