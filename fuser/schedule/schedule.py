"""The schedule of a fusion: which tensors own loops and memory, and how.

A tensor without an entry is *inlined*: an expression, recomputed where it is used. A tensor with
an entry is *materialised*: it has a loop domain, a compute-at position and a memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from fuser.core.errors import ScheduleError
from fuser.core.expr import Expr, Var, variables
from fuser.core.unroll import DEFAULT_LOOPS, LoopOptions
from fuser.fusion.attrs import ReduceAttrs
from fuser.fusion.graph import FusionGraph, Value
from fuser.schedule.circular import CircularBuffer, WarpSpecialized
from fuser.schedule.domain import LoopDomain
from fuser.schedule.kinds import LoadStoreOpType, MemoryType, ParallelType
from fuser.schedule.swizzle import TileSwizzle


@dataclass(slots=True)
class TensorSchedule:
    """How one materialised tensor is computed.

    Attributes
    ----------
    domain
        Loop domain. Its root is the tensor's own dimensions (for a reduction: the operand's),
        or the root of another tensor that it is scheduled like.
    coords
        The tensor's coordinates over ``Var("r0"), Var("r1"), ...``, the root coordinates.
    position
        Number of outer loops shared with the consumers (compute-at position).
    memory
        Where the values live.
    load
        How they are copied, for a cache tensor.
    allocation
        Loop axes from the slowest to the fastest varying one in memory; None: in loop order.
    swizzle
        How the copy engine permutes pieces of 16 bytes of the tile; None: it does not.
    root_of
        Tensor whose dimensions the root is; None: the tensor's own.
    whole
        Whether every element is computed; otherwise only what the tensor `root_of` reads.
    same_loops_as
        Tensor whose loops this one is computed in: several outputs of one kernel.
    circular
        The circular-buffer directive, if any.
    staging
        Stages of a tile that the copy engine stores out of; 0: it is no such tile.
    streams
        Whether vectors are stored as what nobody reads soon (evict-first in L2).
    """

    domain: LoopDomain
    coords: tuple[Expr, ...]
    position: int = 0
    memory: MemoryType = MemoryType.local
    load: LoadStoreOpType = LoadStoreOpType.set
    allocation: tuple[int, ...] | None = None
    swizzle: TileSwizzle | None = None
    root_of: str | None = None
    whole: bool = True
    same_loops_as: str | None = None
    circular: CircularBuffer | None = None
    staging: int = 0
    streams: bool = False

    def structure(self) -> tuple[object, ...]:
        """Return every directive on the tensor, hashable."""
        own = (getattr(self, f.name) for f in fields(self) if f.name != "domain")
        return self.domain.root, self.domain.transforms, self.domain.loop, *own

    @property
    def stages(self) -> int:
        """How many trips of the tensor are in memory at once."""
        return max(1, self.staging) if self.circular is None else self.circular.stages

    @property
    def is_stored(self) -> bool:
        """Whether the copy engine writes the tensor to global memory."""
        return self.memory is MemoryType.global_ and self.load.is_async_proxy

    @property
    def meets_engine(self) -> bool:
        """Whether the copy engine writes or reads the tensor in shared memory."""
        return not self.is_stored and (self.load.is_async_proxy or self.staging > 0)

    @property
    def stage_position(self) -> int:
        """Number of outer loops in which a stage is filled once; it holds the axes right of them.

        The compute-at position; the slice position of a warp-specialised circular buffer that has
        one; of a pipelined one right of its trip loop: what is unrolled or vectorized between that
        and the compute-at position is in the stage.
        """
        if self.circular is None:
            return self.position
        if isinstance(self.circular.type, WarpSpecialized):
            sliced = self.circular.type.stage_slice_position
            return self.position if sliced is None else sliced
        trips = self._serial_axes
        return trips[-1] + 1 if trips else self.position

    @property
    def _serial_axes(self) -> tuple[int, ...]:
        outer = self.domain.loop[: self.position]
        return tuple(j for j, axis in enumerate(outer) if axis.parallel is ParallelType.serial)

    @property
    def is_product(self) -> bool:
        """Whether tensor cores compute the tensor, a sum of products."""
        return bool(self.domain.instruction)

    @property
    def group_axis(self) -> int | None:
        """The thread axis whose indices are consumer groups, if any."""
        kind = None if self.circular is None else self.circular.type
        if not isinstance(kind, WarpSpecialized) or kind.stage_slice_position is None:
            return None
        outer = self.domain.loop[: kind.stage_slice_position]
        return next((j for j, axis in enumerate(outer) if axis.parallel is kind.on), None)

    @property
    def owner_axis(self) -> int | None:
        """The axis of consumer groups if each has stages of its own."""
        kind = None if self.circular is None else self.circular.type
        turns = isinstance(kind, WarpSpecialized) and kind.ping_pong
        return None if turns else self.group_axis

    @property
    def is_register_ring(self) -> bool:
        """Whether the tensor is circular-buffered in registers."""
        return self.circular is not None and self.memory is MemoryType.local

    @property
    def trip_axes(self) -> tuple[int, ...]:
        """Loop axes over whose trips a circular buffer runs, outermost first.

        Pipelined: the innermost serial axis left of the compute-at position. Warp-specialised: all
        axes left of the stage position that this thread iterates over, unrolled or not, so that
        the ring goes on across the trips of the outer ones, and the axis of consumer groups. So do
        the stages of a tile that is stored: stores are waited for in the order of all trips.
        """
        if self.circular is None and not self.staging:
            return ()
        if self.circular is not None and not self.circular.is_specialized:
            return self._serial_axes[-1:]
        outer = self.domain.loop[: self.stage_position]
        return tuple(
            j
            for j, axis in enumerate(outer)
            if not axis.parallel.is_parallel or j == self.group_axis
        )


def check_same(ts: TensorSchedule, axis: int) -> None:
    """Raise `ScheduleError` if elements differ along loop axis `axis`."""
    at = ts.domain.position(axis, "once")
    own = frozenset[str]().union(*(variables(c) for c in ts.coords))
    if any(f"r{i}" in own for i in ts.domain.roots_of(at)):
        raise ScheduleError(
            f"once: axis {axis}, and the tensor's elements differ along it; needed an axis that it "
            "is the same along"
        )


def root_vars(rank: int) -> tuple[Expr, ...]:
    """Return the symbolic root coordinates that `TensorSchedule.coords` is written in."""
    return tuple(Var(f"r{i}") for i in range(rank))


def root_extents(graph: FusionGraph, value: Value) -> tuple[tuple[Expr, ...], tuple[int, ...]]:
    """Return the extents a tensor iterates over and which of them it reduces."""
    if isinstance(value.attrs, ReduceAttrs):
        return graph.operands(value)[0].shape, value.attrs.dims
    return value.shape, ()


def default_schedule(
    graph: FusionGraph, value: Value, memory: MemoryType = MemoryType.local
) -> TensorSchedule:
    """Return the schedule of a tensor nobody has transformed: one serial loop a dimension."""
    extents, reduced = root_extents(graph, value)
    coords = tuple(r for i, r in enumerate(root_vars(len(extents))) if i not in reduced)
    return TensorSchedule(LoopDomain.of(extents, reduced), coords, 0, memory)


@dataclass(slots=True)
class Schedule:
    """A schedule for every materialised tensor of one kernel.

    Attributes
    ----------
    tensors
        By value name.
    recipe
        Name of the recipe that made it, ``"manual"`` for the user's own.
    notes
        Lines printed into the kernel's header.
    exact_vectors
        A vectorized axis of a copy or a store must become one access; else as wide as possible.
    loops
        What is said of all loops.
    """

    tensors: dict[str, TensorSchedule] = field(default_factory=dict[str, TensorSchedule])
    recipe: str = "manual"
    notes: tuple[str, ...] = ()
    exact_vectors: bool = False
    loops: LoopOptions = DEFAULT_LOOPS
