"""Directives that rewrite the fusion: caches, and reductions in two stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fuser.core.errors import ScheduleError
from fuser.core.expr import Expr
from fuser.fusion.attrs import NO_ATTRS, Attrs, ReduceAttrs, ReshapeAttrs, SplitDimAttrs
from fuser.fusion.graph import FusionGraph, Output, Value
from fuser.ops import BY_REDUCTION
from fuser.schedule.domain import IterDomain, LoopDomain, Merge, Split, Swizzle
from fuser.schedule.hand import HandSchedule
from fuser.schedule.kinds import LoadStoreOpType, MemoryType
from fuser.schedule.replay import kept_part, replay
from fuser.schedule.schedule import TensorSchedule, default_schedule


def unused_name(graph: FusionGraph, stem: str) -> str:
    """Return `stem`, with a number when that is taken."""
    name, number = stem, 1
    while name in graph:
        name, number = f"{stem}{number}", number + 1
    return name


def cache_after(hand: HandSchedule, name: str, load: LoadStoreOpType) -> str:
    """Insert a copy between a tensor and its uses.

    rewrite::

        y = relu(x)   ->   x_cache = set(x); y = relu(x_cache)
    """
    graph = hand.graph
    value = graph.value(name)
    uses = graph.uses(value)
    if graph.is_scalar(value):
        raise ScheduleError("cache_after: it is a scalar; a tensor is needed")
    if not uses:
        raise ScheduleError("cache_after: nothing reads it; use cache_before for an output")
    cache = unused_name(graph, f"{name}_cache")
    graph.add("set", (name,), value.dtype, value.shape, NO_ATTRS, cache, value.location)
    for user, index in uses:
        graph.replace_operand(user, index, cache)
    hand.entry(cache).load = load
    return cache


def cache_before(hand: HandSchedule, name: str, load: LoadStoreOpType) -> str:
    """Compute a tensor under another name and make it a copy of that.

    rewrite::

        y = relu(x)   ->   y_cache = relu(x); y = set(y_cache)

    The copy keeps the loops of `y`; a reduction moves, with its loops, to the cache.
    """
    graph = hand.graph
    old = hand.schedulable(name)
    before, output = hand.entry(name), hand.is_output(name)
    outputs = graph.outputs
    uses = graph.uses(old)
    cache = unused_name(graph, f"{name}_cache")
    graph.rename(name, cache)
    graph.add("set", (cache,), old.dtype, old.shape, NO_ATTRS, name, old.location)
    graph.set_outputs(Output(o.value, o.alias_of) for o in outputs)
    if not output:
        for user, index in uses:
            graph.replace_operand(user.name, index, name)
    copy = default_schedule(
        graph, graph.value(name), MemoryType.global_ if output else before.memory
    )
    if isinstance(old.attrs, ReduceAttrs):
        copy.domain = kept_part(before.domain)
        hand.tensors[cache] = replace(before, position=0)
        for ts in hand.tensors.values():
            ts.root_of = cache if ts.root_of == name else ts.root_of
    else:
        copy = replace(before, memory=copy.memory)
        local = replace(before, memory=MemoryType.local, position=0, root_of=before.root_of or name)
        hand.tensors[cache] = local
    copy.load = load
    hand.tensors[name] = copy
    return cache


# ---- rfactor -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _View:
    """The operand of a reduction, with reduced dimensions split and merged by view operations.

    Attributes
    ----------
    ids
        Per dimension of `value` the axis of the reduction's loop domain that it is.
    """

    graph: FusionGraph
    value: Value
    ids: list[int]
    fill: bool | int | float

    def apply(self, step: Split | Merge, domain: LoopDomain, stem: str) -> None:
        """Replay one transform of the reduced dimensions."""
        shape = self.value.shape
        if isinstance(step, Split):
            at = self.ids.index(step.axis)
            outer = domain.extents[step.outer]
            new = (*shape[:at], outer, step.factor, *shape[at + 1 :])
            self._add("split_dim", new, SplitDimAttrs(at, step.factor, self.fill), stem)
            self.ids[at : at + 1] = [step.outer, step.inner]
            return
        at = self.ids.index(step.outer)
        if self.ids[at + 1 : at + 2] != [step.inner]:
            raise ScheduleError(
                "rfactor: it merges reduction axes that are not neighbours in its operand; "
                "merge neighbouring ones"
            )
        new = (*shape[:at], domain.extents[step.axis], *shape[at + 2 :])
        self._add("reshape", new, ReshapeAttrs(), stem)
        self.ids[at : at + 2] = [step.axis]

    def _add(self, op: str, shape: tuple[Expr, ...], attrs: Attrs, stem: str) -> None:
        name, old = unused_name(self.graph, f"{stem}_view"), self.value
        self.value = self.graph.add(op, (old,), old.dtype, shape, attrs, name, old.location)


def rfactor(hand: HandSchedule, name: str, axes: Sequence[int]) -> str:
    """Reduce the loop axes `axes` first, into a tensor of their own, and the others of that.

    rewrite::

        t = sum(x over o, i)   --rfactor o-->   t_rf = sum(x over o); t = sum(t_rf over i)
    """
    graph, ts = hand.graph.copy(), hand.entry(name)
    value = graph.value(name)
    if not isinstance(value.attrs, ReduceAttrs):
        raise ScheduleError(f"rfactor: it is a {value.op}; a reduction is needed")
    first = _first_stage(ts, axes)
    view = _viewed(graph, value, ts.domain)
    reduced = [d.id for d in ts.domain.loop if d.reduction]
    stage = unused_name(graph, f"{name}_rf")
    dims = tuple(i for i, axis in enumerate(view.ids) if axis in first)
    shape = tuple(e for i, e in enumerate(view.value.shape) if i not in dims)
    rest = [axis for axis in view.ids if axis not in first]
    dtype = BY_REDUCTION[value.op].accumulate(value.dtype)
    graph.add(value.op, (view.value,), dtype, shape, ReduceAttrs(dims), stage, value.location)
    attrs = ReduceAttrs(tuple(i for i, axis in enumerate(rest) if axis in reduced))
    graph.replace_attrs(name, attrs)
    graph.replace_operand(name, 0, stage)
    hand.graph = graph
    hand.tensors[stage] = _stage_schedule(graph, stage, ts, view.ids)
    second = _stage_schedule(graph, name, ts, rest)
    hand.tensors[name] = replace(second, position=ts.position, memory=ts.memory)
    return stage


def _first_stage(ts: TensorSchedule, axes: Sequence[int]) -> set[int]:
    """Return the ids of the axes to reduce first."""
    loop = ts.domain.loop
    positions = [ts.domain.position(axis, "rfactor") for axis in axes]
    for axis, at in zip(axes, positions, strict=True):
        if not loop[at].reduction:
            raise ScheduleError(f"rfactor: axis {axis} is kept; reduction axes are needed")
    first = {loop[at].id for at in positions}
    if not first or first == {d.id for d in loop if d.reduction}:
        count = sum(d.reduction for d in loop)
        raise ScheduleError(
            f"rfactor: axes {list(axes)} of {count} reduction axes; at least one must be given and "
            "one be left"
        )
    return first


def _viewed(graph: FusionGraph, value: Value, domain: LoopDomain) -> _View:
    """Return the operand with one dimension for every kept root and every reduced loop axis."""
    (operand,) = graph.operands(value)
    dtype = BY_REDUCTION[value.op].accumulate(operand.dtype)
    if operand.dtype is not dtype:  # the fill below may not exist in the narrower dtype
        wide = unused_name(graph, f"{operand.name}_wide")
        operand = graph.add(
            "cast", (operand,), dtype, operand.shape, NO_ATTRS, wide, value.location
        )
    fill = BY_REDUCTION[value.op].identity(dtype)
    view = _View(graph, operand, [d.id for d in domain.root], fill)
    reduction = {d.id for d in domain.root if d.reduction}
    for step in domain.transforms:
        if isinstance(step, Split) and step.axis in reduction:
            reduction |= {step.outer, step.inner}
            view.apply(step, domain, operand.name)
        elif isinstance(step, Merge) and step.outer in reduction:
            reduction.add(step.axis)
            view.apply(step, domain, operand.name)
    return view


def _stage_schedule(
    graph: FusionGraph, name: str, ts: TensorSchedule, ids: list[int]
) -> TensorSchedule:
    """Return the schedule of one stage: the loops of `ts` that it has, in that order."""
    result = default_schedule(graph, graph.value(name))
    root = result.domain.root
    source = _without_reduced_steps(ts.domain, ids)
    by_id = {axis: i for i, axis in enumerate(ids)}
    domain = replay(source, root, by_id, bound=True)
    assert domain is not None, "steps of kept dimensions only"
    return replace(result, domain=domain)


def _without_reduced_steps(domain: LoopDomain, ids: list[int]) -> LoopDomain:
    """Return `domain` as if the axes `ids` that transforms made were root dimensions."""
    extents = domain.extents
    root = tuple(IterDomain(axis, extents[axis]) for axis in ids)
    gone = {d.id for d in domain.root if d.reduction}
    steps: list[Split | Merge | Swizzle] = []
    for step in domain.transforms:
        match step:
            case Split(axis, outer, inner) if axis in gone:
                gone |= {outer, inner}
            case Merge(outer, _, axis) if outer in gone:
                gone.add(axis)
            case _:
                steps.append(step)
    loop = tuple(d for d in domain.loop if d.id not in gone or d.id in ids)
    return LoopDomain(root, tuple(steps), loop, extents)
