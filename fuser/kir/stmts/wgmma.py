"""Matrix products by a warp group, out of shared memory, while its threads go on (``wgmma``).

A product is issued, and reads its operands and changes its accumulators until its group has been
waited for. PTX ISA: asynchronous warpgroup-level matrix instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import ZERO, Expr
from fuser.kir.core import Context, Render, Stmt
from fuser.kir.matrix import MatrixLayout
from fuser.kir.stmts.memory import pointer
from fuser.sim import wgmma
from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine

OPERANDS = (DataType.BFloat16, DataType.Half)
WIDTHS = range(8, 257, 8)


@dataclass(frozen=True, slots=True)
class Wgmma(Stmt):
    """Issue ``D += A B``: 64 rows, `n` columns, 16 deep (``wgmma.mma_async``, m64nNk16).

    Every warp of a warp group executes it; warp w has rows 16 w to 16 w + 15 of D. Register i of
    lane l is row ``16 w + l / 4 + 8 (i / 2 % 2)``, column ``8 (i / 4) + 2 (l % 4) + i % 2``.

    Attributes
    ----------
    accumulator, first
        Register array of floats, and its first of the `n` / 2 elements that are D.
    a, a_index, a_layout
        Shared array, element and layout of the tile ``A[m, k]``; the element is the same for all
        threads of the group, and where the tile would begin without its swizzle.
    b, b_index, b_layout
        The same of the tile ``B[n, k]``.
    dtype
        Of A and B.
    """

    accumulator: str
    first: Expr
    a: str
    a_index: Expr
    a_layout: MatrixLayout
    b: str
    b_index: Expr
    b_layout: MatrixLayout
    n: int
    dtype: DataType

    rows: ClassVar[int] = 64
    depth: ClassVar[int] = 16

    def __post_init__(self) -> None:
        if self.n not in WIDTHS:
            raise VerifyError(
                f"Wgmma of {self.accumulator}: {self.n} columns; needed a multiple of 8, at most "
                f"{WIDTHS[-1]}"
            )
        if self.dtype not in OPERANDS:
            raise VerifyError(
                f"Wgmma of {self.accumulator}: operands of {self.dtype.short}; needed "
                f"{' or '.join(d.short for d in OPERANDS)}"
            )

    @property
    def registers(self) -> int:
        """Accumulators of a thread."""
        return self.n // 2

    @property
    def function(self) -> str:
        """Name of the device function that issues it."""
        return f"wgmma_m{self.rows}n{self.n}k{self.depth}_{self.dtype.short}"

    def definition(self) -> Context:
        """Return what the template of the device function prints."""
        count = self.registers
        name = "f16" if self.dtype is DataType.Half else "bf16"
        return {
            "name": self.function,
            "instruction": f"m{self.rows}n{self.n}k{self.depth}.f32.{name}.{name}",
            "registers": ", ".join(f"%{i}" for i in range(count)),
            "operands": ", ".join(f'"+f"(d[{i}])' for i in range(count)),
            "a": f"%{count}",
            "b": f"%{count + 1}",
            "a_transposed": f"%{count + 2}",
            "b_transposed": f"%{count + 3}",
        }

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        turned = ", ".join(str(int(t.is_transposed)) for t in (self.a_layout, self.b_layout))
        return {
            "function": f"{self.function}<{turned}>",
            "accumulator": _registers(self.accumulator, self.first),
            "a": _descriptor(self.a, self.a_index, self.a_layout),
            "b": _descriptor(self.b, self.b_index, self.b_layout),
        }

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        first, a_index, b_index = (
            m.index(agent, e) for e in (self.first, self.a_index, self.b_index)
        )
        wgmma.issue(
            m, agent, (self.accumulator, first), (self.a, a_index, self.a_layout),
            (self.b, b_index, self.b_layout), self.n,
        )  # fmt: skip
        yield from ()


@dataclass(frozen=True, slots=True)
class WgmmaFence(Stmt):
    """Show what threads wrote to accumulators to the products issued next (``wgmma.fence``).

    Needed before the first product, and wherever accumulators were written by other statements.
    """

    accumulator: str
    size: int

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"accumulator": self.accumulator, "size": self.size}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        wgmma.fence(m, agent, self.accumulator, self.size)
        yield from ()


@dataclass(frozen=True, slots=True)
class WgmmaCommit(Stmt):
    """Close the group of products issued since the last one (``wgmma.commit_group``)."""

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        wgmma.commit(m, agent)
        yield from ()


@dataclass(frozen=True, slots=True)
class WgmmaWait(Stmt):
    """Wait until all but the latest `pending` groups are complete (``wgmma.wait_group``).

    Their operands have been read then.

    Attributes
    ----------
    accumulator, size
        Registers that are complete, of which the compiler must not move a use before the wait;
        empty: none.
    """

    pending: int
    why: str
    accumulator: str = ""
    size: int = 0

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        what = f", {self.size}" if self.accumulator else ""
        return {"arguments": f"{self.pending}{what}", "accumulator": self.accumulator,
                "why": self.why}  # fmt: skip

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        yield from wgmma.wait(m, agent, self.pending, self.accumulator, self.size)


def _registers(name: str, first: Expr) -> str:
    return name if first == ZERO else pointer(name, first)


def _descriptor(memory: str, index: Expr, layout: MatrixLayout) -> str:
    numbers = f"{layout.mode}, {layout.leading_bytes}, {layout.stride_bytes}"
    return f"matrix_descriptor<{numbers}>({pointer(memory, index)})"
