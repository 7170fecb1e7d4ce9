"""Normalisations in one kernel: a block computes a row, its reductions and everything after them.

The row is read once for every reduction and once for the outputs (from the caches, if it fits
there). It is not kept on chip: that is the subject of a later recipe.
"""

from __future__ import annotations

from fuser.core.expr import TRUE, Const, Expr, Var, product
from fuser.core.simplify import prove_equal
from fuser.fusion.accesses import accesses
from fuser.fusion.attrs import ReduceAttrs
from fuser.fusion.graph import Value
from fuser.schedule.domain import LoopDomain
from fuser.schedule.kinds import MemoryType, ParallelType
from fuser.schedule.recipes.pointwise import vector_width
from fuser.schedule.recipes.problem import Problem
from fuser.schedule.recipes.reduction import kept_axes, ordered
from fuser.schedule.schedule import Schedule, default_schedule, root_extents, root_vars

MIN_LENGTH = 128
"""Shorter rows leave most of a block idle."""

MIN_ROWS = 132
LONG_ROW = 1 << 15
"""Fewer rows than multiprocessors, each longer than this, are better cut over the grid."""

VECTORS = 4
"""Vectors of a row that a thread computes, before a block gets more threads."""


def rows(problem: Problem) -> Schedule | None:
    """Schedule a whole fusion whose reductions all reduce the same rows; None for others."""
    graph = problem.graph
    reductions = [v for v in graph.values if isinstance(v.attrs, ReduceAttrs)]
    if not reductions or len(reductions) == len(problem.stores) == 1:
        return None
    shape, dims = root_extents(graph, reductions[0])
    if any(root_extents(graph, v) != (shape, dims) for v in reductions[1:]):
        return None
    if dims != tuple(range(len(shape) - len(dims), len(shape))):
        return None
    length = product(shape[len(shape) - len(dims) :])
    kept = shape[: len(shape) - len(dims)]
    full = [s for s in problem.stores if s.shape == shape]
    short = [s for s in problem.stores if s.shape == kept]
    if len(full) + len(short) < len(problem.stores) or not problem.at_least(length, MIN_LENGTH):
        return None
    if problem.at_least(length, LONG_ROW + 1) and not problem.at_least(product(kept), MIN_ROWS):
        return None
    if not all(reads_own_row(problem, v, kept) for v in (*reductions, *problem.stores)):
        return None
    return _schedule(problem, reductions, full, short, length)


def reads_own_row(problem: Problem, value: Value, kept: tuple[Expr, ...]) -> bool:
    """Whether every reduction that an element of `value` needs is of the element's own row."""
    extents, _ = root_extents(problem.graph, value)
    roots = root_vars(len(extents))
    facts = problem.facts
    for i, extent in enumerate(extents):
        facts = facts.with_range(f"r{i}", extent)
    return all(
        access.guard == TRUE
        and all(prove_equal(c, Var(f"r{i}"), facts) for i, c in enumerate(access.coords))
        for access in accesses(problem.graph, value, roots, facts)
        if isinstance(problem.graph.value(access.name).attrs, ReduceAttrs)
    )


def _schedule(
    problem: Problem, reductions: list[Value], full: list[Value], short: list[Value], length: Expr
) -> Schedule:
    graph = problem.graph
    width = vector_width(problem, [root_extents(graph, reductions[0])[0]])
    edges = [n * width * VECTORS + 1 for n in (32, 64, 128, 256)]
    threads = 32 << problem.reached(length, edges)
    schedule = Schedule(
        recipe="rows", notes=(f"rows: one block of {threads} threads a row, {width} elements wide",)
    )
    for value in reductions:
        ts = default_schedule(graph, value)
        ts.domain = row_domain(ts.domain, kept_axes(ordered(ts.domain)), width, threads)
        ts.position = kept_axes(ts.domain)
        schedule.tensors[value.name] = ts
    rank = len(root_extents(graph, reductions[0])[1])
    for group, inner in ((full, rank), (short, 0)):
        for store in group:
            ts = default_schedule(graph, store, MemoryType.global_)
            ts.domain = store_domain(ts.domain, inner, width, threads)
            ts.same_loops_as = group[0].name if store is not group[0] else None
            schedule.tensors[store.name] = ts
    return schedule


def row_domain(domain: LoopDomain, kept: int, width: int, threads: int) -> LoopDomain:
    """Return the loops of a reduction: rows over blocks, each spread over the block's threads."""
    return _spread(ordered(domain), kept, width, threads)


def store_domain(domain: LoopDomain, inner: int, width: int, threads: int) -> LoopDomain:
    """Return the loops of an output whose last `inner` dimensions are the row."""
    outer = len(domain.loop) - inner
    for _ in range(outer - 1):
        domain = domain.merge(0, 1)
    kept = min(1, outer)
    for _ in range(inner - 1):
        domain = domain.merge(kept, kept + 1)
    return _spread(domain, kept, width, threads)


def _spread(domain: LoopDomain, kept: int, width: int, threads: int) -> LoopDomain:
    """Bind ``[row], elements``.

    rewrite::

        for row: for e  ->  for bx: for i: for tx in [0, threads): for v in [0, width)
    """
    if kept:
        domain = domain.bind(0, ParallelType.grid_x)
    if len(domain.loop) > kept:
        domain = domain.split(kept, Const(width)).split(kept, Const(threads))
        domain = domain.bind(kept + 1, ParallelType.block_x)
        domain = domain.bind(kept + 2, ParallelType.vectorize)
    return domain
