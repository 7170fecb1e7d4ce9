"""The user's own schedule: a copy of the fusion that directives rewrite, and its loop domains.

The fusion itself stays as it was defined, so that the reference, `repr` and automatic schedules do
not see caches or rfactored reductions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fuser.core.errors import ScheduleError
from fuser.core.location import SourceLocation
from fuser.fusion.attrs import ReduceAttrs
from fuser.fusion.graph import FusionGraph, Output, Value, renamer
from fuser.fusion.specialise import size_substitution, specialise
from fuser.schedule.domain import IterDomain
from fuser.schedule.kinds import LoadStoreOpType, MemoryType, ParallelType
from fuser.schedule.replay import kept_part
from fuser.schedule.schedule import Schedule, TensorSchedule, default_schedule, root_vars
from fuser.schedule.segment import LEAVES, Segment, isolate
from fuser.schedule.stores import stored_tiles


@dataclass(slots=True)
class HandSchedule:
    """Directives so far.

    Attributes
    ----------
    graph
        The fusion with caches and rfactored reductions; equal extents have one name.
    tensors
        Schedules of the tensors that a directive named.
    directed
        Where the last directive on a tensor, or what made it, stands in the user's program.
    frozen
        It has been executed; directives come too late.
    """

    graph: FusionGraph
    tensors: dict[str, TensorSchedule] = field(default_factory=dict[str, TensorSchedule])
    directed: dict[str, SourceLocation] = field(default_factory=dict[str, SourceLocation])
    frozen: bool = False

    @staticmethod
    def of(fusion: FusionGraph) -> HandSchedule:
        """Return the schedule of `fusion` without any directive."""
        graph = specialise(fusion, size_substitution(fusion, {}))
        return HandSchedule(graph.copy() if graph is fusion else graph)

    # ---- tensors ---------------------------------------------------------------------------

    def is_output(self, name: str) -> bool:
        """Whether a value leaves the fusion."""
        return any(o.value == name for o in self.graph.outputs)

    def is_reduction(self, name: str) -> bool:
        """Whether a value combines elements of its operand."""
        return isinstance(self.graph.value(name).attrs, ReduceAttrs)

    def entry(self, name: str) -> TensorSchedule:
        """Return the schedule of a tensor, the default one when no directive named it before."""
        found = self.tensors.get(name)
        if found is None:
            found = self.tensors[name] = self.default(self.schedulable(name))
        return found

    def peek(self, name: str) -> TensorSchedule:
        """As `entry`, without making the tensor one that owns loops."""
        return self.tensors.get(name) or self.default(self.schedulable(name))

    def default(self, value: Value) -> TensorSchedule:
        """Return the schedule of a tensor that no directive names."""
        stored = self.is_output(value.name) and not self.is_reduction(value.name)
        memory = MemoryType.global_ if stored else MemoryType.local
        return default_schedule(self.graph, value, memory)

    def _undirected(self, value: Value) -> TensorSchedule:
        """As `default`, with kept axes outside: there consumers can share them."""
        ts = self.default(value)
        loop = ts.domain.loop
        order = sorted(range(len(loop)), key=lambda j: loop[j].reduction)
        ts.domain = ts.domain.reorder({old: new for new, old in enumerate(order)})
        return ts

    def schedulable(self, name: str) -> Value:
        """Return a value that can own loops; raise `ScheduleError` for inputs and scalars."""
        value = self.graph.value(name)
        if value.op == "input":
            raise ScheduleError(f"{name}: is an input; needed a computed tensor, such as its cache")
        if value.op in LEAVES or self.graph.is_scalar(value):
            raise ScheduleError(f"{name}: is a scalar; a computed tensor is needed")
        return value

    def materialised(self) -> tuple[str, ...]:
        """Return the tensors that own loops, producers first."""
        live = self.graph.ancestors(o.value for o in self.graph.outputs)
        return tuple(v.name for v in self.graph.values if v.name in live and self._owns_loops(v))

    def _owns_loops(self, value: Value) -> bool:
        if value.op in LEAVES or self.graph.is_scalar(value):
            return False
        name = value.name
        return name in self.tensors or self.is_output(name) or self.is_reduction(name)

    def rename(self, names: Mapping[str, str]) -> None:
        """Rename values, as `FusionGraph.rename_all` does."""
        names = {old: new for old, new in names.items() if old in self.graph}
        rewrite = renamer(names)
        self.graph.rename_all(names)
        self.directed = {names.get(n, n): where for n, where in self.directed.items()}
        self.tensors = {
            names.get(name, name): replace(
                ts,
                domain=ts.domain.map_exprs(rewrite),
                coords=tuple(rewrite(c) for c in ts.coords),
                root_of=ts.root_of and names.get(ts.root_of, ts.root_of),
            )
            for name, ts in self.tensors.items()
        }

    def structure(self) -> tuple[object, ...]:
        """Return what equal schedules have in common, hashable: the graph, loops and directives."""
        tensors = tuple((name, self.tensors[name].structure()) for name in sorted(self.tensors))
        return self.graph.structure(), tensors

    # ---- what the kernel is built from -----------------------------------------------------

    def complete(self) -> Complete:
        """Return a schedule for every output and reduction, each output in a value of its own."""
        graph = self.graph.copy()
        tensors = {
            name: replace(self.tensors.get(name) or self._undirected(graph.value(name)))
            for name in self.materialised()
        }
        reductions = {o.value for o in graph.outputs if self.is_reduction(o.value)}
        used = {name: bool(graph.uses(name)) for name in reductions}
        live = graph.ancestors((*(o.value for o in graph.outputs), *(v.name for v in graph.inputs)))
        for value in reversed(graph.values):
            if value.name not in live:
                graph.remove(value)
        graph.set_outputs(Output(name) for name in dict.fromkeys(o.value for o in graph.outputs))
        part = isolate(graph)
        names: dict[str, str] = {}
        for name, store in part.stores.items():
            if name in reductions:
                names[name] = _split_off_store(graph, tensors, name, used[name])
            elif store != name:
                names[name] = _move_to_store(graph, tensors, name, store)
        for ts in tensors.values():
            ts.root_of = names.get(ts.root_of or "", ts.root_of)
        return Complete(part, Schedule(tensors, "manual", exact_vectors=True), names)


@dataclass(frozen=True, slots=True)
class Complete:
    """A manual schedule with nothing left to default.

    Attributes
    ----------
    names
        ``name the user knows -> value that his directives are about``, where they differ.
    """

    part: Segment
    schedule: Schedule
    names: Mapping[str, str]

    def without_inlined(self) -> Schedule:
        """Return the schedule in which tensors inlined into every loop are plain expressions."""
        tensors = {
            name: ts
            for name, ts in self.schedule.tensors.items()
            if not self._is_expression(name, ts)
        }
        for tile in stored_tiles(self.part.graph, tensors).values():
            if tile is not None:
                tensors[tile] = replace(tensors[tile], staging=max(1, tensors[tile].staging))
        notes = ("scheduled by hand", *(_note(name, ts) for name, ts in tensors.items()))
        return replace(self.schedule, tensors=tensors, notes=notes)

    def _is_expression(self, name: str, ts: TensorSchedule) -> bool:
        return (
            ts.memory is MemoryType.local
            and ts.load is LoadStoreOpType.set
            and not isinstance(self.part.graph.value(name).attrs, ReduceAttrs)
            and 0 < ts.position == len(ts.domain.loop)
            and all(d.parallel is not ParallelType.vectorize for d in ts.domain.loop)
            and all(not d.directives for d in ts.domain.loop)
        )


def _note(name: str, ts: TensorSchedule) -> str:
    """Return one line on a tensor for the kernel's header, ``name: extent kind x ..; where``."""
    axes = [" ".join((f"{d.extent!r}", *_words(d))) for d in ts.domain.loop]
    where = f"{ts.memory.value} memory"
    inside = f", inside {ts.position} loops" if ts.position else ""
    return f"{name}: {' | '.join(axes) or 'one element'}; {where}{inside}"


def _words(axis: IterDomain) -> tuple[str, ...]:
    bound = () if axis.parallel is ParallelType.serial else (axis.parallel.name,)
    return (*bound, axis.directives) if axis.directives else bound


def _split_off_store(
    graph: FusionGraph, tensors: dict[str, TensorSchedule], name: str, used: bool
) -> str:
    """Give an output that is a reduction a store with the reduction's kept loops."""
    (inner,) = graph.operand_names(name)
    ts = tensors[inner] = tensors.pop(name)
    store = default_schedule(graph, graph.value(name), MemoryType.global_)
    store.domain = kept_part(ts.domain)
    tensors[name] = store
    if not used:
        loop = ts.domain.loop
        ts.position = next((j for j, d in enumerate(loop) if d.reduction), len(loop))
    return inner


def _move_to_store(
    graph: FusionGraph, tensors: dict[str, TensorSchedule], name: str, store: str
) -> str:
    """Schedule the store of an output that has other uses, or is an input, as the output."""
    value = graph.value(store)
    ts = tensors.pop(name, None) or default_schedule(graph, value, MemoryType.global_)
    tensors[store] = ts
    assert ts.root_of is not None or ts.coords == root_vars(value.rank)
    return store
