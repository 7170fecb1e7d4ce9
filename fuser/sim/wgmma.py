"""Rules of wgmma: products that read shared memory until their group is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fuser.sim.agent import Agent, Wait
from fuser.sim.machine import Machine


def issue(m: Machine, agent: Agent, d: tuple[str, Any], a: Any, b: Any, n: int) -> None:
    """Issue a product."""
    raise NotImplementedError


def fence(m: Machine, agent: Agent, accumulator: str) -> None:
    """Show written accumulators to products."""
    raise NotImplementedError


def commit(m: Machine, agent: Agent) -> None:
    """Close the open group."""
    raise NotImplementedError


def wait(m: Machine, agent: Agent, pending: int) -> Iterator[Wait]:
    """Wait for all but `pending` groups."""
    raise NotImplementedError
