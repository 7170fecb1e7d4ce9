"""Lower one product of tensor cores: find its operands, and how their tiles lie in shared memory.

The tiles are laid out by the schedule, as any other; what a matrix descriptor can say of a tile is
compared with where its elements are, every one of them, before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from fuser.core.errors import ScheduleError, VerifyError
from fuser.core.expr import TRUE, ZERO, Const, Expr, Var, evaluate, substitute, variables
from fuser.core.simplify import Facts, is_multiple, prove_equal, prove_less, simplify
from fuser.fusion.graph import Value
from fuser.kir.core import Stmt
from fuser.kir.matrix import GROUP, ITEM, SPANS, MatrixLayout
from fuser.kir.scalar import Apply, Cast, Element, Ref
from fuser.kir.scalar import Value as Scalar
from fuser.kir.stmts import Define, Wgmma, WgmmaCommit, WgmmaFence, WgmmaWait
from fuser.kir.stmts.wgmma import OPERANDS
from fuser.nest.nodes import (
    AwaitProducts,
    CommitProducts,
    Compute,
    FenceProducts,
    Loop,
    NestNode,
    ProductVerb,
)
from fuser.passes.buffers import buffer_index, buffer_size, linear_index, locate, producer_root
from fuser.passes.expand import Coords, Expander
from fuser.passes.guards import guarded
from fuser.passes.state import Lowering, Scope
from fuser.schedule.kinds import LoadStoreOpType, MemoryType, ParallelType
from fuser.schedule.schedule import TensorSchedule

ROW, COLUMN, DEPTH = Var("product_row"), Var("product_column"), Var("product_depth")
GROUP_THREADS = 128


def lower_product_verb(state: Lowering, verb: ProductVerb) -> tuple[Stmt, ...]:
    """Return the statement of what is done to the products of a tensor."""
    name, ts = verb.tensor, state.nest.schedule.tensors[verb.tensor]
    size = buffer_size(name, ts, state.nest.facts)
    match verb:
        case FenceProducts():
            return (WgmmaFence(name, size),)
        case CommitProducts():
            return (WgmmaCommit(),)
        case AwaitProducts(_, 0):
            return (WgmmaWait(0, f"the products of {name} are complete", name, size),)
        case AwaitProducts(_, pending):
            return (WgmmaWait(pending, "the products before have read their stages"),)


def lower_product(state: Lowering, scope: Scope, loop: Loop) -> tuple[Stmt, ...]:
    """Return the statement of the loops bound to mma that are one product."""
    node: NestNode = loop
    while isinstance(node, Loop):
        (node,) = node.body
    assert isinstance(node, Compute)
    return _Product(state, scope, node).lower()


@dataclass(frozen=True, slots=True)
class _Tile:
    """An operand: its tile, and where element (row, depth) lies in it but for the swizzle."""

    memory: str
    index: Expr
    dtype: object


@dataclass(frozen=True, slots=True)
class _Product:
    state: Lowering
    scope: Scope
    node: Compute

    @property
    def name(self) -> str:
        """The tensor that is computed."""
        return self.node.tensor

    @property
    def ts(self) -> TensorSchedule:
        """Its schedule."""
        return self.state.nest.schedule.tensors[self.name]

    @property
    def value(self) -> Value:
        """Its value in the fusion graph."""
        return self.state.nest.graph.value(self.name)

    def lower(self) -> tuple[Stmt, ...]:
        """Return the product."""
        self.check_threads()
        first, n = self.at(), self.columns()
        facts = self.scope.facts.with_range(ROW.name, Const(Wgmma.rows))
        facts = facts.with_range(COLUMN.name, Const(n)).with_range(DEPTH.name, Const(Wgmma.depth))
        root = self.root(first, facts)
        a, b = self.operands(root, facts)
        a_index, a_layout = self.fitted(a, ROW, Wgmma.rows, facts)
        b_index, b_layout = self.fitted(b, COLUMN, n, facts)
        dtype = next(d for d in OPERANDS if d is a.dtype)
        registers = buffer_index(self.ts, first, self.scope.facts)
        made = Wgmma(
            self.name, registers, a.memory, a_index, a_layout, b.memory, b_index, b_layout, n, dtype
        )
        return guarded(self.scope.guard, (made,), self.scope.facts)

    # ---- where it is -----------------------------------------------------------------------

    def mma_axes(self) -> tuple[int, int, int, int]:
        """Return the positions of n / 8, half, pair and k; the axis of threads is before them."""
        loop = self.ts.domain.loop
        axes = [j for j, axis in enumerate(loop) if axis.parallel is ParallelType.mma]
        n8, half, pair, k = axes
        return n8, half, pair, k

    def columns(self) -> int:
        """Return the columns of the product."""
        extent = simplify(self.ts.domain.loop[self.mma_axes()[0]].extent, self.scope.facts)
        assert isinstance(extent, Const)
        return extent.value * GROUP

    def at(self) -> Coords:
        """Return the loop indices of the first element that the warp group computes."""
        axes = self.mma_axes()
        own = {*axes, axes[0] - 1}
        return tuple(ZERO if j in own else e for j, e in enumerate(self.node.loops))

    def check_threads(self) -> None:
        """Raise `ScheduleError` unless whole warp groups compute."""
        extent = self.state.launch.extents[ParallelType.block_x]
        if not isinstance(extent, Const) or extent.value % GROUP_THREADS:
            raise ScheduleError(
                f"{self.name}: products of warp groups, and block_x has {extent} threads; needed a "
                f"multiple of {GROUP_THREADS}"
            )

    def root(self, first: Coords, facts: Facts) -> Coords:
        """Return root coordinates of element (row, column, depth) of the product.

        Raises
        ------
        ScheduleError
            They do not move along with the rows, columns and depth.
        """
        start, _ = self.ts.domain.backward(first, facts)
        root = list(start)
        n8, half, _, k = self.mma_axes()
        for axis, var, step in ((half, ROW, GROUP), (n8, COLUMN, GROUP), (k, DEPTH, 1)):
            moved = tuple(Const(1) if j == axis else e for j, e in enumerate(first))
            there, _ = self.ts.domain.backward(moved, facts)
            gaps = [simplify(b - a, facts) for a, b in zip(start, there, strict=True)]
            dims = [i for i, gap in enumerate(gaps) if gap != ZERO]
            if len(dims) != 1 or gaps[dims[0]] != Const(step):
                what = {ROW: "rows", COLUMN: "columns", DEPTH: "depth"}[var]
                raise ScheduleError(
                    f"{self.name}: the {what} of its products are not neighbours along one "
                    "dimension; needed axes m, n and k that are inner parts of splits"
                )
            root[dims[0]] = root[dims[0]] + var
        return tuple(simplify(e, facts) for e in root)

    # ---- operands --------------------------------------------------------------------------

    def operands(self, root: Coords, facts: Facts) -> tuple[_Tile, _Tile]:
        """Return the tiles of A and B; raise `ScheduleError` where there are none."""
        graph, taken = self.state.nest.graph, dict[str, int]()

        def fresh(base: str) -> str:
            taken[base] = taken.get(base, 0) + 1
            return f"{base} {taken[base]}"

        expander = Expander(graph, partial(self.read, root), fresh)
        summed = expander.operand(self.value, 0, root, TRUE, facts)
        known = {s.name: s.value for s in expander.stmts if isinstance(s, Define)}
        product = _resolved(summed, known)
        factors = product.args if isinstance(product, Apply) and product.op == "mul" else ()
        tiles = [self.tile(_resolved(f, known)) for f in factors]
        mine = [(t, variables(t.index)) for t in tiles]
        left = [t for t, used in mine if DEPTH.name in used and COLUMN.name not in used]
        right = [t for t, used in mine if DEPTH.name in used and ROW.name not in used]
        if len(tiles) != 2 or len(left) != 1 or len(right) != 1:
            raise ScheduleError(
                f"{self.name}: wgmma, and it sums {self.summed()}; needed a product of two tensors "
                "cast to Float, one that is the same along n and one that is the same along m"
            )
        if left[0].dtype is not right[0].dtype:
            raise ScheduleError(
                f"{self.name}: wgmma of {left[0].memory} and {right[0].memory}, which have "
                "different dtypes; needed one"
            )
        return left[0], right[0]

    def summed(self) -> str:
        """Return what is summed, for texts."""
        (operand,) = self.state.nest.graph.operands(self.value)
        return f"{operand.name} ({operand.op}, {operand.dtype.short})"

    def read(
        self, root: Coords, name: str, coords: Coords, guard: Expr, facts: Facts
    ) -> Scalar | None:
        """Return an element of a tile, where it lies but for the swizzle; None when inlined."""
        nest = self.state.nest
        ts = nest.schedule.tensors.get(name)
        value = nest.graph.value(name)
        if ts is None and value.op != "input":
            return None
        if ts is None or ts.memory is not MemoryType.shared or ts.load is not LoadStoreOpType.tma:
            raise ScheduleError(
                f"{self.name}: wgmma reads {name}; needed a tile in shared memory that "
                "LoadStoreOpType.tma loads: cache_after"
            )
        if guard != TRUE:
            raise ScheduleError(
                f"{self.name}: wgmma reads {name} under a condition, as of a pad; needed a plain "
                "operand"
            )
        label = self.ts.root_of or self.name
        self.check_end(name, coords, root, facts)
        place = producer_root(name, ts, coords, label, root, facts)
        shared = dict(enumerate(self.node.loops[: ts.position]))
        index = locate(name, ts, place, shared, facts, self.name, linear_index)
        return Element(name, index, value.dtype)

    def check_end(self, name: str, coords: Coords, root: Coords, facts: Facts) -> None:
        """Raise `ScheduleError` unless a tile has zeros where products sum past the end.

        They do in the last trip of a sum whose extent is no multiple of it. Tiles have zeros where
        the tensor that they are of ends, so that must be there too.
        """
        shape = self.state.nest.graph.value(name).shape
        for axis, at in zip(self.ts.domain.root, root, strict=True):
            if not axis.reduction or prove_less(at, axis.extent, facts):
                continue
            if not any(
                prove_equal(own + axis.extent, at + size, facts)
                for own, size in zip(coords, shape, strict=True)
            ):
                raise ScheduleError(
                    f"{self.name}: wgmma sums over {axis.extent!r} elements, whose last tile may "
                    f"be cut short, and {name} of shape ({', '.join(map(repr, shape))}) goes on "
                    "where the sum ends, as behind a slice; needed a sum over all of it, or over "
                    "whole tiles"
                )

    def tile(self, factor: Scalar) -> _Tile:
        """Return the tile that a factor is read from."""
        inner = factor.arg if isinstance(factor, Cast) else factor
        if not isinstance(inner, Element) or inner.dtype not in OPERANDS:
            found = f"{inner.dtype.short}" if isinstance(inner, Element) else "computed, not read"
            raise ScheduleError(
                f"{self.name}: wgmma, and an operand is {found}; needed tiles of "
                f"{' or '.join(d.short for d in OPERANDS)}, cast to Float and multiplied"
            )
        return _Tile(inner.memory, inner.index, inner.dtype)

    # ---- layouts ---------------------------------------------------------------------------

    def fitted(self, tile: _Tile, row: Var, rows: int, facts: Facts) -> tuple[Expr, MatrixLayout]:
        """Return where a tile begins, and the layout that all of its elements agree with."""
        index = tile.index
        start = simplify(substitute(index, {row.name: ZERO, DEPTH.name: ZERO}), facts)
        beyond = simplify(index - start, facts)
        if not variables(beyond) <= {row.name, DEPTH.name}:
            raise ScheduleError(
                f"{tile.memory}: read by wgmma of {self.name}, and where its elements lie depends "
                f"on {', '.join(sorted(variables(beyond) - {row.name, DEPTH.name}))}; needed tiles "
                "that are whole products"
            )
        swizzle = self.state.nest.schedule.tensors[tile.memory].swizzle
        name = "none" if swizzle is None else swizzle.name
        grid = np.meshgrid(np.arange(rows), np.arange(Wgmma.depth), indexing="ij")
        env = {row.name: grid[0], DEPTH.name: grid[1]}
        at = np.broadcast_to(np.asarray(evaluate(beyond, env)), grid[0].shape) * ITEM
        span = SPANS[name]
        for layout in candidates(at, name):
            if np.array_equal(layout.offset(*grid), at) and self.begins_well(start, span, facts):
                return start, layout
        raise ScheduleError(
            f"{tile.memory}: read by wgmma of {self.name}, and no matrix descriptor says how its "
            f"tile lies in shared memory (swizzle {name}); needed boxes whose innermost axis has "
            f"{span} bytes, with rows of 8 or more behind each other: split and reorder the tile, "
            "or set_swizzle"
        )

    def begins_well(self, start: Expr, span: int, facts: Facts) -> bool:
        """Whether a tile begins at 16 bytes and in the first of 8 rows of a swizzle's pattern."""
        if not is_multiple(start * ITEM, 16, facts):
            return False
        row = simplify(start * ITEM // span % GROUP, facts)
        return span == SPANS["none"] or row == ZERO


def candidates(at: np.ndarray, swizzle: str) -> list[MatrixLayout]:
    """Return the layouts that a tile may have, by where some of its elements lie.

    Parameters
    ----------
    at
        Byte offsets of elements (row, depth) but for the swizzle.
    """
    rows = at.shape[0]
    span = SPANS[swizzle]
    across = span // ITEM
    next_rows = int(at[GROUP, 0]) if rows > GROUP else GROUP * span
    next_depth = int(at[0, GROUP])
    next_span = int(at[across, 0]) if rows > across else 16
    found: list[MatrixLayout] = []
    offsets = (
        (("k", next_depth, next_rows), ("mn", next_depth, next_rows))
        if swizzle == "none"
        else (("k", 16, next_rows), ("mn", next_span, next_depth))
    )
    for major, leading, stride in offsets:
        try:
            found.append(MatrixLayout("k" if major == "k" else "mn", swizzle, leading, stride))
        except VerifyError:
            continue  # no descriptor can say that
    return found


def _resolved(value: Scalar, known: dict[str, Scalar]) -> Scalar:
    """Return what a reference stands for; conversions to Float stay."""
    while isinstance(value, Ref) and value.name in known:
        value = known[value.name]
    if isinstance(value, Cast):
        return Cast(_resolved(value.arg, known), value.dtype)
    return value
