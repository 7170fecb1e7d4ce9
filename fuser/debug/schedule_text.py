"""Schedules as text: per tensor its memory, transforms, and the loop axes with their bindings."""

from __future__ import annotations

from typing import assert_never

from fuser.core.expr import Expr
from fuser.core.simplify import Facts, simplify
from fuser.fusion.graph import FusionGraph
from fuser.fusion.shapes import shape_text
from fuser.schedule.domain import IterDomain, LoopDomain, Merge, Split, Swizzle, Transform
from fuser.schedule.kinds import LoadStoreOpType, ParallelType
from fuser.schedule.schedule import Schedule, TensorSchedule
from fuser.schedule.segment import LEAVES


def to_text(name: str, graph: FusionGraph, schedule: Schedule, facts: Facts) -> str:
    """Print a schedule: axes are ``i<n>``, reduction axes ``r<n>``, inlined tensors one line."""
    lines = [f"schedule {name}: {schedule.recipe}"]
    for note in schedule.notes:
        lines.append(f"  # {note}")
    for tensor, ts in schedule.tensors.items():
        value = graph.value(tensor)
        shape = shape_text(value.shape)
        lines.append(f"{tensor}: {value.dtype.short}{shape} in {ts.memory.value} memory")
        lines += [f"  {line}" for line in tensor_lines(ts, facts)]
    inlined = [
        v.name
        for v in graph.values
        if v.op not in LEAVES and v.name not in schedule.tensors and not graph.is_scalar(v)
    ]
    if inlined:
        lines.append(f"inlined: {', '.join(inlined)}")
    return "\n".join(lines)


def tensor_lines(ts: TensorSchedule, facts: Facts) -> list[str]:
    """Print how one tensor is computed, one fact a line."""
    domain = ts.domain
    names = _axis_names(domain)
    root = [f"{names[d.id]} {_extent(d.extent, facts)}" for d in domain.root]
    of = f" of {ts.root_of}" if ts.root_of else ""
    lines = [f"root{of}  {' | '.join(root) or '(one element)'}"]
    lines += [_transform(step, domain, names, facts) for step in domain.transforms]
    if domain.loop:
        lines.append(f"loop  {' | '.join(_axis(d, names, facts) for d in domain.loop)}")
    if ts.allocation is not None:
        lines.append(f"allocation order  {', '.join(map(str, ts.allocation))}")
    if ts.swizzle is not None:
        lines.append(f"swizzled within {ts.swizzle.span_bytes} bytes")
    if ts.load is not LoadStoreOpType.set:
        lines.append(f"loaded by {ts.load.value}")
    if (ring := ts.circular) is not None:
        ahead = f"{ring.stages} stages, {ring.prefetch} trips ahead"
        lines.append(f"circular buffer  {ahead}, {ring.type.words}")
    if ts.same_loops_as:
        lines.append(f"in the loops of {ts.same_loops_as}")
    elif ts.position:
        lines.append(f"computed at position {ts.position} of its consumers' loops")
    return lines


def _axis_names(domain: LoopDomain) -> dict[int, str]:
    """Name every axis; what comes from a reduction axis is one."""
    reduced = {d.id for d in (*domain.root, *domain.loop) if d.reduction}
    for step in domain.transforms:
        match step:
            case Split(axis, outer, inner, _):
                reduced |= {outer, inner} if axis in reduced else set()
            case Merge(outer, _, axis, _):
                reduced |= {axis} if outer in reduced else set()
            case Swizzle(_, y, out, _):
                reduced |= {out} if y in reduced else set()
            case _:
                assert_never(step)
    return {axis: f"{'r' if axis in reduced else 'i'}{axis}" for axis in domain.extents}


def _transform(step: Transform, domain: LoopDomain, names: dict[int, str], facts: Facts) -> str:
    match step:
        case Split(axis, outer, inner, factor):
            text = _extent(factor, facts)
            return f"split {names[axis]} by {text} -> {names[outer]}, {names[inner]}"
        case Merge(outer, inner, axis, _):
            extent = _extent(domain.extents[axis], facts)
            return f"merge {names[outer]}, {names[inner]} -> {names[axis]} {extent}"
        case Swizzle(x, y, out, _):
            return f"swizzle {names[x]}, {names[y]} -> {names[out]}"
        case _:
            assert_never(step)


def _axis(axis: IterDomain, names: dict[int, str], facts: Facts) -> str:
    words = [names[axis.id], _extent(axis.extent, facts)]
    if axis.parallel is not ParallelType.serial:
        words.append(axis.parallel.name)
    parts = [(f"{part} ", unroll) for part, unroll in axis.unroll.parts]
    for part, unroll in (("", axis.unroll), *parts):
        if unroll.kind != "auto":
            factor = f" {unroll.factor}" if unroll.kind == "partial" else ""
            words.append(f"{part}{unroll.kind}{factor}")
    return " ".join(words)


def _extent(extent: Expr, facts: Facts) -> str:
    text = repr(simplify(extent, facts))
    return f"({text})" if " " in text else text
