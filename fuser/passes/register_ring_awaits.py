"""A ring in registers on the very loop of a ring with barriers: one loop for the trips of both.

The loop is that of a pipelined ring, P stages ahead of N trips, or of the consumers of one with
roles. Registers run P' trips ahead in S' slots. They are loaded from elsewhere, or out of the
ring's own stages; then their load is what the stage is awaited for, and behind it the stage is
free. C = max(N - P, 0), M = max(N - max(P, P'), 0).

rewrite::

    main:     for l in [0, C):  acquire l + P; fill l + P; await l; load l; use l; release l
    epilogue: for l in [C, N):  await l; load l; use l
    ->
    prologue: for s in [0, P'):       when s < N: fetch s
    main:     for r in [0, M / S'):   for l in [r S', (r + 1) S'):
                  acquire l + P; fill l + P; fetch l + P'; use l
    epilogue: for r in [M / S', ceil(N / S')): for l in [r S', (r + 1) S'): when l < N:
                  when l < C: acquire l + P; fill l + P
                  when l + P' < N: fetch l + P'
                  use l

where ``fetch l`` is ``await l; load l; release l``. From elsewhere it is ``load l``, and the stage
of trip l is awaited and released around its use as before; so it is where others read the stages,
too, and P' = 0. Nobody waits for what is not to come:
stage l + P' has been filled since P' <= P, and a stage that is filled anew was released P' trips
earlier than without registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fuser.core.errors import ScheduleError
from fuser.core.expr import ZERO, Const, Expr, Var, ceil_div, less, maximum, minimum
from fuser.core.simplify import Facts, simplify
from fuser.kir.stmts.control import FULL_UNROLL_LIMIT
from fuser.nest.build import materialised_operands
from fuser.nest.nodes import (
    Acquire,
    Await,
    AwaitProducts,
    Compute,
    Emit,
    Fill,
    Loop,
    LoopNest,
    NestNode,
    Release,
    Reuse,
    Ring,
    walk,
)
from fuser.nest.rebuild import substituted
from fuser.passes.loops import loop_facts
from fuser.passes.register_loads import ROLLED, UNROLLED, Body, loads_of, uses_of, where


def awaited_in(loop: Loop) -> Await | None:
    """Return where a loop waits for the stage of its trip; None: it is no ring's own loop."""
    return next((node for node in loop.body if isinstance(node, Await)), None)


def is_unrolled(loop: Loop, trips: Expr) -> bool:
    """Whether all trips of a loop are in the code: asked for, or few of a known number."""
    short = isinstance(trips, Const) and trips.value <= FULL_UNROLL_LIMIT
    return loop.unroll.kind == "full" or (loop.unroll.kind == "auto" and short)


@dataclass(frozen=True, slots=True)
class SharedTrips:
    """The clones of one loop.

    Attributes
    ----------
    loop
        The loop that awaits: a pipelined ring's main loop, or that of consumers.
    tensors
        What is in registers.
    stages, ahead
        S' and P'.
    stem
        Prefix of new variables.
    """

    nest: LoopNest
    loop: Loop
    tensors: tuple[str, ...]
    stages: int
    ahead: int
    facts: Facts
    stem: str

    # ---- what the loop is -------------------------------------------------------------------

    @property
    def awaits(self) -> Await:
        """Where the stage of a trip is awaited."""
        found = awaited_in(self.loop)
        assert found is not None
        return found

    @property
    def ring(self) -> Ring:
        """The ring with barriers."""
        return self.awaits.ring

    @property
    def distance(self) -> int:
        """P; 0 where others fill the stages."""
        return self.ring.buffer.prefetch if self.loop.label else 0

    @property
    def trips(self) -> Expr:
        """N."""
        trips = self.ring.trips if self.loop.label else self.loop.extent
        return simplify(trips, self.facts)

    @property
    def filled(self) -> Expr:
        """C: trips in which a later one is filled."""
        return simplify(maximum(self.trips - self.distance, ZERO), self.facts)

    def is_own(self) -> bool:
        """Whether registers are loaded out of the stages of this ring."""
        return any(self.reads(name) for name in self.tensors)

    def is_alone(self) -> bool:
        """Whether nobody else reads those stages."""
        return self.is_own() and not any(self.others())

    def others(self) -> Iterator[str]:
        """Yield who else reads the stages, in the trip that they are of."""
        for _, node in walk(uses_of(self.loop.body, self.tensors)):
            match node:
                case Compute(tensor) if tensor not in self.ring.tensors and self.reads(tensor):
                    yield tensor
                case AwaitProducts(tensor) if self.reads(tensor):
                    yield tensor
                case Emit(outlet):
                    yield from (y for y, tile in outlet.stores if tile in self.ring.tensors)
                case _:
                    pass

    def reads(self, tensor: str) -> bool:
        """Whether a tensor is computed from tiles of this ring."""
        sources = materialised_operands(self.nest.graph, self.nest.schedule, tensor)
        return not set(self.ring.tensors).isdisjoint(sources)

    # ---- the bodies -------------------------------------------------------------------------

    def fetch(self, trip: Expr) -> Body:
        """Return the load of a trip into registers, with the wait for its stage."""
        load = loads_of(self.loop.body, self.tensors)
        if not self.is_alone():
            return self.at(load, trip)
        ends = (node for node in self.loop.body if isinstance(node, Release))
        return self.at((self.awaits, *load, *ends), trip)

    def at(self, nodes: Body, trip: Expr) -> Body:
        """Return nodes at another trip."""
        return substituted(nodes, {self.loop.var: trip})

    def body(self, trip: Expr, facts: Facts, *, whole: bool) -> Body:
        """Return a trip; `whole`: there is one to fill and one to fetch, P and P' behind it."""
        ahead = trip + self.ahead
        fetch = self.fetch(ahead)
        if not whole:
            fetch = where(less(ahead, self.trips), fetch, facts)
        moved = self.is_alone()
        result: list[NestNode] = []
        for node in uses_of(self.loop.body, self.tensors):
            placed = self.at((node,), trip)
            if isinstance(node, Await):
                early = () if self.is_own() else fetch
                result += fetch if moved else (*early, *placed, *(fetch if self.is_own() else ()))
                continue
            if moved and isinstance(node, Release):
                continue
            if not whole and self.distance and _fills(node):
                placed = where(less(trip, self.filled), placed, facts)
            result += placed
        return tuple(result)

    # ---- the loops --------------------------------------------------------------------------

    def loops(self) -> Body:
        """Return the three loops, over trips or over rounds of them."""
        if self.stages == 1 or is_unrolled(self.loop, self.trips):
            return self.over_trips()
        return self.over_rounds()

    def main(self) -> Expr:
        """M: trips that fill and fetch whatever N is."""
        both = max(self.distance, self.ahead)
        return simplify(maximum(self.trips - both, ZERO), self.facts)

    def over_trips(self) -> Body:
        """Return loops over trips, unrolled where there are slots."""
        trip, cut, trips = Var(self.loop.var), self.main(), self.trips
        asked = self.stages == 1 or self.loop.unroll.kind == "full"
        unroll = self.loop.unroll if asked else UNROLLED
        few = simplify(minimum(Const(self.ahead), trips), self.facts)
        prologue = replace(
            self.loop, extent=few, unroll=unroll, label="prologue", body=self.fetch(trip)
        )
        main = replace(self.loop, extent=cut, unroll=unroll, label="main")
        rest = replace(self.loop, start=cut, extent=trips, unroll=unroll, label="epilogue")
        held = loop_facts(rest, trips, self.facts)
        return (
            prologue,
            replace(main, body=self.body(trip, self.facts, whole=True)),
            replace(rest, body=self.body(trip, held, whole=False)),
        )

    def over_rounds(self) -> Body:
        """Return loops over rounds of S' trips each, every one of them with a constant slot."""
        slot = Var(f"{self.stem}_slot")
        first = self.facts.with_range(slot.name, Const(self.ahead))
        prologue = replace(
            self.loop, var=slot.name, extent=Const(self.ahead), unroll=UNROLLED, label="prologue",
            body=where(less(slot, self.trips), self.fetch(slot), first),
        )  # fmt: skip
        cut = simplify(self.main() // self.stages, self.facts)
        end = simplify(ceil_div(self.trips, self.stages), self.facts)
        return prologue, self.round("main", ZERO, cut), self.round("epilogue", cut, end)

    def round(self, label: str, start: Expr, end: Expr) -> Loop:
        """Return the loop over rounds from `start` to `end`; few of a known number are unrolled."""
        slot = Var(f"{self.stem}_slot")
        whole = label == "main"
        outer = replace(
            self.loop, var=f"{self.stem}_round", start=start, extent=end, label=label,
            unroll=UNROLLED if not whole and isinstance(end, Const) else ROLLED,
        )  # fmt: skip
        facts = loop_facts(outer, end, self.facts).with_range(slot.name, Const(self.stages))
        trip = Var(outer.var) * self.stages + slot
        body = self.body(trip, facts, whole=whole)
        if not whole:
            body = where(less(trip, self.trips), body, facts)
        inner = replace(
            self.loop, var=slot.name, extent=Const(self.stages), unroll=UNROLLED, body=body,
            label="",
        )  # fmt: skip
        return replace(outer, body=(inner,))


def check_ahead(shared: SharedTrips) -> None:
    """Raise `ScheduleError` where registers would be loaded out of a stage at the wrong time."""
    if not shared.is_own():
        return
    name, ring, distance = shared.tensors[0], shared.ring, shared.distance
    if shared.loop.label and shared.ahead > distance:
        raise ScheduleError(
            f"{name}: loaded into registers {shared.ahead} trips ahead, out of stages of ring "
            f"{ring.name} that are filled {distance} ahead; needed a prefetch distance of at most "
            f"{distance}, or a larger one of the ring"
        )
    others = ", ".join(dict.fromkeys(shared.others()))
    if others and shared.ahead:
        raise ScheduleError(
            f"{name}: loaded into registers {shared.ahead} trips ahead out of the stages of ring "
            f"{ring.name}, whose load gives them back, and {others} reads them {shared.ahead} "
            f"trips later; needed a reader of {name} instead, prefetch distance 0, or registers "
            "buffered over a loop inside of the ring's"
        )


def _fills(node: NestNode) -> bool:
    """Whether a node has to do with filling a stage anew, or says that one is free for it."""
    return any(
        isinstance(n, Acquire | Fill | Release) or (isinstance(n, Reuse) and not n.outlet.stages)
        for _, n in walk((node,))
    )
