"""Clone a loop into the five loops of a circular buffer, or into warp roles.

Notation: S stages, P prefetch distance, N trips, l the trip.

rewrite::

    for l in [0, N): load tile; use tile                                    (pipelined)
    ->
    pre-prologue:                     init full[S], empty[S]
    prologue: for l in [0, min(P, N)):        fill l
    main:     for l in [0, max(N - P, 0)):    acquire l + P; fill l + P; await l; use l; release l
    epilogue: for l in [max(N - P, 0), N):    await l; use l
    post-epilogue:                    inval

    for l in [0, N): load tile; use tile                                    (warp-specialised)
    ->
    pre-prologue
    producer: for l in [0, N): acquire l; fill l
    consumer: for l in [0, N): await l; use l; release l
    post-epilogue

Products of tensor cores read a stage until their group is complete. To have the tensor cores always
busy, a trip's stage is released when the products of the next one have been issued::

    main:     for l in [0, max(N - P, 0)):
                  await l; issue and commit l; await group l - 1; release l - 1;
                  acquire l + P; fill l + P
    consumer: for l in [0, N): await l; issue and commit l; await group l - 1; release l - 1
              await all groups; release N - 1

Only this file places verbs; `fuser.passes.ring` alone owns stage and parity arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from fuser.core.errors import ScheduleError
from fuser.core.expr import ZERO, Const, Expr, Var, maximum, minimum, substitute
from fuser.core.simplify import simplify
from fuser.core.unroll import LoopPart
from fuser.nest.build import materialised_operands
from fuser.nest.nodes import (
    Acquire,
    Allocate,
    Await,
    AwaitProducts,
    CommitProducts,
    Compute,
    FenceProducts,
    Fill,
    InitRing,
    InvalRing,
    Loop,
    LoopNest,
    NestNode,
    Ring,
    WarpRoles,
    walk,
)
from fuser.passes.buffers import trip_of
from fuser.passes.groups import consumer_groups
from fuser.passes.hand_over import behind_roles, hands_over, returned
from fuser.passes.stage_reads import awaited, is_late, released, released_last, settled
from fuser.schedule.circular import CircularBuffer, Pipelined
from fuser.schedule.kinds import LoadStoreOpType, MemoryType


@dataclass(frozen=True, slots=True)
class CircularBuffers:
    """See the module."""

    name: ClassVar[str] = "circular-buffer"

    def __call__(self, nest: LoopNest) -> LoopNest:
        """Rewrite every circular-buffered loop; the same nest when there is none."""
        buffered = {
            name: ts.circular
            for name, ts in nest.schedule.tensors.items()
            if ts.circular and not ts.is_register_ring  # those: `fuser.passes.register_ring`
        }
        once = frozenset(
            name
            for name, ts in nest.schedule.tensors.items()
            if ts.circular is None and ts.load is not LoadStoreOpType.set and not ts.is_stored
        )
        if not buffered and not once:
            return nest
        for name in once:
            check_buffered(nest, name)
        loops: dict[str, dict[str, CircularBuffer]] = {}
        for name, buffer in buffered.items():
            check_buffered(nest, name)
            loops.setdefault(ring_variable(nest, name), {})[name] = buffer
        for members in loops.values():
            check_agreement(members)
            check_trips(nest, tuple(members))
        cloner = _Cloner(nest, {var: tuple(members) for var, members in loops.items()}, once)
        return replace(nest, body=returned(settled(cloner.body(nest.body))))


def ring_variable(nest: LoopNest, tensor: str) -> str:
    """Return the variable of the loop whose trips a tensor's stages follow: the outermost one."""
    return trip_variables(nest, tensor)[0]


def trip_variables(nest: LoopNest, tensor: str) -> tuple[str, ...]:
    """Return the variables of all loops that a tensor's trips are counted across."""
    ts = nest.schedule.tensors[tensor]
    axes = ts.trip_axes
    if not axes and ts.stage_position < ts.position:
        raise ScheduleError(
            f"{tensor}: stage_slice_position {ts.stage_position}, and no serial loop is left of "
            "it; needed one whose trips it shall be buffered over"
        )
    if not axes:
        bound = ts.domain.loop[: ts.position]
        unrolled = [j for j, axis in enumerate(bound) if not axis.parallel.is_parallel]
        hint = f", or leave axis {unrolled[-1]} serial and unroll() it" if unrolled else ""
        raise ScheduleError(
            f"{tensor}: circular-buffered at compute-at position {ts.position}, and no serial loop "
            f"is left of it; inline it inside the loop whose trips it shall be buffered over{hint}"
        )
    for _, node in walk(nest.body):
        if isinstance(node, Compute) and node.tensor == tensor and node.step == "assign":
            indices = tuple(node.loops[j] for j in axes)
            if all(isinstance(index, Var) for index in indices):
                return tuple(index.name for index in indices if isinstance(index, Var))
    raise ScheduleError(f"{tensor}: circular-buffered, but its loop has been rewritten already")


def check_buffered(nest: LoopNest, name: str) -> None:
    """Raise `ScheduleError` unless a tensor is a copy of a global tensor into shared memory."""
    value, ts = nest.graph.value(name), nest.schedule.tensors[name]
    sources = nest.graph.operands(name)
    if value.op != "set" or len(sources) != 1:
        raise ScheduleError(
            f"{name}: loaded asynchronously or circular-buffered, but defined by {value.op}; "
            "needed a copy made by cache_after"
        )
    if ts.memory is not MemoryType.shared:
        raise ScheduleError(
            f"{name}: loaded asynchronously or circular-buffered in {ts.memory.value} memory; "
            "needed shared memory"
        )
    if materialised_operands(nest.graph, nest.schedule, name):
        raise ScheduleError(
            f"{name}: circular-buffered, but copies {sources[0].name}, which this kernel computes; "
            "needed an input"
        )
    if ts.load.is_async_proxy and sources[0].op != "input":
        raise ScheduleError(
            f"{name}: loaded by {ts.load.name}, but copies {sources[0].name}, which is computed by "
            f"{sources[0].op} and lies in no memory; needed an input, or LoadStoreOpType.set"
        )


def check_agreement(members: dict[str, CircularBuffer]) -> None:
    """Raise `ScheduleError` unless all tensors of one loop have the same options."""
    (first, buffer), *others = members.items()
    for name, other in others:
        if other != buffer:
            raise ScheduleError(
                f"{name}: circular-buffered with {_text(other)}, but {first} on the same loop with "
                f"{_text(buffer)}; all tensors of a loop must agree"
            )


def check_trips(nest: LoopNest, tensors: tuple[str, ...]) -> None:
    """Raise `ScheduleError` unless all tensors of one loop count the same trips."""
    first, *others = ((name, trip_variables(nest, name)) for name in tensors)
    for name, trips in others:
        if trips != first[1]:
            raise ScheduleError(
                f"{name}: its trips are those of loops {', '.join(trips)}, and those of {first[0]} "
                f"on the same ring of loops {', '.join(first[1])}; inline both inside the same "
                "loops, or give them the same stage_slice_position"
            )


def _text(buffer: CircularBuffer) -> str:
    return f"{buffer.stages} stages, prefetch {buffer.prefetch}, {buffer.type}"


@dataclass(frozen=True, slots=True)
class _Cloner:
    nest: LoopNest
    rings: dict[str, tuple[str, ...]]
    once: frozenset[str]

    def body(self, nodes: tuple[NestNode, ...]) -> tuple[NestNode, ...]:
        """Rewrite one body."""
        mine = tuple(n.tensor for n in nodes if isinstance(n, Allocate) and n.tensor in self.once)
        if mine:
            return self.waited(nodes, mine)
        result: list[NestNode] = []
        for position, node in enumerate(nodes):
            if not isinstance(node, Loop):
                result.append(node)
                continue
            if node.var not in self.rings:
                result.append(replace(node, body=self.body(node.body)))
                continue
            ring = self.ring(node)
            if ring.buffer.is_specialized:
                tail = self.body(nodes[position + 1 :])
                return (*result, *self.specialized(node, ring, tail))
            result += self.pipelined(node, ring)
        return tuple(result)

    def waited(self, nodes: tuple[NestNode, ...], mine: tuple[str, ...]) -> tuple[NestNode, ...]:
        """Return a body whose asynchronous copies are issued first and waited for: a ring of one.

        rewrite::

            tile = load; use tile   ->   init; fill; await; use tile; inval
        """
        ring = Ring(mine[0], mine, CircularBuffer(1, 0, Pipelined(war="barrier")), Const(1))
        allocations = tuple(Allocate(name) for name in mine)
        rest = tuple(n for n in nodes if not (isinstance(n, Allocate) and n.tensor in mine))
        loads = keep(rest, lambda tensor: tensor in mine)
        uses = self.body(keep(rest, lambda tensor: tensor not in mine))
        fill, done = Fill(ring, ZERO, loads), awaited(self.nest, uses, ring)
        return (
            *allocations, InitRing(ring), fill, Await(ring, ZERO), *uses, *done, InvalRing(ring),
        )  # fmt: skip

    def ring(self, loop: Loop) -> Ring:
        """Return the ring of a loop; its name is free in the kernel."""
        tensors = self.rings[loop.var]
        first = self.nest.schedule.tensors[tensors[0]]
        buffer = first.circular
        assert buffer is not None
        trips: Expr = Const(1)
        for j in first.trip_axes:
            trips = trips * first.domain.loop[j].extent
        return Ring(tensors[0], tensors, buffer, simplify(trips, self.nest.facts))

    # ---- pipelined -------------------------------------------------------------------------

    def pipelined(self, loop: Loop, ring: Ring) -> tuple[NestNode, ...]:
        """Return the five loops."""
        mine = tuple(Allocate(t) for t in ring.tensors)
        rest = drop_allocations(loop, set(ring.tensors)).body
        loads = keep(rest, lambda tensor: tensor in ring.tensors)
        uses = self.body(keep(rest, lambda tensor: tensor not in ring.tensors))
        trip, ahead = Var(loop.var), ring.buffer.prefetch
        trips, distance = loop.extent, Const(ahead)
        cut = maximum(trips - distance, ZERO)

        def fill(at: Expr) -> Fill:
            return Fill(ring, at, at_trip(loads, loop.var, at))

        check_parts(loop, ring, ("prologue", "main", "epilogue") if ahead else ("main",))
        prologue = replace(
            part_of(loop, "prologue"), extent=minimum(distance, trips), body=(fill(trip),),
            label="prologue",
        )  # fmt: skip
        refill = Acquire(ring, trip + distance), fill(trip + distance)
        use = Await(ring, trip), *uses, *released(self.nest, uses, ring, trip, loop.var)
        lags = ahead and is_late(self.nest, uses, ring)
        main = replace(
            part_of(loop, "main"),
            extent=cut if ahead else trips,
            body=(*use, *refill) if lags else (*refill, *use),
            label="main",
        )
        epilogue = replace(
            part_of(loop, "epilogue"), start=cut, body=(Await(ring, trip), *uses), label="epilogue"
        )
        around = (prologue,) if ahead else ()
        after = (epilogue,) if ahead else ()
        done = awaited(self.nest, uses, ring)
        return (*mine, InitRing(ring), *around, main, *after, *done, InvalRing(ring))

    # ---- warp-specialised ------------------------------------------------------------------

    def specialized(
        self, loop: Loop, ring: Ring, tail: tuple[NestNode, ...]
    ) -> tuple[NestNode, ...]:
        """Return the two roles, and what follows the loop."""
        trip, group = linear_trip(self.nest, ring)
        groups = consumer_groups(self.nest, ring)
        mine = tuple(Allocate(t) for t in ring.tensors)
        nested = drop_allocations(loop, set(ring.tensors))
        inner = trip_variables(self.nest, ring.name)[-1]

        def fills(trips: Loop) -> tuple[NestNode, ...]:
            loads = keep(trips.body, ring.tensors.__contains__)
            body = Acquire(ring, trip, group), Fill(ring, trip, loads, group)
            check_parts(trips, ring, ("producer", "consumer"))
            return (replace(part_of(trips, "producer"), body=body),)

        def uses(trips: Loop) -> tuple[NestNode, ...]:
            kept = self.body(keep(trips.body, lambda tensor: tensor not in ring.tensors))
            release = released(self.nest, kept, ring, trip, inner, group)
            used = replace(
                part_of(trips, "consumer"), body=(Await(ring, trip, group), *kept, *release)
            )
            last = substitute(trip, {inner: trips.extent - 1})
            return used, *released_last(self.nest, kept, ring, last, trips.extent, group)

        produce = keep(inside((nested,), inner, ring, fills), ring.tensors.__contains__)
        consume = keep(
            inside((nested,), inner, ring, uses), lambda tensor: tensor not in ring.tensors
        )
        if groups is not None:
            produce, consume = groups.in_turn(produce), groups.each(consume)
        # With their registers given away, producers cannot run what follows; else all threads do.
        alone, rest = behind_roles(tail) if hands_over(ring) else ((), tail)
        serves = "" if groups is None else groups.serves
        roles = WarpRoles(ring, produce, (*consume, *alone), serves)
        return (*mine, InitRing(ring), roles, InvalRing(ring), *rest)


def linear_trip(nest: LoopNest, ring: Ring) -> tuple[Expr, Expr]:
    """Return the trip number across all loops of a ring, and the group whose stages it uses."""
    name = ring.tensors[0]
    ts = nest.schedule.tensors[name]
    for _, node in walk(nest.body):
        if isinstance(node, Compute) and node.tensor == name:
            group = ZERO if ts.owner_axis is None else node.loops[ts.owner_axis]
            return trip_of(ts, node.loops), group
    raise ScheduleError(f"{name}: is not computed in this nest")


def part_of(loop: Loop, part: LoopPart) -> Loop:
    """Return a copy of a ring's loop of trips with the directive of one of its parts."""
    return replace(loop, unroll=loop.unroll.of(part))


def check_parts(loop: Loop, ring: Ring, made: tuple[LoopPart, ...]) -> None:
    """Raise `ScheduleError` where a directive is of a part that is not made of a ring's loop."""
    for part, unroll in loop.unroll.parts:
        if part not in made:
            raise ScheduleError(
                f"{unroll.origin} has the directive {unroll.written(part)}, and ring {ring.name}, "
                f"{ring.buffer.type.words}, prefetch {ring.buffer.prefetch}, has no {part}; needed "
                f"{' or '.join(made)}"
            )


# ---- cloning -------------------------------------------------------------------------------------


def keep(nodes: tuple[NestNode, ...], wanted: Callable[[str], bool]) -> tuple[NestNode, ...]:
    """Return a copy with only the statements of wanted tensors; empty loops vanish."""
    result: list[NestNode] = []
    for node in nodes:
        match node:
            case Loop(body=body):
                inner = keep(body, wanted)
                if inner:
                    result.append(replace(node, body=inner))
            case (
                Compute(tensor=tensor)
                | Allocate(tensor=tensor)
                | FenceProducts(tensor)
                | CommitProducts(tensor)
                | AwaitProducts(tensor)
            ):
                if wanted(tensor):
                    result.append(node)
            case _:
                result.append(node)
    return tuple(result)


def at_trip(nodes: tuple[NestNode, ...], var: str, trip: Expr) -> tuple[NestNode, ...]:
    """Return a copy whose statements belong to another trip of loop `var`."""
    result: list[NestNode] = []
    for node in nodes:
        match node:
            case Loop(body=body):
                result.append(replace(node, body=at_trip(body, var, trip)))
            case Compute(loops=loops):
                moved = tuple(substitute(e, {var: trip}) for e in loops)
                result.append(replace(node, loops=moved))
            case _:
                result.append(node)
    return tuple(result)


def drop_allocations(loop: Loop, tensors: set[str]) -> Loop:
    """Return a loop without the allocations of `tensors`, at any depth."""
    body: list[NestNode] = []
    for node in loop.body:
        if isinstance(node, Allocate) and node.tensor in tensors:
            continue
        body.append(drop_allocations(node, tensors) if isinstance(node, Loop) else node)
    return replace(loop, body=tuple(body))


def inside(
    nodes: tuple[NestNode, ...],
    var: str,
    ring: Ring,
    change: Callable[[Loop], tuple[NestNode, ...]],
) -> tuple[NestNode, ...]:
    """Return a copy in which loop `var` is changed where it loads a ring's tensors."""
    result: list[NestNode] = []
    for node in nodes:
        if not isinstance(node, Loop):
            result.append(node)
        elif node.var == var and any(
            isinstance(n, Compute) and n.tensor in ring.tensors for _, n in walk(node.body)
        ):
            result += change(node)
        else:
            result.append(replace(node, body=inside(node.body, var, ring, change)))
    return tuple(result)
