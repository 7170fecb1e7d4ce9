"""Whether a fill writes each element of a stage once: what is written again is lost unread.

The protocol knows stages, not addresses in them. This looks at those of the writes alone: a thread
that fills an element twice, and neither arrives, waits nor meets others in between, has put two
elements of the tensor where there is room for one. Every loop over trips is run for its first trip,
by all threads of a block, with sizes of a few whole tiles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuser.core.expr import Const, Expr, evaluate
from fuser.kir.core import Kernel, SharedArray, Stmt, walk_stmts
from fuser.kir.stmts import (
    BlockReduce,
    BulkLoad,
    ClusterSync,
    CpAsync,
    For,
    GridReduce,
    If,
    Let,
    NamedBarrier,
    Outlined,
    Roles,
    Scoped,
    Store,
    SyncThreads,
    TensorLoad,
    VectorStore,
)
from fuser.protocol.clusters import position
from fuser.protocol.rings import ARRIVALS, GROUPS, WAITS, Ring, bytes_of, stored
from fuser.protocol.sizes import TripSize, bind_sizes
from fuser.protocol.threads import block_threads, thread_env

FILLS = (Store, VectorStore, CpAsync, BulkLoad, TensorLoad)
ENDS = (
    *ARRIVALS, *WAITS, *GROUPS, SyncThreads, ClusterSync, NamedBarrier, BlockReduce, GridReduce,
)  # fmt: skip
"""Behind these, somebody else may have read what was filled before."""
MOST_ITERATIONS = 4096
"""Of one loop inside of a trip that are looked at."""

Mask = NDArray[np.bool_]
Env = Mapping[str, Any]


def filled_twice(
    kernel: Kernel, rings: Mapping[str, Ring], trip_loops: set[int], sizes: tuple[TripSize, ...]
) -> str:
    """Say which element of a stage a fill writes twice; nothing where none is found."""
    few = Const(2 * max((ring.stages for ring in rings.values()), default=1) + 1)
    bound = {
        **bind_sizes(kernel, sizes, {size.name: few for size in sizes}),
        **dict.fromkeys(("bx", "by", "bz"), Const(0)), **position(kernel, 0),
    }  # fmt: skip
    threads = np.arange(block_threads(kernel))
    env = {name: evaluate(e, {}) for name, e in bound.items()} | thread_env(kernel, threads)
    by_threads = rings.keys() - stored(kernel)  # a tile to be stored may hold partial sums
    arrays = {array.name: array for array in kernel.shared}
    walker = _Walker(kernel, rings, trip_loops, by_threads, arrays)
    try:
        walker.body(kernel.body, env, np.ones(threads.size, np.bool_))
        walker.end()
    except (KeyError, ZeroDivisionError):
        return ""  # an index that only a run knows
    return walker.found


@dataclass(slots=True)
class _Walker:
    """Runs the fills of a kernel.

    Attributes
    ----------
    by_threads
        Rings of which fills by threads are looked at.
    filled
        Per array what has been filled since the last end: ``thread * numel + element``.
    found
        What is wrong.
    """

    kernel: Kernel
    rings: Mapping[str, Ring]
    trip_loops: set[int]
    by_threads: Set[str]
    arrays: Mapping[str, SharedArray]
    filled: dict[str, list[NDArray[np.int64]]] = field(
        default_factory=lambda: defaultdict[str, list[NDArray[np.int64]]](list)
    )
    found: str = ""

    def body(self, stmts: tuple[Stmt, ...], env: Env, mask: Mask) -> None:
        """Run statements in order for the threads of a mask."""
        known = dict(env)
        for stmt in stmts:
            match stmt:
                case Let(name, value):
                    self.let(name, value, known)
                case If(cond, body, orelse):
                    held = np.broadcast_to(np.asarray(evaluate(cond, known), np.bool_), mask.shape)
                    self.side(body, known, mask & held)
                    self.side(orelse, known, mask & ~held)
                case For():
                    self.loop(stmt, known, mask)
                case Roles(roles=roles):
                    threads = known["thread"]
                    for role in roles:
                        inside = (threads >= role.range.start) & (threads < role.range.stop)
                        self.side(role.body, known, mask & inside)
                case Scoped(body=body) | Outlined(body=body):
                    self.body(body, known, mask)
                case _ if isinstance(stmt, ENDS):
                    self.end()
                case _:
                    self.fill(stmt, known, mask)

    def let(self, name: str, value: Expr, known: dict[str, Any]) -> None:
        """Define an index; one that cannot be known is missed where it is used."""
        known.pop(name, None)
        try:
            known[name] = evaluate(value, known)
        except KeyError:
            return

    def side(self, body: tuple[Stmt, ...], env: Env, mask: Mask) -> None:
        """Run a body for its threads, if there are any and it matters."""
        if mask.any() and any(isinstance(s, (*FILLS, *ENDS)) for s in walk_stmts(body)):
            self.body(body, env, mask)

    def loop(self, loop: For, env: Env, mask: Mask) -> None:
        """Run a loop inside of a trip, or one trip of a loop over them."""
        start, extent, step = (evaluate(e, env) for e in (loop.start, loop.extent, loop.step))
        if id(loop) in self.trip_loops:
            self.end()
            self.side(loop.body, {**env, loop.var: start}, mask & (start < extent))
            self.end()
            return
        if not any(isinstance(s, (*FILLS, *ENDS)) for s in walk_stmts(loop.body)):
            return
        for iteration in range(MOST_ITERATIONS):
            at = start + iteration * step
            active = mask & (at < extent)
            if not active.any():
                return
            self.side(loop.body, {**env, loop.var: at}, active)

    def fill(self, stmt: Stmt, env: Env, mask: Mask) -> None:
        """Note the elements that a statement fills."""
        width, known = 1, self.by_threads
        match stmt:
            case Store(memory=array, index=index):
                pass
            case VectorStore(memory=array, index=index, width=width):
                pass
            case CpAsync(dst=array, dst_index=index, width=width):
                pass
            case BulkLoad(dst=array, dst_index=index) | TensorLoad(dst=array, dst_index=index):
                known = self.rings.keys()
            case _:
                return
        if array not in known:
            return
        if isinstance(stmt, BulkLoad | TensorLoad):
            nbytes = int(np.max(evaluate(bytes_of(self.kernel, stmt), env)))
            width = max(nbytes, 0) // self.arrays[array].dtype.nbytes
        first = np.broadcast_to(np.asarray(evaluate(index, env), np.int64), mask.shape)[mask]
        elements = first[:, None] + np.arange(width)
        places = np.flatnonzero(mask)[:, None] * self.arrays[array].numel + elements
        self.filled[array].append(places.ravel())

    def end(self) -> None:
        """Judge what has been filled so far, and forget it."""
        for array, parts in self.filled.items():
            places, counts = np.unique(np.concatenate(parts), return_counts=True)
            twice = places[counts > 1]
            if twice.size and not self.found:
                thread, element = divmod(int(twice[0]), self.arrays[array].numel)
                stage, inside = divmod(element, self.rings[array].slot)
                self.found = (
                    f"thread {thread} fills element {inside} of stage {stage} of {array} twice in "
                    "one trip; what it held first is lost before anybody reads it"
                )
        self.filled.clear()
