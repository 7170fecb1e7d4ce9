"""The abstract protocol of one kernel: its agents, barriers, stages, and when trips repeat."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from math import lcm

import numpy as np
from numpy.typing import NDArray

from fuser.core.expr import Const, Expr, Var
from fuser.kir.core import Kernel, walk_stmts
from fuser.kir.stmts import ClusterSync, Roles, SyncThreads
from fuser.protocol.clusters import placed
from fuser.protocol.compile import Compiler
from fuser.protocol.counts import UNUSED, Counting
from fuser.protocol.errors import Unsupported
from fuser.protocol.fills import filled_twice
from fuser.protocol.partings import partings, require_one_size
from fuser.protocol.program import Act, Program, Read
from fuser.protocol.repeats import is_foldable, named_by
from fuser.protocol.rings import (
    MOST_LEVELS,
    PERIODS,
    Ring,
    find_rings,
    find_trip_loops,
    ring_of,
    stored,
    trip_levels,
)
from fuser.protocol.sizes import TripSize, bind_sizes, depth, trip_sizes
from fuser.protocol.threads import block_threads
from fuser.protocol.values import Compiled

WARP = 32
LEVELS = "outer trips", "inner trips", "innermost trips"
"""What the trip counts are called, by level."""
MOST_BLOCKS = 2
"""Blocks of a cluster whose states are few enough to explore."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a kernel's pipeline consists of.

    Attributes
    ----------
    compiled
        Models with trip counts left open, by how much the last tile is cut: compiled once.
    period
        Trips after which stages and parities repeat.
    lost
        What a fill writes twice, as `fuser.protocol.fills` says it; or nothing.
    once
        Sizes whose loops make one trip: those joined with the loops inside of them.
    """

    kernel: Kernel
    rings: dict[str, Ring]
    trip_loops: set[int]
    sizes: tuple[TripSize, ...]
    levels: int
    once: tuple[TripSize, ...] = ()
    compiled: dict[int, Model] = field(default_factory=dict[int, "Model"])
    trip_levels: dict[str, int] = field(init=False)
    period: int = field(init=False)
    lost: str = field(init=False)

    def __post_init__(self) -> None:
        sizes = [barrier.size for barrier in self.kernel.barriers]
        sizes += [self.rings[name].stages for name in stored(self.kernel)]
        levels = trip_levels(self.kernel, self.rings, self.trip_loops)
        object.__setattr__(self, "trip_levels", levels)
        object.__setattr__(self, "period", lcm(*(PERIODS * size for size in sizes), 1))
        lost = filled_twice(self.kernel, self.rings, self.trip_loops, self.sizes)
        object.__setattr__(self, "lost", lost)

    @property
    def fewest(self) -> tuple[int, int]:
        """The fewest trips of the outer and of the inner level that any size makes."""
        of = [[s.fewest for s in self.sizes if s.level == level] for level in range(MOST_LEVELS)]
        return min(of[0], default=0), min(of[1], default=0)

    @property
    def is_large(self) -> bool:
        """Whether all interleavings are too many states, whatever the stages are."""
        return self.kernel.cluster_size > MOST_BLOCKS

    @property
    def several(self) -> bool:
        """Whether trips of one level are counted by several sizes."""
        return len({s.level for s in self.sizes}) < len(self.sizes)


def analyse(kernel: Kernel) -> Analysis | None:
    """Return the pipeline of a kernel; None when it has none."""
    if not kernel.barriers and not stored(kernel):
        return None
    rings = find_rings(kernel)
    loops = find_trip_loops(kernel, rings)
    return Analysis(kernel, rings, loops, trip_sizes(kernel, loops), depth(kernel, loops))


@dataclass(frozen=True, slots=True)
class Model:
    """A protocol to explore.

    Attributes
    ----------
    barriers, stages
        Cells of each barrier array, and of the stages that hold an array's trips: of a ring, or of
        those of its trips that are one consumer group's. A stage has a cell for each of `parts`.
    counting
        What is known of the trip counts at first.
    folds
        By level, after how many trips everything repeats; 0: never folded.
    partings
        By agent, the instructions behind which trips count anew; see `fuser.protocol.partings`.
    """

    analysis: Analysis
    agents: tuple[Program, ...]
    barriers: dict[str, range]
    stages: dict[str, range]
    parts: dict[str, tuple[int, ...]]
    tokens: tuple[tuple[str, int, int], ...]
    counting: Counting
    folds: tuple[int, ...]
    partings: tuple[tuple[int, ...], ...] = ()

    @property
    def makes_trips(self) -> bool:
        """Whether the loops of all levels may run."""
        counts = (self.counting.outer, self.counting.inner)[: self.analysis.levels]
        return UNUSED not in counts

    @property
    def cells(self) -> int:
        """Number of cells of all stages."""
        return max((cells.stop for cells in self.stages.values()), default=0)

    @property
    def arrays(self) -> tuple[str, ...]:
        """Ring arrays in order."""
        return tuple(self.stages)


def exact_model(analysis: Analysis, trips: tuple[int, ...], cut: int = 0) -> Model:
    """Return the protocol for so many trips on each level, the last `cut` elements short.

    Where several sizes count on one level, all make equally many.
    """
    outer, inner = (*trips, 0, 0)[:MOST_LEVELS]
    counting = Counting((outer, True), (inner, True))
    return replace(_compiled(analysis, cut), counting=counting, folds=(0,) * analysis.levels)


def open_model(analysis: Analysis, residue: int | None = None) -> Model:
    """Return the protocol for unknown trip counts.

    Parameters
    ----------
    residue
        The inner count modulo the period, where a stage follows from both counts.
    """
    if any(s.level for s in analysis.sizes) and _has_groups(analysis.kernel):
        raise Unsupported("consumer groups run an unknown number of trips in each round")
    model, period = _compiled(analysis, 0), analysis.period
    parts = partings(model.agents)
    require_one_size(model.agents, parts)
    least, (outer, inner) = residue or 0, analysis.fewest
    if analysis.levels > 1 and not least and (inner or not meets_each_time(analysis)):
        least = 1 if residue is None else period
    counting = Counting(
        (outer, False),
        (least, False) if analysis.levels > 1 else UNUSED,
        (1, 1 if residue is None else period),
        4 * period,
    )
    folds = tuple(_fold(model, level, residue) for level in range(analysis.levels))
    return replace(model, counting=counting, folds=folds, partings=parts)


def _has_groups(kernel: Kernel) -> bool:
    roles = [s for s in walk_stmts(kernel.body) if isinstance(s, Roles)]
    return any(role.groups > 1 for s in roles for role in s.roles)


def _compiled(analysis: Analysis, cut: int) -> Model:
    if analysis.levels > MOST_LEVELS:
        raise Unsupported(f"its trips are counted by {analysis.levels} nested loops")
    if cut not in analysis.compiled:
        sizes, levels = counted(analysis, cut)
        analysis.compiled[cut] = model_of(analysis, sizes, levels, Counting(), ())
    return analysis.compiled[cut]


def counted(analysis: Analysis, cut: int) -> tuple[dict[str, Expr], dict[str, int]]:
    """Return every size over trip counts, and the levels of these by name."""
    called = {
        s.name: f"{LEVELS[s.level]} of {s.name}" if analysis.several else LEVELS[s.level]
        for s in analysis.sizes
    }
    counts = {size: Var(name) for size, name in called.items()}
    sizes = bind_sizes(analysis.kernel, analysis.sizes, counts, cut)
    sizes |= {s.name: s.of(Const(1)) for s in analysis.once}
    levels = {LEVELS[level]: level for level in range(analysis.levels)}
    return sizes, levels | {called[s.name]: s.level for s in analysis.sizes}


def meets_each_time(analysis: Analysis) -> bool:
    """Whether the block meets in every trip of the outer loop.

    Where it does not, agents may be any number of empty outer trips apart; the inner count is then
    at least 1, and 0 is explored on its own.
    """
    outer = [s for s in walk_stmts(analysis.kernel.body) if id(s) in analysis.trip_loops]
    inside = (s for loop in outer for s in walk_stmts(loop.bodies()[0]))
    return any(isinstance(s, SyncThreads | ClusterSync) for s in inside)


def model_of(
    analysis: Analysis,
    sizes: dict[str, Expr],
    counts: dict[str, int],
    counting: Counting,
    folds: tuple[int, ...],
) -> Model:
    """Return the protocol for sizes over trip counts, which are named with their levels."""
    agents = agents_of(analysis, sizes, counts)
    kernel, blocks = analysis.kernel, range(analysis.kernel.cluster_size)
    barriers, end = dict[str, range](), 0
    for barrier, rank in product(kernel.barriers, blocks):
        barriers[placed(kernel, barrier.name, rank)] = range(end, end + barrier.size)
        end += barrier.size
    rings = {placed(kernel, n, rank): ring for n, ring in analysis.rings.items() for rank in blocks}
    parts = {name: set[int]() for name in rings}
    used = dict.fromkeys(rings)
    tokens = set[tuple[str, int, int]]()
    for act in (i for program in agents for i in program.code if isinstance(i, Act)):
        for array, _, part in act.writes:
            parts[ring_of(array)].add(part)
            used[array] = None
        if act.token is not None and act.token[2] >= 0:
            size = len(barriers[act.barrier])
            tokens |= {(act.token[0], slot, act.token[2]) for slot in range(size)}
    stages, end = dict[str, range](), 0
    for name, ring in rings.items():
        count = ring.stages * len(parts[name])
        stages[name] = range(end, end + count)
        end += count
    used |= dict.fromkeys(i.array for p in agents for i in p.code if isinstance(i, Read))
    ordered = {array: tuple(sorted(parts[ring_of(array)])) for array in used}
    shared = {array: stages[ring_of(array)] for array in used}
    return Model(
        analysis, agents, barriers, shared, ordered, tuple(sorted(tokens)), counting, folds
    )


def agents_of(
    analysis: Analysis, sizes: dict[str, Expr], counts: dict[str, int]
) -> tuple[Program, ...]:
    """Return the agents: of warps that act alike one on its own, the others together."""
    kernel = analysis.kernel
    total = block_threads(kernel)
    alike: dict[tuple[int, int, str], list[int]] = {}
    for rank, first in product(range(kernel.cluster_size), range(0, total, WARP)):
        threads = np.arange(first, min(first + WARP, total))
        program = _compiler(analysis, sizes, counts, threads, 0, rank).run("")
        alike.setdefault((rank, _role(kernel, first), program.signature()), []).append(first)
    agents: list[Program] = []
    for (rank, _, _), firsts in alike.items():
        for group in (firsts[:1], firsts[1:]):
            if not group:
                continue
            parts = [np.arange(f, min(f + WARP, total)) for f in group]
            name = placed(kernel, _name(group), rank)
            threads = np.concatenate(parts)
            agents.append(_compiler(analysis, sizes, counts, threads, len(agents), rank).run(name))
    return tuple(agents)


def _compiler(
    analysis: Analysis,
    sizes: dict[str, Expr],
    counts: dict[str, int],
    threads: NDArray[np.int64],
    agent: int,
    rank: int,
) -> Compiler:
    return Compiler(
        analysis.kernel, analysis.rings, analysis.trip_loops, analysis.trip_levels, sizes, counts,
        threads, agent=agent, rank=rank,
    )  # fmt: skip


def _role(kernel: Kernel, thread: int) -> int:
    """Return which role a thread has; 0 for none."""
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, Roles):
            for number, role in enumerate(stmt.roles):
                if thread in role.range:
                    return number + 1
    return 0


def _name(firsts: list[int]) -> str:
    warps = [first // WARP for first in firsts]
    return f"warp {warps[0]}" if len(warps) == 1 else f"warps {warps[0]} to {warps[-1]}"


# ---- folding -------------------------------------------------------------------------------------


def _fold(model: Model, level: int, residue: int | None) -> int:
    """Return the smallest period of the trips of a level.

    Raises
    ------
    Unsupported
        A loop does not repeat: what it does depends on the trip beyond stage and parity.
    """
    period = model.analysis.period
    steps = [s for s in range(1, period + 1) if period % s == 0]
    if level and residue is not None:
        steps = [period]
    for step in steps:
        if all(_repeats(e, level, step, model, residue) for e in _indices(model, level)):
            return step
    raise Unsupported("what its loops do depends on the trip beyond stage and parity")


def _indices(model: Model, level: int) -> list[Compiled]:
    """Return what names a barrier, a stage, a parity or a token in loops over unbounded trips."""
    period = model.analysis.period
    found: dict[str, Compiled] = {}
    for program in model.agents:
        for loop in program.loops:
            if loop.level == level and is_foldable(loop, level, period):
                for instruction in program.code[loop.enter : loop.exit]:
                    found |= {e.text: e for e in named_by(instruction)}
    return list(found.values())


def _repeats(e: Compiled, level: int, step: int, model: Model, residue: int | None) -> bool:
    """Whether an index is the same `step` trips later on a level."""
    span = range(model.analysis.period + 1)
    other = (residue or 0,) if residue is not None else range(3)
    for here in span:
        for there in span if model.analysis.levels > 1 else (0,):
            v = (here, there) if level == 0 else (there, here)
            w = (here + step, there) if level == 0 else (there, here + step)
            for n in other:
                for n0, n1 in ((n, n), (n + model.analysis.period, n + model.analysis.period)):
                    if e.at(v, n0, n1) != e.at(w, n0, n1):
                        return False
    return True


def residues(analysis: Analysis) -> tuple[int | None, ...]:
    """Return the residues of the inner count to tell apart; (None,) when none matters."""
    try:
        model = open_model(analysis)
    except Unsupported:
        if analysis.levels < MOST_LEVELS:
            raise
        return tuple(range(analysis.period))
    mixed = any(e.counts for level in range(analysis.levels) for e in _indices(model, level))
    return tuple(range(analysis.period)) if mixed and analysis.levels > 1 else (None,)
