"""From one segment and its schedule to a kernel: the passes in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from fuser.core.simplify import Facts
from fuser.fusion.graph import FusionGraph
from fuser.kir.core import IndexType, Kernel
from fuser.kir.program import Buffer
from fuser.nest.build import build_nest
from fuser.nest.nodes import LoopNest
from fuser.passes.boxes import split_boxes
from fuser.passes.circular_buffer import CircularBuffers
from fuser.passes.exact_loops import HideRounds
from fuser.passes.guards import hoist_guards
from fuser.passes.layout import Layout
from fuser.passes.lower import lower_to_kernel
from fuser.passes.manager import Observer, Pass, run_passes
from fuser.passes.names import NameIndices
from fuser.passes.outline import OutlineLoops
from fuser.passes.products import GroupProducts
from fuser.passes.register_ring import RegisterRings
from fuser.passes.stores import EngineStores
from fuser.passes.sync import InsertSyncs
from fuser.passes.unroll import ResolveUnroll, SplitPartial
from fuser.passes.unroll_copies import UnrollCopies
from fuser.passes.unswitch import Unswitch
from fuser.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class HoistGuards:
    """Move guards outward; see `fuser.passes.guards.hoist_guards`."""

    name: ClassVar[str] = "hoist-guards"

    def __call__(self, kernel: Kernel) -> Kernel:
        """Rewrite the kernel's body."""
        body = hoist_guards(kernel.body)
        return kernel if body == kernel.body else replace(kernel, body=body)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What observers of the stage ``schedule`` are given: one segment and its schedule."""

    name: str
    graph: FusionGraph
    schedule: Schedule
    facts: Facts


NEST_PASSES: tuple[Pass[LoopNest], ...] = (
    GroupProducts(),
    CircularBuffers(),
    EngineStores(),
    RegisterRings(),
    InsertSyncs(),
)


def kernel_passes(schedule: Schedule, facts: Facts) -> tuple[Pass[Kernel], ...]:
    """Return the passes behind lowering; `facts` is what the shape class promises about sizes."""
    return (
        HoistGuards(),
        ResolveUnroll(schedule.loops.default),
        SplitPartial(facts),
        Unswitch(facts),
        UnrollCopies(facts),
        NameIndices(),
        *((HideRounds(),) if schedule.loops.exact else ()),
        OutlineLoops(),
    )


def lower(
    name: str,
    graph: FusionGraph,
    schedule: Schedule,
    layouts: Mapping[str, Layout],
    facts: Facts,
    index: IndexType,
    header: tuple[str, ...] = (),
    observers: Sequence[Observer] = (),
    reserved: frozenset[str] = frozenset(),
) -> tuple[Kernel, tuple[Buffer, ...]]:
    """Lower a scheduled segment; also return the temporary buffers its kernel needs.

    Parameters
    ----------
    reserved
        Names of the program's other tensors.
    """
    for observe in observers:
        observe("schedule", Scheduled(name, graph, schedule, facts))
    nest = build_nest(name, graph, split_boxes(graph, schedule, layouts, facts), facts)
    for observe in observers:
        observe("nest", nest)
    nest = run_passes(nest, NEST_PASSES, observers)
    kernel, buffers = lower_to_kernel(nest, layouts, index, header, reserved)
    for observe in observers:
        observe("lower", kernel)
    return run_passes(kernel, kernel_passes(schedule, facts), observers), buffers
