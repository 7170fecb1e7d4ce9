"""Reductions, correct for every shape: one block a kept element, or one thread when rows are short.

Not tuned: the reduced dimensions are merged, strided over by the threads of a block and combined by
shuffles and one exchange through shared memory.
"""

from __future__ import annotations

from fuser.core.expr import Const, Expr, product
from fuser.fusion.attrs import ReduceAttrs
from fuser.fusion.graph import Value
from fuser.schedule.domain import LoopDomain
from fuser.schedule.kinds import MemoryType, ParallelType
from fuser.schedule.recipes.problem import Problem
from fuser.schedule.schedule import Schedule, default_schedule

SHORT_ROW = 32
EDGES = (SHORT_ROW + 1, 1025)
"""Lengths from which many rows are given a part of a block each, and a whole one."""

KEPT_THREADS = 128
MAX_THREADS = 512

MIN_BLOCKS = 132
"""Fewer rows than this leave multiprocessors idle: long rows are then cut over the grid."""

CUT, PARTS = 1 << 14, 32
"""Elements of a row that is cut, and into how many parts."""

LONG, FEW_ROWS, MAX_PARTS = 1 << 20, 8, 264
"""Elements of a row that is cut into `MAX_PARTS`, where there are so few."""


def reduction(problem: Problem) -> Schedule | None:
    """Schedule a segment whose outputs are reductions of one shape; None for others."""
    graph = problem.graph
    reductions = [v for v in graph.values if isinstance(v.attrs, ReduceAttrs)]
    if not reductions or any(graph.operands(s)[0] not in reductions for s in problem.stores):
        return None
    length, rows = reduced_extent(problem, reductions[0]), product(reductions[0].shape)
    threads, parts = block_shape(problem, length, rows)
    note = f"reduction: {parts} blocks of {threads} threads a row"
    schedule = Schedule(recipe="reduction", notes=(note,))
    first: str | None = None
    for value in reductions:
        ts = default_schedule(graph, value)
        ts.domain = row_domain(ts.domain, threads, parts)
        ts.position = kept_axes(ts.domain)
        schedule.tensors[value.name] = ts
    for store in problem.stores:
        ts = default_schedule(graph, store, MemoryType.global_)
        ts.domain = kept_domain(ts.domain, threads)
        ts.same_loops_as = first
        first = first or store.name
        schedule.tensors[store.name] = ts
    return schedule


def reduced_extent(problem: Problem, value: Value) -> Expr:
    """Return the number of elements combined into one."""
    assert isinstance(value.attrs, ReduceAttrs)
    shape = problem.graph.operands(value)[0].shape
    return product(tuple(shape[d] for d in value.attrs.dims))


def block_shape(problem: Problem, length: Expr, rows: Expr) -> tuple[int, int]:
    """Return how many threads share a row, 1 if it is short, and into how many blocks it is cut.

    Sizes of one dimension make three kernels at most, whichever they are: a few rows are computed
    by whole blocks, and cut where they are long.
    """
    if isinstance(length, Const) and length.value < CUT:
        return fixed_threads(length.value), 1
    if problem.at_least(rows, MIN_BLOCKS):
        return (1, 128, MAX_THREADS)[problem.reached(length, EDGES)], 1
    parts = (1, PARTS, MAX_PARTS)[problem.reached(length, (CUT, LONG))]
    if parts == MAX_PARTS and problem.at_least(rows, FEW_ROWS + 1):
        parts = PARTS
    return MAX_THREADS, parts


def fixed_threads(length: int) -> int:
    """Return the threads of a row of known length: whole warps, four elements or more a thread."""
    if length <= SHORT_ROW:
        return 1
    threads = 32
    while threads < MAX_THREADS and threads * 4 < length:
        threads *= 2
    return threads


def row_domain(domain: LoopDomain, threads: int, parts: int) -> LoopDomain:
    """Move reduced axes inward, merge both kinds, and bind them.

    rewrite::

        for kept: for reduced  ->  for bx: for i: for tx in [0, threads)     (long rows)
                                   for bx: for by: for i: for tx             (few, very long rows)
                                   for bx: for tx in [0, 128): for i         (short rows)
    """
    domain = ordered(domain)
    kept = sum(not a.reduction for a in domain.loop)
    domain = bind_kept(domain, kept, threads)
    first = kept_axes(domain)
    if threads > 1:
        domain = domain.split(first, Const(threads)).bind(first + 1, ParallelType.block_x)
    if parts > 1:
        domain = domain.split(first, Const(parts), inner_split=False)
        domain = domain.bind(first, ParallelType.grid_y)
    return domain


def kept_domain(domain: LoopDomain, threads: int) -> LoopDomain:
    """Return the domain of a result: the kept axes, bound as in `row_domain`."""
    domain = ordered(domain)
    return bind_kept(domain, len(domain.loop), threads)


def ordered(domain: LoopDomain) -> LoopDomain:
    """Return `domain` with kept axes first and each kind merged into one axis."""
    kept = [j for j, a in enumerate(domain.loop) if not a.reduction]
    reduced = [j for j, a in enumerate(domain.loop) if a.reduction]
    domain = domain.reorder({old: new for new, old in enumerate((*kept, *reduced))})
    for _ in range(len(kept) - 1):
        domain = domain.merge(0, 1)
    first = min(1, len(kept))
    for _ in range(len(reduced) - 1):
        domain = domain.merge(first, first + 1)
    return domain


def bind_kept(domain: LoopDomain, kept: int, threads: int) -> LoopDomain:
    """Bind the merged kept axis: one block an element, or one thread an element."""
    if kept == 0:
        return domain
    if threads > 1:
        return domain.bind(0, ParallelType.grid_x)
    domain = domain.split(0, Const(KEPT_THREADS))
    return domain.bind(0, ParallelType.grid_x).bind(1, ParallelType.block_x)


def kept_axes(domain: LoopDomain) -> int:
    """Return the number of leading axes that are kept."""
    return next((j for j, a in enumerate(domain.loop) if a.reduction), len(domain.loop))
