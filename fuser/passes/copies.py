"""Plan the copy of one box between global and shared memory, by the copy engine or by threads.

A plan is written over ``a0, a1, ...``, the indices of the tensor's loop axes, so that it can be
made before the loops exist. What the copy engine cannot do in this shape class (an address that is
not a multiple of 16 bytes, say) becomes an `obstacle`, and all threads copy instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal, Self, TypeAlias

from fuser.core.errors import ScheduleError
from fuser.core.expr import (
    ONE,
    TRUE,
    ZERO,
    BinOp,
    Const,
    Expr,
    Var,
    all_of,
    conjuncts,
    minimum,
    substitute,
    variables,
)
from fuser.core.simplify import (
    Facts,
    coefficient_of,
    guard_of,
    is_multiple,
    prove_equal,
    simplify,
)
from fuser.kir.fallback import Obstacle
from fuser.kir.tensor_map import MAX_COORDINATE, TensorMapParam, require_encodable
from fuser.passes.allowed_layouts import best_layouts
from fuser.passes.buffers import buffer_axes, slot_index
from fuser.passes.cluster import Multicast, shared_by_cluster
from fuser.passes.layout import Layout
from fuser.passes.state import Lowering
from fuser.schedule.kinds import LoadStoreOpType, ParallelType
from fuser.schedule.schedule import TensorSchedule

UNIT_BYTES = 16
TILE_BYTES = 128
"""Boxes of a tensor map begin at such addresses of shared memory."""
DENSE = "pass a contiguous array"
WHOLE = "pad rows to a multiple of 16 bytes"
Engine: TypeAlias = Literal["bulk", "tensor", "threads"]


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How one box is copied.

    Attributes
    ----------
    engine
        ``"bulk"`` contiguous bytes, ``"tensor"`` a box of a tensor map, ``"threads"`` neither.
    axes
        Loop axes that the copy covers by itself, slowest varying first.
    guard
        Where there is anything to copy; over the axes that the copy does not cover. Of a thread
        copy, over all axes.
    source
        Element offset in the global tensor of the box's first element; of a thread copy, of the
        element.
    tile
        Of a store, the same in shared memory, all stages counted.
    numel, itemsize
        Elements of the box, and bytes of one.
    ends
        The conditions ``first < end`` of `guard` that cut the box short, too, where fewer are left.
    coords
        Coordinates in the tensor map, innermost first.
    obstacle
        Why the engine asked for is not used; None where it is.
    multicast
        The blocks of a cluster that share the box; None where each loads its own.
    """

    engine: Engine
    axes: tuple[int, ...]
    guard: Expr
    source: Expr
    tile: Expr = ZERO
    numel: int = 0
    itemsize: int = 0
    ends: tuple[BinOp, ...] = ()
    map: TensorMapParam | None = None
    coords: tuple[Expr, ...] = ()
    obstacle: Obstacle | None = None
    multicast: Multicast | None = None

    @property
    def nbytes(self) -> Expr:
        """Bytes of the box; of a load, those that arrive on the barrier."""
        size: Expr = Const(self.numel)
        for end in self.ends:
            size = minimum(size, end.rhs - end.lhs)
        return size * self.itemsize


def axis_vars(ts: TensorSchedule) -> tuple[Expr, ...]:
    """Return the variables that plans are written in."""
    return tuple(Var(f"a{j}") for j in range(len(ts.domain.loop)))


def plan_copy(state: Lowering, name: str) -> CopyPlan:
    """Return how the boxes of a tensor loaded by ``tma`` or ``bulk`` are copied."""
    planner = planner_of(state, name)
    planner.check_trailing()
    planner.require_one_issuer()
    return planner.plan()


def planner_of(state: Lowering, name: str) -> Planner:
    """Return the planner of a load: derive coordinates and guard over the axis variables."""
    ts = state.nest.schedule.tensors[name]
    (source,) = state.nest.graph.operand_names(name)
    facts = axis_facts(state, ts)
    loops = axis_vars(ts)
    axes = tuple(j for j in buffer_axes(ts) if ts.domain.loop[j].parallel is ParallelType.tma)
    root, inside = ts.domain.backward(loops, facts)
    env = {f"r{i}": e for i, e in enumerate(root)}
    coords = tuple(simplify(substitute(c, env), facts) for c in ts.coords)
    return Planner(
        name, source, ts, state.layouts[source], facts, axes, coords, guard_of(inside, facts),
        slot_index(ts, loops, facts), state,
    )  # fmt: skip


def axis_facts(state: Lowering, ts: TensorSchedule) -> Facts:
    """Return what is known of the axis variables of a tensor."""
    facts = state.nest.facts
    for j, axis in enumerate(ts.domain.loop):
        facts = facts.with_range(f"a{j}", simplify(axis.extent, state.nest.facts))
    return facts


def digits_of(
    ts: TensorSchedule, axes: tuple[int, ...], e: Expr, facts: Facts
) -> tuple[dict[int, Expr], int]:
    """Return ``(index of each axis of a box, number of elements)`` for element number `e`."""
    numel = 1
    digits: dict[int, Expr] = {}
    for j in reversed(axes):
        extent = simplify(ts.domain.loop[j].extent, facts)
        assert isinstance(extent, Const)
        digits[j] = (e // numel) % extent
        numel *= extent.value
    return digits, numel


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans one box, for loads and stores alike.

    Attributes
    ----------
    name, ts
        The tensor that has axes bound to tma: the tile of a load, the output of a store.
    outside, layout
        The tensor in global memory.
    axes
        Axes bound to tma, slowest varying first.
    coords, inside
        Coordinates in the global tensor of the element at the axis variables, and whether there is
        one.
    tile
        Where that element lies in shared memory.
    """

    name: str
    outside: str
    ts: TensorSchedule
    layout: Layout
    facts: Facts
    axes: tuple[int, ...]
    coords: tuple[Expr, ...]
    inside: Expr
    tile: Expr
    state: Lowering

    def __post_init__(self) -> None:
        if not self.axes:
            way = "stored" if self.ts.is_stored else "loaded"
            raise ScheduleError(
                f"{self.name}: {way} by {self.ts.load.name}, and none of its axes is bound to "
                "ParallelType.tma; bind the axes of the box"
            )

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.state.nest.graph.value(self.name).dtype.nbytes

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the copied axes; raise `ScheduleError` unless constant."""
        found: list[int] = []
        for j in self.axes:
            extent = simplify(self.ts.domain.loop[j].extent, self.facts)
            if not isinstance(extent, Const):
                raise ScheduleError(
                    f"{self.name}: axis {j} is bound to tma and has extent {extent}; a constant "
                    "is needed"
                )
            found.append(extent.value)
        return tuple(found)

    def at_origin(self, e: Expr) -> Expr:
        """Return `e` at the first element of the box."""
        return simplify(substitute(e, {f"a{j}": ZERO for j in self.axes}), self.facts)

    def check_trailing(self) -> None:
        """Raise unless the box of a load is one piece of its buffer."""
        trailing = buffer_axes(self.ts)[-len(self.axes) :]
        if set(trailing) != set(self.axes):
            raise ScheduleError(
                f"{self.name}: the axes bound to tma are not the innermost ones of its buffer; "
                "a box lies in one piece"
            )

    def arranged(self) -> Self:
        """Return the planner of a box that varies fastest where the tensor outside is contiguous.

        That is this one, where the order of the box is set by the schedule or by what fills it.
        """
        first = self.layout.inner
        free = self.ts.allocation is None or self.name in self.state.turned
        if self.ts.is_stored or not free or first is None:
            return self
        inner = tuple(j for j in self.axes if f"a{j}" in variables(self.coords[first]))
        return replace(self, axes=(*(j for j in self.axes if j not in inner), *inner))

    def plan(self) -> CopyPlan:
        """Return the plan of the engine asked for, or of the threads."""
        try:
            return self.by_engine()
        except ObstacleError as error:
            self.require_curable(error.obstacle)
            return self.threads(error.obstacle)

    def by_engine(self) -> CopyPlan:
        """Return the plan of the engine asked for; raise `ObstacleError` where it cannot."""
        return self.bulk() if self.ts.load is LoadStoreOpType.bulk else self.tensor()

    def require_one_issuer(self) -> None:
        """Raise `ScheduleError` if threads would each need a box of their own."""
        for j, axis in enumerate(self.ts.domain.loop):
            if axis.parallel.is_block and j != self.ts.group_axis:
                raise ScheduleError(
                    f"{self.name}: loaded by {self.ts.load.name}, and its axis {j} is bound to "
                    f"{axis.parallel.name}; one thread issues all copies of a block: needed tma, "
                    "serial or grid axes"
                )

    def require_curable(self, obstacle: Obstacle) -> None:
        """Raise `ScheduleError` if no sizes, strides and address would remove an obstacle."""
        attrs = self.state.nest.graph.value(self.outside).attrs
        for layout in best_layouts(self.outside, attrs, self.layout):
            mentioned = (*layout.strides, *self.coords, *layout.shape, self.inside)
            every = frozenset[str]().union(*map(variables, mentioned))
            every -= self.facts.ranges.keys() | self.facts.signed
            facts = replace(self.facts, multiples=dict.fromkeys(every, UNIT_BYTES))
            try:
                replace(self, layout=layout, facts=facts).arranged().by_engine()
            except ObstacleError:
                continue
            return
        way, other = "loaded", "load it by LoadStoreOpType.set or cp_async"
        if self.ts.is_stored:
            way, other = "stored", "store it by LoadStoreOpType.set"
        raise ScheduleError(
            f"{self.name}: {way} by {self.ts.load.name}, and {obstacle.text()}; no sizes or "
            f"address of {self.outside} mend that: change the schedule, or {other}"
        )

    def threads(self, obstacle: Obstacle) -> CopyPlan:
        """Return the plan by which all threads copy element by element."""
        address = simplify(self.layout.address(self.coords), self.facts)
        return CopyPlan("threads", self.axes, self.inside, address, self.tile, obstacle=obstacle)

    def require_tile_aligned(self) -> None:
        """Raise unless every box begins where a tensor map can address shared memory."""
        swizzle = self.ts.swizzle
        align = TILE_BYTES if swizzle is None else swizzle.pattern_bytes
        if not is_multiple(self.at_origin(self.tile) * self.itemsize, align, self.facts):
            raise ScheduleError(
                f"{self.name}: its boxes have {prod(self.extents) * self.itemsize} bytes, and "
                "several lie behind each other in shared memory; needed a multiple of "
                f"{align}"
            )

    # ---- contiguous bytes ------------------------------------------------------------------

    def bulk(self) -> CopyPlan:
        """Plan ``cp.async.bulk``: the box is contiguous on both sides, in multiples of 16 bytes."""
        address = simplify(self.layout.address(self.coords), self.facts)
        first = self.at_origin(address)
        step = simplify(self.tile - self.at_origin(self.tile), self.facts)
        if not prove_equal(address - first, step, self.facts):
            raise ObstacleError(f"a box of {self.outside} has gaps", cure=DENSE)
        self.require_multiple(first, "the offset of a box")
        if not is_multiple(self.at_origin(self.tile) * self.itemsize, UNIT_BYTES, self.facts):
            raise ObstacleError("its boxes are no multiples of 16 bytes", cure=WHOLE)
        self.require_aligned()
        ends, others = self.clipped(step)
        tile = self.at_origin(self.tile)
        plan = CopyPlan(
            "bulk", self.axes, all_of(*others, *ends), first, tile, prod(self.extents),
            self.itemsize, ends,
        )  # fmt: skip
        self.require_multiple(Const(plan.numel), "the length of a box")
        for end in ends:
            rest = simplify(end.rhs - end.lhs, self.facts)
            self.require_multiple(rest, "the length of a box")
        return plan

    def clipped(self, step: Expr) -> tuple[tuple[BinOp, ...], tuple[Expr, ...]]:
        """Return the conditions that cut a box short or leave it out, and those of all of it."""
        covered = {f"a{j}" for j in self.axes}
        ends: list[BinOp] = []
        others: list[Expr] = []
        for term in conjuncts(self.inside):
            if not variables(term) & covered:
                others.append(term)
                continue
            if not (isinstance(term, BinOp) and term.op == "<"):
                raise ObstacleError(f"a box ends where {term} does", cure=WHOLE)
            first = self.at_origin(term.lhs)
            if not prove_equal(term.lhs - first, step, self.facts):
                raise ObstacleError(
                    f"the part of a box that is inside {self.outside} has gaps", cure=WHOLE
                )
            ends.append(BinOp("<", first, term.rhs))
        return tuple(ends), tuple(others)

    def require_multiple(self, elems: Expr, what: str) -> None:
        """Raise unless `elems` elements are always a multiple of 16 bytes."""
        if is_multiple(elems * self.itemsize, UNIT_BYTES, self.facts):
            return
        nbytes = simplify(elems * self.itemsize, self.facts)
        if variables(nbytes) & self.facts.ranges.keys():
            raise ObstacleError(
                f"{what} of {self.outside} is not always a multiple of {UNIT_BYTES} bytes",
                cure=WHOLE,
            )
        raise ObstacleError(f"{what} of {self.outside}", nbytes, WHOLE)

    def require_aligned(self) -> None:
        """Raise unless the tensor begins at a multiple of 16 bytes."""
        if self.layout.aligned_bytes < UNIT_BYTES:
            raise ObstacleError(
                f"{self.outside} begins at a multiple of {self.layout.aligned_bytes} bytes only",
                cure=f"pass an array that begins at a multiple of {UNIT_BYTES} bytes",
            )

    # ---- boxes of a tensor map -------------------------------------------------------------

    def tensor(self) -> CopyPlan:
        """Plan ``cp.async.bulk.tensor``: a coordinate moves with one axis of the box at most."""
        self.require_aligned()
        if self.layout.far:
            raise ObstacleError(
                f"{self.outside} has an extent of more than {MAX_COORDINATE} elements, which the "
                "coordinates of a box cannot name",
                cure="pass a part of it at a time",
            )
        box = tuple(self.box_of(d) for d in range(len(self.coords)))
        inner = self.map_order(box)
        strides = [self.layout.strides[d] for d in inner]
        for d in inner[1:]:
            self.require_multiple(self.layout.strides[d], f"the stride of dimension {d}")
        param = TensorMapParam(
            name=self.state.named(f"{self.name}_map"),
            tensor=self.outside,
            dtype=self.state.nest.graph.value(self.name).dtype,
            dims=tuple(self.layout.shape[d] for d in inner),
            strides_bytes=tuple(
                simplify(s * self.itemsize, self.state.nest.facts) for s in strides[1:]
            ),
            box=tuple(1 if box[d] is None else self.extent(box[d]) for d in inner),
            swizzle="none" if self.ts.swizzle is None else self.ts.swizzle.name,
        )
        require_encodable(param)
        self.require_tile_aligned()
        coords = tuple(self.at_origin(self.coords[d]) for d in inner)
        self.require_multiple(coords[0], "the innermost coordinate of a box")
        multicast, free = self.shared(coords)
        covered = {f"a{j}" for j in (*self.axes, *free)}
        outer = all_of(TRUE, *(t for t in conjuncts(self.inside) if not variables(t) & covered))
        tile = self.at_origin(self.tile)
        return CopyPlan(
            "tensor", self.axes, outer, ZERO, tile, prod(self.extents), self.itemsize, (),
            param, coords, multicast=multicast,
        )  # fmt: skip

    def shared(self, coords: tuple[Expr, ...]) -> tuple[Multicast | None, tuple[int, ...]]:
        """Return how a cluster shares the box of a load; each block stores its own."""
        if self.ts.is_stored:
            return None, ()
        return shared_by_cluster(self.ts, coords, self.state.launch)

    def extent(self, axis: int | None) -> int:
        """Return the extent of a copied axis."""
        return 1 if axis is None else self.extents[self.axes.index(axis)]

    def box_of(self, dim: int) -> int | None:
        """Return the axis along which a coordinate moves inside the box; None for a fixed one."""
        moving = [j for j in self.axes if f"a{j}" in variables(self.coords[dim])]
        if not moving:
            return None
        if len(moving) > 1 or coefficient_of(self.coords[dim], f"a{moving[0]}", self.facts) != 1:
            raise ScheduleError(
                f"{self.name}: dimension {dim} of {self.outside} is {self.coords[dim]} inside the "
                "box; needed one tma axis that moves it element by element"
            )
        return moving[0]

    def map_order(self, box: tuple[int | None, ...]) -> tuple[int, ...]:
        """Return the dimensions of the tensor map, innermost first.

        The first is the one with stride 1. The others may come in any order, so those along which
        the box extends come as its axes lie in shared memory.
        """
        first = self.layout.inner
        if first is None:
            raise ObstacleError(
                f"{self.outside} is not contiguous along its last dimension", cure=DENSE
            )
        moved = {axis: d for d, axis in enumerate(box) if axis is not None}
        order = [axis for axis in box if axis is not None]
        if sorted(order) != sorted(self.axes):
            raise ScheduleError(
                f"{self.name}: its box has axes {list(self.axes)} in shared memory and {order} in "
                f"{self.outside}; needed one dimension for each axis"
            )
        self.check_inner(first, box)
        kept = [d for d in range(len(box)) if self.layout.shape[d] != ONE and d != first]
        along = iter([moved[j] for j in reversed(self.axes) if moved[j] in {first, *kept}])
        return tuple(d if box[d] is None else next(along) for d in (first, *reversed(kept)))

    def check_inner(self, first: int, box: tuple[int | None, ...]) -> None:
        """Raise unless the box is wide along dimension `first`, and varies fastest along it.

        A box that is wide along no dimension is refused with the map, whatever the layout.
        """
        axis, swizzle = box[first], self.ts.swizzle
        nbytes = self.extent(axis) * self.itemsize
        needed = f"a multiple of {UNIT_BYTES}"
        if swizzle is not None:
            needed = f"{swizzle.span_bytes}, the span of its swizzle"

        def suits(n: int) -> bool:
            return n % UNIT_BYTES == 0 if swizzle is None else n == swizzle.span_bytes

        if not suits(nbytes) and any(suits(n * self.itemsize) for n in self.extents):
            raise ObstacleError(
                f"{self.outside} is contiguous along dimension {first}, where a box has {nbytes} "
                f"bytes; needed {needed}",
                cure=DENSE,
            )
        if axis is not None and axis != self.axes[-1]:
            order = [*(j for j in self.axes if j != axis), axis]
            raise ObstacleError(
                f"its box has axes {list(self.axes)} in shared memory and {order} in "
                f"{self.outside}; the copy engine keeps the order of the dimensions",
                cure=f"pass an array that is contiguous along dimension {box.index(self.axes[-1])}",
            )


class ObstacleError(Exception):
    """The copy engine cannot make this copy in this shape class."""

    def __init__(self, what: str, nbytes: Expr | None = None, cure: str = "") -> None:
        super().__init__(what)
        self.obstacle = Obstacle(what, nbytes, cure)
