"""Boxes that a copy engine can take: a longer axis bound to tma becomes a loop over several.

A tensor map has boxes of at most 256 elements along a dimension, and of one span along the
innermost one where it is swizzled. The loop lies outside of all axes of the box, so that each
box is one piece of its tile; readers' indices come from the tile's axes and follow.

rewrite::

    tile: trip, rows 4 (tma), columns 512 (tma)
    ->
    tile: trip, box 2, rows 4 (tma), columns 256 (tma)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import gcd, lcm, prod

from fuser.core.expr import Const, variables
from fuser.core.simplify import Facts, simplify
from fuser.fusion.graph import FusionGraph
from fuser.kir.tensor_map import MAX_BOX
from fuser.passes.copies import TILE_BYTES, UNIT_BYTES
from fuser.passes.layout import Layout
from fuser.schedule.kinds import LoadStoreOpType, MemoryType, ParallelType
from fuser.schedule.schedule import Schedule, TensorSchedule

MOST_BOXES = 2
"""Times the fewest boxes that cover a tile: how many may fill it exactly."""


def split_boxes(
    graph: FusionGraph, schedule: Schedule, layouts: Mapping[str, Layout], facts: Facts
) -> Schedule:
    """Return a schedule in which every box of a tensor map has at most 256 elements along an axis.

    The same schedule where they have that already. A loaded tile may end with a box that overhangs
    it: its stage has room for all of the boxes, and all of their bytes are counted. A stored one
    may not, since what lies behind it belongs to the next: it is left as it is.
    """
    split: dict[str, TensorSchedule] = {}
    for name, ts in schedule.tensors.items():
        boxed = ts.memory is MemoryType.shared or ts.is_stored
        if ts.load is LoadStoreOpType.tma and boxed:
            outside = name if ts.is_stored else graph.operand_names(name)[0]
            made = _in_boxes(ts, graph.value(name).dtype.nbytes, layouts.get(outside), facts)
            if made is not ts:
                split[name] = made
    return replace(schedule, tensors={**schedule.tensors, **split}) if split else schedule


def _in_boxes(
    ts: TensorSchedule, itemsize: int, layout: Layout | None, facts: Facts
) -> TensorSchedule:
    """Return the schedule of a tensor with each long axis of its box split.

    Parameters
    ----------
    layout
        Of the tensor in global memory; None: there is none, which is refused elsewhere.
    """
    order = ts.allocation or tuple(range(len(ts.domain.loop)))
    axes = [j for j in order if ts.domain.loop[j].parallel is ParallelType.tma]
    if not axes or min(axes) < ts.position:
        return ts
    known = [simplify(ts.domain.loop[j].extent, facts) for j in axes]
    extents = [e.value for e in known if isinstance(e, Const)]
    if len(extents) < len(axes):
        return ts  # refused when the box is planned
    if ts.is_stored:
        factors = _stored(extents, itemsize)
    else:
        factors = _loaded(ts, extents, _inner(ts, axes, layout), itemsize)
    first = min(axes)
    # Every split moves the axes of the box by one; the last one made is the outermost loop.
    for made, i in enumerate(i for i in reversed(range(len(axes))) if factors[i] < extents[i]):
        ts = _split(ts, axes[i] + made, factors[i], first)
    return ts


def _inner(ts: TensorSchedule, axes: Sequence[int], layout: Layout | None) -> int:
    """Return which axis of a box varies fastest: the one along which the array is contiguous."""
    if layout is not None and layout.inner is not None and ts.allocation is None:
        along = variables(ts.coords[layout.inner])
        for i, j in enumerate(axes):
            if any(f"r{root}" in along for root in ts.domain.roots_of(j)):
                return i
    return len(axes) - 1


def _loaded(ts: TensorSchedule, extents: Sequence[int], inner: int, itemsize: int) -> list[int]:
    """Return the extents of a box of a load: of equal boxes that fill the tile, if they are few.

    Parameters
    ----------
    inner
        Which of them varies fastest in shared memory.
    """
    least = UNIT_BYTES // gcd(UNIT_BYTES, itemsize)
    factors = [least if extent > MAX_BOX else extent for extent in extents]
    align = TILE_BYTES
    if ts.swizzle is not None:
        align = ts.swizzle.pattern_bytes
        factors[inner] = min(extents[inner], ts.swizzle.span_bytes // itemsize)
    for i, extent in enumerate(extents):
        if extent > MAX_BOX and (ts.swizzle is None or i != inner):
            unit = _unit(prod(factors[:i] + factors[i + 1 :]) * itemsize, itemsize, align)
            factors[i] = exact_extent(extent, unit) or overhanging_extent(extent, unit)
    return factors


def _stored(extents: Sequence[int], itemsize: int) -> list[int]:
    """Return the extents of a box of a store: pieces of the tile along its slowest axis."""
    first, *others = extents
    if first <= MAX_BOX:
        return [*extents]
    unit = _unit(prod(others) * itemsize, itemsize, TILE_BYTES)
    return [exact_extent(first, unit) or first, *others]


def _unit(around: int, itemsize: int, align: int) -> int:
    """Return of how many elements along an axis a box is a multiple; a power of two.

    The engine copies 16 bytes at a time, and boxes lie at multiples of `align` bytes.

    Parameters
    ----------
    around
        Bytes of a box for an element along the axis.
    """
    return lcm(UNIT_BYTES // gcd(UNIT_BYTES, itemsize), align // gcd(align, around))


def exact_extent(extent: int, unit: int) -> int:
    """Return the largest multiple of `unit` that divides the extent of an axis and is a legal box.

    0 where that makes more than twice the boxes needed: each is an instruction.
    """
    fewest = -(-extent // MAX_BOX)
    sizes = range(MAX_BOX, 0, -unit)
    return next((n for n in sizes if extent % n == 0 and extent // n <= MOST_BOXES * fewest), 0)


def overhanging_extent(extent: int, unit: int) -> int:
    """Return the smallest multiple of `unit` of which the fewest boxes cover the extent."""
    fewest = -(-extent // MAX_BOX)
    return -(-extent // (fewest * unit)) * unit


def _split(ts: TensorSchedule, axis: int, factor: int, first: int) -> TensorSchedule:
    """Return a schedule with `axis` split into boxes, whose loop is axis `first`."""
    bound = ts.domain.loop[axis].parallel
    domain = ts.domain.bind(axis, ParallelType.serial).split(axis, Const(factor))
    domain = domain.bind(axis + 1, bound).reorder({axis: first})
    allocation = ts.allocation
    if allocation is not None:
        moved = [j + 1 if j >= first else j for j in allocation]
        inside = {j for j, d in enumerate(domain.loop) if d.parallel is ParallelType.tma}
        at = next(i for i, j in enumerate(moved) if j in inside)
        allocation = (*moved[:at], first, *moved[at:])
    return replace(ts, domain=domain, allocation=allocation)
