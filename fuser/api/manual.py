"""The program of a schedule made by hand: all outputs in one kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fuser.api.pipeline import (
    Build,
    build_program,
    hand_over,
    is_empty,
    output_buffer,
    segment_layouts,
)
from fuser.api.shape_class import ShapeClass
from fuser.core.errors import ScheduleError
from fuser.core.expr import ONE, Const, Expr
from fuser.core.location import SourceLocation
from fuser.core.unroll import DEFAULT_LOOPS, LoopOptions
from fuser.fusion.graph import FusionGraph
from fuser.fusion.specialise import size_substitution
from fuser.kir.core import Kernel
from fuser.kir.program import Program
from fuser.nest.build import materialised_operands
from fuser.passes.capacity import check_local, check_shared
from fuser.passes.manager import Observer
from fuser.passes.pipeline import lower
from fuser.passes.reach import largest_position
from fuser.schedule.hand import Complete, HandSchedule
from fuser.schedule.kinds import MemoryType, ParallelType
from fuser.schedule.propagate import NO_FACTS
from fuser.schedule.schedule import Schedule

MAX_THREADS = 1024


def build_manual(
    fusion: FusionGraph,
    hand: HandSchedule,
    cls: ShapeClass,
    sizes: Mapping[str, int],
    name: str = "fusion",
    observers: Sequence[Observer] = (),
    loops: LoopOptions = DEFAULT_LOOPS,
) -> Program:
    """Return the one kernel of `hand` for shape class `cls`.

    Without elements there is nothing to schedule: empty tensors take the automatic path.

    Raises
    ------
    ScheduleError
        The schedule has no kernel; the location is that of the last directive on the tensor, or
        where it was defined.
    """
    if any(size == 0 for _, size in cls.fixed) or is_empty(fusion, NO_FACTS):
        return build_program(fusion, cls, sizes, name, observers, loops)
    try:
        renamed = size_substitution(fusion, {})
        return _build(hand, cls, sizes, renamed, name, observers, loops)
    except ScheduleError as error:
        where = _line_of(str(error), hand)
        if error.location is not None or where is None:
            raise
        raise ScheduleError(str(error), where) from None


def _build(
    hand: HandSchedule,
    cls: ShapeClass,
    sizes: Mapping[str, int],
    renamed: Mapping[str, Expr],
    name: str,
    observers: Sequence[Observer],
    loops: LoopOptions,
) -> Program:
    complete = hand.complete()
    place_undirected(hand, complete)
    part, schedule = complete.part, complete.without_inlined()
    schedule = replace(schedule, loops=loops)
    for observe in observers:
        observe("fusion", part.graph)
    build = Build.of(part.graph, cls, sizes, renamed, observers, loops)
    check_grid(part.graph, schedule)
    header = (*str(part.graph).splitlines(), "", *schedule.notes)
    kernel, temporaries = lower(
        name, part.graph, schedule, segment_layouts(build, part), build.facts, cls.index, header,
        observers,
    )  # fmt: skip
    check_block(kernel, schedule)
    check_shared(kernel, schedule)
    check_local(kernel)
    buffers = [output_buffer(part.graph, o.value, build.facts) for o in part.graph.outputs]
    last, outputs = hand_over(build, hand.graph, part.stores, name)
    inputs = tuple(v.name for v in part.graph.inputs)
    return Program(name, inputs, (*buffers, *temporaries), (kernel, *last), outputs)


def _line_of(message: str, hand: HandSchedule) -> SourceLocation | None:
    """Return the line of the first tensor in the text of an error that a directive is about.

    Without any it is that of the definition of the first tensor.
    """
    words: list[str] = re.findall(r"\w+", message)
    names = [n for w in words for n in (w, w.removesuffix("_acc"), w.removesuffix("_out"))]
    defined = (hand.graph.value(name).location for name in names if name in hand.graph)
    directed = (hand.directed.get(name) for name in names)
    return next((line for line in (*directed, *defined) if line is not None), None)


def place_undirected(hand: HandSchedule, complete: Complete) -> None:
    """Compute reductions that no directive names as far inside their consumers as possible."""
    graph, schedule = complete.part.graph, complete.schedule
    for name in reversed(hand.materialised()):
        me = complete.names.get(name, name)
        if name not in hand.tensors and schedule.tensors[me].memory is MemoryType.local:
            schedule.tensors[me].position = largest_position(graph, schedule, me, NO_FACTS)


# ---- what one kernel cannot do -------------------------------------------------------------------


def check_grid(graph: FusionGraph, schedule: Schedule) -> None:
    """Raise `ScheduleError` where all blocks would have to wait for each other."""
    source: dict[str, str] = {}
    for name, ts in schedule.tensors.items():
        loop = ts.domain.loop
        kinds = {d.parallel for d in loop if d.reduction and d.parallel.is_grid}
        if not kinds:
            continue
        for j, axis in enumerate(loop):
            if not (axis.reduction or axis.parallel.is_parallel or axis.extent == ONE):
                raise ScheduleError(
                    f"{name}: is reduced over {_names(kinds)} in every iteration of its axis {j}, "
                    f"of extent {axis.extent!r}; bind all kept axes to blocks and threads"
                )
        for reader in _readers(graph, schedule, name):
            _check_reader(schedule, name, kinds, reader)
            other = source.setdefault(reader, name)
            if other != name:
                raise ScheduleError(
                    f"{reader}: reads {other} and {name}, both reduced over the grid; the results "
                    "may be in different blocks; reduce one of them over blocks of its own kernel"
                )


def _check_reader(schedule: Schedule, name: str, kinds: set[ParallelType], reader: str) -> None:
    loop = schedule.tensors[reader].domain.loop
    for j, axis in enumerate(loop):
        again = axis.reduction and axis.parallel.is_grid
        if axis.parallel in kinds or again:
            raise ScheduleError(
                f"{reader}: reads {name}, which is reduced over {_names(kinds)}, and its axis {j} "
                f"is bound to {axis.parallel.name}; that needs a barrier of the whole grid, which "
                "one kernel does not have"
            )


def _readers(graph: FusionGraph, schedule: Schedule, name: str) -> tuple[str, ...]:
    """Return the tensors with loops that depend on `name`, directly or not."""
    found: dict[str, None] = {}
    todo = [name]
    while todo:
        made = todo.pop()
        for other in schedule.tensors:
            if other not in found and made in materialised_operands(graph, schedule, other):
                found[other] = None
                todo.append(other)
    return tuple(found)


def _names(kinds: set[ParallelType]) -> str:
    return ", ".join(sorted(kind.name for kind in kinds))


def check_block(kernel: Kernel, schedule: Schedule) -> None:
    """Raise `ScheduleError` for a block of more threads than there can be."""
    known = [e.value for e in kernel.block if isinstance(e, Const)]
    threads = 1
    for extent in known:
        threads *= extent
    if threads > MAX_THREADS:
        bound = [
            name
            for name, ts in schedule.tensors.items()
            if any(d.parallel.is_block for d in ts.domain.loop)
        ]
        raise ScheduleError(
            f"{bound[0]}: blocks have {' x '.join(map(repr, kernel.block))} threads (axes of "
            f"{', '.join(bound)}); at most {MAX_THREADS} are possible"
        )
