"""Hide from the compiler how many rounds a partially unrolled loop has, where it is inside another.

NVVM moves the test whether there is a round out of the loop around it, and makes two versions of
that: one with the main loop and one without. Each keeps its directive, but there are more loops
than the schedule says, and more code.

rewrite::

    for j in [0, m) rolled:                       for j in [0, m) rolled:
      for r in [0, n / 4) rolled: ..       ->       rounds = opaque(n / 4);
      for i in [n / 4 * 4, n) rolled: ..            for r in [0, rounds) rolled: ..
                                                    for i in [n / 4 * 4, n) rolled: ..
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fuser.core.expr import ZERO, Const, Var
from fuser.kir.core import Kernel, Stmt
from fuser.kir.stmts import For, Let
from fuser.passes.mentions import declared, unused
from fuser.passes.rewrite import map_bodies

Body = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class HideRounds:
    """See the module."""

    name: ClassVar[str] = "hide-rounds"

    def __call__(self, kernel: Kernel) -> Kernel:
        """Rewrite the kernel's body."""
        body = _Hider(set(declared(kernel))).body(kernel.body, inside=False)
        return kernel if body == kernel.body else replace(kernel, body=body)


@dataclass(frozen=True, slots=True)
class _Hider:
    taken: set[str]

    def body(self, body: Body, *, inside: bool) -> Body:
        """Rewrite a body that is `inside` of a loop or not."""
        return tuple(part for stmt in body for part in self.stmt(stmt, inside))

    def stmt(self, stmt: Stmt, inside: bool) -> Body:
        """Rewrite one statement."""
        nested = inside or isinstance(stmt, For)
        stmt = map_bodies(stmt, lambda body: self.body(body, inside=nested))
        if not (inside and isinstance(stmt, For) and is_main(stmt)):
            return (stmt,)
        name = unused(f"{stmt.var}s", self.taken)
        self.taken.add(name)
        return (Let(name, stmt.extent, opaque=True), replace(stmt, extent=Var(name)))


def is_main(loop: For) -> bool:
    """Whether a loop is the main loop of a partially unrolled one, and its rounds no constant."""
    partial = loop.unroll.kind == "rolled" and loop.unroll.factor > 1
    return partial and loop.start == ZERO and not isinstance(loop.extent, Const)
