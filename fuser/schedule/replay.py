"""Replaying the transforms of one loop domain on other root dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from fuser.core.expr import Expr
from fuser.schedule.cluster import keeps_results
from fuser.schedule.domain import IterDomain, LoopDomain, Merge, Split, Swizzle, Transform
from fuser.schedule.kinds import ParallelType


def replay(
    source: LoopDomain,
    root: tuple[IterDomain, ...],
    ids: Mapping[int, int],
    *,
    bound: bool = False,
    axes: int | None = None,
) -> LoopDomain | None:
    """Return `root` transformed as `source`; None when a transform has no meaning there.

    Parameters
    ----------
    ids
        Root dimension of `source` -> root dimension of the result, of the same extent. Transforms
        of other dimensions are left out; other root dimensions become the innermost loops.
    bound
        Also copy parallel types and directives; a reduction is not left to a cluster.
    axes
        Replay only what the first `axes` loop axes need.
    """
    steps = source.transforms if axes is None else _needed(source, axes)
    run = _Replay(source, {d.id: d.extent for d in root})
    by_id = {d.id: d for d in root}
    run.axes = {old: by_id[new] for old, new in ids.items()}
    if not all(run.apply(step) for step in steps):
        return None
    done = [d for d in source.loop if d.id in run.axes]
    loop = [_directed(run.axes.pop(d.id), d, bound) for d in done]
    used = {d.id for d in loop}
    open_axes = (*run.axes.values(), *(d for d in root if d.id not in ids.values()))
    loop += [d for d in open_axes if d.id not in used]
    return LoopDomain(root, tuple(run.steps), tuple(loop), run.extents)


def _directed(axis: IterDomain, like: IterDomain, bound: bool) -> IterDomain:
    taken = bound and keeps_results(axis, like.parallel)
    parallel = like.parallel if taken else ParallelType.serial
    if not bound:
        return replace(axis, parallel=parallel)
    return replace(axis, parallel=parallel, unroll=like.unroll, outlined=like.outlined)


def _needed(source: LoopDomain, axes: int) -> tuple[Transform, ...]:
    """Return the transforms that the first `axes` loop axes come from."""
    wanted = {d.id for d in source.loop[:axes]}
    kept: list[Transform] = []
    for step in reversed(source.transforms):
        match step:
            case Split(axis, outer, inner):
                if wanted & {outer, inner}:
                    kept.append(step)
                    wanted.add(axis)
            case Merge(outer, inner, axis):
                if axis in wanted:
                    kept.append(step)
                    wanted |= {outer, inner}
            case Swizzle(x, y, out):
                if out in wanted:
                    kept.append(step)
                    wanted |= {x, y}
            case _:
                assert_never(step)
    return tuple(reversed(kept))


@dataclass(slots=True)
class _Replay:
    """State: the result's axis for every axis of the source that exists at this point."""

    source: LoopDomain
    extents: dict[int, Expr]
    axes: dict[int, IterDomain]
    steps: list[Transform]

    def __init__(self, source: LoopDomain, extents: dict[int, Expr]) -> None:
        self.source, self.extents = source, extents
        self.axes, self.steps = {}, []

    def apply(self, step: Transform) -> bool:
        """Replay one transform; False when it has no meaning here."""
        match step:
            case Split(axis, outer, inner, factor):
                if (old := self.axes.pop(axis, None)) is not None:
                    o, i = self.new(outer, old.reduction), self.new(inner, old.reduction)
                    self.steps.append(Split(old.id, o.id, i.id, factor))
                return True
            case Merge(outer, inner, axis, extent):
                a, b = self.axes.pop(outer, None), self.axes.pop(inner, None)
                if a is None or b is None:
                    return a is b
                if a.reduction != b.reduction:
                    return False
                self.steps.append(Merge(a.id, b.id, self.new(axis, a.reduction).id, extent))
                return True
            case Swizzle(x, y, out, extent):
                fixed, old = self.axes.get(x), self.axes.pop(y, None)
                if fixed is None or old is None:
                    return fixed is old
                if fixed.reduction or old.reduction:
                    return False
                self.steps.append(Swizzle(fixed.id, old.id, self.new(out, False).id, extent))
                return True
            case _:
                assert_never(step)

    def new(self, like: int, reduction: bool) -> IterDomain:
        """Return a new axis that stands for axis `like` of the source."""
        axis = IterDomain(max(self.extents, default=-1) + 1, self.source.extents[like], reduction)
        self.extents[axis.id] = axis.extent
        self.axes[like] = axis
        return axis


def kept_part(domain: LoopDomain) -> LoopDomain:
    """Return the domain of a reduction's result: its kept axes, bound alike."""
    kept = [d for d in domain.root if not d.reduction]
    root = tuple(replace(d, id=i, parallel=ParallelType.serial) for i, d in enumerate(kept))
    result = replay(domain, root, {d.id: i for i, d in enumerate(kept)}, bound=True)
    assert result is not None, "kept and reduced axes are never merged"
    return result
