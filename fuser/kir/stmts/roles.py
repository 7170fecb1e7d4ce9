"""Warp-specialised roles and what they share: registers and barriers of some of the warps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from fuser.core.errors import VerifyError
from fuser.core.expr import Const, Expr, to_c
from fuser.kir.core import Context, Render, Stmt
from fuser.kir.evaluate import run_body
from fuser.sim import roles
from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine
from fuser.sim.register_pool import change_registers

WARP = 32
Threads: TypeAlias = range


@dataclass(frozen=True, slots=True)
class Role:
    """What the warps from thread `first_thread` on do, `threads` of them.

    Attributes
    ----------
    groups
        How many parts of the role proceed by themselves: equal numbers of whole warps, which run
        the same statements on trips of their own.
    serves
        Variable of the loop in which a producer fills stages for those groups in turn.
    """

    name: str
    first_thread: int
    threads: int
    body: tuple[Stmt, ...]
    groups: int = 1
    serves: str = ""

    @property
    def range(self) -> range:
        """Linear thread indices of the role."""
        return range(self.first_thread, self.first_thread + self.threads)

    @property
    def parts(self) -> tuple[tuple[str, Threads], ...]:
        """Name and thread indices of each group."""
        if self.groups == 1:
            return ((self.name, self.range),)
        size = self.threads // self.groups
        starts = range(self.first_thread, self.range.stop, size)
        return tuple((f"{self.name}, group {i}", range(a, a + size)) for i, a in enumerate(starts))


@dataclass(frozen=True, slots=True)
class Roles(Stmt):
    """``if``/``else if`` on the linear thread index: disjoint sets of warps run concurrently.

    Threads of no role skip it. Names that a role defines end with it.
    """

    roles: tuple[Role, ...]

    def __post_init__(self) -> None:
        end = 0
        for role in self.roles:
            if role.first_thread % WARP or role.threads % WARP or role.threads < WARP:
                raise VerifyError(
                    f"role {role.name}: threads {role.first_thread} to {role.range.stop - 1}; "
                    f"needs whole warps of {WARP}"
                )
            if role.first_thread < end:
                raise VerifyError(
                    f"role {role.name}: begins at thread {role.first_thread}; needs ascending, "
                    f"disjoint ranges, the one before ends at {end}"
                )
            end = role.range.stop
            if role.groups < 1 or role.threads % (role.groups * WARP):
                raise VerifyError(
                    f"role {role.name}: {role.threads} threads in {role.groups} groups; needs "
                    f"groups of whole warps of {WARP}"
                )

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        parts = [
            f"if ({_test(role)}) {{  // {role.name}\n  {_indent(render(role.body))}\n}}"
            for role in self.roles
        ]
        return {"branches": " else ".join(parts)}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`; the roles of a lockstep agent take turns."""
        parts = [
            roles.Part(name, threads, partial(run_body, role.body, m))
            for role in self.roles
            for name, threads in role.parts
        ]
        yield from roles.run(m, agent, parts)

    def bodies(self) -> tuple[tuple[Stmt, ...], ...]:
        """See :meth:`Stmt.bodies`."""
        return tuple(role.body for role in self.roles)


@dataclass(frozen=True, slots=True)
class NamedBarrier(Stmt):
    """Meet `threads` threads at hardware barrier `id` (PTX ``bar.sync``); 0 is the block's own.

    `id` may depend on the thread: the groups of a role have barriers of their own.
    """

    id: Expr
    threads: int
    why: str

    def __post_init__(self) -> None:
        if isinstance(self.id, Const) and not 1 <= self.id.value <= 15:
            raise VerifyError(f"NamedBarrier({self.why}): id {self.id}; needs 1 to 15")
        if self.threads % WARP or self.threads < WARP:
            raise VerifyError(
                f"NamedBarrier({self.why}): {self.threads} threads; needs whole warps of {WARP}"
            )

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"id": to_c(self.id), "threads": self.threads, "why": self.why}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        number = m.index(agent, self.id)
        yield from roles.named_barrier(m, agent, number, self.threads, self.why)


@dataclass(frozen=True, slots=True)
class SetMaxRegisters(Stmt):
    """Change how many registers a thread has; all warps of a warp group of 128 threads do it.

    PTX ISA: ``setmaxnreg.inc/dec.sync.aligned``. An increase waits until others have given up as
    many. Without ``__launch_bounds__`` ptxas drops it.
    """

    count: int
    increase: bool

    def __post_init__(self) -> None:
        if self.count % 8 or not 24 <= self.count <= 256:
            raise VerifyError(
                f"SetMaxRegisters: {self.count} registers; needs a multiple of 8 from 24 to 256"
            )

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"direction": "inc" if self.increase else "dec", "count": self.count}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`; a block has the registers that it began with."""
        yield from change_registers(m, agent, self.count, increase=self.increase)


def _test(role: Role) -> str:
    first, last = role.first_thread, role.range.stop
    if first == 0:
        return f"role_thread < {last}"
    return f"role_thread >= {first} && role_thread < {last}"


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")
