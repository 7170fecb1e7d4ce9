"""Where the elements of local and shared tensors live, derived from their loop domains.

A tensor's buffer is indexed by its own loop axes: a register array by the serial axes right of the
compute-at position (of a ring: of the position of its stages), a shared array by those and by every
thread axis that does not number trips. Axes that are not part of the
buffer are promised to be the same for writer and reader; `locate` proves it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fuser.core.errors import ScheduleError
from fuser.core.expr import ZERO, Const, Expr, Var, substitute
from fuser.core.simplify import Facts, prove_equal, simplify
from fuser.schedule.kinds import MemoryType
from fuser.schedule.schedule import TensorSchedule

Coords = tuple[Expr, ...]

COPY_ALIGN = 128
"""Elements to whose multiples stages that the copy engine meets are rounded up."""


def buffer_axes(ts: TensorSchedule) -> tuple[int, ...]:
    """Return the loop axes that index the buffer, slowest varying first."""
    shared = ts.memory is MemoryType.shared
    first, group = ts.stage_position, ts.group_axis

    def indexes(j: int) -> bool:
        axis = ts.domain.loop[j]
        if axis.reduction or axis.parallel.is_grid or axis.parallel.is_cluster:
            return False
        if axis.parallel.is_block:
            return shared and j != group
        return j >= first

    order = ts.allocation or tuple(range(len(ts.domain.loop)))
    return tuple(j for j in order if indexes(j))


def slot_size(tensor: str, ts: TensorSchedule, facts: Facts) -> int:
    """Return the elements of one stage; raise `ScheduleError` unless constant.

    Stages that the copy engine meets begin at multiples of 128 elements, hence of 128 bytes;
    swizzled ones where the pattern does.
    """
    size = 1
    for j in buffer_axes(ts):
        extent = simplify(ts.domain.loop[j].extent, facts)
        if not isinstance(extent, Const):
            raise ScheduleError(
                f"{tensor}: lives in {ts.memory.value} memory and axis {j} has extent {extent}; a "
                "constant extent is needed right of the compute-at position"
            )
        size *= extent.value
    if not ts.meets_engine:
        return size
    align = COPY_ALIGN
    if ts.swizzle is not None:
        align = max(align, ts.swizzle.pattern_bytes // ts.swizzle.itemsize)
    return -(-size // align) * align


def buffer_size(tensor: str, ts: TensorSchedule, facts: Facts) -> int:
    """Return the elements of the buffer, all stages together; raise unless constant."""
    return slot_size(tensor, ts, facts) * ts.stages


def slot_index(ts: TensorSchedule, loops: Coords, facts: Facts) -> Expr:
    """Return the number of an element within a stage, in the order of the tile's axes."""
    index: Expr = ZERO
    for j in buffer_axes(ts):
        index = index * ts.domain.loop[j].extent + loops[j]
    return simplify(index, facts)


def trip_of(ts: TensorSchedule, loops: Coords) -> Expr:
    """Return the number of the trip that these loop indices belong to, across all its loops.

    Of groups with stages of their own: among the group's trips.
    """
    trip: Expr = ZERO
    for j in ts.trip_axes:
        if j != ts.owner_axis:
            trip = trip * ts.domain.loop[j].extent + loops[j]
    return trip


def stage_of(stages: int, trip: Expr, group: Expr, groups: int) -> Expr:
    """Return the stage of a trip: of all, or of the equal part that a group has for its own."""
    own = stages // groups
    return trip % own if groups == 1 else group * own + trip % own


def owners_of(ts: TensorSchedule, loops: Coords, facts: Facts) -> tuple[Expr, int]:
    """Return ``(group, groups)`` of those that have stages of their own; one where none has."""
    if ts.owner_axis is None:
        return ZERO, 1
    extent = simplify(ts.domain.loop[ts.owner_axis].extent, facts)
    assert isinstance(extent, Const)  # `consumer_groups` has raised
    return loops[ts.owner_axis], extent.value


def buffer_index(ts: TensorSchedule, loops: Coords, facts: Facts) -> Expr:
    """Return the element index in the buffer for given loop indices."""
    index = slot_index(ts, loops, facts)
    if ts.swizzle is not None:
        index = ts.swizzle.place(index, facts)
    return _in_stage(ts, loops, index, facts)


def linear_index(ts: TensorSchedule, loops: Coords, facts: Facts) -> Expr:
    """Return the element index as it would be without the swizzle, which permutes addresses."""
    return _in_stage(ts, loops, slot_index(ts, loops, facts), facts)


def _in_stage(ts: TensorSchedule, loops: Coords, index: Expr, facts: Facts) -> Expr:
    if ts.stages == 1:
        return index
    stage = stage_of(ts.stages, trip_of(ts, loops), *owners_of(ts, loops, facts))
    return simplify(stage * slot_size("ring", ts, facts) + index, facts)


def producer_root(
    tensor: str,
    ts: TensorSchedule,
    coords: Coords,
    reader_label: str,
    reader_root: Coords,
    facts: Facts,
) -> Coords:
    """Return root coordinates of a producer's element.

    Parameters
    ----------
    coords
        The element's coordinates.
    reader_label, reader_root
        Owner of the reader's root dimensions, and where the reader is in them. A producer
        scheduled over the same root is found at the same place.

    Raises
    ------
    ScheduleError
        The element does not say in which iteration it was computed.
    """
    if ts.root_of is not None and ts.root_of == reader_label:
        env = {f"r{i}": e for i, e in enumerate(reader_root)}
        if tuple(simplify(substitute(c, env), facts) for c in ts.coords) == coords:
            return reader_root
    if not ts.whole:
        raise ScheduleError(
            f"{tensor}: only the elements that {ts.root_of} reads are computed, and {reader_label} "
            f"reads element ({', '.join(map(repr, coords))}); schedule it over its own dimensions"
        )
    if not all(isinstance(c, Var | Const) for c in ts.coords):
        raise ScheduleError(
            f"{tensor}: is computed in the loops of {ts.root_of} and read by {reader_label} at "
            f"element ({', '.join(map(repr, coords))}), which loops cannot be told from; schedule "
            "it over its own dimensions"
        )
    known = dict(zip(ts.coords, coords, strict=True))
    return tuple(known.get(Var(f"r{i}"), ZERO) for i in range(len(ts.domain.root)))


def computes_here(
    ts: TensorSchedule, root: Coords, shared_loops: Mapping[int, Expr], facts: Facts
) -> bool:
    """Whether this thread, in these shared loops, provably computes the element at `root`.

    The producer's own index arithmetic is compared with the reader's coordinates: when both have
    the same loops, the two are the same expressions, however little is known about the sizes.
    """
    loops: list[Expr] = []
    for j, axis in enumerate(ts.domain.loop):
        index = Var(axis.parallel.value) if axis.parallel.is_parallel else shared_loops.get(j)
        if index is None and not axis.reduction:
            return False
        loops.append(ZERO if index is None or axis.reduction else index)
    there, _ = ts.domain.backward(loops, facts)
    pairs = zip(ts.domain.root, there, root, strict=True)
    return all(d.reduction or prove_equal(a, b, facts) for d, a, b in pairs)


def locate(
    tensor: str,
    ts: TensorSchedule,
    root: Coords,
    shared_loops: Mapping[int, Expr],
    facts: Facts,
    reader: str,
    index_of: Callable[[TensorSchedule, Coords, Facts], Expr] = buffer_index,
) -> Expr:
    """Return the buffer index of the element with the given root coordinates.

    Parameters
    ----------
    index_of
        Returns it for loop indices.
    shared_loops
        Index of each loop axis left of the compute-at position, as the reader sees it.

    Raises
    ------
    ScheduleError
        The reader is not (provably) in the iteration or thread that computed the element.
    """
    axes = buffer_axes(ts)
    if not axes and computes_here(ts, root, shared_loops, facts):
        here = tuple(shared_loops.get(j, ZERO) for j in range(len(ts.domain.loop)))
        return index_of(ts, here, facts)
    loops = tuple(simplify(e, facts) for e in ts.domain.forward(root))
    for j, (axis, index) in enumerate(zip(ts.domain.loop, loops, strict=True)):
        if j in axes or axis.reduction:
            continue
        expected = Var(axis.parallel.value) if axis.parallel.is_parallel else shared_loops.get(j)
        if expected is None or not prove_equal(index, expected, facts):
            what = "thread" if axis.parallel.is_parallel else "iteration"
            raise ScheduleError(
                f"{reader}: reads the element of {tensor} that {what} {index} of axis {j} "
                f"({axis.parallel.name}) computes, but runs in {what} {expected}; inline {tensor} "
                "further left or keep it in shared memory"
            )
    # The stage follows the loop that both share, which is simpler than its own inverse.
    shared = tuple(shared_loops.get(j, e) for j, e in enumerate(loops))
    return index_of(ts, shared, facts)
