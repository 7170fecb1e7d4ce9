"""Plan the copy of one box of a global tensor into its stage, by the copy engine or by threads.

A plan is written over ``a0, a1, ...``, the indices of the tensor's loop axes, so that it can be
made before the loops exist. What the copy engine cannot do in this shape class (an address that is
not a multiple of 16 bytes, say) becomes an `obstacle`, and all threads copy instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from fuser.core.errors import ScheduleError
from fuser.core.expr import (
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
from fuser.kir.tensor_map import TensorMapParam, require_encodable
from fuser.passes.buffers import buffer_axes, slot_index
from fuser.passes.cluster import Multicast, shared_by_cluster
from fuser.passes.layout import Layout
from fuser.passes.state import Lowering
from fuser.schedule.kinds import LoadStoreOpType, ParallelType
from fuser.schedule.schedule import TensorSchedule

UNIT_BYTES = 16
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
        Element offset of the box's first element; of a thread copy, of the element.
    nbytes
        Bytes that arrive on the barrier.
    coords
        Coordinates in the tensor map, innermost first.
    obstacle
        Why the engine asked for is not used.
    multicast
        The blocks of a cluster that share the box; None where each loads its own.
    """

    engine: Engine
    axes: tuple[int, ...]
    guard: Expr
    source: Expr
    nbytes: Expr = ZERO
    map: TensorMapParam | None = None
    coords: tuple[Expr, ...] = ()
    obstacle: str = ""
    multicast: Multicast | None = None


def axis_vars(ts: TensorSchedule) -> tuple[Expr, ...]:
    """Return the variables that plans are written in."""
    return tuple(Var(f"a{j}") for j in range(len(ts.domain.loop)))


def plan_copy(state: Lowering, name: str) -> CopyPlan:
    """Return how the boxes of a tensor loaded by ``tma`` or ``bulk`` are copied."""
    return _Planner.of(state, name).plan()


@dataclass(frozen=True, slots=True)
class _Planner:
    name: str
    source: str
    ts: TensorSchedule
    layout: Layout
    facts: Facts
    axes: tuple[int, ...]
    coords: tuple[Expr, ...]
    inside: Expr
    state: Lowering

    @staticmethod
    def of(state: Lowering, name: str) -> _Planner:
        """Derive coordinates and guard of a tensor over its axis variables."""
        ts = state.nest.schedule.tensors[name]
        (source,) = state.nest.graph.operand_names(name)
        facts = state.nest.facts
        loops = axis_vars(ts)
        for j, axis in enumerate(ts.domain.loop):
            facts = facts.with_range(f"a{j}", simplify(axis.extent, state.nest.facts))
        axes = tuple(j for j in buffer_axes(ts) if ts.domain.loop[j].parallel is ParallelType.tma)
        if not axes:
            raise ScheduleError(
                f"{name}: loaded by {ts.load.name}, and none of its axes is bound to "
                "ParallelType.tma; bind the axes of the box"
            )
        root, inside = ts.domain.backward(loops, facts)
        env = {f"r{i}": e for i, e in enumerate(root)}
        coords = tuple(simplify(substitute(c, env), facts) for c in ts.coords)
        return _Planner(
            name, source, ts, state.layouts[source], facts, axes, coords,
            guard_of(inside, facts), state,
        )  # fmt: skip

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

    def plan(self) -> CopyPlan:
        """Return the plan of the engine asked for, or of the threads."""
        trailing = buffer_axes(self.ts)[-len(self.axes) :]
        if set(trailing) != set(self.axes):
            raise ScheduleError(
                f"{self.name}: the axes bound to tma are not the innermost ones of its buffer; "
                "a box lies in one piece"
            )
        try:
            if self.ts.load is LoadStoreOpType.bulk:
                return self.bulk()
            return self.tensor()
        except _ObstacleError as error:
            return self.threads(str(error))

    def threads(self, obstacle: str) -> CopyPlan:
        """Return the plan by which all threads copy element by element."""
        address = simplify(self.layout.address(self.coords), self.facts)
        return CopyPlan("threads", self.axes, self.inside, address, obstacle=obstacle)

    # ---- contiguous bytes ------------------------------------------------------------------

    def bulk(self) -> CopyPlan:
        """Plan ``cp.async.bulk``: the box is contiguous on both sides, in multiples of 16 bytes."""
        address = simplify(self.layout.address(self.coords), self.facts)
        first = self.at_origin(address)
        slot = slot_index(self.ts, axis_vars(self.ts), self.facts)
        step = simplify(slot - self.at_origin(slot), self.facts)
        if not prove_equal(address - first, step, self.facts):
            raise _ObstacleError("the box is not contiguous in global memory")
        self.require_multiple(first, "the offset of a box")
        self.require_aligned()
        numel, guard = self.clipped(step)
        self.require_multiple(numel, "the length of a box")
        return CopyPlan("bulk", self.axes, guard, first, numel * self.itemsize)

    def clipped(self, step: Expr) -> tuple[Expr, Expr]:
        """Return ``(elements of the box inside the tensor, guard that there are any)``."""
        numel: Expr = Const(prod(self.extents))
        covered = {f"a{j}" for j in self.axes}
        guards: list[Expr] = []
        for term in conjuncts(self.inside):
            if not variables(term) & covered:
                guards.append(term)
                continue
            if not (isinstance(term, BinOp) and term.op == "<"):
                raise _ObstacleError(f"the box ends where {term} does")
            first = self.at_origin(term.lhs)
            if not prove_equal(term.lhs - first, step, self.facts):
                raise _ObstacleError("the part of a box inside the tensor is not contiguous")
            rest = simplify(term.rhs - first, self.facts)
            numel = minimum(numel, rest)
            guards.append(BinOp("<", first, term.rhs))
        return numel, all_of(TRUE, *guards)

    def require_multiple(self, elems: Expr, what: str) -> None:
        """Raise unless `elems` elements are always a multiple of 16 bytes."""
        parts = (
            (elems.lhs, elems.rhs) if isinstance(elems, BinOp) and elems.op == "min" else (elems,)
        )
        if not all(is_multiple(p * self.itemsize, UNIT_BYTES, self.facts) for p in parts):
            raise _ObstacleError(f"{what} is not a multiple of {UNIT_BYTES} bytes")

    def require_aligned(self) -> None:
        """Raise unless the tensor begins at a multiple of 16 bytes."""
        if self.layout.aligned_bytes < UNIT_BYTES:
            raise _ObstacleError(
                f"{self.source} begins at a multiple of {self.layout.aligned_bytes} bytes only"
            )

    # ---- boxes of a tensor map -------------------------------------------------------------

    def tensor(self) -> CopyPlan:
        """Plan ``cp.async.bulk.tensor``: a coordinate moves with one axis of the box at most."""
        self.require_aligned()
        box = tuple(self.box_of(d) for d in range(len(self.coords)))
        self.check_order(box)
        kept = [d for d in range(len(self.coords)) if self.layout.shape[d] != Const(1)]
        inner = list(reversed(kept)) or [len(self.coords) - 1]
        strides = [self.layout.strides[d] for d in inner]
        if strides[0] != Const(1):
            raise _ObstacleError(f"{self.source} is not contiguous along its last dimension")
        for stride in strides[1:]:
            self.require_multiple(stride, f"a stride of {self.source}")
        param = TensorMapParam(
            name=f"{self.name}_map",
            tensor=self.source,
            dtype=self.state.nest.graph.value(self.name).dtype,
            dims=tuple(self.layout.shape[d] for d in inner),
            strides_bytes=tuple(
                simplify(s * self.itemsize, self.state.nest.facts) for s in strides[1:]
            ),
            box=tuple(1 if box[d] is None else self.extent(box[d]) for d in inner),
        )
        require_encodable(param)
        coords = tuple(self.at_origin(self.coords[d]) for d in inner)
        self.require_multiple(coords[0], "the innermost coordinate of a box")
        multicast, free = shared_by_cluster(self.ts, coords, self.state.launch)
        covered = {f"a{j}" for j in (*self.axes, *free)}
        outer = all_of(TRUE, *(t for t in conjuncts(self.inside) if not variables(t) & covered))
        nbytes = Const(prod(self.extents) * self.itemsize)
        return CopyPlan(
            "tensor", self.axes, outer, ZERO, nbytes, param, coords, multicast=multicast
        )

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
                f"{self.name}: dimension {dim} of {self.source} is {self.coords[dim]} inside the "
                "box; needed one tma axis that moves it element by element"
            )
        return moving[0]

    def check_order(self, box: tuple[int | None, ...]) -> None:
        """Raise unless the box lies in shared memory as the copy engine writes it."""
        order = [axis for axis in box if axis is not None]
        if order != list(self.axes):
            raise ScheduleError(
                f"{self.name}: its box has axes {list(self.axes)} in shared memory and {order} in "
                f"{self.source}; the copy engine keeps the order of the dimensions"
            )


class _ObstacleError(Exception):
    """The copy engine cannot make this copy in this shape class."""
