"""Plan the store of one box out of a tile: as a load's, the other way round.

The output has the axes bound to tma, the tile lies where its own loops put it. The copy engine
writes 16 bytes at a time and drops what lies outside of the tensor map, so a box must end where the
tensor does, and rows at a multiple of 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuser.core.errors import ScheduleError
from fuser.core.expr import ZERO, BinOp, Expr, Var, all_of, conjuncts, substitute, variables
from fuser.core.simplify import guard_of, prove_equal, simplify
from fuser.kir.fallback import Obstacle
from fuser.passes.allowed_layouts import memory_orders
from fuser.passes.buffers import locate, producer_root
from fuser.passes.copies import (
    DENSE,
    WHOLE,
    CopyPlan,
    ObstacleError,
    Planner,
    axis_facts,
    plan_copy,
)
from fuser.passes.state import Lowering
from fuser.schedule.kinds import ParallelType


def plan_store(state: Lowering, output: str, tile: str) -> CopyPlan:
    """Return how the boxes of an output stored by ``tma`` or ``bulk`` are copied out of a tile."""
    swizzle = state.nest.schedule.tensors[tile].swizzle
    if swizzle is not None:
        raise ScheduleError(
            f"{output}: stored by {state.nest.schedule.tensors[output].load.name} out of {tile}, "
            f"whose pieces are permuted by a swizzle of {swizzle.span_bytes} bytes; set no swizzle"
        )
    planner = _planner_of(state, output, tile)
    if tile in state.turned and not planner.is_dense() and _may_be_turned_back(state, tile):
        (source,) = state.nest.graph.operand_names(tile)
        text = f"{tile} lies in the order of {source}, not in that of {output}"
        return planner.threads(Obstacle(text, None, DENSE))
    planner.check_dense(tile)
    if state.nest.schedule.tensors[tile].load.is_async_proxy:
        load = plan_copy(state, tile)
        if load.engine == "threads":
            assert load.obstacle is not None
            text = f"{tile} is filled by threads: {load.obstacle.what}"
            return planner.threads(replace(load.obstacle, what=text))
    return planner.plan()


def _may_be_turned_back(state: Lowering, tile: str) -> bool:
    """Whether the tensor that a tile is loaded from may lie in memory in another order."""
    (source,) = state.nest.graph.operand_names(tile)
    value = state.nest.graph.value(source)
    return len(memory_orders(value.attrs, len(value.shape))) > 1


def _planner_of(state: Lowering, output: str, tile: str) -> _StorePlanner:
    """Derive coordinates, guard and place in the tile over the output's axis variables."""
    schedule = state.nest.schedule
    ts, source = schedule.tensors[output], schedule.tensors[tile]
    facts = axis_facts(state, ts)
    loops: list[Expr] = []
    for j, axis in enumerate(ts.domain.loop):
        bound = axis.parallel.is_parallel
        loops.append(Var(axis.parallel.value if bound else f"a{j}"))
        if bound:
            facts = facts.with_range(axis.parallel.value, simplify(axis.extent, facts))
    root, inside = ts.domain.backward(loops, facts)
    guard = guard_of(inside, facts)
    held = facts.with_guard(guard)
    root = tuple(simplify(r, held) for r in root)
    env = {f"r{i}": e for i, e in enumerate(root)}
    coords = tuple(simplify(substitute(c, env), held) for c in ts.coords)
    there = producer_root(tile, source, coords, ts.root_of or output, root, held)
    shared = dict(enumerate(loops[: source.position]))
    place = locate(tile, source, there, shared, held, output)
    axes = tuple(j for j, axis in enumerate(ts.domain.loop) if axis.parallel is ParallelType.tma)
    return _StorePlanner(
        output, output, ts, state.layouts[output], facts, axes, coords, guard, place, state
    )


@dataclass(frozen=True, slots=True)
class _StorePlanner(Planner):
    """Plans one box of a store."""

    def is_dense(self) -> bool:
        """Whether the box is one piece of the tile, the last axis varying fastest."""
        dense: Expr = ZERO
        for j, extent in zip(self.axes, self.extents, strict=True):
            dense = dense * extent + Var(f"a{j}")
        step = self.tile - self.at_origin(self.tile)
        return prove_equal(step, dense, self.facts.with_guard(self.inside))

    def check_dense(self, tile: str) -> None:
        """Raise unless the box is one piece of the tile."""
        if not self.is_dense():
            step = self.tile - self.at_origin(self.tile)
            raise ScheduleError(
                f"{self.name}: element ({', '.join(f'a{j}' for j in self.axes)}) of its box lies "
                f"{simplify(step, self.facts)} behind the first one in {tile}; a box lies in one "
                "piece, so order the axes of both alike"
            )

    def tensor(self) -> CopyPlan:
        """As of a load; what lies in the box and not in the output must be outside of the map."""
        plan = Planner.tensor(self)
        assert plan.map is not None
        self.require_multiple(plan.map.dims[0], "the last dimension")
        covered = {f"a{j}" for j in self.axes}
        guards = [plan.guard]
        for term in conjuncts(self.inside):
            if variables(term) & covered:
                guards.append(self.at_origin(self.clipping(term)))
        return replace(plan, guard=all_of(*guards))

    def clipping(self, term: Expr) -> Expr:
        """Return a condition of the box that the tensor map imposes by itself; raise otherwise."""
        if isinstance(term, BinOp) and term.op == "<":
            rest = term.rhs - term.lhs
            for coord, extent in zip(self.coords, self.layout.shape, strict=True):
                if prove_equal(rest, extent - coord, self.facts):
                    return term
        raise ObstacleError(f"a box ends where {term} does, inside of {self.name}", cure=WHOLE)
