"""The registers that a block began with: what some warps give up, others may take."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fuser.core.errors import ProtocolError
from fuser.core.hardware import registers_at_entry
from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine

WARP, GROUP = 32, 128


def change_registers(m: Machine, agent: Agent, count: int, *, increase: bool) -> Iterator[Wait]:
    """Have the warps of `agent` `count` registers a thread; wait until there are as many.

    PTX ISA, ``setmaxnreg``: to increase to fewer than there are, or to decrease to more, is
    undefined.
    """
    require_warp_groups(m, agent)
    held = _held(m)
    slots, warps = _warps_of(agent)
    now = held[slots, warps]
    way = "inc" if increase else "dec"
    wrong = now > count if increase else now < count
    if wrong.any():
        raise ProtocolError(
            f"{m.where(agent)}: setmaxnreg.{way} to {count} registers by threads that have "
            f"{int(now[wrong][0])}"
        )
    pool = registers_at_entry(m.threads) * held.shape[1]

    def free() -> NDArray[np.int64]:
        """Return the registers that nobody has, by block of the agent, a thread of a warp each."""
        return np.asarray(pool - held[np.unique(slots)].sum(axis=1), np.int64)

    taken = np.bincount(slots, count - now, minlength=m.blocks)[np.unique(slots)]

    def fits() -> bool:
        return bool((taken <= free()).all())

    while not fits():
        need, have = int(taken.max()) * WARP, int(free().min()) * WARP
        yield Wait(fits, f"setmaxnreg.inc to {count} for {need} registers, {have} are free")
    held[slots, warps] = count


def _held(m: Machine) -> NDArray[np.int64]:
    """Return the registers per thread of each warp, of shape (blocks, warps)."""
    shape = m.blocks, -(-m.threads // WARP)
    begin = np.full(shape, registers_at_entry(m.threads), np.int64)
    held: NDArray[np.int64] = m.board.setdefault("registers", begin)
    return held


def _warps_of(agent: Agent) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return block and number of each warp that is active."""
    active = agent.active()
    pairs = np.unique(np.stack((agent.slot[active], agent.tid[active] // WARP)), axis=1)
    return pairs[0], pairs[1]


def require_warp_groups(m: Machine, agent: Agent) -> None:
    """Raise unless all warps of each warp group, as far as `agent` holds them, are active."""
    size = min(GROUP, agent.lanes)
    active = agent.active()
    for start in range(0, agent.lanes, size):
        group = active[start : start + size]
        if group.any() and not group.all():
            raise ProtocolError(
                f"{m.where(agent)}: only some threads of a warp group execute it; "
                f"{m.thread(agent, start + int(np.argmin(group)))} does not"
            )
