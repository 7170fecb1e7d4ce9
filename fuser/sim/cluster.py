"""Clusters on the modelled machine: blocks that reach each other's shared memory.

The blocks of a cluster have neighbouring slots, in the order of their ranks, so rank r of the
cluster of slot s is slot ``s - s % size + r``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.core.errors import ProtocolError
from fuser.sim.agent import Agent
from fuser.sim.machine import Machine
from fuser.sim.phases import Ints


@dataclass(frozen=True, slots=True)
class Reach:
    """Which blocks the active lanes act on.

    Attributes
    ----------
    rows
        Numbers of the acting lanes among the active ones; one that reaches several blocks is
        there several times.
    slots
        The block that each of them acts on.
    """

    rows: Ints
    slots: Ints


def own(agent: Agent) -> Reach:
    """Return the reach of lanes that act on their own blocks."""

    def make() -> Reach:
        slots = agent.slot[agent.active()]
        return Reach(np.arange(slots.size), slots)

    reach: Reach = agent.remember("own", make, agent.mask)
    return reach


def peer(m: Machine, agent: Agent, rank: Any) -> Reach:
    """Return the reach of lanes that act on the block of their cluster with a rank, one a lane."""
    slots = agent.slot[agent.active()]
    ranks = np.asarray(agent.spread(rank)[agent.active()], np.int64)
    if ((ranks < 0) | (ranks >= m.cluster_size)).any():
        raise ProtocolError(
            f"{m.where(agent)}: rank {int(ranks.max())} of a cluster of {m.cluster_size} blocks"
        )
    return Reach(np.arange(slots.size), slots - slots % m.cluster_size + ranks)


def masked(m: Machine, agent: Agent, mask: Any) -> Reach:
    """Return the reach of lanes that act on every block of their cluster in a mask of ranks."""
    slots = agent.slot[agent.active()]
    masks = np.asarray(agent.spread(mask)[agent.active()], np.int64)
    if ((masks <= 0) | (masks >> m.cluster_size != 0)).any():
        raise ProtocolError(
            f"{m.where(agent)}: multicast to mask {int(masks.max()):#x} in a cluster of "
            f"{m.cluster_size} blocks; needed some of their bits and no others"
        )
    chosen = masks[:, None] >> np.arange(m.cluster_size) & 1 == 1
    rows, ranks = np.nonzero(chosen)
    return Reach(rows, slots[rows] - slots[rows] % m.cluster_size + ranks)
