"""In which order the elements of a box lie in shared memory: as the tensor's in global memory.

A tensor map begins with the dimension of stride 1, and the copy engine writes a box in the order of
the map. So the axis of a box along which neighbours are adjacent in global memory varies fastest in
its tile too, whatever the loop order; readers follow, their indices come from the tile's
allocation order. An order that the schedule sets is left alone.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.passes.copies import planner_of
from fuser.passes.state import Lowering
from fuser.schedule.kinds import LoadStoreOpType, MemoryType, ParallelType
from fuser.schedule.schedule import TensorSchedule


def turn_tiles(state: Lowering) -> None:
    """Give the tiles that ``tma`` loads the order of the tensors they are loaded from.

    rewrite (x has strides (1, n))::

        tile[x][y]   ->   tile[y][x]
    """
    schedule = state.nest.schedule
    turned: dict[str, TensorSchedule] = {}
    for name, ts in schedule.tensors.items():
        if not _has_free_boxes(state, name, ts):
            continue
        planner = planner_of(state, name)
        axes = planner.arranged().axes
        if axes != planner.axes:
            places = iter(axes)
            loop = range(len(ts.domain.loop))
            order = tuple(next(places) if j in axes else j for j in loop)
            turned[name] = replace(ts, allocation=order)
    if turned:
        tensors = {**schedule.tensors, **turned}
        state.nest = replace(state.nest, schedule=replace(schedule, tensors=tensors))
        state.turned = frozenset(turned)


def _has_free_boxes(state: Lowering, name: str, ts: TensorSchedule) -> bool:
    """Whether a tile is filled by boxes, and its schedule does not say in which order they lie."""
    if ts.load is not LoadStoreOpType.tma or ts.memory is not MemoryType.shared:
        return False
    boxed = any(axis.parallel is ParallelType.tma for axis in ts.domain.loop)
    sources = state.nest.graph.operand_names(name)
    return boxed and ts.allocation is None and all(source in state.layouts for source in sources)
