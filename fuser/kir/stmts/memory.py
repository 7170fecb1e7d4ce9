"""Moves of single elements and of vectors between registers, shared and global memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import Expr, to_c
from fuser.kir.core import Context, Render, Stmt
from fuser.kir.evaluate import evaluate_value
from fuser.kir.scalar import Value
from fuser.kir.text import bare, value_to_c
from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine

Hint: TypeAlias = Literal["", "ca", "cg", "cs", "nc"]
VECTOR_TYPE = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}
_LOAD = {"": "", "ca": "__ldca", "cg": "__ldcg", "cs": "__ldcs", "nc": "__ldg"}
_STORE = {"": "", "ca": "__stwb", "cg": "__stcg", "cs": "__stcs"}


@dataclass(frozen=True, slots=True)
class Store(Stmt):
    """``memory[index] = value;``: a register array, a shared array or a global tensor."""

    memory: str
    index: Expr
    value: Value

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        value = bare(value_to_c(self.value))
        return {"memory": self.memory, "index": to_c(self.index), "value": value}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        value = evaluate_value(self.value, m, agent, agent.mask)
        m.store(agent, self.memory, m.index(agent, self.index), value)
        yield from ()


def _check_width(stmt: VectorLoad | VectorStore, hints: dict[str, str]) -> None:
    nbytes = stmt.width * stmt.dtype.nbytes
    if nbytes not in VECTOR_TYPE:
        raise VerifyError(
            f"{type(stmt).__name__} of {stmt.memory}: {stmt.width} x {stmt.dtype.short} is "
            f"{nbytes} bytes; one access moves 1, 2, 4, 8 or 16"
        )
    if stmt.hint not in hints:
        raise VerifyError(
            f"{type(stmt).__name__} of {stmt.memory}: hint {stmt.hint!r}; needs one of {[*hints]}"
        )


@dataclass(frozen=True, slots=True)
class VectorLoad(Stmt):
    """One access that reads `width` elements of memory into registers.

    Attributes
    ----------
    hint
        Cache operator of PTX ``ld``: ``ca``, ``cg``, ``cs``, or ``nc`` (read-only path).
    """

    dst: str
    dst_index: Expr
    memory: str
    index: Expr
    width: int
    dtype: DataType
    hint: Hint = ""

    def __post_init__(self) -> None:
        _check_width(self, _LOAD)

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        vector, load = VECTOR_TYPE[self.width * self.dtype.nbytes], _LOAD[self.hint]
        src = f"reinterpret_cast<const {vector}*>({pointer(self.memory, self.index)})"
        return {
            "vector": vector,
            "dst": pointer(self.dst, self.dst_index),
            "src": f"{load}({src})" if load else f"*{src}",
        }

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        vector = m.load(agent, self.memory, m.index(agent, self.index), agent.mask, self.width)
        m.store(agent, self.dst, m.index(agent, self.dst_index), vector, self.width)
        yield from ()


@dataclass(frozen=True, slots=True)
class VectorStore(Stmt):
    """One access that writes `width` register elements to memory."""

    memory: str
    index: Expr
    src: str
    src_index: Expr
    width: int
    dtype: DataType
    hint: Hint = ""

    def __post_init__(self) -> None:
        _check_width(self, _STORE)

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        vector = VECTOR_TYPE[self.width * self.dtype.nbytes]
        dst = f"reinterpret_cast<{vector}*>({pointer(self.memory, self.index)})"
        src = f"*reinterpret_cast<const {vector}*>({pointer(self.src, self.src_index)})"
        if self.hint:
            return {"store": f"{_STORE[self.hint]}({dst}, {src})"}
        return {"store": f"*{dst} = {src}"}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        src = m.index(agent, self.src_index)
        vector = m.load(agent, self.src, src, agent.mask, self.width)
        m.store(agent, self.memory, m.index(agent, self.index), vector, self.width)
        yield from ()


def pointer(memory: str, index: Expr) -> str:
    """Print ``memory + index``, or `memory` alone at index 0."""
    text = to_c(index, 6)
    return memory if text == "0" else f"{memory} + {text}"
