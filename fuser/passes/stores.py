"""Place the stores of the copy engine: when a tile is shown, stored, and free to be written again.

Threads write a tile in shared memory; one of them then has the copy engine store it. With S stages,
trip l uses stage ``l % S``, counted across all loops around the tile.

rewrite::

    for l: tile = f(x); y = tile
    ->
    for l: reuse tile; tile = f(x); emit y
    drain y

A tile that the copy engine itself loads is stored out of the ring's stage, which is filled again
only when the store has read it. Who fills waits for that, or who stores before the release::

    acquire l + P; fill l + P; await l; y = tile; release l                        (pipelined)
    ->
    acquire l + P; reuse tile; fill l + P; await l; emit y; release l

    await l; y = tile; release l   ->   await l; emit y; drain y; release l       (warp-specialised)

`fuser.passes.store_lowering` owns the statements of these verbs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fuser.core.errors import ScheduleError
from fuser.core.expr import ONE
from fuser.core.simplify import simplify
from fuser.nest.nodes import (
    Allocate,
    Await,
    Compute,
    Drain,
    Emit,
    Fill,
    InvalRing,
    Loop,
    LoopNest,
    NestNode,
    Outlet,
    Release,
    Reuse,
    Ring,
    WarpRoles,
    walk,
)
from fuser.passes.circular_buffer import keep
from fuser.schedule.kinds import LoadStoreOpType, MemoryType
from fuser.schedule.stores import stored_tiles

Body = tuple[NestNode, ...]


@dataclass(frozen=True, slots=True)
class EngineStores:
    """See the module."""

    name: ClassVar[str] = "engine-stores"

    def __call__(self, nest: LoopNest) -> LoopNest:
        """Rewrite the nest; the same nest when the copy engine stores nothing."""
        stored = stored_tiles(nest.graph, nest.schedule.tensors)
        if not stored:
            return nest
        tiles = {output: check_tile(nest, output, tile) for output, tile in stored.items()}
        body = _Placer(nest, tiles).whole(nest.body)
        return replace(nest, body=body)


def check_tile(nest: LoopNest, output: str, tile: str | None) -> str:
    """Return the tile of an output; raise `ScheduleError` unless it can be stored out of."""
    tensors = nest.schedule.tensors
    how = f"{output}: stored by {tensors[output].load.name}"
    if tile is None:
        raise ScheduleError(
            f"{how}, and its cache owns no loops; needed a tile in shared memory that it copies"
        )
    ts = tensors[tile]
    if ts.memory is not MemoryType.shared:
        raise ScheduleError(
            f"{how} out of {tile}, which lives in {ts.memory.value} memory; needed shared memory"
        )
    if ts.load is LoadStoreOpType.cp_async or (ts.circular and not ts.load.is_async_proxy):
        raise ScheduleError(
            f"{how} out of {tile}, which threads load by {ts.load.name} into a ring; load it by "
            "tma or bulk, or give the output a cache of its own"
        )
    if ts.stages > 1 and ts.circular is None and not ts.trip_axes:
        raise ScheduleError(
            f"{tile}: has {ts.stages} stages to be stored out of, and no loop is left of its "
            f"compute-at position {ts.position}; inline it inside the loop of its trips"
        )
    return tile


@dataclass(frozen=True, slots=True)
class _Placer:
    """Rewrites bodies.

    Attributes
    ----------
    tiles
        Output -> what it is a copy of.
    """

    nest: LoopNest
    tiles: dict[str, str]

    def whole(self, nodes: Body) -> Body:
        """Rewrite all that one set of threads runs; behind the last store, drain."""
        placed = self.body(nodes, ())
        outlets: dict[Outlet, None] = {}
        last = -1
        for position, node in enumerate(placed):
            if isinstance(node, WarpRoles):
                continue  # its threads drain what they have stored
            found = [n.outlet for _, n in walk((node,)) if isinstance(n, Emit) and n.outlet.stages]
            if found:
                outlets |= dict.fromkeys(found)
                last = position
        if last < 0:
            return placed
        return (*placed[: last + 1], Drain(tuple(outlets)), *placed[last + 1 :])

    def body(self, nodes: Body, path: tuple[Loop, ...]) -> Body:
        """Rewrite one body inside the loops `path`."""
        nodes = self.out_of_tiles(nodes, path)
        for ring in [node.ring for node in nodes if isinstance(node, Await)]:
            nodes = self.out_of_ring(nodes, ring, path)
        nodes = self.drained(nodes)
        result: list[NestNode] = []
        for node in nodes:
            match node:
                case Loop():
                    result.append(replace(node, body=self.body(node.body, (*path, node))))
                case WarpRoles():
                    producer, consumer = self.whole(node.producer), self.whole(node.consumer)
                    result.append(replace(node, producer=producer, consumer=consumer))
                case _:
                    result.append(node)
        return tuple(result)

    def out_of_tiles(self, nodes: Body, path: tuple[Loop, ...]) -> Body:
        """Store the tiles that threads write in this body."""
        here = {n.tensor for n in nodes if isinstance(n, Allocate)}
        mine = tuple(y for y, t in self.tiles.items() if t in here and not self.in_ring(t))
        if not mine:
            return nodes
        check_threads(mine, path)
        tiles = {self.tiles[y] for y in mine}
        outlet = self.outlet(mine, check_stages(self.nest, tuple(self.tiles[y] for y in mine)))
        stores = keep(nodes, lambda tensor: tensor in mine)
        stores = tuple(n for n in stores if isinstance(n, Loop | Compute))
        rest = keep(nodes, lambda tensor: tensor not in mine)
        writes = [i for i, node in enumerate(rest) if _computes((node,)) & tiles]
        first, last = writes[0], writes[-1]
        again = any(not loop.parallel.is_parallel and self.repeats(loop) for loop in path)
        reuse = (Reuse(outlet, outlet.stages - 1),) if again else ()
        emit = Emit(outlet, stores)
        return (*rest[:first], *reuse, *rest[first : last + 1], emit, *rest[last + 1 :])

    def out_of_ring(self, nodes: Body, ring: Ring, path: tuple[Loop, ...]) -> Body:
        """Store the tiles that the copy engine has loaded, before their stage is released."""
        mine = self.stored_from(ring)
        stores = keep(nodes, lambda tensor: tensor in mine) if mine else ()
        stores = tuple(n for n in stores if isinstance(n, Loop | Compute))
        if not stores:
            return nodes
        check_threads(mine, path)
        rest = keep(nodes, lambda tensor: tensor not in mine)
        outlet = self.outlet(mine, 0)
        ends = (
            i for i, n in enumerate(rest) if isinstance(n, Release | InvalRing) and n.ring == ring
        )
        at = next(ends, len(rest))
        buffer, emit = ring.buffer, Emit(outlet, stores)
        if buffer.is_specialized:
            return (*rest[:at], emit, Drain((outlet,)), *rest[at:])
        filled: list[NestNode] = []
        for node in rest[:at]:
            if isinstance(node, Fill) and node.ring == ring and ring.trips != ONE:
                filled.append(Reuse(outlet, buffer.stages - buffer.prefetch - 1))
            filled.append(node)
        return (*filled, emit, *rest[at:])

    def drained(self, nodes: Body) -> Body:
        """Drain the stores out of a pipelined ring before its end: it may be filled anew."""
        result: list[NestNode] = []
        for node in nodes:
            mine = self.stored_from(node.ring) if isinstance(node, InvalRing) else ()
            if mine and isinstance(node, InvalRing) and not node.ring.buffer.is_specialized:
                result.append(Drain((self.outlet(mine, 0),)))
            result.append(node)
        return tuple(result)

    def stored_from(self, ring: Ring) -> tuple[str, ...]:
        """Return the outputs that are stored out of the stages of a ring."""
        return tuple(y for y, t in self.tiles.items() if t in ring.tensors)

    def outlet(self, outputs: tuple[str, ...], stages: int) -> Outlet:
        """Return what is stored together."""
        return Outlet(tuple((y, self.tiles[y]) for y in outputs), stages)

    def in_ring(self, tile: str) -> bool:
        """Whether the copy engine fills a tile."""
        return self.nest.schedule.tensors[tile].load.is_async_proxy

    def repeats(self, loop: Loop) -> bool:
        """Whether a loop may run more than once."""
        return simplify(loop.extent, self.nest.facts) != ONE


def check_stages(nest: LoopNest, tiles: tuple[str, ...]) -> int:
    """Return the stages of tiles that are stored together; raise `ScheduleError` if they differ."""
    first, *others = tiles
    tensors = nest.schedule.tensors
    for other in others:
        if tensors[other].stages != tensors[first].stages:
            raise ScheduleError(
                f"{other}: has {tensors[other].stages} stages to be stored out of, and {first} in "
                f"the same loop {tensors[first].stages}; all tiles of a loop must agree"
            )
    return tensors[first].stages


def check_threads(outputs: tuple[str, ...], path: tuple[Loop, ...]) -> None:
    """Raise `ScheduleError` where a store lies inside a loop over threads."""
    for loop in path:
        if loop.parallel.is_block:
            raise ScheduleError(
                f"{', '.join(outputs)}: stored by the copy engine inside a loop over "
                f"{loop.parallel.name}; one thread of a block issues it, so inline its tile "
                "outside of thread axes, also of consumer groups"
            )


def _computes(nodes: Body) -> set[str]:
    return {node.tensor for _, node in walk(nodes) if isinstance(node, Compute)}
