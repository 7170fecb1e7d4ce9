"""Outputs computed at the same place share the values they have in common."""

from __future__ import annotations

from dataclasses import dataclass, field

from fuser.core.expr import TRUE, Expr
from fuser.core.simplify import Facts
from fuser.kir.core import Stmt
from fuser.passes.element import ElementLowering
from fuser.passes.expand import Expander
from fuser.passes.guards import guarded
from fuser.passes.inline import inline_last


@dataclass(slots=True)
class Together:
    """Neighbouring stores under one guard: all values first, then all stores.

    rewrite::

        y[i] = f(g(x[i])); z[i] = h(g(x[i]));
        ->
        t = g(x[i]); y[i] = f(t); z[i] = h(t);
    """

    facts: Facts
    guard: Expr = TRUE
    expander: Expander | None = None
    stores: list[Stmt] = field(default_factory=list[Stmt])

    def add(self, element: ElementLowering) -> tuple[Stmt, ...]:
        """Add a store; return the finished statements of the group before it, if it ends."""
        guard = element.guard()
        done: tuple[Stmt, ...] = ()
        if self.expander is not None and guard != self.guard:
            done = self.close()
        if self.expander is None:
            state = element.state
            self.guard = guard
            self.expander = Expander(state.nest.graph, element.read, state.fresh)
        self.expander.read = element.read
        self.stores += element.evaluate(guard, self.expander)
        return done

    def close(self) -> tuple[Stmt, ...]:
        """Return the statements of the group and start a new one."""
        if self.expander is None:
            return ()
        stmts = inline_last(self.expander.stmts, self.stores)
        self.expander, self.stores = None, []
        return guarded(self.guard, stmts, self.facts)
