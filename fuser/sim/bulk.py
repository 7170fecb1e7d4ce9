"""Rules of bulk and tensor copies: checked when issued, effective when they land."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fuser.core.errors import ProtocolError
from fuser.sim import mbarrier
from fuser.sim.agent import Agent, Wait
from fuser.sim.cluster import Reach, masked, own
from fuser.sim.copies import Flight, Groups, TensorMap, move
from fuser.sim.machine import Machine
from fuser.sim.memory import Memory
from fuser.sim.phases import Ints

Place: TypeAlias = tuple[str, Any]
"""Name of a memory or barrier array, and index (one per lane, or uniform)."""

UNIT = 16
TENSOR_ALIGN = 128


def load(m: Machine, agent: Agent, dst: Place, src: Place, nbytes: Any, barrier: Place) -> None:
    """Issue copies of contiguous bytes to shared memory, one per active lane."""
    sizes = agent.spread(nbytes)[agent.active()]
    for size in map(int, np.unique(sizes)):
        with _lanes(agent, nbytes, size):
            target = _contiguous(m, agent, dst, size)
            source = _contiguous(m, agent, src, size)
            there, here = m.memories[dst[0]], m.memories[src[0]]
            _load(m, agent, there, target, here, source, size, barrier, own(agent))


def tensor_load(
    m: Machine,
    agent: Agent,
    dst: Place,
    name: str,
    coords: tuple[Any, ...],
    barrier: Place,
    mask: Any = None,
) -> None:
    """Issue copies of boxes of a tensor map to shared memory, one per active lane.

    Parameters
    ----------
    mask
        Ranks of the blocks of the cluster that get the box; None: the lane's own block.
    """
    tensor_map = m.maps[name]
    tensor = m.memories[tensor_map.tensor]
    reach = own(agent) if mask is None else masked(m, agent, mask)
    target = _box(m, agent, dst, tensor_map, reach)
    source, exists = _elements(m, agent, tensor_map, tensor, coords)
    source, exists = source[reach.rows], None if exists is None else exists[reach.rows]
    nbytes = tensor_map.numel * tensor.dtype.nbytes
    _load(m, agent, m.memories[dst[0]], target, tensor, source, nbytes, barrier, reach, exists)


def _load(
    m: Machine,
    agent: Agent,
    dst: Memory,
    target: Ints,
    src: Memory,
    source: Ints,
    nbytes: int,
    barrier: Place,
    reach: Reach,
    exists: NDArray[np.bool_] | None = None,
) -> None:
    """Issue copies: a row of `target` and `source` for each block that `reach` acts on."""
    barriers, cells = mbarrier.claim(m, agent, *barrier, reach, by_copy=True)
    if m.order is not None and m.monitor is not None:
        for row, cell in enumerate(map(int, cells.each)):
            if not m.order.cells[barriers.name, cell].fenced:
                raise ProtocolError(
                    f"{m.where(agent)}: the copy engine need not see {barriers.label(cell)}; "
                    f"MbarrierInitFence after its init is missing"
                )
            key, time = (barriers.name, cell), int(barriers.phase[cell]) + 1
            there = source[row] if exists is None else source[row][exists[row]]
            m.monitor.copy(agent, src, there, "read", key, time)
            m.monitor.copy(agent, dst, target[row], "write", key, time)
    barriers.flying[cells.unique] += cells.counts
    stmt = agent.at

    def land() -> None:
        _move(src, source, dst, target, exists)
        here, agent.at = agent.at, stmt
        mbarrier.complete_bytes(m, agent, barriers, cells, nbytes)
        agent.at = here

    m.launch(Flight(f"{m.where(agent)} of {agent.name}", land))


def _move(
    src: Memory, source: Ints, dst: Memory, target: Ints, exists: NDArray[np.bool_] | None
) -> None:
    if exists is None:
        move(src.data, source, dst.data, target)
        return
    dst.data.view(f"u{dst.data.itemsize}")[target[~exists]] = 0
    move(src.data, source[exists], dst.data, target[exists])


def store(m: Machine, agent: Agent, dst: Place, src: Place, nbytes: Any) -> None:
    """Issue copies of contiguous bytes from shared memory, one per active lane."""
    sizes = agent.spread(nbytes)[agent.active()]
    for size in map(int, np.unique(sizes)):
        with _lanes(agent, nbytes, size):
            source = _contiguous(m, agent, src, size)
            target = _contiguous(m, agent, dst, size)
            _store(m, agent, m.memories[src[0]], source, m.memories[dst[0]], target, None)


def tensor_store(m: Machine, agent: Agent, name: str, coords: tuple[Any, ...], src: Place) -> None:
    """Issue copies of boxes from shared memory through a tensor map, one per active lane."""
    tensor_map = m.maps[name]
    tensor = m.memories[tensor_map.tensor]
    source = _box(m, agent, src, tensor_map, own(agent))
    target, exists = _elements(m, agent, tensor_map, tensor, coords)
    row = tensor_map.dims[0] * tensor.dtype.nbytes
    if row % UNIT and exists is not None:
        raise ProtocolError(
            f"{m.where(agent)}: a box overhangs rows of {row} bytes of {tensor.name}; the engine "
            f"writes {UNIT} bytes at a time, so needed a multiple of {UNIT}"
        )
    _store(m, agent, m.memories[src[0]], source, tensor, target, exists)


def _store(
    m: Machine,
    agent: Agent,
    src: Memory,
    source: Ints,
    dst: Memory,
    target: Ints,
    exists: NDArray[np.bool_] | None,
) -> None:
    if not dst.writable:
        raise ProtocolError(f"{m.where(agent)}: writes {dst.name}, an input of the kernel")
    groups = m.groups(agent, "bulk")
    if m.monitor is not None:
        _require_disjoint(m, agent, dst, target, exists)
        key, time = ("bulk", agent.name), len(groups.closed) + 1
        for lane in range(len(source)):
            inside = target[lane] if exists is None else target[lane][exists[lane]]
            # What lies outside of the tensor is dropped, whatever the tile holds there.
            held = source[lane] if exists is None else source[lane][exists[lane]]
            m.monitor.copy(agent, src, held, "read", key, time)
            m.monitor.copy(agent, dst, inside, "write", key, time)

    def land() -> None:
        if exists is None:
            move(src.data, source, dst.data, target)
        else:
            move(src.data, source[exists], dst.data, target[exists])

    flight = Flight(f"{m.where(agent)} of {agent.name}", land)
    groups.add(flight, agent.active())
    m.launch(flight)


def _require_disjoint(
    m: Machine, agent: Agent, dst: Memory, target: Ints, exists: NDArray[np.bool_] | None
) -> None:
    """Lanes of one warp that store at once must not store the same elements."""
    where = target.reshape(-1) if exists is None else target[exists]
    seen, count = np.unique(where, return_counts=True)
    if (count > 1).any():
        lanes = np.flatnonzero(agent.active())
        raise ProtocolError(
            f"{m.where(agent)}: {dst.name}[{int(seen[np.argmax(count > 1)])}] is stored by "
            f"{int(count.max())} of {lanes.size} threads at once; one thread issues a store"
        )


def commit(m: Machine, agent: Agent) -> None:
    """Close the open group of bulk stores."""
    groups = m.groups(agent, "bulk")
    _require_issuers(m, agent, groups)
    groups.commit()


def wait(m: Machine, agent: Agent, pending: int, *, read_only: bool) -> Iterator[Wait]:
    """Wait for all but `pending` groups; here, to have read is to be complete."""
    groups = m.groups(agent, "bulk")
    _require_issuers(m, agent, groups)
    complete = groups.complete(pending)
    flights = [f for f in groups.flights(complete) if not f.landed]
    if flights:
        what = "read" if read_only else "complete"
        why = f"{m.where(agent)}: bulk stores that are not {what}"
        yield Wait(lambda: all(f.landed for f in flights), why)
    if m.order is not None:
        m.order.landed(agent, ("bulk", agent.name), complete)


def _require_issuers(m: Machine, agent: Agent, groups: Groups) -> None:
    """Groups belong to threads: another thread's commit or wait does nothing for them."""
    absent = groups.lanes & ~agent.active()
    if absent.any():
        lane = int(np.argmax(absent))
        raise ProtocolError(
            f"{m.where(agent)}: copies were issued by {m.thread(agent, lane)}, which does not "
            f"execute it; groups belong to the thread that issued them"
        )


@contextmanager
def _lanes(agent: Agent, value: Any, size: int) -> Generator[None]:
    """Narrow an agent to the lanes whose `value` is `size`, for a while."""
    outer = agent.mask
    agent.mask = agent.narrow(outer, agent.spread(value) == size)
    yield
    agent.mask = outer


def _first(m: Machine, agent: Agent, memory: Memory, place: Any, align: int) -> Ints:
    """Return the first element per active lane inside its block, checked for alignment."""
    index: Ints = np.asarray(agent.spread(place)[agent.active()], np.int64)
    at = index * memory.dtype.nbytes
    if memory.aligned_bytes < align or (at % align).any():
        raise ProtocolError(
            f"{m.where(agent)}: {memory.name}[{int(index[np.argmax(at % align)])}] of a memory "
            f"aligned to {memory.aligned_bytes} bytes; needed an address that is a multiple of "
            f"{align}"
        )
    return index


def _in_block(memory: Memory, where: Ints, reach: Reach) -> Ints:
    if memory.space == "global":
        return where
    return where[reach.rows] + reach.slots[:, None] * memory.numel


def _bounds(m: Machine, agent: Agent, memory: Memory, first: Any, last: Any) -> None:
    if first.size and (int(first.min()) < 0 or int(last.max()) >= memory.numel):
        raise ProtocolError(
            f"{m.where(agent)}: {memory.name}[{int(first.min())}:{int(last.max()) + 1}] is outside "
            f"its {memory.numel} elements"
        )


def _contiguous(m: Machine, agent: Agent, place: Place, nbytes: int) -> Ints:
    """Return the elements of `nbytes` bytes from each lane's place, shape (lanes, elements)."""
    memory = m.memories[place[0]]
    item = memory.dtype.nbytes
    if nbytes <= 0 or nbytes % UNIT:
        raise ProtocolError(
            f"{m.where(agent)}: {nbytes} bytes; needed a positive multiple of {UNIT}"
        )
    first = _first(m, agent, memory, place[1], UNIT)
    _bounds(m, agent, memory, first, first + nbytes // item - 1)
    return _in_block(memory, first[:, None] + np.arange(nbytes // item), own(agent))


def _box(m: Machine, agent: Agent, place: Place, tensor_map: TensorMap, reach: Reach) -> Ints:
    """Return the shared elements of boxes, in the order of the tensor's."""
    if reach is not own(agent):
        return _box_of(m, agent, place, tensor_map, reach)
    what = "box", place[0], tensor_map.extents, tensor_map.swizzle_bits
    box: Ints = agent.remember(
        what, lambda: _box_of(m, agent, place, tensor_map, reach), place[1], agent.mask
    )
    return box


def _box_of(m: Machine, agent: Agent, place: Place, tensor_map: TensorMap, reach: Reach) -> Ints:
    memory = m.memories[place[0]]
    first = _first(m, agent, memory, place[1], TENSOR_ALIGN)
    pattern = TENSOR_ALIGN << tensor_map.swizzle_bits
    if tensor_map.swizzle_bits and memory.aligned_bytes < pattern:
        raise ProtocolError(
            f"{m.where(agent)}: {memory.name} is aligned to {memory.aligned_bytes} bytes; its "
            f"swizzle needs {pattern}"
        )
    where = tensor_map.target(first, memory.dtype.nbytes)
    _bounds(m, agent, memory, where, where)
    return _in_block(memory, where, reach)


def _elements(
    m: Machine, agent: Agent, tensor_map: TensorMap, tensor: Memory, coords: tuple[Any, ...]
) -> tuple[Ints, NDArray[np.bool_] | None]:
    """Return the tensor's elements of boxes, and which of them exist; None: all of them."""
    spread = [np.asarray(agent.spread(c)[agent.active()], np.int64) for c in coords]
    odd = spread[0][spread[0] * tensor.dtype.nbytes % 16 != 0]
    if odd.size:
        raise ProtocolError(
            f"{m.where(agent)}: coordinate {int(odd[0])} along dimension 0 of {tensor.name} is no "
            "multiple of 16 bytes; the hardware stops at an illegal instruction"
        )
    where, exists = tensor_map.source(spread)
    inside = where if exists is None else where[exists]
    _bounds(m, agent, tensor, inside, inside)
    return where, exists
