"""What roles that change their registers owe each other: an increase must not wait forever.

A block has the registers that it began with. ``setmaxnreg.inc`` waits until as many are free, so
what a role takes must have been given up by others *whatever they do next*: they give up first, and
take nothing in the same roles. Who takes registers back does so behind a barrier of the block, or
it could take those that others have not come to take yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fuser.core.expr import Const
from fuser.core.hardware import registers_at_entry
from fuser.kir.core import Kernel, Stmt, walk_stmts
from fuser.kir.stmts import (
    ClusterSync,
    For,
    Let,
    NamedBarrier,
    Role,
    Roles,
    SetMaxRegisters,
    SyncThreads,
)

WARP, WARP_GROUP = 32, 128


def hand_over_problems(kernel: Kernel) -> Iterator[str]:
    """Yield what is wrong with the changes of registers of a kernel's roles.

    PTX ISA, ``setmaxnreg``: all warps of a warp group execute it, and synchronise before they do so
    again; it is undefined to increase to fewer registers than there are, or to decrease to more.
    """
    if not any(isinstance(s, SetMaxRegisters) for s in walk_stmts(kernel.body)):
        return
    extents = [e.value for e in kernel.block if isinstance(e, Const)]
    if len(extents) < len(kernel.block):
        return  # roles are refused elsewhere
    x, y, z = extents
    threads = x * y * z
    entry = registers_at_entry(threads * max(1, kernel.min_blocks))
    held = dict.fromkeys(range(-(-threads // WARP)), entry)
    yield from _HandOver(threads, entry, held).body(kernel.body)


@dataclass(slots=True)
class _HandOver:
    """Follows a kernel in program order.

    Attributes
    ----------
    entry
        Registers per thread that the kernel begins with.
    held
        Registers per thread of each warp.
    changed
        Whether somebody has changed theirs since the block met.
    """

    threads: int
    entry: int
    held: dict[int, int]
    changed: bool = False

    def body(self, stmts: Sequence[Stmt]) -> Iterator[str]:
        """Yield the problems of statements, and follow them."""
        for stmt in stmts:
            match stmt:
                case SyncThreads() | ClusterSync():
                    self.changed = False
                case Roles():
                    yield from self.roles(stmt)
                case For():
                    before = dict(self.held)
                    yield from self.body(stmt.body)
                    if self.held != before:
                        yield f"in loop {stmt.var} do not end with the registers they begin with"
                case _:
                    for nested in stmt.bodies():
                        yield from self.body(nested)

    def roles(self, stmt: Roles) -> Iterator[str]:
        """Yield the problems of roles that run concurrently."""
        peak = sum(self.held.values()) * WARP
        after, takers = dict(self.held), list[str]()
        for role in stmt.roles:
            changes = [s for s in walk_stmts(role.body) if isinstance(s, SetMaxRegisters)]
            if not changes:
                continue
            yield from self.role(role, changes)
            takers += [role.name] if changes[0].increase else []
            # What a role gives up later than at once may come too late for the others.
            first = next(s for s in role.body if not isinstance(s, Let))
            early = changes[0].increase or first is changes[0]
            for warp in range(role.first_thread // WARP, role.range.stop // WARP):
                peak += (changes[0].count - self.held[warp]) * WARP if early else 0
                after[warp] = changes[-1].count
        if takers and peak > len(self.held) * WARP * self.entry:
            yield (
                f"hands out {peak} registers; the block begins with {self.threads * self.entry}, "
                f"{self.entry} a thread"
            )
        self.changed = self.changed or after != self.held
        self.held = after

    def role(self, role: Role, changes: Sequence[SetMaxRegisters]) -> Iterator[str]:
        """Yield the problems of one role alone."""
        if role.first_thread % WARP_GROUP or role.threads % WARP_GROUP:
            yield (
                f"{role.name}: threads {role.first_thread} to {role.range.stop - 1} change their "
                f"registers; needed whole warp groups of {WARP_GROUP}"
            )
            return
        direct = [i for i, s in enumerate(role.body) if isinstance(s, SetMaxRegisters)]
        if len(direct) < len(changes):
            yield f"{role.name}: changes its registers in a loop or branch; needed the role itself"
        if self.changed:
            yield (
                f"{role.name}: changes its registers, and the block has not met since others did; "
                "they could take each other's: needed a barrier of the block between"
            )
        for begin, end in pairwise(direct):
            between = role.body[begin + 1 : end]
            if not any(isinstance(s, NamedBarrier) for s in between):
                yield f"{role.name}: changes its registers twice, and its warps do not meet between"
        count = self.held[role.first_thread // WARP]
        for number, change in enumerate(changes):
            if (change.count < count) if change.increase else (change.count > count):
                way = "increases" if change.increase else "decreases"
                now = "the kernel begins with" if count == self.entry else "it has"
                yield f"{role.name}: {way} its registers to {change.count}; {now} {count}"
            if number and change.increase:
                yield (
                    f"{role.name}: takes registers back in the roles in which others take them; "
                    "needed a barrier of the block before it"
                )
            count = change.count
