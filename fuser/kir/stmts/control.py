"""Control flow: loops and branches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.core.expr import ONE, ZERO, Const, Expr, to_c
from fuser.kir.core import Context, Render, Stmt, Unroll
from fuser.kir.evaluate import run_body
from fuser.sim.agent import Agent, Wait, any_lane, uniform
from fuser.sim.machine import Machine

FULL_UNROLL_LIMIT = 16
"""Longest constant trip that an `auto` loop unrolls completely."""


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """``for (idx var = start; var < extent; var += step) body``, with exactly one pragma.

    Attributes
    ----------
    label
        What the loop is in a pipeline (``"main"``...); printed behind its first line.
    outlined
        The user's axis that shall be a device function of its own, as errors name it; or empty.
    """

    var: str
    extent: Expr
    body: tuple[Stmt, ...]
    unroll: Unroll = Unroll()
    start: Expr = ZERO
    step: Expr = ONE
    label: str = ""
    outlined: str = ""

    def trip(self) -> int | None:
        """Return the number of iterations when it is a constant."""
        indices = self.indices()
        return None if indices is None else len(indices)

    def indices(self) -> range | None:
        """Return the values of the variable when they are constants."""
        match self.start, self.extent, self.step:
            case Const(start), Const(extent), Const(step) if step > 0:
                return range(start, extent, step)
            case _:
                return None

    def is_unrolled(self) -> bool:
        """Whether the code repeats the body once a trip."""
        trip = self.trip()
        short = trip is not None and trip <= FULL_UNROLL_LIMIT
        return self.unroll.kind == "full" or (self.unroll.kind == "auto" and short)

    def pragma(self) -> str:
        """Return the directive printed right before the loop."""
        match self.unroll.kind:
            case "full":
                return "#pragma unroll"
            case "partial":
                return f"#pragma unroll {self.unroll.factor}"
            case "auto" if self.is_unrolled():
                return "#pragma unroll"
            case _:
                return "#pragma unroll 1"

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        step = f"++{self.var}" if self.step == ONE else f"{self.var} += {to_c(self.step)}"
        return {
            "pragma": self.pragma(),
            "var": self.var,
            "start": to_c(self.start),
            "extent": to_c(self.extent, 6),
            "step": step,
            "label": f"  // {self.label}" if self.label else "",
            "body": render(self.body),
        }

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`; lanes whose range has ended wait, masked, for the others."""
        outer = agent.mask
        start, extent, step = (
            uniform(m.index(agent, e), outer) for e in (self.start, self.extent, self.step)
        )
        if isinstance(start, int) and isinstance(extent, int) and isinstance(step, int):
            for value in range(start, extent, step):
                agent.env[self.var] = value
                yield from run_body(self.body, m, agent)
            return
        i: Any = np.asarray(start)
        active = agent.narrow(outer, i < extent)
        while any_lane(active):
            agent.mask, agent.env[self.var] = active, i
            yield from run_body(self.body, m, agent)
            i = i + step
            active = agent.narrow(outer, i < extent)
        agent.mask = outer

    def bodies(self) -> tuple[tuple[Stmt, ...], ...]:
        """See :meth:`Stmt.bodies`."""
        return (self.body,)


@dataclass(frozen=True, slots=True)
class If(Stmt):
    """``if (cond) body else orelse``; `cond` may name a `Let` or a flag variable."""

    cond: Expr
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        orelse = f" else {{\n  {_indent(render(self.orelse))}\n}}" if self.orelse else ""
        return {"cond": to_c(self.cond), "body": render(self.body), "orelse": orelse}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`; both sides run, each with its own lanes."""
        outer = agent.mask
        cond = m.index(agent, self.cond)
        sides = (cond, self.body), (np.logical_not(cond), self.orelse)
        for condition, body in sides:
            agent.mask = agent.narrow(outer, condition)
            if body and any_lane(agent.mask):
                yield from run_body(body, m, agent)
        agent.mask = outer

    def bodies(self) -> tuple[tuple[Stmt, ...], ...]:
        """See :meth:`Stmt.bodies`."""
        return self.body, self.orelse


@dataclass(frozen=True, slots=True)
class Scoped(Stmt):
    """``{ body }``: the names that it defines end with it. A copy of an unrolled loop's body."""

    body: tuple[Stmt, ...]

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"body": render(self.body)}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        yield from run_body(self.body, m, agent)

    def bodies(self) -> tuple[tuple[Stmt, ...], ...]:
        """See :meth:`Stmt.bodies`."""
        return (self.body,)


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")
