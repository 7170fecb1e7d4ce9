"""Maps: one thread computes one 16-byte vector of the output.

Measured on an H200, many small blocks with one vector a thread are the fastest way to stream
(docs/performance.md); the grid is the exact number of tiles.
"""

from __future__ import annotations

from fuser.core.expr import Const, Expr
from fuser.fusion.attrs import ReduceAttrs
from fuser.fusion.graph import Value
from fuser.schedule.domain import LoopDomain
from fuser.schedule.kinds import MemoryType, ParallelType
from fuser.schedule.recipes.problem import Problem
from fuser.schedule.schedule import Schedule, default_schedule

THREADS = 128
VECTOR_BYTES = 16


def pointwise(problem: Problem) -> Schedule | None:
    """Schedule a segment without reductions; None when it has one."""
    if any(isinstance(v.attrs, ReduceAttrs) for v in problem.graph.values):
        return None
    width = vector_width(problem)
    schedule = Schedule(recipe="pointwise")
    first: str | None = None
    for store in problem.stores:
        ts = default_schedule(problem.graph, store, MemoryType.global_)
        ts.domain = flat_domain(ts.domain, width)
        ts.same_loops_as = first
        first = first or store.name
        schedule.tensors[store.name] = ts
    schedule.notes = (f"pointwise: {THREADS} threads x {width} elements",)
    return schedule


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


def vector_width(problem: Problem) -> int:
    """Return the elements per thread: 16 bytes of the widest tensor of full size.

    A tensor that is not read along the linear index of the output must have rows of whole vectors.
    """
    full = max((problem.hint(_numel(v)) for v in problem.stores), default=1)
    streams = [
        v for v in (*problem.stores, *problem.tensors) if problem.hint(_numel(v)) * 2 >= full
    ]
    widest = max((v.dtype.nbytes for v in streams), default=4)
    width = max(1, VECTOR_BYTES // widest)
    return width if problem.is_flat() else min(width, problem.common_multiple())


def _numel(value: Value) -> Expr:
    total: Expr = Const(1)
    for extent in value.shape:
        total = total * extent
    return total
