"""Reductions of one scalar over the lanes of a group, the threads of a block, the grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOf
from typing import TypeAlias

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import TRUE, Const, Expr, to_c
from fuser.core.thread_box import ThreadBox
from fuser.kir.core import Context, Render, Stmt
from fuser.kir.scalar import Literal
from fuser.kir.text import bare, value_to_c
from fuser.ops import BY_REDUCTION
from fuser.sim.agent import Agent, Wait
from fuser.sim.collective import block_allreduce, grid_allreduce, warp_allreduce
from fuser.sim.machine import Machine

Axis: TypeAlias = OneOf["x", "y", "z"]
WARP = 32
MAX_THREADS = 1024


def combine_to_c(op: str, dtype: DataType) -> str:
    """Print the row's combine text as a lambda."""
    text = bare(BY_REDUCTION[op].cuda(dtype).format("a", "b"))
    return f"[]({dtype.cuda} a, {dtype.cuda} b) {{ return {text}; }}"


def _box_to_c(box: ThreadBox) -> str:
    numbers = ", ".join(map(str, (box.barrier, box.threads, *box.first)))
    return f"{', '.join(map(str, box.extents))}, thread_box<{numbers}>()"


@dataclass(frozen=True, slots=True)
class WarpReduce(Stmt):
    """Butterfly all-reduce of scalar `name` over groups of `width` consecutive lanes.

    PTX ISA: ``shfl.sync.bfly``. Every lane of a group must arrive; groups need not agree.
    """

    name: str
    op: str
    dtype: DataType
    width: int = WARP

    def __post_init__(self) -> None:
        if self.width not in (2, 4, 8, 16, 32):
            raise VerifyError(
                f"WarpReduce of {self.name}: width {self.width}; needs a power of two from 2 to 32"
            )

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {
            "name": self.name,
            "width": self.width,
            "combine": combine_to_c(self.op, self.dtype),
        }

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        combine = BY_REDUCTION[self.op].numpy
        warp_allreduce(m, agent, self.name, combine, self.width)
        yield from ()


@dataclass(frozen=True, slots=True)
class BlockReduce(Stmt):
    """All-reduce of scalar `name` over the threads that differ only in `axes`.

    Every thread of the block, or of `box`, must arrive, and every one ends with the value. The
    order of combination depends on their shape only. It ends with a barrier, so `scratch` may be
    used again right behind it.

    Attributes
    ----------
    scratch
        Shared array of `dtype` with at least `scratch_numel(extents, axes)` elements.
    box
        The threads that take part, where other threads of the block do not come by: those of a
        warp role. Boxes that may reduce at the same time need arrays and barriers of their own.
    """

    name: str
    op: str
    dtype: DataType
    axes: tuple[Axis, ...]
    scratch: str
    box: ThreadBox | None = None

    def __post_init__(self) -> None:
        if not self.axes or len(set(self.axes)) != len(self.axes) or {*self.axes} - {*"xyz"}:
            raise VerifyError(
                f"BlockReduce of {self.name}: axes {self.axes}; needs distinct x, y or z"
            )
        if self.box is not None and not (
            1 <= self.box.barrier <= 15 and self.box.threads and self.box.threads % WARP == 0
        ):
            raise VerifyError(
                f"BlockReduce of {self.name}: {self.box.threads} threads meet at barrier "
                f"{self.box.barrier}; needs whole warps of {WARP} and a barrier from 1 to 15"
            )

    @staticmethod
    def scratch_numel(extents: tuple[Expr, Expr, Expr], axes: tuple[Axis, ...]) -> int:
        """Return the elements of scratch threads need: one per warp if rows are whole warps."""
        x, y, z = (e.value if isinstance(e, Const) else None for e in extents)
        if x is None or y is None or z is None:
            return MAX_THREADS
        threads = x * y * z
        return threads // WARP if "x" in axes and x % WARP == 0 else threads

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {
            "name": self.name,
            "scratch": self.scratch,
            "axes": ", ".join(str(axis in self.axes).lower() for axis in "xyz"),
            "combine": combine_to_c(self.op, self.dtype),
            "extents": "block_x, block_y, block_z" if self.box is None else _box_to_c(self.box),
        }

    def extents(self, block: tuple[Expr, Expr, Expr]) -> tuple[Expr, Expr, Expr]:
        """Return how many threads take part along x, y and z in a kernel of blocks `block`."""
        if self.box is None:
            return block
        x, y, z = (Const(extent) for extent in self.box.extents)
        return x, y, z

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        combine = BY_REDUCTION[self.op].numpy
        axes = ("x" in self.axes, "y" in self.axes, "z" in self.axes)
        yield from block_allreduce(m, agent, self.name, combine, axes, self.scratch, self.box)


@dataclass(frozen=True, slots=True)
class GridReduce(Stmt):
    """Combine scalar `name` over the `ranks` blocks of a segment; the last to arrive gets it.

    ``partials[(segment * ranks + rank) * slots + slot] = name``, then an atomic ticket on
    ``counter[segment]``. The block that draws the last ticket combines all ranks in rank order
    (so the result does not depend on arrival order) and alone has ``is_last`` true. The counter
    is back at zero afterwards. Every thread of every block must arrive; `segment` and `rank` are
    the same in all threads of a block. Every `GridReduce` of a launch needs its own counters.

    Attributes
    ----------
    partials
        Tensor of `dtype` with segments * ranks * slots elements.
    counter
        Int32 tensor with one element per segment, zero before the launch.
    is_last
        Name of the flag variable it defines.
    when
        Threads without an element of their own pass a condition that is false.
    scratch
        All threads of a block hold one value (after a `BlockReduce` over the whole block): it is
        one partial (`slots` is 1), and the threads of the last block share out the ranks and meet
        in this shared array. Empty: every thread has a partial of its own.
    """

    name: str
    op: str
    dtype: DataType
    partials: str
    counter: str
    rank: Expr
    ranks: Expr
    segment: Expr
    slot: Expr
    slots: Expr
    is_last: str
    when: Expr = TRUE
    scratch: str = ""

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        identity = Literal(BY_REDUCTION[self.op].identity(self.dtype), self.dtype)
        shared = f"{self.scratch}, {value_to_c(identity)}, block_x, block_y, block_z"
        return {
            "function": "grid_allreduce_shared" if self.scratch else "grid_allreduce",
            "more": shared if self.scratch else self._slots(),
            "name": self.name,
            "partials": self.partials,
            "counter": self.counter,
            "rank": to_c(self.rank),
            "ranks": to_c(self.ranks),
            "segment": to_c(self.segment),
            "is_last": self.is_last,
            "combine": combine_to_c(self.op, self.dtype),
        }

    def _slots(self) -> str:
        when = "true" if self.when == TRUE else to_c(self.when)
        return f"/*slot*/ {to_c(self.slot)}, /*slots*/ {to_c(self.slots)}, {when}"

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        combine = BY_REDUCTION[self.op].numpy
        places = (self.rank, self.ranks, self.segment, self.slot, self.slots, self.when)
        where = tuple(m.index(agent, e) for e in places)
        agent.env[self.is_last] = yield from grid_allreduce(
            m, agent, self.name, combine, self.partials, self.counter, where, bool(self.scratch)
        )
