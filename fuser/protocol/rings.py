"""Which shared arrays of a kernel are rings, and which of its loops count trips."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fuser.core.expr import Const, Expr, evaluate, substitute, variables
from fuser.kir.core import Kernel, Stmt, TensorMapParam, walk_stmts
from fuser.kir.stmts import (
    BulkCommit,
    BulkLoad,
    BulkStore,
    BulkWait,
    BulkWaitRead,
    CpAsync,
    CpAsyncArrive,
    For,
    Let,
    MbarrierArrive,
    MbarrierArriveExpectTx,
    MbarrierArriveRemote,
    MbarrierArriveToken,
    MbarrierWait,
    MbarrierWaitToken,
    Roles,
    Store,
    TensorLoad,
    TensorStore,
    VectorLoad,
    VectorStore,
    Wgmma,
    WgmmaCommit,
    WgmmaWait,
)
from fuser.protocol.values import elements_of

ARRIVALS = (
    CpAsyncArrive, MbarrierArrive, MbarrierArriveExpectTx, MbarrierArriveRemote,
    MbarrierArriveToken,
)  # fmt: skip
WAITS = (MbarrierWait, MbarrierWaitToken)
ENGINE_LOADS = (BulkLoad, TensorLoad)
ENGINE_STORES = (BulkStore, TensorStore)
GROUPS = (BulkCommit, BulkWaitRead, BulkWait, WgmmaCommit, WgmmaWait)
"""What a thread does with the stores and the products it has issued."""
PERIODS = 2
"""A stage and the parity of its round repeat after so many rounds."""
MOST_LEVELS = 2
"""Levels of trips that a model counts; more are joined before (`fuser.protocol.joined`)."""


@dataclass(frozen=True, slots=True)
class Ring:
    """A shared array whose element ``stage * slot + inside`` belongs to a stage."""

    name: str
    stages: int
    slot: int

    def stage(self, index: Expr) -> Expr:
        """Return the stage of an element."""
        return index // self.slot


OF_GROUP = " for group "


def bytes_of(kernel: Kernel, stmt: BulkLoad | TensorLoad) -> Expr:
    """Return the bytes that a copy by the engine completes on its barrier."""
    if isinstance(stmt, BulkLoad):
        return stmt.nbytes
    maps = {p.name: p for p in kernel.params if isinstance(p, TensorMapParam)}
    return Const(maps[stmt.tensor_map].box_bytes)


def of_group(array: str, group: int | None) -> str:
    """Return the name of the trips of an array that are one consumer group's."""
    return array if group is None else f"{array}{OF_GROUP}{group}"


def ring_of(array: str) -> str:
    """Return the ring whose stages hold the trips of an array, be they all or a group's."""
    return array.partition(OF_GROUP)[0]


@dataclass(frozen=True, slots=True)
class Place:
    """A statement, the index variables defined around it, and the loops it is in."""

    stmt: Stmt
    lets: Mapping[str, Expr]
    loops: tuple[For, ...]

    def expr(self, e: Expr) -> Expr:
        """Return an index over loop variables, sizes and threads alone."""
        return substitute(e, self.lets)


def places(
    body: tuple[Stmt, ...],
    lets: Mapping[str, Expr] | None = None,
    loops: tuple[For, ...] = (),
) -> Iterator[Place]:
    """Yield every statement of a body with what is around it."""
    known = dict(lets or {})
    for stmt in body:
        yield Place(stmt, known, loops)
        if isinstance(stmt, Let):
            known = {**known, stmt.name: substitute(stmt.value, known)}
        inner = (*loops, stmt) if isinstance(stmt, For) else loops
        for nested in stmt.bodies():
            yield from places(nested, known, inner)


def find_rings(kernel: Kernel) -> dict[str, Ring]:
    """Return the ring arrays of a kernel by name.

    The kernel names those of its circular buffers, whose stages no loop need follow: of few trips
    there are copies. Others are found by what is done to them.
    """
    numel = {array.name: array.numel for array in kernel.shared}
    sizes = {barrier.name: barrier.size for barrier in kernel.barriers}
    stages = {name: ring.stages for ring in kernel.rings for name in ring.arrays}
    for place in places(kernel.body):
        stmt = place.stmt
        if isinstance(stmt, ENGINE_LOADS) and stmt.barrier in sizes:
            stages.setdefault(stmt.dst, sizes[stmt.barrier])
    left = stored(kernel)
    for array in kernel.shared:
        if array.name in left:
            stages.setdefault(array.name, array.stages)
    for place in places(kernel.body):
        written = _written_by_threads(place.stmt)
        if written is None or written[0] not in numel or written[0] in stages:
            continue
        around = [loop for loop in place.loops if any(_on_barriers(loop))]
        count = _barriers_of(around[-1], sizes) if around else None
        name, index = written[0], place.expr(written[1])
        if count and numel[name] % count == 0:
            slot = numel[name] // count
            if count == 1 or any(varies(index, slot, loop, count) for loop in around):
                stages[name] = count
    return {
        name: Ring(name, count, numel[name] // count)
        for name, count in stages.items()
        if numel[name] % count == 0
    }


def stored(kernel: Kernel) -> frozenset[str]:
    """Return the shared arrays that the copy engine stores out of."""
    return frozenset(s.src for s in walk_stmts(kernel.body) if isinstance(s, ENGINE_STORES))


def _written_by_threads(stmt: Stmt) -> tuple[str, Expr] | None:
    if isinstance(stmt, Store | VectorStore):
        return stmt.memory, stmt.index
    if isinstance(stmt, CpAsync):
        return stmt.dst, stmt.dst_index
    return None


def _on_barriers(loop: For) -> Iterator[str]:
    """Yield the barriers on which statements of a loop arrive or wait."""
    for stmt in walk_stmts(loop.body):
        if isinstance(stmt, (*ARRIVALS, *WAITS)):
            yield stmt.barrier


def _barriers_of(loop: For, sizes: Mapping[str, int]) -> int | None:
    """Return how many barriers the array has that a loop arrives or waits on."""
    return sizes.get(next(_on_barriers(loop)))


def varies(index: Expr, slot: int, loop: For, stages: int) -> bool:
    """Whether the stage of an index follows a loop variable, all others being zero."""
    return len(_stages_met(index, slot, loop, stages)) >= stages > 1


def changes_stage(loop: For, rings: Mapping[str, Ring], lets: Mapping[str, Expr]) -> bool:
    """Whether a loop of known trips accesses several stages of a ring, be they not all."""
    if loop.indices() is None:
        return False
    return any(
        len(_stages_met(place.expr(index), rings[name].slot, loop, rings[name].stages)) > 1
        for place in places(loop.body, lets)
        for name, index in accesses(place.stmt)
        if name in rings
    )


def _stages_met(index: Expr, slot: int, loop: For, stages: int) -> set[int]:
    """Return the stages of an index in the first rounds of a loop, all other variables zero."""
    if loop.var not in variables(index):
        return set()
    env: dict[str, int] = defaultdict(int)
    seen = set[int]()
    indices = loop.indices()
    most = PERIODS * stages
    for value in range(most) if indices is None else indices[:most]:
        env[loop.var] = value
        try:
            seen.add(int(evaluate(index, env)) // slot)
        except ZeroDivisionError:
            return set()
    return seen


def find_trip_loops(kernel: Kernel, rings: Mapping[str, Ring]) -> set[int]:
    """Return the ids of the loops that count trips: barriers or stages follow them.

    The loop in which a producer serves consumer groups is none: each group's trips are counted.
    """
    roles = [role for s in walk_stmts(kernel.body) if isinstance(s, Roles) for role in s.roles]
    serving = {role.serves for role in roles if role.serves}
    found = set[int]()
    for place in places(kernel.body):
        place = replace(place, loops=tuple(p for p in place.loops if p.var not in serving))
        if isinstance(place.stmt, (*ARRIVALS, *WAITS, *GROUPS)):
            found.update(id(loop) for loop in place.loops)
            continue
        for name, index in accesses(place.stmt):
            ring = rings.get(name)
            if ring is None:
                continue
            at = place.expr(index)
            for depth, loop in enumerate(place.loops):
                if varies(at, ring.slot, loop, ring.stages):
                    found.update(id(outer) for outer in place.loops[: depth + 1])
    return found - _slots_of_rounds(kernel, rings, found)


def _slots_of_rounds(kernel: Kernel, rings: Mapping[str, Ring], trip_loops: set[int]) -> set[int]:
    """Return the ids of unrolled loops in which readers make trips that one loop fills.

    Registers run ahead of a consumer's trips in rounds; to the producer they are so many trips, as
    if the loop of the round's trips were its copies. So are those of a ring inside of rows, where
    no more levels can be counted.
    """
    levels = trip_levels(kernel, rings, trip_loops)
    filled = {
        barrier: levels[tensor]
        for ring in kernel.rings
        for barrier in (ring.full, ring.empty)
        for tensor in ring.arrays
        if tensor in levels
    }
    return {
        id(place.loops[-1])
        for place in places(kernel.body)
        if isinstance(place.stmt, (*ARRIVALS, *WAITS))
        and place.stmt.barrier in filled
        and place.loops
        and place.loops[-1].is_unrolled()
        and place.loops[-1].trip() is not None
        and sum(id(loop) in trip_loops for loop in place.loops)
        > min(filled[place.stmt.barrier], MOST_LEVELS)
    }


def trip_levels(kernel: Kernel, rings: Mapping[str, Ring], trip_loops: set[int]) -> dict[str, int]:
    """Return how many loops count the trips of each ring: those around what fills it.

    A ring may be read in a deeper loop, that of a ring inside its own: the trip stays the same.
    """
    levels = dict.fromkeys(rings, 0)
    for place in places(kernel.body):
        stmt = place.stmt
        written = (stmt.dst, ...) if isinstance(stmt, ENGINE_LOADS) else _written_by_threads(stmt)
        if written is not None and written[0] in levels:
            depth = sum(id(loop) in trip_loops for loop in place.loops)
            levels[written[0]] = max(levels[written[0]], depth)
    return levels


def accesses(stmt: Stmt) -> Iterator[tuple[str, Expr]]:
    """Yield memory and index of everything a statement reads or writes element by element."""
    if isinstance(stmt, ENGINE_LOADS):
        yield stmt.dst, stmt.dst_index
    if isinstance(stmt, ENGINE_STORES):
        yield stmt.src, stmt.src_index
    written = _written_by_threads(stmt)
    if written is not None:
        yield written
    yield from reads(stmt)


def reads(stmt: Stmt) -> Iterator[tuple[str, Expr]]:
    """Yield memory and index of every element that a statement reads."""
    if isinstance(stmt, VectorLoad):
        yield stmt.memory, stmt.index
    if isinstance(stmt, Wgmma):
        yield stmt.a, stmt.a_index
        yield stmt.b, stmt.b_index
    for element in elements_of(stmt):
        yield element.memory, element.index
