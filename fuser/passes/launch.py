"""The launch extents that the hardware-bound loops of a nest ask for."""

from __future__ import annotations

from dataclasses import dataclass

from fuser.core.expr import ONE, ZERO, BinOp, Const, Expr, Var, less, maximum
from fuser.core.simplify import Facts, prove_equal, prove_less, simplify
from fuser.nest.nodes import Compute, Loop, LoopNest, walk
from fuser.schedule.kinds import ParallelType

GRID = (ParallelType.grid_x, ParallelType.grid_y, ParallelType.grid_z)
BLOCK = (ParallelType.block_x, ParallelType.block_y, ParallelType.block_z)
CLUSTER = (ParallelType.cluster_x, ParallelType.cluster_y, ParallelType.cluster_z)


@dataclass(frozen=True, slots=True)
class LastBlock:
    """Where the result of a grid reduction is: in the block whose variable `flag` is true.

    Attributes
    ----------
    kinds
        Grid axes along which that may be any block.
    """

    flag: str
    kinds: frozenset[ParallelType]


@dataclass(frozen=True, slots=True)
class LaunchExtents:
    """Extent of every hardware axis that a kernel uses."""

    extents: dict[ParallelType, Expr]

    def of(self, kinds: tuple[ParallelType, ...]) -> tuple[Expr, Expr, Expr]:
        """Return the (x, y, z) extents of the grid or of a block."""
        x, y, z = (self.extents.get(kind, ONE) for kind in kinds)
        return x, y, z

    @property
    def used(self) -> tuple[ParallelType, ...]:
        """Hardware axes with more than one index."""
        return tuple(kind for kind, extent in self.extents.items() if extent != ONE)

    def guard(self, loop: Loop, facts: Facts) -> Expr | None:
        """Return the condition under which a hardware index is an iteration of `loop`."""
        if prove_equal(loop.extent, self.extents[loop.parallel], facts):
            return None
        return less(loop_index(loop), loop.extent)


def loop_index(loop: Loop) -> Expr:
    """Return the variable of a loop as an expression."""
    return Var(loop.var)


def launch_extents(nest: LoopNest) -> LaunchExtents:
    """Return the largest extent bound to each hardware axis.

    An extent of 0 is a launch of nothing. So it is at least 1, unless all outputs are stored in
    loops of that axis: then none of them has an element.
    """
    found: dict[ParallelType, Expr] = {}
    stored = {o.value: frozenset(CLUSTER + GRID + BLOCK) for o in nest.graph.outputs}
    for path, node in walk(nest.body):
        if isinstance(node, Compute) and node.tensor in stored:
            stored[node.tensor] &= {loop.parallel for loop in path}
        if isinstance(node, Loop) and node.parallel.is_parallel:
            extent = simplify(node.extent, nest.facts)
            known = found.get(node.parallel)
            if known is None or known == extent:
                found[node.parallel] = extent
            else:
                found[node.parallel] = simplify(maximum(known, extent), nest.facts)
    for kind, extent in found.items():
        all_inside = all(kind in loops for loops in stored.values())
        if not (all_inside or _at_least_one(extent, nest.facts)):
            found[kind] = maximum(extent, ONE)
    return LaunchExtents(found)


def _at_least_one(extent: Expr, facts: Facts) -> bool:
    """Whether an extent is provably no 0; that of a split is ``ceil(n / factor)``."""
    if prove_less(ZERO, extent, facts):
        return True
    match extent:
        case BinOp("/", a, b):
            return _at_least_one(simplify(a - b + 1, facts), facts)
        case BinOp("*" | "min", a, b):
            return _at_least_one(a, facts) and _at_least_one(b, facts)
        case BinOp("max", a, b):
            return _at_least_one(a, facts) or _at_least_one(b, facts)
        case _:
            return False


def padded_block(launch: LaunchExtents, extra: int) -> tuple[Expr, Expr, Expr]:
    """Return the block with `extra` threads more, on its slowest varying axis."""
    x, y, z = launch.of(BLOCK)
    if not extra:
        return x, y, z
    if z != ONE:
        return x, y, z + rows_of(extra, x * y)
    if y != ONE:
        return x, y + rows_of(extra, x), z
    return x + extra, y, z


def rows_of(extra: int, row: Expr) -> int:
    """Return how many rows of threads hold `extra` threads; what is left of them has no role."""
    assert isinstance(row, Const)  # `fuser.passes.roles.check_counted` has raised otherwise
    return -(-extra // row.value)
