"""Reductions across threads, on the modelled machine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeAlias

import numpy as np

from fuser.core.errors import ProtocolError
from fuser.core.thread_box import ThreadBox
from fuser.sim.agent import Agent, Array, Wait, any_lane, merge, uniform
from fuser.sim.machine import Machine
from fuser.sim.memory import poison
from fuser.sim.roles import named_barrier

Combine: TypeAlias = Callable[[Any, Any], Any]


def warp_allreduce(m: Machine, agent: Agent, name: str, combine: Combine, width: int) -> None:
    """Butterfly over groups of `width` consecutive lanes."""
    if m.threads % width:
        raise ProtocolError(
            f"{m.where(agent)}: a block of {m.threads} threads; needs a multiple of {width}"
        )
    arrived = agent.active().reshape(-1, width)
    split = arrived.any(axis=1) & ~arrived.all(axis=1)
    if split.any():
        lane = int(np.argmax(split)) * width
        raise ProtocolError(
            f"{m.where(agent)}: only some lanes of a group of {width} arrive, in the group of "
            f"{m.thread(agent, lane)}"
        )
    old = agent.spread(agent.values[name])
    value, lanes = old.reshape(-1, width), np.arange(width)
    step = width // 2
    while step:
        value = np.asarray(combine(value, value[:, lanes ^ step]), old.dtype)
        step //= 2
    agent.values[name] = merge(agent.mask, value.reshape(-1), old)
    if m.order is not None:
        m.order.converge(agent)


def block_allreduce(
    m: Machine,
    agent: Agent,
    name: str,
    combine: Combine,
    axes: tuple[bool, bool, bool],
    scratch: str,
    box: ThreadBox | None = None,
    scratch_at: int = 0,
) -> Generator[Wait, None, None]:
    """Combine over the threads of a block or `box` that differ only in the (x, y, z) `axes`."""
    mine = box or ThreadBox((0, 0, 0), m.block, 0)
    if box is not None:
        _require_inside(m, agent, box)
    old = agent.spread(agent.values[name])
    key = ("block_allreduce", name, scratch)
    board = m.board.get(key)
    if board is None or board.dtype != old.dtype:
        board = m.board[key] = poison((m.blocks, m.threads), old.dtype)
    arrived = agent.active()
    board[agent.slot[arrived], agent.tid[arrived]] = old[arrived]
    if m.monitor is not None:
        _touch_scratch(m, agent, scratch, scratch_at, mine, "write")
    yield from _meet(m, agent, box, "the exchange of a block reduction")
    if m.monitor is not None:
        _touch_scratch(m, agent, scratch, scratch_at, mine, "read")
    x, y, z = m.block
    result = board.copy()
    own = result.reshape(m.blocks, z, y, x)[_slices(mine)]
    total = own
    for axis, reduced in zip((3, 2, 1), axes, strict=True):
        if reduced:
            total = _tree(total, axis, combine)
    own[...] = total
    agent.values[name] = merge(agent.mask, result[agent.slot, agent.tid], old)
    yield from _meet(m, agent, box, "the end of a block reduction")


def _meet(m: Machine, agent: Agent, box: ThreadBox | None, what: str) -> Iterator[Wait]:
    """Meet the other threads that reduce."""
    if box is None:
        return m.barrier(agent, what)
    return named_barrier(m, agent, box.barrier, box.threads, what)


def _slices(box: ThreadBox) -> tuple[slice, ...]:
    """Return the part of an array of axes (block, z, y, x) that belongs to a box."""
    spans = zip(reversed(box.first), reversed(box.extents), strict=True)
    return slice(None), *(slice(first, first + extent) for first, extent in spans)


def _require_inside(m: Machine, agent: Agent, box: ThreadBox) -> None:
    """Raise unless every active thread belongs to the box."""
    x, y, _ = m.block
    at = agent.tid % x, agent.tid // x % y, agent.tid // (x * y)
    outside = np.zeros(agent.lanes, np.bool_)
    for where, first, extent in zip(at, box.first, box.extents, strict=True):
        outside |= (where < first) | (where >= first + extent)
    outside &= agent.active()
    if outside.any():
        raise ProtocolError(
            f"{m.where(agent)}: {box.threads} threads from {box.first} on reduce, and "
            f"{m.thread(agent, int(np.argmax(outside)))} is none of them"
        )


def _touch_scratch(
    m: Machine, agent: Agent, scratch: str, at: int, box: ThreadBox, kind: Any
) -> None:
    """Let the monitor see the exchange: the warp's slot is written, all slots are read."""
    memory, warps = m.memories[scratch], -(-box.threads // 32)
    x, y, _ = m.block
    start = box.first[0] + x * (box.first[1] + y * box.first[2])
    first = int(agent.slot[0]) * memory.numel
    slots = np.arange(warps) if kind == "read" else (agent.tid[:1] - start) // 32
    # All by the first lane: the last warp may have fewer lanes than there are slots.
    where = first + np.minimum(at + slots, memory.numel - 1)[None, :]
    assert m.monitor is not None
    m.monitor.access(agent, memory, where, kind)


def _tree(value: Array, axis: int, combine: Combine) -> Array:
    """Fold the upper half onto the lower until one is left; keeps `axis` with extent 1."""
    while (extent := value.shape[axis]) > 1:
        half = (extent + 1) // 2
        lower, upper = np.split(value, [half], axis)
        paired, rest = np.split(lower, [extent - half], axis)
        folded = np.asarray(combine(paired, upper), value.dtype)
        value = np.concatenate((folded, rest), axis)
    return value


def grid_allreduce(
    m: Machine,
    agent: Agent,
    name: str,
    combine: Combine,
    partials: str,
    counter: str,
    where: tuple[Any, Any, Any, Any, Any, Any],
    one_partial: bool = False,
) -> Generator[Wait, None, Any]:
    """Publish a partial result, take a ticket; blocks with the last ticket combine all ranks.

    With `one_partial` the threads of a block hold one value, and thread 0 publishes it. Returns
    the flag "this block was last", one per lane.
    """
    rank, ranks, segment, slot, slots, when = where
    ranks = uniform(ranks, agent.mask)
    outer = agent.mask
    agent.mask = agent.narrow(outer, when)
    if one_partial:
        agent.mask = agent.narrow(agent.mask, agent.tid == 0)
    if any_lane(agent.mask):
        m.store(agent, partials, (segment * ranks + rank) * slots + slot, agent.values[name])
    agent.mask = outer
    yield from m.barrier(agent, "the partials of a grid reduction")
    flags = m.board.setdefault(("grid_allreduce", name), np.zeros(m.blocks, np.bool_))
    leaders = np.flatnonzero(agent.active() & (agent.tid == 0))
    for lane in leaders:
        place = int(agent.spread(segment)[lane])
        flags[agent.slot[lane]] = _ticket(m, agent, counter, place, ranks)
    yield from m.barrier(agent, "the ticket of a grid reduction")
    is_last = flags[agent.slot].copy()
    agent.mask = agent.narrow(agent.narrow(outer, is_last), when)
    if any_lane(agent.mask):
        total = None
        for r in range(ranks):
            part = m.load(agent, partials, (segment * ranks + r) * slots + slot, agent.mask)
            total = part if total is None else np.asarray(combine(total, part), part.dtype)
        agent.values[name] = merge(agent.mask, total, agent.values[name])
    agent.mask = outer
    return is_last


def _ticket(m: Machine, agent: Agent, counter: str, place: int, ranks: int) -> bool:
    """Count up, wrapping at `ranks`; return whether this was the last ticket."""
    memory = m.memories[counter]
    if not 0 <= place < memory.numel:
        raise ProtocolError(
            f"{m.where(agent)}: {counter}[{place}] is outside its {memory.numel} elements"
        )
    drawn = int(memory.data[place])
    if not 0 <= drawn < ranks:
        raise ProtocolError(f"{m.where(agent)}: {counter}[{place}] is {drawn}; it must start at 0")
    memory.data[place] = 0 if drawn == ranks - 1 else drawn + 1
    if m.monitor is not None:
        m.monitor.atomic(agent, (counter, place))
    return drawn == ranks - 1
