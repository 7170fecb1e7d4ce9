"""What has certainly happened before each step: vector clocks of a protocol, as sets of bits.

One run is followed. A step is known to those that can only come after it, in whatever order things
happen: to later steps of its agent; to a copy or an arrival that is issued later; to an agent whose
wait is over, where it is known to an arrival or a copy that the phase took; to all that meet. Two
steps conflict that need not do the same in either order: a fill of a stage and a read of it, the
end of a phase and a wait for it, and so on. Where every step knows all earlier ones that it
conflicts with, no other order of them is possible, and all runs are the one that was followed, but
for the order of steps that do not mind (`fuser.protocol.one_run` says why).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

NOBODY = -1
"""What is unknown before anybody has arrived: everything."""


class Unordered(Exception):
    """Two steps that conflict may come in another order."""


class Order(NamedTuple):
    """What is unknown: bits of events, of each of which the latest counts.

    Attributes
    ----------
    agents
        By agent.
    arriving
        By barrier: to everything that its phase has taken so far.
    ended
        By barrier: to everything that its last phase took, and so to who has waited for it.
    """

    agents: tuple[int, ...]
    arriving: tuple[int, ...]
    ended: tuple[int, ...]


@dataclass(slots=True)
class Bits:
    """Numbers of the events of a protocol: what happened, to which cell, and by which agent."""

    of: dict[tuple[str, int, int], int] = field(default_factory=dict[tuple[str, int, int], int])
    by_cell: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    by_agent: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])

    def bit(self, what: str, cell: int, agent: int = -1) -> int:
        """Return the bit of an event."""
        key = what, cell, agent
        if key not in self.of:
            self.of[key] = 1 << len(self.of)
            self.by_cell[what, cell] = self.all_of(what, cell) | self.of[key]
            self.by_agent[what, agent] = self.by(what, agent) | self.of[key]
        return self.of[key]

    def all_of(self, what: str, cell: int) -> int:
        """Return the bits of what any agent did to a cell."""
        return self.by_cell.get((what, cell), 0)

    def others(self, what: str, cell: int, agent: int) -> int:
        """Return the bits of what agents other than `agent` did to a cell."""
        return self.all_of(what, cell) & ~self.of.get((what, cell, agent), 0)

    def by(self, what: str, agent: int) -> int:
        """Return the bits of what an agent did to any cell."""
        return self.by_agent.get((what, agent), 0)

    def but_for(self, what: str, agent: int, cells: Iterable[int]) -> int:
        """Return the bits of what an agent did to any cell but some."""
        found = self.by(what, agent)
        for cell in cells:
            found &= ~self.of.get((what, cell, agent), 0)
        return found


class Clocks:
    """An order that is being changed by one step of the run.

    Attributes
    ----------
    agents, arriving, ended
        As in `Order`.
    """

    def __init__(self, bits: Bits, order: Order) -> None:
        self.bits = bits
        self.agents, self.arriving, self.ended = map(list, order)

    def order(self) -> Order:
        """Return what is unknown now."""
        return Order(tuple(self.agents), tuple(self.arriving), tuple(self.ended))

    def require(self, unknown: int, events: int) -> None:
        """Raise `Unordered` where one of `events` is unknown: it may come later as well."""
        if unknown & events:
            raise Unordered

    def happen(self, events: int, by: Iterable[int] = ()) -> None:
        """Let events happen, known to some agents only."""
        for unknown in (self.agents, self.arriving, self.ended):
            for i, others in enumerate(unknown):
                unknown[i] = others | events
        for a in by:
            self.learn(a, events)

    def learn(self, a: int, events: int) -> None:
        """Let an agent know events."""
        self.agents[a] &= ~events

    def meet(self, met: tuple[int, ...], cell: int) -> None:
        """Let agents meet: each knows what any of them knows, and that they have met before.

        What they have arrived at counts by then, and so a phase is known to have ended where it
        took nothing else.
        """
        meeting, unknown = self.bits.bit("meet", cell), NOBODY
        for a in met:
            self.require(self.agents[a], meeting)
            unknown &= self.agents[a] & ~self.bits.by("arrive", a)
        for barrier in range(len(self.ended)):
            took = self.bits.all_of("arrive", barrier) | self.bits.all_of("copy", barrier)
            if not unknown & took:
                unknown &= ~self.bits.bit("end", barrier)
        for a in met:
            self.agents[a] = unknown
        self.happen(meeting, met)

    # ---- barriers ----------------------------------------------------------------------------

    def init(self, a: int, cell: int) -> None:
        """Initialise a barrier: what counts its phases begins anew."""
        bit = self.bits.bit
        self.require(self.agents[a], bit("inval", cell))
        self.arriving[cell] = self.ended[cell] = NOBODY
        self.happen(bit("init", cell) | bit("end", cell) | bit("end before", cell), (a,))

    def use(self, unknown: int, cell: int) -> None:
        """Require that a barrier is initialised."""
        self.require(unknown, self.bits.bit("init", cell))

    def observe(self, a: int, cell: int, phase: str) -> None:
        """Let an agent look at the phase of a barrier.

        Parameters
        ----------
        phase
            What must have ended before for it to see this one: ``end`` or ``end before``. That the
            next one does not end before it has looked is required when that ends.
        """
        self.use(self.agents[a], cell)
        self.require(self.agents[a], self.bits.bit(phase, cell))
        self.happen(self.bits.bit("observe", cell, a), (a,))

    def wait(self, a: int, cell: int) -> None:
        """Let a wait be over, by the last phase that has ended; it cannot be by one before."""
        self.observe(a, cell, "end before")
        self.agents[a] &= self.ended[cell]

    def arrive(self, unknown: int, cell: int, event: int) -> None:
        """Let an arrival count, or a copy land: in this phase, since the one before has ended.

        Parameters
        ----------
        unknown
            To the arrival or the copy.
        event
            The bit of it.
        """
        self.use(unknown, cell)
        self.require(unknown, self.bits.bit("end", cell))
        self.happen(event)
        self.arriving[cell] &= unknown & ~event

    def end_phase(self, cell: int) -> None:
        """End a phase: all that looked at the one before have done so."""
        self.require(self.arriving[cell], self.bits.all_of("observe", cell))
        last, before = self.bits.bit("end", cell), self.bits.bit("end before", cell)
        self.ended[cell], self.arriving[cell] = self.arriving[cell], NOBODY
        for unknown in (self.agents, self.arriving, self.ended):
            for i, others in enumerate(unknown):
                forgot = others | before if others & last else others & ~before
                unknown[i] = forgot | last
        self.ended[cell] &= ~last

    def inval(self, a: int, cell: int) -> None:
        """Give a barrier back behind everything that used it."""
        bit, all_of = self.bits.bit, self.bits.all_of
        self.use(self.agents[a], cell)
        self.require(self.agents[a], bit("end", cell) | all_of("observe", cell))
        self.happen(bit("inval", cell), (a,))

    def fence(self, a: int, cell: int) -> None:
        """Show a barrier to the copy engine."""
        self.use(self.agents[a], cell)
        self.happen(self.bits.bit("fence", cell), (a,))

    # ---- stages ------------------------------------------------------------------------------

    def fill(self, a: int, cell: int, *, landed: bool) -> None:
        """Begin to fill a part of a stage: what was in it has landed, and been read."""
        others = self.bits.others
        land = self.bits.bit("land", cell)
        self.require(self.agents[a], land | others("read", cell, a) | others("store", cell, a))
        self.happen(land, (a,) if landed else ())

    def read(self, a: int, cell: int) -> None:
        """Begin to read what has landed; nobody knows the end of it yet."""
        self.require(self.agents[a], self.bits.bit("land", cell))
        self.happen(self.bits.bit("read", cell, a))

    def read_by_engine(self, a: int, cell: int, what: str) -> None:
        """Begin to read by the asynchronous proxy, to which it has been shown."""
        self.require(self.agents[a], self.bits.bit("land", cell))
        self.require(self.agents[a], self.bits.others("show", cell, a))
        if what == "store":
            self.require(self.agents[a], self.bits.others(what, cell, a))
        self.happen(self.bits.bit(what, cell, a))
