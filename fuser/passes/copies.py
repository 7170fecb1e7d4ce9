"""Plan the copy of one box of a global tensor into its stage, by the copy engine or by threads.

A plan is written over ``a0, a1, ...``, the indices of the tensor's loop axes, so that it can be
made before the loops exist. What the copy engine cannot do in this shape class (an address that is
not a multiple of 16 bytes, say) becomes an `obstacle`, and all threads copy instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal, TypeAlias

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
from fuser.fusion.attrs import InputAttrs
from fuser.fusion.shapes import stride_var
from fuser.kir.fallback import Obstacle
from fuser.kir.tensor_map import MAX_COORDINATE, TensorMapParam, require_encodable
from fuser.passes.buffers import buffer_axes, slot_index
from fuser.passes.cluster import Multicast, shared_by_cluster
from fuser.passes.layout import Layout
from fuser.passes.state import Lowering
from fuser.schedule.kinds import LoadStoreOpType, ParallelType
from fuser.schedule.schedule import TensorSchedule

UNIT_BYTES = 16
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
        Element offset of the box's first element; of a thread copy, of the element.
    nbytes
        Bytes that arrive on the barrier.
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
    nbytes: Expr = ZERO
    map: TensorMapParam | None = None
    coords: tuple[Expr, ...] = ()
    obstacle: Obstacle | None = None
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
        self.require_one_issuer()
        try:
            return self.by_engine()
        except _ObstacleError as error:
            self.require_curable(error.obstacle)
            return self.threads(error.obstacle)

    def by_engine(self) -> CopyPlan:
        """Return the plan of the engine asked for; raise `_ObstacleError` where it cannot."""
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
        for strides in self.best_strides():
            layout = Layout(self.layout.shape, strides, self.layout.mode)
            mentioned = (*strides, *self.coords, *self.layout.shape, self.inside)
            every = frozenset[str]().union(*map(variables, mentioned))
            every -= self.facts.ranges.keys() | self.facts.signed
            facts = replace(
                self.facts, multiples=dict.fromkeys(every, UNIT_BYTES), memo={}, base=[]
            )
            try:
                replace(self, layout=layout, facts=facts).by_engine()
            except _ObstacleError:
                continue
            return
        raise ScheduleError(
            f"{self.name}: loaded by {self.ts.load.name}, and {obstacle.text()}; no sizes or "
            f"address of {self.source} mend that: change the schedule, or load it by "
            "LoadStoreOpType.set or cp_async"
        )

    def best_strides(self) -> tuple[tuple[Expr, ...], ...]:
        """Return the strides that suit the engine best and that the definition allows.

        These are rows without gaps, and rows that begin at multiples of 16 elements where the
        definition does not promise that there are no gaps.
        """
        shape, attrs = self.layout.shape, self.state.nest.graph.value(self.source).attrs
        order: tuple[int, ...] = tuple(range(len(shape)))
        promised: tuple[bool | None, ...] = (True,) * len(shape)
        if isinstance(attrs, InputAttrs):
            order, promised = attrs.outer_to_inner, attrs.contiguity
        dense, padded = list[Expr]([ZERO] * len(shape)), list[Expr]([ZERO] * len(shape))
        steps: tuple[Expr, Expr] = (ONE, ONE)
        for d in reversed(order):
            if promised[d] is None or shape[d] == ONE:
                continue
            free = not promised[d] and steps[1] != ONE
            dense[d], padded[d] = steps[0], stride_var(self.source, d) if free else steps[1]
            steps = dense[d] * shape[d], padded[d] * shape[d]
        return tuple(dense), tuple(padded)

    def threads(self, obstacle: Obstacle) -> CopyPlan:
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
            raise _ObstacleError(f"a box of {self.source} has gaps", cure=DENSE)
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
                raise _ObstacleError(f"a box ends where {term} does", cure=WHOLE)
            first = self.at_origin(term.lhs)
            if not prove_equal(term.lhs - first, step, self.facts):
                raise _ObstacleError(
                    f"the part of a box that is inside {self.source} has gaps", cure=WHOLE
                )
            rest = simplify(term.rhs - first, self.facts)
            numel = minimum(numel, rest)
            guards.append(BinOp("<", first, term.rhs))
        return numel, all_of(TRUE, *guards)

    def require_multiple(self, elems: Expr, what: str) -> None:
        """Raise unless `elems` elements are always a multiple of 16 bytes."""
        parts = (
            (elems.lhs, elems.rhs) if isinstance(elems, BinOp) and elems.op == "min" else (elems,)
        )
        if all(is_multiple(p * self.itemsize, UNIT_BYTES, self.facts) for p in parts):
            return
        nbytes = simplify(elems * self.itemsize, self.facts)
        if variables(nbytes) & self.facts.ranges.keys():
            raise _ObstacleError(
                f"{what} of {self.source} is not always a multiple of {UNIT_BYTES} bytes",
                cure=WHOLE,
            )
        raise _ObstacleError(f"{what} of {self.source}", nbytes, WHOLE)

    def require_aligned(self) -> None:
        """Raise unless the tensor begins at a multiple of 16 bytes."""
        if self.layout.aligned_bytes < UNIT_BYTES:
            raise _ObstacleError(
                f"{self.source} begins at a multiple of {self.layout.aligned_bytes} bytes only",
                cure=f"pass an array that begins at a multiple of {UNIT_BYTES} bytes",
            )

    # ---- boxes of a tensor map -------------------------------------------------------------

    def tensor(self) -> CopyPlan:
        """Plan ``cp.async.bulk.tensor``: a coordinate moves with one axis of the box at most."""
        self.require_aligned()
        if self.layout.far:
            raise _ObstacleError(
                f"{self.source} has an extent of more than {MAX_COORDINATE} elements, which the "
                "coordinates of a box cannot name",
                cure="pass a part of it at a time",
            )
        box = tuple(self.box_of(d) for d in range(len(self.coords)))
        self.check_order(box)
        kept = [d for d in range(len(self.coords)) if self.layout.shape[d] != Const(1)]
        inner = list(reversed(kept)) or [len(self.coords) - 1]
        strides = [self.layout.strides[d] for d in inner]
        if strides[0] != Const(1):
            raise _ObstacleError(
                f"{self.source} is not contiguous along its last dimension", cure=DENSE
            )
        for d in inner[1:]:
            self.require_multiple(self.layout.strides[d], f"the stride of dimension {d}")
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

    def __init__(self, what: str, nbytes: Expr | None = None, cure: str = "") -> None:
        super().__init__(what)
        self.obstacle = Obstacle(what, nbytes, cure)
