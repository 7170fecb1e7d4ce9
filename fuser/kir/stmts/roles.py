"""Warp-specialised roles and what they share: registers and barriers of some of the warps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fuser.core.errors import VerifyError
from fuser.kir.core import Context, Render, Stmt
from fuser.kir.evaluate import run_body
from fuser.sim import roles
from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine

WARP = 32


@dataclass(frozen=True, slots=True)
class Role:
    """What the warps from thread `first_thread` on do, `threads` of them."""

    name: str
    first_thread: int
    threads: int
    body: tuple[Stmt, ...]

    @property
    def range(self) -> range:
        """Linear thread indices of the role."""
        return range(self.first_thread, self.first_thread + self.threads)


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

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        parts = [
            f"if ({_test(role)}) {{  // {role.name}\n  {_indent(render(role.body))}\n}}"
            for role in self.roles
        ]
        return {"branches": " else ".join(parts)}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`; the roles of a lockstep agent take turns."""
        parts = [roles.Part(r.name, r.range, partial(run_body, r.body, m)) for r in self.roles]
        yield from roles.run(m, agent, parts)

    def bodies(self) -> tuple[tuple[Stmt, ...], ...]:
        """See :meth:`Stmt.bodies`."""
        return tuple(role.body for role in self.roles)


@dataclass(frozen=True, slots=True)
class NamedBarrier(Stmt):
    """Meet `threads` threads at hardware barrier `id` (PTX ``bar.sync``); 0 is the block's own."""

    id: int
    threads: int
    why: str

    def __post_init__(self) -> None:
        if not 1 <= self.id <= 15:
            raise VerifyError(f"NamedBarrier({self.why}): id {self.id}; needs 1 to 15")
        if self.threads % WARP or self.threads < WARP:
            raise VerifyError(
                f"NamedBarrier({self.why}): {self.threads} threads; needs whole warps of {WARP}"
            )

    def context(self, render: Render) -> Context:
        """See :meth:`Stmt.context`."""
        return {"id": self.id, "threads": self.threads, "why": self.why}

    def run(self, m: Machine, agent: Agent) -> Iterator[Wait]:
        """See :meth:`Stmt.run`."""
        yield from roles.named_barrier(m, agent, self.id, self.threads, self.why)


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
        """See :meth:`Stmt.run`; registers of the model are unlimited."""
        roles.require_warp_groups(m, agent)
        yield from ()


def _test(role: Role) -> str:
    first, last = role.first_thread, role.range.stop
    if first == 0:
        return f"role_thread < {last}"
    return f"role_thread >= {first} && role_thread < {last}"


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")
