"""Clone a loop whose tensors are circular-buffered in registers: no barrier, constant slots.

A thread reads in registers only what it has written itself, so a ring of registers needs neither
barriers nor a pre- and a post-epilogue. Registers have no addresses: the slot ``l % S`` of trip l
must be a constant once loops are unrolled. Notation: S slots, P prefetch distance, N trips,
M = max(N - P, 0).

rewrite::

    for l in [0, N): load frag; use frag                    (N known and short: all unrolled)
    ->
    prologue: for l in [0, min(P, N)):   load l
    main:     for l in [0, M):           load l + P; use l
    epilogue: for l in [M, N):           use l

    for l in [0, N): load frag; use frag                    (else: slots unrolled, rounds not)
    ->
    prologue: for s in [0, P):             when s < N: load s
    main:     for r in [0, M / S):         for s in [0, S): load r S + s + P; use r S + s
    epilogue: for r in [M / S, ceil(N / S)):
                  for s in [0, S): when r S + s + P < N: load r S + s + P
                                   when r S + s < N: use r S + s

The epilogue is at most two rounds: those trips that are no whole round of the main loop, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from fuser.core.errors import ScheduleError
from fuser.core.expr import ZERO, Const, Expr, Var, ceil_div, less, maximum, minimum
from fuser.core.simplify import Facts, simplify
from fuser.core.unroll import Unroll
from fuser.nest.build import materialised_operands
from fuser.nest.nodes import Allocate, Loop, LoopNest, NestNode
from fuser.nest.rebuild import map_bodies, substituted
from fuser.passes.circular_buffer import check_agreement, ring_variable, trip_variables
from fuser.passes.loops import loop_facts
from fuser.passes.register_loads import (
    ROLLED,
    UNROLLED,
    computes,
    is_empty,
    loads_of,
    uses_of,
    where,
)
from fuser.passes.register_ring_awaits import SharedTrips, awaited_in, check_ahead, is_unrolled
from fuser.schedule.circular import CircularBuffer, Pipelined
from fuser.schedule.kinds import LoadStoreOpType

Body = tuple[NestNode, ...]


@dataclass(frozen=True, slots=True)
class RegisterRings:
    """See the module."""

    name: ClassVar[str] = "register-rings"

    def __call__(self, nest: LoopNest) -> LoopNest:
        """Rewrite every loop that registers run ahead of; the same nest when there is none."""
        rings: dict[str, dict[str, CircularBuffer]] = {}
        for name, ts in nest.schedule.tensors.items():
            if ts.is_register_ring and ts.circular is not None:
                check_register_ring(nest, name)
                rings.setdefault(ring_variable(nest, name), {})[name] = ts.circular
        if not rings:
            return nest
        for members in rings.values():
            check_agreement(members)
        cloner = _Cloner(nest, {var: tuple(members) for var, members in rings.items()})
        return replace(nest, body=cloner.body(nest.body, nest.facts))


def check_register_ring(nest: LoopNest, name: str) -> None:
    """Raise `ScheduleError` unless a tensor can be loaded into registers ahead of its use."""
    value, ts = nest.graph.value(name), nest.schedule.tensors[name]
    assert ts.circular is not None
    kind = ts.circular.type
    if value.op != "set":
        raise ScheduleError(
            f"{name}: circular-buffered in registers, but defined by {value.op}; needed a copy "
            "made by cache_after"
        )
    if ts.load is not LoadStoreOpType.set:
        raise ScheduleError(
            f"{name}: circular-buffered in registers and loaded by {ts.load.name}, which writes "
            "shared memory; needed LoadStoreOpType.set, or shared memory"
        )
    if not isinstance(kind, Pipelined):
        raise ScheduleError(
            f"{name}: circular-buffered in registers and warp-specialised on {kind.on.name}; other "
            "warps cannot write a thread's registers; needed Pipelined()"
        )
    if kind != Pipelined():
        raise ScheduleError(
            f"{name}: circular-buffered in registers with {kind}; registers have no barriers, so "
            "that sync and war mean nothing; needed Pipelined()"
        )
    for axis in ts.trip_axes:
        for source in materialised_operands(nest.graph, nest.schedule, name):
            position = nest.schedule.tensors[source].position
            if position > axis and not is_stage_of(nest, source, ring_variable(nest, name)):
                raise ScheduleError(
                    f"{name}: circular-buffered in registers over its axis {axis}, but what it "
                    f"copies, {source}, is computed inside that loop; inline {source} outside of it"
                )


def is_stage_of(nest: LoopNest, source: str, var: str) -> bool:
    """Whether a tensor is a tile of a ring with barriers whose trips are those of loop `var`."""
    ts = nest.schedule.tensors[source]
    is_ring = ts.circular is not None and not ts.is_register_ring
    return is_ring and not ts.is_stored and trip_variables(nest, source)[-1] == var


def check_directive(unroll: Unroll, name: str, slots: int) -> None:
    """Raise `ScheduleError` where a directive of the trip loop would choose slots at run time."""
    for part, own in unroll.parts:
        raise ScheduleError(
            f"{own.origin} has the directive {own.written(part)}, and {name} is circular-buffered "
            f"in registers: all of its loops choose slots; needed a directive without loop"
        )
    if slots == 1:
        return
    if unroll.kind == "rolled" or (unroll.kind == "partial" and unroll.factor != slots):
        raise ScheduleError(
            f"{unroll.origin} has the directive {unroll.directive}, and {name} runs ahead of its "
            f"trips in {slots} slots of registers, which have no addresses; needed no directive or "
            f"unroll({slots}), rounds of a trip a slot, or unroll()"
        )


@dataclass(frozen=True, slots=True)
class _Cloner:
    nest: LoopNest
    rings: Mapping[str, tuple[str, ...]]

    def body(self, nodes: Body, facts: Facts) -> Body:
        """Rewrite one body, inner loops first."""
        result: list[NestNode] = []
        shared: SharedTrips | None = None
        for node in nodes:
            if shared is not None and isinstance(node, Loop) and node.label == "epilogue":
                continue  # `shared` has those trips, too
            shared = None
            inner = facts
            if isinstance(node, Loop):
                inner = loop_facts(node, simplify(node.extent, facts), facts)
            tensors = self.rings.get(node.var, ()) if isinstance(node, Loop) else ()
            node = map_bodies(node, partial(self.body, facts=inner))
            if not (isinstance(node, Loop) and computes(node, tensors)):
                result.append(node)
                continue
            shared = self.shared(node, tensors, facts)
            if shared is None:
                result += self.cloned(node, tensors, facts)
            else:
                result += self.made(tensors, shared.loops())
        return tuple(result)

    def shared(self, loop: Loop, tensors: tuple[str, ...], facts: Facts) -> SharedTrips | None:
        """Return the clones of a loop whose trips a ring with barriers has, too, or None.

        What consumers of a ring with roles load from elsewhere has nothing to do with its barriers.
        """
        if awaited_in(loop) is None:
            return None
        buffer = self.directive(loop, tensors)
        shared = SharedTrips(
            self.nest, loop, tensors, buffer.stages, buffer.prefetch, facts, self.unused(loop.var)
        )
        if not loop.label and not shared.is_own():
            return None
        check_ahead(shared)
        return shared

    def directive(self, loop: Loop, tensors: tuple[str, ...]) -> CircularBuffer:
        """Return the options of a ring, which the directive of its loop must allow."""
        buffer = self.nest.schedule.tensors[tensors[0]].circular
        assert buffer is not None
        check_directive(loop.unroll, tensors[0], buffer.stages)
        return buffer

    def made(self, tensors: tuple[str, ...], loops: Body) -> Body:
        """Return allocations and loops, without those that are known to have no trip."""
        return (*map(Allocate, tensors), *(node for node in loops if not is_empty(node)))

    def cloned(self, loop: Loop, tensors: tuple[str, ...], facts: Facts) -> Body:
        """Return the allocations and the three loops."""
        buffer = self.directive(loop, tensors)
        trips = simplify(loop.extent, facts)
        clones = _Clones(
            replace(loop, extent=trips), buffer.stages, buffer.prefetch,
            loads_of(loop.body, tensors), uses_of(loop.body, tensors), facts, self.unused(loop.var),
        )  # fmt: skip
        whole = is_unrolled(loop, trips) or buffer.stages == 1
        return self.made(tensors, clones.trips() if whole else clones.rounds())

    def unused(self, stem: str) -> str:
        """Return a stem of new loop variables that no tensor is named like."""
        while any(f"{stem}_{part}" in self.nest.graph for part in ("round", "slot")):
            stem = f"{stem}_"
        return stem


@dataclass(frozen=True, slots=True)
class _Clones:
    """The three loops of one ring.

    Attributes
    ----------
    loop
        The loop over trips, N is its extent.
    stages, ahead
        S and P.
    loads, uses
        Its body, in two parts.
    stem
        Prefix of new variables.
    """

    loop: Loop
    stages: int
    ahead: int
    loads: Body
    uses: Body
    facts: Facts
    stem: str

    def load(self, trip: Expr) -> Body:
        """Return the loads of a trip."""
        return substituted(self.loads, {self.loop.var: trip})

    def use(self, trip: Expr) -> Body:
        """Return the rest of a trip."""
        return substituted(self.uses, {self.loop.var: trip})

    def trips(self) -> Body:
        """Return loops over trips, unrolled where there are slots."""
        trip, n = Var(self.loop.var), self.loop.extent
        asked = self.stages == 1 or self.loop.unroll.kind == "full"
        unroll = self.loop.unroll if asked else UNROLLED
        cut = simplify(maximum(n - self.ahead, ZERO), self.facts)
        main = (*self.load(trip + self.ahead), *self.use(trip))
        make = partial(replace, self.loop, unroll=unroll)
        return (
            make(extent=simplify(minimum(Const(self.ahead), n), self.facts), label="prologue",
                 body=self.load(trip)),
            make(extent=cut, label="main", body=main),
            make(start=cut, label="epilogue", body=self.use(trip)),
        )  # fmt: skip

    def rounds(self) -> Body:
        """Return loops over rounds of S trips each, every one of them with a constant slot."""
        n, slot = self.loop.extent, Var(f"{self.stem}_slot")
        cut = simplify(maximum(n - self.ahead, ZERO) // self.stages, self.facts)
        end = simplify(ceil_div(n, self.stages), self.facts)
        first = self.facts.with_range(slot.name, Const(self.ahead))
        prologue = replace(
            self.loop, var=slot.name, extent=Const(self.ahead), unroll=UNROLLED, label="prologue",
            body=self.while_(slot, self.load(slot), first),
        )  # fmt: skip
        return (prologue, self.round("main", ZERO, cut), self.round("epilogue", cut, end))

    def round(self, label: str, start: Expr, end: Expr) -> Loop:
        """Return the loop over rounds from `start` to `end`; few of a known number are unrolled."""
        slot = Var(f"{self.stem}_slot")
        outer = replace(
            self.loop, var=f"{self.stem}_round", start=start, extent=end, label=label,
            unroll=UNROLLED if label == "epilogue" and isinstance(end, Const) else ROLLED,
        )  # fmt: skip
        facts = loop_facts(outer, end, self.facts).with_range(slot.name, Const(self.stages))
        trip = Var(outer.var) * self.stages + slot
        ahead = trip + self.ahead
        body = (
            *self.while_(ahead, self.load(ahead), facts),
            *self.while_(trip, self.use(trip), facts),
        )
        inner = replace(
            self.loop, var=slot.name, extent=Const(self.stages), unroll=UNROLLED, body=body
        )
        return replace(outer, body=(inner,))

    def while_(self, trip: Expr, body: Body, facts: Facts) -> Body:
        """Return a body that runs where there is such a trip."""
        return where(less(trip, self.loop.extent), body, facts)
