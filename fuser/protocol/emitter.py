"""What the compiler of a kernel's protocol writes into, and what it knows on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from fuser.core.expr import Const, Expr, substitute, variables
from fuser.kir.core import Kernel, Stmt
from fuser.protocol.clusters import placed, unplaced
from fuser.protocol.errors import Unsupported
from fuser.protocol.program import Act, Counted, Instruction, Program
from fuser.protocol.rings import ARRIVALS, WAITS, Ring, of_group, ring_of
from fuser.protocol.threads import THREADS
from fuser.protocol.values import Compiled, compile_index

SAMPLE_COUNTS = (101, 103, 107)
"""Trip counts at which indices are compared."""
Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Emitter:
    """The program of a set of threads, so far.

    Attributes
    ----------
    trip_levels
        How many loops count the trips of each ring.
    counts
        Trip counts that stay unknown: name -> level.
    sizes
        Every size parameter over the trip counts.
    """

    kernel: Kernel
    rings: Mapping[str, Ring]
    trip_loops: set[int]
    trip_levels: Mapping[str, int]
    sizes: Mapping[str, Expr]
    counts: Mapping[str, int]
    threads: NDArray[np.int64]
    program: Program = field(init=False)
    levels: list[str] = field(default_factory=list[str])
    going: dict[tuple[str, str], tuple[int, ...]] = field(
        default_factory=dict[tuple[str, str], tuple[int, ...]]
    )
    ended: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    parts: dict[str, int] = field(default_factory=dict[str, int])
    seen: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    open_writes: list[tuple[str, Compiled, int]] = field(
        default_factory=list[tuple[str, Compiled, int]]
    )
    open_copy: int = -1
    open_bytes: int = 0
    masks: list[bytes] = field(default_factory=list[bytes])
    agent: int = 0
    rank: int = 0
    serves: str = ""
    group: int | None = None

    @property
    def code(self) -> list[Instruction]:
        """The instructions so far."""
        return self.program.code

    def at(self, name: str, rank: int | None = None) -> str:
        """Return the name of a barrier, ring or meeting of this block, or of another one."""
        return placed(self.kernel, name, self.rank if rank is None else rank)

    def trips_of(self, array: str, rank: int | None = None) -> str:
        """Return the name of the trips of a ring, of a block, that this consumer group has."""
        return of_group(self.at(array, rank), self.group)

    def index(self, e: Expr, lets: Mapping[str, Expr], *, thread_free: bool = True) -> Compiled:
        """Compile an index; threads count as thread 0 unless that would matter."""
        e = substitute(e, lets)
        if thread_free and variables(e) & set(THREADS):
            raise Unsupported(f"a barrier of its pipeline is chosen by thread: {e}")
        e = substitute(e, {name: Const(0) for name in THREADS})
        slots = {name: slot for slot, name in enumerate(self.levels)}
        inner = variables(e) - slots.keys() - self.counts.keys()
        e = substitute(e, {name: Const(0) for name in inner}) if not thread_free else e
        return compile_index(e, slots, self.counts)

    def stage(self, array: str, index: Expr, lets: Mapping[str, Expr]) -> Compiled:
        """Compile the stage of an element."""
        return self.index(self.rings[array].stage(index), lets, thread_free=False)

    def act(self, act: Act) -> None:
        """Append an act; copies by cp.async that nothing has arrived for are in flight.

        A thread's own stores between the copies and the arrival for them change nothing.
        """
        if self.open_writes and act.kind not in ("cp_async", "write"):
            self.flush("", None, 0)
        self.code.append(act)
        self.seen.clear()

    def add_copy(self, made: Act, nbytes: Expr) -> None:
        """Append a copy by the engine; boxes issued in a row for one stage are one copy.

        They land in any order, and all of their bytes are waited for. So what goes wrong while some
        have landed does so, too, while none has; apart, n boxes would make 2^n states.
        """
        before = self.code[-1] if self.open_copy == len(self.code) > 0 else None
        size = nbytes.value if isinstance(nbytes, Const) and made.guard is None else 0
        if isinstance(before, Act) and size and self.open_bytes and self.alike(before, made):
            self.open_bytes += size
            number = compile_index(Const(self.open_bytes), {}, {})
            self.code[-1] = replace(before, number=number, writes=(*before.writes, *made.writes))
            return
        self.act(made)
        self.open_copy, self.open_bytes = len(self.code), size

    def alike(self, a: Act, b: Act) -> bool:
        """Whether two copies fill the same stage and complete the same barrier."""

        def to(act: Act) -> tuple[object, ...]:
            (array, stage, _), *_ = act.writes
            index = "" if act.index is None else act.index.text
            return act.kind, act.barrier, index, array, self.samples(array, stage), act.partial

        return to(a) == to(b)

    def flush(self, barrier: str, index: Compiled | None, weight: int) -> None:
        """Put the copies by cp.async so far in flight, with an arrival when they have landed."""
        writes, self.open_writes = tuple(self.open_writes), []
        self.act(Act("cp_async", barrier, index, weight=weight, writes=writes))

    def part(self, array: str) -> int:
        """Return the number of a copy among those of one trip and array."""
        self.parts[array] = self.parts.get(array, -1) + 1
        return self.parts[array]

    def note(self, what: str, array: str, stage: Compiled) -> None:
        """Note that a trip of an array is being filled or read; another stage is another trip."""
        values, key = self.samples(array, stage), (what, array)
        if self.going.get(key, values) != values or key in self.ended:
            self.code.append(Counted(what, array))
            self.ended.discard(key)
            if what == "fills":
                self.parts.pop(array, None)
        self.going[key] = values

    def part_trips(self, stmt: Stmt) -> None:
        """Note where trips end that may have one stage for all of them, as those of a group may.

        What follows an arrival at its full barrier fills, and what follows a wait for it reads,
        for another trip. Loops over trips say so themselves, but where they are unrolled.
        """
        what = "reads" if isinstance(stmt, WAITS) else "fills" if isinstance(stmt, ARRIVALS) else ""
        if not what:
            return
        barrier = getattr(stmt, "barrier", "")
        stages = {a: r.stages for r in self.kernel.rings if r.full == barrier for a in r.arrays}
        for key in self.going:
            own = stages.get(unplaced(ring_of(key[1])), 0)
            if key[0] == what and own and (own == 1 or ring_of(key[1]) != key[1]):
                self.ended.add(key)

    def samples(self, array: str, stage: Compiled) -> tuple[int, ...]:
        """Return values that tell stages apart, however their indices are written."""
        span = range(2 * max((ring.stages for ring in self.rings.values()), default=1))
        level = min(self.level_of(array), len(self.levels))
        inner = len(self.levels) - level
        values = [
            tuple(stage.at((*outer, *(deeper,) * inner), *SAMPLE_COUNTS) for deeper in span[:2])
            for outer in (product(span, repeat=level) if level else [()])
        ]
        if any(least != other for least, other in values):
            raise Unsupported(
                f"{array}: its stage follows loop {self.levels[-1]}, inside the loop that fills it"
            )
        return tuple(least for least, _ in values)

    def level_of(self, array: str) -> int:
        """Return how many loops count the trips of an array of `going`."""
        return self.trip_levels[unplaced(ring_of(array))]

    def count_trips(self, level: int) -> None:
        """Count what a straight line has filled and read: it is at most one trip more.

        What fewer than `level` loops count goes on: a loop inside of them has begun or ended.
        """
        over = [key for key in self.going if self.level_of(key[1]) >= level]
        for what, array in sorted(over):
            self.code.append(Counted(what, array))
            del self.going[what, array]
            self.ended.discard((what, array))
        for array in [name for name in self.parts if self.level_of(name) >= level]:
            del self.parts[array]

    def count_begun(self, around: frozenset[tuple[str, str]]) -> None:
        """Count the trips that a side of a branch began: the other side does not."""
        begun = self.going.keys() - around
        here = len(self.levels)
        for what, array in sorted(key for key in begun if self.level_of(key[1]) >= here):
            self.code.append(Counted(what, array))
            del self.going[what, array]
            self.ended.discard((what, array))
            self.parts.pop(array, None)

    def mask_id(self, mask: Mask) -> int:
        """Return a number for a set of lanes."""
        key = mask.tobytes()
        if key not in self.masks:
            self.masks.append(key)
        return self.masks.index(key)

    def act_boundary(self) -> None:
        """Close what is only deduplicated or grouped in a straight line."""
        if self.open_writes:
            self.flush("", None, 0)
        self.open_copy = -1
        self.seen.clear()
