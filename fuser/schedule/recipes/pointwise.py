"""Maps: one thread computes one 16-byte vector of the output.

Measured on an H200, many small blocks with one vector a thread are the fastest way to stream
(docs/performance.md); the grid is the exact number of tiles.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.core.expr import ONE, Const, Expr, product, variables
from fuser.fusion.attrs import ReduceAttrs
from fuser.schedule.domain import LoopDomain
from fuser.schedule.kinds import MemoryType, ParallelType
from fuser.schedule.recipes.problem import Problem
from fuser.schedule.schedule import Schedule, default_schedule

THREADS = 128
ROW_THREADS = 256
VECTOR_BYTES = 16
ROWS = 2
"""Rows a thread computes when an input is the same for all of them: it is loaded once."""

STREAM_BYTES = 2**27
"""Outputs of more than twice any Hopper's L2 cache are not read out of it by whoever comes next."""

MIN_ROWS = 16
"""Fewer rows than this are not worth sharing anything."""


def pointwise(problem: Problem) -> Schedule | None:
    """Schedule a segment without reductions; None when it has one."""
    if any(isinstance(v.attrs, ReduceAttrs) for v in problem.graph.values):
        return None
    width = vector_width(problem, [s.shape for s in problem.stores])
    rows = shares_rows(problem)
    threads = row_threads(problem, width) if rows else THREADS
    schedule = Schedule(recipe="pointwise")
    first: str | None = None
    for store in problem.stores:
        ts = default_schedule(problem.graph, store, MemoryType.global_)
        if rows:
            ts.domain = row_domain(ts.domain, width, threads)
        else:
            ts.domain = flat_domain(ts.domain, width)
            nbytes = product(store.shape) * store.dtype.nbytes
            ts.streams = problem.is_flat() and problem.at_least(nbytes, STREAM_BYTES + 1)
        ts.same_loops_as = first
        first = first or store.name
        schedule.tensors[store.name] = ts
    shape = f"{THREADS} threads"
    if rows:
        shape = f"{threads} x {ROW_THREADS // threads} threads, {ROWS} rows each"
    schedule.notes = (f"pointwise: {shape}, {width} elements a vector",)
    return schedule


def shares_rows(problem: Problem) -> bool:
    """Return whether an input repeats from row to row: it then pays to keep it in registers."""
    stores = problem.stores
    if any(len(s.shape) < 2 or isinstance(s.shape[-1], Const) for s in stores):
        return False  # dividing by a constant row length is cheap: the flat schedule is faster
    *outer, inner = stores[0].shape
    return any(
        v.shape and v.shape[-1] == inner and all(e == ONE for e in v.shape[:-1])
        for v in problem.tensors
    ) and problem.at_least(product(tuple(outer)), MIN_ROWS)


def row_threads(problem: Problem, width: int) -> int:
    """Return the threads along a row: a power of two that covers it, at most a block."""
    edges = [width * 2**k + 1 for k in range(ROW_THREADS.bit_length() - 1)]
    return 1 << problem.reached(problem.stores[0].shape[-1], edges)


def row_domain(domain: LoopDomain, width: int, threads: int) -> LoopDomain:
    """Give every thread the same columns of `ROWS` rows.

    rewrite::

        for rows: for cols  ->  for bx (row groups, column groups): for ty: for tx: for u: for v
    """
    while len(domain.loop) > 2:
        domain = domain.merge(0, 1)
    domain = domain.split(1, Const(width)).split(1, Const(threads))  # r, co, tx, v
    domain = domain.split(0, Const(ROWS)).split(0, Const(ROW_THREADS // threads))  # ro, ty, u, ..
    domain = domain.reorder({3: 1}).merge(0, 1)  # bx, ty, u, tx, v
    domain = domain.reorder({3: 2})  # bx, ty, tx, u, v
    domain = domain.bind(0, ParallelType.grid_x).bind(1, ParallelType.block_y)
    domain = domain.bind(2, ParallelType.block_x).bind(3, ParallelType.unroll)
    return domain.bind(4, ParallelType.vectorize)


def flat_domain(domain: LoopDomain, width: int) -> LoopDomain:
    """Merge all axes, then split into blocks, threads and vectors.

    rewrite::

        for i0: for i1: ..  ->  for bx: for tx in [0, 128): for v in [0, width)
    """
    while len(domain.loop) > 1:
        domain = domain.merge(0, 1)
    if not domain.loop:
        return domain
    domain = domain.split(0, Const(width)).split(0, Const(THREADS))
    bound = domain.bind(0, ParallelType.grid_x).bind(1, ParallelType.block_x)
    return bound.bind(2, ParallelType.vectorize)


def vector_width(problem: Problem, shapes: Sequence[tuple[Expr, ...]]) -> int:
    """Return the elements per thread: 16 bytes of the widest tensor of full size.

    `shapes` are the iteration spaces. Unless all tensors are read along the linear index, their
    rows must be whole vectors.
    """
    every = (*problem.stores, *problem.tensors)
    streams = [v for v in every if all(is_streamed(problem, v.shape, shape) for shape in shapes)]
    widest = max((v.dtype.nbytes for v in streams), default=4)
    width = max(1, VECTOR_BYTES // widest)
    return width if problem.is_flat() else min(width, problem.row_multiple(shapes))


def is_streamed(problem: Problem, shape: tuple[Expr, ...], full: tuple[Expr, ...]) -> bool:
    """Whether a tensor has at least half as many elements as an iteration space.

    One that lacks a dimension has not, however short that happens to be.
    """
    mine, whole = product(shape), product(full)
    if variables(mine) < variables(whole):
        return False
    return mine == whole or problem.at_least(mine * 2 - whole, 0)
