"""Maps whose input rows run along another dimension than the output's: tiles in shared memory.

A tile is read in 16-byte vectors along the input's rows and written in 16-byte vectors along the
output's. Its 16-byte chunks are XOR-swizzled by row, so that neither direction has bank conflicts.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser.core.expr import ONE, TRUE, Const, Expr, product, substitute
from fuser.core.simplify import coefficient_of, simplify
from fuser.fusion.accesses import InputAccess, input_accesses
from fuser.fusion.attrs import ReduceAttrs
from fuser.fusion.graph import Value
from fuser.schedule.domain import LoopDomain
from fuser.schedule.kinds import MemoryType, ParallelType
from fuser.schedule.recipes.problem import Problem
from fuser.schedule.schedule import Schedule, TensorSchedule, default_schedule, root_vars

CHUNKS = 16
"""16-byte chunks in a tile row: 256 bytes. Measured on an H200: 4023 GB/s against 3851 with 8."""

MAX_THREADS = 512
MIN_ELEMS = 1 << 12
"""Elements of a tensor of known extents that are worth a tile."""


@dataclass(frozen=True, slots=True)
class _Tiling:
    """The output dimensions a tile spans and its vectors.

    Attributes
    ----------
    rows
        Output dimension along which the input is contiguous.
    cols
        Last output dimension.
    width
        Elements of one 16-byte vector.
    """

    rows: int
    cols: int
    width: int

    @property
    def side(self) -> int:
        """Tile extent in both dimensions, in elements."""
        return CHUNKS * self.width

    @property
    def threads(self) -> int:
        """Threads of a block: at most one per vector."""
        return min(MAX_THREADS, self.side * CHUNKS)


def transpose(problem: Problem) -> Schedule | None:
    """Schedule a segment that reads inputs across their rows; None when there is no such input."""
    graph = problem.graph
    if any(isinstance(v.attrs, ReduceAttrs) for v in graph.values):
        return None
    if len(problem.stores) != 1 or len(problem.stores[0].shape) < 2:
        return None
    (store,) = problem.stores
    crossed = crossed_inputs(problem, store)
    if not crossed:
        return None
    tiling = crossed[0][1]
    if any(t != tiling for _, t in crossed) or tiling.width < 2:
        return None
    schedule = Schedule(
        recipe="transpose",
        notes=(f"transpose: {tiling.side} x {tiling.side} tiles, {tiling.threads} threads",),
    )
    ts = default_schedule(graph, store, MemoryType.global_)
    ts.domain = store_domain(ts.domain, tiling)
    schedule.tensors[store.name] = ts
    for access, _ in crossed:
        tile = cache_input(problem, access.name)
        schedule.tensors[tile.name] = TensorSchedule(
            tile_domain(default_schedule(graph, store).domain, tiling),
            access.coords, 1, MemoryType.shared, root_of=store.name,
        )  # fmt: skip
    return schedule


def crossed_inputs(problem: Problem, store: Value) -> list[tuple[InputAccess, _Tiling]]:
    """Return the inputs that are contiguous along another dimension than the last one."""
    roots = root_vars(store.rank)
    facts = problem.facts
    for i, extent in enumerate(store.shape):
        facts = facts.with_range(f"r{i}", extent)
    cols = max((d for d, e in enumerate(store.shape) if e != ONE), default=0)
    accesses = input_accesses(problem.graph, store, roots, facts)
    found: list[tuple[InputAccess, _Tiling]] = []
    for access in accesses:
        if sum(a.name == access.name for a in accesses) > 1 or access.guard != TRUE:
            continue
        address = _address(problem, access)
        steps = [coefficient_of(address, f"r{d}", facts) for d in range(store.rank)]
        if 1 not in steps or steps[cols] == 1 or not _reads_along(address, cols):
            continue
        width = 16 // max(store.dtype.nbytes, problem.graph.value(access.name).dtype.nbytes)
        width = min(width, problem.row_multiple([store.shape]))
        if not is_small(store):
            found.append((access, _Tiling(steps.index(1), cols, width)))
    return found


def _address(problem: Problem, access: InputAccess) -> Expr:
    total: Expr = Const(0)
    for c, stride in zip(access.coords, problem.strides[access.name], strict=True):
        total = total + c * stride
    return simplify(total, problem.facts)


def _reads_along(address: Expr, dim: int) -> bool:
    return address != substitute(address, {f"r{dim}": Const(0)})


def is_small(value: Value) -> bool:
    """Whether a tensor is known to be small: to ask for it would make kernels for small sizes."""
    numel = product(value.shape)
    return isinstance(numel, Const) and numel.value < MIN_ELEMS


def cache_input(problem: Problem, name: str) -> Value:
    """Insert a copy behind an input and return it."""
    graph = problem.graph
    source = graph.value(name)
    uses = graph.uses(source)
    tile = f"{name}_tile"
    while tile in graph:
        tile += "_"
    copy = graph.add("set", (source,), source.dtype, source.shape, name=tile)
    for user, index in uses:
        graph.replace_operand(user, index, copy)
    return copy


def tiles(domain: LoopDomain, t: _Tiling) -> LoopDomain:
    """Cut the two tiled dimensions and number the tiles.

    rewrite::

        for others: for rows: for cols
        ->  for bx (others, row tiles, column tiles): for r in [0, side): for c in [0, side)
    """
    domain = domain.split(t.rows, Const(t.side))
    cols = t.cols + (t.cols > t.rows)
    domain = domain.split(cols, Const(t.side))
    last = len(domain.loop) - 1
    domain = domain.reorder({t.rows + 1: last - 1, cols + 1: last})
    while len(domain.loop) > 3:
        domain = domain.merge(0, 1)
    return domain.bind(0, ParallelType.grid_x)


def store_domain(domain: LoopDomain, t: _Tiling) -> LoopDomain:
    """Return the loops of the output: vectors along its last dimension."""
    domain = tiles(domain, t).split(2, Const(t.width)).merge(1, 2)
    return _spread(domain, t)


def tile_domain(domain: LoopDomain, t: _Tiling) -> LoopDomain:
    """Return the loops of a tile: vectors along the input's rows, chunks swizzled."""
    domain = tiles(domain, t).reorder({1: 2, 2: 1})  # bx, c, r
    domain = domain.split(1, Const(t.width)).split(3, Const(t.width))  # bx, co, ci, ro, ri
    domain = domain.swizzle(1, 3).merge(1, 2).merge(1, 2)
    return _spread(domain, t)


def _spread(domain: LoopDomain, t: _Tiling) -> LoopDomain:
    """Bind ``bx, vectors, elements``: the vectors of a tile over its threads."""
    domain = domain.split(1, Const(t.threads)).bind(2, ParallelType.block_x)
    return domain.bind(3, ParallelType.vectorize)
