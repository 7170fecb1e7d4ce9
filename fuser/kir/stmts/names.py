"""Declarations and assignments of per-thread names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fuser.core.dtypes import DataType
from fuser.core.expr import Expr, to_c
from fuser.kir.core import Context, Render, Stmt
from fuser.kir.evaluate import evaluate_value
from fuser.kir.scalar import Value
from fuser.kir.text import bare, value_to_c
from fuser.sim.agent import Agent, Wait, merge
from fuser.sim.machine import Machine


@dataclass(frozen=True, slots=True)
class Let(Stmt):
    """``const idx name = value;``, an index variable.

    Attributes
    ----------
    opaque
        The compiler learns nothing of the value.
    """

    name: str
    value: Expr
    opaque: bool = False

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        value = to_c(self.value)
        return {"name": self.name, "value": f"opaque({value})" if self.opaque else value}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        agent.env[self.name] = m.index(agent, self.value)
        yield from ()


@dataclass(frozen=True, slots=True)
class Define(Stmt):
    """``const T name = value;``, an immutable scalar."""

    name: str
    dtype: DataType
    value: Value

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        value = bare(value_to_c(self.value))
        return {"name": self.name, "type": self.dtype.cuda, "value": value}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        agent.values[self.name] = evaluate_value(self.value, m, agent, agent.mask)
        yield from ()


@dataclass(frozen=True, slots=True)
class DeclareScalar(Stmt):
    """``T name = init;``, a scalar that `Assign` and the reductions change."""

    name: str
    dtype: DataType
    init: Value

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        value = bare(value_to_c(self.init))
        return {"name": self.name, "type": self.dtype.cuda, "value": value}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        agent.values[self.name] = evaluate_value(self.init, m, agent, agent.mask)
        yield from ()


@dataclass(frozen=True, slots=True)
class Assign(Stmt):
    """``name = value;`` of a declared scalar."""

    name: str
    value: Value

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"name": self.name, "value": bare(value_to_c(self.value))}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        value = evaluate_value(self.value, m, agent, agent.mask)
        agent.values[self.name] = merge(agent.mask, value, agent.values[self.name])
        yield from ()


@dataclass(frozen=True, slots=True)
class DeclareRegisters(Stmt):
    """``alignas(16) T name[size];``, a per-thread array, aligned for vector moves."""

    name: str
    dtype: DataType
    size: int

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        nbytes = self.size * self.dtype.nbytes
        align = min(16, nbytes & -nbytes)
        return {"name": self.name, "type": self.dtype.cuda, "size": self.size, "align": align}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`; a declaration inside a loop starts unwritten every time."""
        m.declare_registers(agent, self.name, np.dtype(self.dtype.np), self.size)
        yield from ()
