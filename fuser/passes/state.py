"""What lowering one nest keeps track of: names, shared arrays, temporary buffers, the scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import TRUE, ZERO, Const, Expr, Var, all_of, equal
from fuser.core.simplify import Facts, simplify
from fuser.kir.core import BarrierArray, Ring, SharedArray
from fuser.kir.fallback import Fallback
from fuser.kir.program import Buffer
from fuser.kir.team_box import TeamBox
from fuser.kir.tensor_map import TensorMapParam
from fuser.nest.build import materialised_operands
from fuser.nest.nodes import LoopNest
from fuser.ops import BY_REDUCTION
from fuser.passes.launch import BLOCK, LastBlock, LaunchExtents, padded_block
from fuser.passes.layout import Layout
from fuser.schedule.kinds import ParallelType


@dataclass(frozen=True, slots=True)
class Team:
    """The threads that run a warp role, or one group of it: whole warps.

    Attributes
    ----------
    first
        Linear index of the first.
    barrier
        Number of the hardware barrier at which they meet.
    """

    first: Expr
    threads: int
    barrier: Expr


@dataclass(frozen=True, slots=True)
class Scope:
    """What is known at one point of the nest.

    Attributes
    ----------
    facts
        Ranges of the loop variables in scope and guards that hold.
    guard
        Conditions that statements here must add: hardware indices beyond a loop's extent.
    hardware
        Hardware axes bound by enclosing loops.
    team
        The warp role that runs this; None: all threads of the block.
    """

    facts: Facts
    guard: Expr = TRUE
    hardware: frozenset[ParallelType] = frozenset()
    team: Team | None = None


@dataclass(slots=True)
class Lowering:
    """State of lowering one nest.

    Attributes
    ----------
    reserved
        Names of the program's values: those that this nest does not name may be inlined, and take
        another name; memory has its name in every kernel.
    names, given
        Names that are taken, and what `named` has returned.
    fallbacks
        Copies that are made otherwise than asked, and why.
    turned
        Tiles whose boxes do not lie in loop order, but as the tensor that they are loaded from.
    extra_threads, extra_axis
        Threads of producer roles, behind those that the nest's loops are bound to, and the thread
        axis that they extend.
    """

    nest: LoopNest
    layouts: Mapping[str, Layout]
    launch: LaunchExtents
    reserved: frozenset[str] = frozenset()
    names: dict[str, int] = field(default_factory=dict[str, int])
    given: dict[str, str] = field(default_factory=dict[str, str])
    shared: list[SharedArray] = field(default_factory=list[SharedArray])
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    last_block: dict[str, tuple[LastBlock, ...]] = field(
        default_factory=dict[str, tuple[LastBlock, ...]]
    )

    barriers: list[BarrierArray] = field(default_factory=list[BarrierArray])
    rings: list[Ring] = field(default_factory=list[Ring])
    maps: dict[str, TensorMapParam] = field(default_factory=dict[str, TensorMapParam])
    fallbacks: list[Fallback] = field(default_factory=list[Fallback])
    turned: frozenset[str] = frozenset()
    extra_threads: int = 0
    extra_axis: ParallelType | None = None

    @property
    def register_rings(self) -> tuple[str, ...]:
        """Tensors that are circular-buffered in registers."""
        tensors = self.nest.schedule.tensors
        return tuple(name for name, ts in tensors.items() if ts.is_register_ring)

    @property
    def product_operands(self) -> frozenset[str]:
        """Tiles that products of tensor cores read."""
        graph, schedule = self.nest.graph, self.nest.schedule
        products = (name for name, ts in schedule.tensors.items() if ts.is_product)
        return frozenset(t for p in products for t in materialised_operands(graph, schedule, p))

    def fresh(self, base: str) -> str:
        """Return `base`, or ``base_1``, ``base_2``... if it is taken."""
        while True:
            number = self.names.get(base, 0)
            self.names[base] = number + 1
            name = base if number == 0 else f"{base}_{number}"
            if number == 0 or name not in self.names:
                self.names.setdefault(name, 1)
                return name

    def named(self, base: str) -> str:
        """Return the one name of an array, a barrier or a buffer that is asked for repeatedly."""
        if base not in self.given:
            name = self.fresh(base)
            while name in self.reserved:
                name = self.fresh(base)
            self.given[base] = name
        return self.given[base]

    def storage_dtype(self, tensor: str) -> DataType:
        """Return the dtype a materialised tensor is kept in: reductions accumulate wider."""
        value = self.nest.graph.value(tensor)
        if value.op in BY_REDUCTION:
            return BY_REDUCTION[value.op].accumulate(value.dtype)
        return value.dtype

    def elsewhere(self, hardware: frozenset[ParallelType]) -> Expr:
        """Return the guard that picks one thread along hardware axes bound by no loop here."""
        unbound = [kind for kind in self.launch.used if kind not in hardware]
        return all_of(*(equal(Var(kind.value), 0) for kind in unbound))

    def threads(self) -> int:
        """Return the threads that the nest's loops are bound to: constants, where it is asked."""
        return prod(self.block())

    def all_threads(self) -> int:
        """Return the threads of a block, those of producers with them."""
        self.block()  # constants, or it raises
        padded = padded_block(self.launch, self.extra_threads)
        return prod(e.value for e in padded if isinstance(e, Const))

    def block(self) -> tuple[int, int, int]:
        """Return the extents that the nest's loops are bound to: constants, where it is asked."""
        extents: list[int] = []
        for extent in self.launch.of(BLOCK):
            if not isinstance(extent, Const):
                raise VerifyError(f"kernel {self.nest.name}: a block extent is {extent}")
            extents.append(extent.value)
        x, y, z = extents
        return x, y, z

    def box(self, team: Team) -> TeamBox:
        """Return the threads of a team as a box of the block: roles and groups cut an axis."""
        assert self.extra_axis is not None
        cut, extents = BLOCK.index(self.extra_axis), [*self.block()]
        first: list[Expr] = [ZERO] * 3
        row = prod(extents[:cut])
        extents[cut], first[cut] = team.threads // row, simplify(team.first // row, self.nest.facts)
        x, y, z = extents
        return TeamBox((first[0], first[1], first[2]), (x, y, z), team.barrier)
