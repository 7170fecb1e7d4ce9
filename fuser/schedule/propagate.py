"""Giving tensors the transforms of a reference tensor.

A tensor takes part when its coordinates are a function, without any condition, of the reference's
root coordinates; the others are left as they are. So is an output unless that function meets each
of its elements once: a slice misses some of them, a broadcast would store some again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fuser.core.errors import ScheduleError
from fuser.core.expr import TRUE, Expr
from fuser.core.simplify import Facts, prove_equal, simplify
from fuser.fusion.attrs import PadAttrs, ReduceAttrs, SliceAttrs, UnfoldAttrs
from fuser.fusion.graph import FusionGraph, Value
from fuser.fusion.shapes import canonical
from fuser.fusion.views import operand_access
from fuser.schedule.cluster import keeps_results
from fuser.schedule.domain import IterDomain, LoopDomain
from fuser.schedule.hand import HandSchedule
from fuser.schedule.kinds import ParallelType
from fuser.schedule.replay import kept_part, replay
from fuser.schedule.schedule import TensorSchedule, root_extents, root_vars

Coords = tuple[Expr, ...]
NO_FACTS = Facts()


@dataclass(frozen=True, slots=True)
class Need:
    """The element of a producer that an iteration of the reference needs.

    Attributes
    ----------
    coords
        Its coordinates, over ``r0, r1, ...``.
    whole
        Whether all iterations together need every element.
    """

    coords: Coords
    whole: bool


def transform_like(
    hand: HandSchedule,
    ref: str,
    targets: Iterable[str],
    *,
    axes: int | None = None,
    bound: bool = False,
) -> None:
    """Replay the transforms of `ref` (of its first `axes` loop axes) on `targets`.

    rewrite::

        ref: for b: for t      t: for i: for j   ->   t: for b: for t

    Parameters
    ----------
    bound
        Also bind the axes as those of `ref` are.

    Raises
    ------
    ScheduleError
        The loops of a target that would be replaced have an unroll directive.
    """
    source = hand.peek(ref)
    known = root_coordinates(hand, ref)
    for name in targets:
        if name == ref:
            continue
        like = _like(hand, source, ref, name, known, axes, bound)
        if like is not None:
            _check_undirected(hand, name)
            hand.entry(name)
            ts = hand.tensors[name]
            ts.domain, ts.coords, ts.root_of, ts.whole = like
            ts.allocation = None


def _check_undirected(hand: HandSchedule, name: str) -> None:
    for j, axis in enumerate(hand.peek(name).domain.loop):
        if axis.directives:
            raise ScheduleError(
                f"axis {j} of {name} has the directive {axis.directives}, and its loops would be "
                "replaced; transform axes before giving them directives"
            )


def _like(
    hand: HandSchedule,
    source: TensorSchedule,
    ref: str,
    name: str,
    known: Mapping[str, Need],
    axes: int | None,
    bound: bool,
) -> tuple[LoopDomain, Coords, str | None, bool] | None:
    """Return (domain, coordinates, owner of the root, whole) of a tensor scheduled like `ref`."""
    value, need = hand.graph.value(name), known.get(name)
    extents, reduced = root_extents(hand.graph, value)
    label = source.root_of or ref
    own = tuple(IterDomain(i, e, i in reduced) for i, e in enumerate(extents))
    own_coords = tuple(r for i, r in enumerate(root_vars(len(own))) if i not in reduced)
    same = {d.id: i for i, d in enumerate(source.domain.root)}
    if _equal(extents, tuple(d.extent for d in source.domain.root)):
        domain = replay(source.domain, own, same, bound=bound, axes=axes)
        aligned = need is None or reduced or need.coords == own_coords
        if domain is not None and aligned:
            return domain, own_coords, label, True
    if need is not None and not reduced:
        root = tuple(_unbound(d) for d in source.domain.root)
        if hand.is_output(name) and not (need.whole and _as_many(root, value)):
            return None
        domain = replay(source.domain, root, {d.id: d.id for d in root}, bound=bound, axes=axes)
        return None if domain is None else (domain, need.coords, label, need.whole)
    if need is not None and need == Need(root_vars(len(source.domain.root)), True):
        kept = [d.id for d in own if not d.reduction]
        ids = {d.id: k for d, k in zip(source.domain.root, kept, strict=True)}
        domain = replay(source.domain, own, ids, bound=bound, axes=axes)
        return None if domain is None else (domain, own_coords, None, True)
    result = kept_part(source.domain)
    if not reduced and _equal(extents, tuple(d.extent for d in result.root)):
        domain = replay(result, own, {i: i for i in range(len(own))}, bound=bound, axes=axes)
        return None if domain is None else (domain, own_coords, None, True)
    return None


def _as_many(root: tuple[IterDomain, ...], value: Value) -> bool:
    """Whether a tensor has as many elements as the root has points."""
    return canonical([d.extent for d in root]) == canonical(value.shape)


def _unbound(axis: IterDomain) -> IterDomain:
    return IterDomain(axis.id, axis.extent)


def _equal(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return len(a) == len(b) and all(prove_equal(x, y, NO_FACTS) for x, y in zip(a, b, strict=True))


def root_coordinates(hand: HandSchedule, ref: str) -> dict[str, Need]:
    """Return which element of each producer an iteration of `ref` needs.

    Left out: producers that are read under a condition, at two places, or through a reduction.
    """
    graph, ts = hand.graph, hand.peek(ref)
    found: dict[str, Need | None] = {}
    start = graph.value(ref)
    coords = root_vars(len(ts.domain.root)) if isinstance(start.attrs, ReduceAttrs) else ts.coords
    _operands(graph, ref, Need(coords, ts.whole), found)
    for value in reversed(graph.values):
        need = found.get(value.name)
        if need is None:
            if value.name in found:
                _forget(graph, value.name, found)
        elif not isinstance(value.attrs, ReduceAttrs):
            _operands(graph, value.name, need, found)
    return {name: need for name, need in found.items() if need is not None}


def _operands(graph: FusionGraph, name: str, need: Need, found: dict[str, Need | None]) -> None:
    value = graph.value(name)
    for k, operand in enumerate(graph.operand_names(value)):
        access = operand_access(graph, value, k, need.coords)
        at = tuple(simplify(c, NO_FACTS) for c in access.coords)
        known = found.get(operand, Need(at, False))
        if access.guard != TRUE or known is None or known.coords != at:
            found[operand] = None
        else:
            every = need.whole and _reads_all(value, graph.value(operand))
            found[operand] = Need(at, known.whole or every)


def _reads_all(value: Value, operand: Value) -> bool:
    """Whether a tensor that reads an operand without any condition reads every element of it.

    A slice reads different elements, and so does a pad, of negative widths here: as many as there
    are only where no extent changes. Windows may leave elements between them and behind the last.
    Every other operation meets all of its operand.
    """
    cuts = isinstance(value.attrs, SliceAttrs | PadAttrs | UnfoldAttrs)
    return not cuts or _equal(value.shape, operand.shape)


def _forget(graph: FusionGraph, name: str, found: dict[str, Need | None]) -> None:
    """Whatever is read through a conditional or double access is left out too."""
    for operand in graph.operand_names(name):
        found[operand] = None


def parallelize_like(
    hand: HandSchedule,
    ref: str,
    targets: Iterable[str],
    axes: int,
    kinds: frozenset[ParallelType] | None = None,
) -> None:
    """Bind the first `axes` loop axes of `targets` as those of `ref`, where extents agree.

    Unroll directives of its serial axes are copied with the bindings, where a target has none of
    its own, and so is `outlined`. A reduction is not left to
    the blocks of a cluster, which would combine no results: each of them reduces all of it.

    rewrite::

        ref: for b (grid_x): for t (block_x)      t: for b: for t
        ->                                         t: for b (grid_x): for t (block_x)
    """
    like = hand.peek(ref).domain.loop[:axes]
    for name in targets:
        if name == ref:
            continue
        ts = hand.entry(name)
        for j, axis in _pairs(ts.domain.loop, like):
            wanted = axis.parallel
            if kinds is not None and wanted not in kinds:
                continue
            if not keeps_results(ts.domain.loop[j], wanted):
                continue
            taken = any(d.parallel is wanted and i != j for i, d in enumerate(ts.domain.loop))
            if not (taken and wanted.is_parallel):
                ts.domain = ts.domain.bind(j, wanted)
            if axis.unroll.is_given and not ts.domain.loop[j].unroll.is_given:
                ts.domain = ts.domain.direct(j, axis.unroll)
            if axis.outlined:
                ts.domain = ts.domain.outline(j)


def _pairs(
    mine: tuple[IterDomain, ...], like: tuple[IterDomain, ...]
) -> list[tuple[int, IterDomain]]:
    """Pair loop axes from the outside in, as long as extents agree.

    A tensor with as many axes as the reference keeps is paired with those: it is its result.
    """
    kept = [d for d in like if not d.reduction]
    axes = kept if len(mine) == len(kept) else list(like)
    pairs: list[tuple[int, IterDomain]] = []
    for j, (a, b) in enumerate(zip(mine, axes, strict=False)):
        if not prove_equal(a.extent, b.extent, NO_FACTS):
            break
        pairs.append((j, b))
    return pairs
