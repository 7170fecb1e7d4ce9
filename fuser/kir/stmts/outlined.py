"""Loops in device functions of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fuser.core.dtypes import DataType
from fuser.kir.core import Context, Render, Stmt
from fuser.kir.evaluate import run_body
from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine


@dataclass(frozen=True, slots=True)
class Argument:
    """What a device function is given, by the name that it has in the kernel.

    Attributes
    ----------
    type
        C type; ``const`` unless the function changes it.
    """

    type: str
    name: str


@dataclass(frozen=True, slots=True)
class Outlined(Stmt):
    """``scalar = name(arguments);``, a call of a ``__noinline__`` function that runs `body`.

    Attributes
    ----------
    scalar
        The scalar around it that the body changes: passed, and returned. Empty: there is none.
    """

    name: str
    arguments: tuple[Argument, ...]
    body: tuple[Stmt, ...]
    scalar: str = ""
    dtype: DataType = DataType.Float

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        names = ", ".join(a.name for a in self.arguments)
        result = f"{self.scalar} = " if self.scalar else ""
        return {"result": result, "name": self.name, "arguments": names}

    def definition(self, render: Render) -> Context:
        """Return what the template of the function's definition prints."""
        return {
            "name": self.name,
            "type": self.dtype.cuda if self.scalar else "void",
            "params": ", ".join(f"{a.type} {a.name}" for a in self.arguments),
            "body": render(self.body),
            "result": f"\n  return {self.scalar};" if self.scalar else "",
        }

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        yield from run_body(self.body, m, agent)

    def bodies(self) -> tuple[tuple[Stmt, ...], ...]:
        """See :meth:`Stmt.bodies`."""
        return (self.body,)
