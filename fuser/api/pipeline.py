"""Compile a fusion for one shape class: segments, schedules, kernels, buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fuser.api.in_place import binding, is_row_major, store_into
from fuser.api.shape_class import ShapeClass
from fuser.core.boundary import Boundary
from fuser.core.errors import ScheduleError
from fuser.core.expr import ZERO, Const, Expr, product, substitute
from fuser.core.simplify import Facts, simplify
from fuser.core.unroll import DEFAULT_LOOPS, LoopOptions
from fuser.fusion.graph import FusionGraph
from fuser.fusion.specialise import size_substitution, specialise
from fuser.kir.core import Kernel
from fuser.kir.program import Buffer, OutputBinding, Program
from fuser.kir.tensor_map import MAX_COORDINATE
from fuser.passes.layout import Layout, contiguous_strides
from fuser.passes.manager import Observer
from fuser.passes.pipeline import lower
from fuser.schedule.recipes import Problem, candidates, choose_whole
from fuser.schedule.schedule import Schedule
from fuser.schedule.segment import Segment, segment, whole


@dataclass(slots=True)
class Build:
    """State of one compilation."""

    graph: FusionGraph
    cls: ShapeClass
    facts: Facts
    sizes: Mapping[str, int]
    strides: Mapping[str, tuple[Expr, ...]]
    observers: Sequence[Observer]
    loops: LoopOptions
    asked: list[Boundary] = field(default_factory=list[Boundary])

    @staticmethod
    def of(
        graph: FusionGraph,
        cls: ShapeClass,
        sizes: Mapping[str, int],
        renamed: Mapping[str, Expr],
        observers: Sequence[Observer],
        loops: LoopOptions,
    ) -> Build:
        """Return the start of a compilation for shape class `cls`."""
        scalars = frozenset(v.name for v in graph.inputs if v.op == "scalar")
        facts = Facts({}, dict(cls.multiples), signed=scalars)
        strides = {
            name: tuple(substitute(e, renamed) for e in known.strides) for name, known in cls.inputs
        }
        return Build(graph, cls, facts, sizes, strides, observers, loops)


def build_program(
    graph: FusionGraph,
    cls: ShapeClass,
    sizes: Mapping[str, int],
    name: str = "fusion",
    observers: Sequence[Observer] = (),
    loops: LoopOptions = DEFAULT_LOOPS,
) -> Program:
    """Return the kernels of `graph` for shape class `cls`.

    Parameters
    ----------
    sizes
        Sizes and strides of the call: recipes may ask on which side of a boundary they lie.
    """
    renamed = size_substitution(graph, dict(cls.fixed))
    graph = specialise(graph, renamed)
    for observe in observers:
        observe("fusion", graph)
    build = Build.of(graph, cls, sizes, renamed, observers, loops)
    segments = scheduled_segments(build)
    kernels: list[Kernel] = []
    buffers: list[Buffer] = []
    stores: dict[str, str] = {}
    for i, (part, schedule) in enumerate(segments):
        suffix = f"_{i}" if len(segments) > 1 else ""
        stores |= part.stores
        buffers += [output_buffer(part.graph, o.value, build.facts) for o in part.graph.outputs]
        if is_empty(part.graph, build.facts):
            continue
        kernel, temporaries = lower_segment(build, part, schedule, f"{name}{suffix}")
        kernels.append(kernel)
        buffers += temporaries
    inputs = tuple(v.name for v in graph.inputs)
    last, outputs = hand_over(build, graph, stores, name)
    asked = tuple(dict.fromkeys(build.asked))
    return Program(name, inputs, tuple(buffers), (*kernels, *last), outputs, asked)


def hand_over(
    build: Build, graph: FusionGraph, stores: Mapping[str, str], name: str
) -> tuple[list[Kernel], tuple[OutputBinding, ...]]:
    """Return how each output leaves its buffer, and the kernels that store aliases in place."""
    kernels: list[Kernel] = []
    outputs: list[OutputBinding] = []
    for output in graph.outputs:
        buffer, target = stores[output.value], output.alias_of
        copied = target is None or is_row_major(
            graph.value(target).shape, build.strides[target], build.facts
        )
        outputs.append(binding(output, buffer, stored=not copied))
        if copied or target is None:
            continue
        part = store_into(graph.value(output.value), buffer, target)
        if not is_empty(part.graph, build.facts):
            kernels.append(lower_segment(build, part, None, f"{name}_into_{target}")[0])
    return kernels, tuple(outputs)


def is_empty(graph: FusionGraph, facts: Facts) -> bool:
    """Whether no output has an element, so that there is nothing to launch."""
    shapes = (graph.value(o.value).shape for o in graph.outputs)
    return all(any(simplify(extent, facts) == ZERO for extent in shape) for shape in shapes)


def scheduled_segments(build: Build) -> list[tuple[Segment, Schedule | None]]:
    """Return the segments in launch order, with a schedule where one is known already."""
    one = whole(build.graph)
    if not is_empty(one.graph, build.facts):
        schedule = choose_whole(problem_of(build, one))
        if schedule is not None:
            return [(one, schedule)]
    return [(part, None) for part in segment(build.graph)]


def problem_of(build: Build, part: Segment) -> Problem:
    """Return what recipes see of a segment."""
    given = build.strides.keys()
    layouts = {
        n: x for n, x in segment_layouts(build, part).items() if x.mode == "in" or n in given
    }
    return Problem(
        part.graph,
        {name: layout.strides for name, layout in layouts.items()},
        {name: layout.aligned_bytes for name, layout in layouts.items()},
        build.facts,
        build.sizes,
        build.asked,
    )


def lower_segment(
    build: Build, part: Segment, schedule: Schedule | None, name: str
) -> tuple[Kernel, tuple[Buffer, ...]]:
    """Lower one segment, by the first recipe whose schedule works unless it has one already."""
    if schedule is not None:
        return lower_scheduled(build, part, part.graph, schedule, name)
    failed: list[str] = []
    for graph, candidate in candidates(problem_of(build, part)):
        try:
            return lower_scheduled(build, part, graph, candidate, name)
        except ScheduleError as error:
            failed.append(f"{candidate.recipe}: {error}")
    stores = ", ".join(o.value for o in part.graph.outputs)
    raise ScheduleError(
        f"fusion of {stores}: no recipe takes it; {'; '.join(failed) or 'none fits'}"
    )


def lower_scheduled(
    build: Build, part: Segment, graph: FusionGraph, schedule: Schedule, name: str
) -> tuple[Kernel, tuple[Buffer, ...]]:
    """Lower a segment under a schedule; `graph` is its graph with the schedule's caches."""
    header = (*str(part.graph).splitlines(), "", *schedule.notes)
    schedule = replace(schedule, loops=build.loops)
    return lower(
        name, graph, schedule, segment_layouts(build, part), build.facts, build.cls.index, header,
        build.observers, frozenset(v.name for v in build.graph.values),
    )  # fmt: skip


def segment_layouts(build: Build, part: Segment) -> dict[str, Layout]:
    """Return the layouts of a segment's inputs and outputs, inputs first."""
    given = dict(build.cls.inputs)
    layouts: dict[str, Layout] = {}
    for value in part.graph.inputs:
        if value.op != "input":
            continue
        if value.name in given:
            strides, known = build.strides[value.name], given[value.name]
            layouts[value.name] = Layout(
                value.shape, strides, "in", known.aligned_bytes, far=known.far
            )
        else:
            layouts[value.name] = Layout(value.shape, contiguous_strides(value.shape), "in")
    for output in part.graph.outputs:
        name, shape = output.value, part.graph.value(output.value).shape
        if name in given:  # the last kernel of an output that aliases it
            strides, aligned = build.strides[name], given[name].aligned_bytes
            layouts[name] = Layout(shape, strides, "out", aligned)
        else:
            far = build.cls.index == "i64" and not is_near(shape, layouts)
            layouts[name] = Layout(shape, contiguous_strides(shape), "out", far=far)
    return layouts


def is_near(shape: tuple[Expr, ...], layouts: Mapping[str, Layout]) -> bool:
    """Whether every extent is a constant within reach of coordinates, or one of a near tensor."""
    known = {e for layout in layouts.values() if not layout.far for e in layout.shape}
    return all(e.value <= MAX_COORDINATE if isinstance(e, Const) else e in known for e in shape)


def output_buffer(graph: FusionGraph, name: str, facts: Facts) -> Buffer:
    """Return the contiguous buffer of an output."""
    value = graph.value(name)
    numel: Expr = simplify(product(value.shape), facts)
    return Buffer(name, value.dtype, value.shape, buffer_strides(value.shape), numel)


def buffer_strides(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return row-major strides, also of size-1 dimensions, as array libraries write them."""
    strides: list[Expr] = []
    step: Expr = product(())
    for extent in reversed(shape):
        strides.append(step)
        step = step * extent
    return tuple(reversed(strides))
