"""Rules of wgmma: products that read shared memory until their group is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fuser.core.dtypes import DataType
from fuser.core.errors import ProtocolError
from fuser.sim.accumulators import Accumulators, Ints
from fuser.sim.agent import Agent, Registers, Wait
from fuser.sim.copies import Flight
from fuser.sim.machine import GROUP, WARP, Machine, describe
from fuser.sim.memory import Memory

KIND = "wgmma"
WARPS = GROUP // WARP
"""Warps of a warp group."""
ROWS, DEPTH, ITEM = 64, 16, 2
"""Rows of A and depth of one product, and bytes of an operand's element."""

Floats: TypeAlias = NDArray[np.float32]


class Layout(Protocol):
    """Where a tile's elements are; `fuser.kir.matrix.MatrixLayout`."""

    @property
    def swizzle(self) -> str: ...  # noqa: D102
    @property
    def align_bytes(self) -> int: ...  # noqa: D102
    def misplaced(self, start: int, rows: int) -> str: ...  # noqa: D102
    def offset(self, row: Any, k: Any) -> Any: ...  # noqa: D102
    def permuted(self, address: Any) -> Any: ...  # noqa: D102
    def __hash__(self) -> int: ...


Operand: TypeAlias = tuple[str, Any, Layout]
"""Name of a shared array, element where the tile begins (per lane, or uniform), and layout."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A product of one warp: its statement, and the elements where its tiles begin."""

    stmt: object
    tiles: tuple[int, int]
    agent: str


@dataclass(slots=True, eq=False)
class Progress:
    """How far every warp of the machine has come with its products.

    Attributes
    ----------
    closed
        Groups that have been committed.
    issued, complete
        Group of the latest product, and up to which one is known to be complete.
    products
        How many have been issued.
    by_group
        In checked mode, the products of each warp group and who issued them first.
    latest
        A statement that has issued.
    """

    closed: Ints
    issued: Ints
    complete: Ints
    products: Ints
    by_group: dict[int, list[Issued]]
    latest: object = None

    @classmethod
    def of(cls, m: Machine) -> Progress:
        """Return the machine's, which begins with the first product."""
        if KIND not in m.board:
            zeros = np.zeros((4, m.blocks * m.warps_per_block), np.int64)
            m.board[KIND] = cls(zeros[0], zeros[1], zeros[2], zeros[3], {})
        progress: Progress = m.board[KIND]
        return progress


@dataclass(frozen=True, slots=True)
class Team:
    """Whole warps that execute a statement.

    Attributes
    ----------
    lanes
        Shape (warps, 32).
    warps
        Their numbers.
    """

    lanes: Ints
    warps: Ints

    @classmethod
    def of(cls, m: Machine, agent: Agent) -> Team:
        """Return the active warps.

        Raises
        ------
        ProtocolError
            Not all threads of a warp are active.
        """
        lanes = np.flatnonzero(agent.active())
        warps = m.warps(agent)[lanes]
        count = np.bincount(warps)
        split = np.flatnonzero(count % WARP)
        if split.size:
            first = int(lanes[np.argmax(warps == split[0])])
            raise ProtocolError(
                f"{m.where(agent)}: divergent code; {int(count[split[0]])} of {WARP} threads of a "
                f"warp execute it, {m.thread(agent, first)} among them; needed all"
            )
        return cls(lanes.reshape(-1, WARP), warps[::WARP])


# products ------------------------------------------------------------------------------------


def issue(m: Machine, agent: Agent, d: tuple[str, Any], a: Operand, b: Operand, n: int) -> None:
    """Issue ``D += A B`` of every active warp group; of a lone warp, its 16 rows of it."""
    team = Team.of(m, agent)
    if not team.warps.size:
        return
    first = _first(m, agent, d)
    registers, state = _accumulators(m, agent, d[0])
    _require_accumulators(m, agent, team, d[0], registers, state, first, n)
    size = 1 if m.interleaved else WARPS
    if not m.interleaved:
        _require_groups(m, agent, team)
    groups = team.lanes.reshape(-1, size * WARP)
    here, where_a = _tile(m, agent, a, ROWS, groups)
    there, where_b = _tile(m, agent, b, n, groups)
    progress = Progress.of(m)
    if m.interleaved:
        tiles = int(where_a[0, 0, 0]) % here.numel, int(where_b[0, 0, 0]) % there.numel
        _require_agreement(m, agent, team, progress, tiles)
        row = 16 * int(team.warps[0] % WARPS)
        where_a = where_a[:, row : row + 16]
    time = progress.closed[team.warps] + 1
    progress.issued[team.warps], progress.latest = time, agent.at
    progress.products[team.warps] += 1
    columns = slice(first, first + n // 2)
    state.issue(team.warps, columns, time, _shape(first, n))
    if m.monitor is not None:
        for memory, where in ((here, where_a), (there, where_b)):
            actor = (KIND, agent.name)
            m.monitor.copy(agent, memory, where.reshape(-1), "read", actor, int(time[0]))

    def land() -> None:
        product = _floats(here, where_a) @ _floats(there, where_b).swapaxes(1, 2)
        _accumulate(registers, groups, columns, product)

    _launch(m, agent, land)


def _launch(m: Machine, agent: Agent, land: Any) -> None:
    """Let a product land after the earlier ones of its warp."""
    groups = m.groups(agent, KIND)
    none = list[Flight]()
    earlier = next((g for g in (groups.open, *reversed(groups.closed)) if g), none)
    flight = Flight(f"{m.where(agent)} of {agent.name}", land, tuple(earlier[-1:]))
    groups.add(flight, agent.active())
    m.launch(flight)


def _shape(first: int, n: int) -> int:
    return first << 16 | n


def _floats(memory: Memory, where: Ints) -> Floats:
    """Return elements of 16 bits as float32, which holds them exactly."""
    bits: NDArray[np.uint16] = memory.data.view(np.uint16).take(where)
    if memory.dtype is DataType.BFloat16:
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.view(np.float16).astype(np.float32)


def _accumulate(registers: Registers, groups: Ints, columns: slice, product: Floats) -> None:
    """Add tiles, shape (groups, rows, n), to the registers of the lanes that hold them.

    Of a row, 16s are the warp, 8s a half and 1s one of eight lanes; of a column, 8s are a piece,
    2s one of four lanes and 1s one of a pair. A register is a piece, a half, and one of a pair.
    """
    lanes, n = groups.reshape(-1), product.shape[2]
    pairs = product.view(np.uint64).reshape(-1, 2, 8, n // 8, 4)  # warp, half, lane, piece, lane
    warps = len(pairs)
    moved = np.empty((warps, 8, 4, n // 8, 2), np.uint64)  # warp, lane, lane, piece, half
    for half, lane in np.ndindex(2, 4):  # one at a time: NumPy's inner loop runs along the pieces
        moved[:, :, lane, :, half] = pairs[:, half, :, :, lane]
    tiles = moved.view(np.float32).reshape(lanes.size, n // 2)
    if lanes.size == len(registers.data):
        registers.data[:, columns] += tiles
    else:
        registers.data[lanes, columns] += tiles


# operands ------------------------------------------------------------------------------------


def _tile(
    m: Machine, agent: Agent, operand: Operand, rows: int, groups: Ints
) -> tuple[Memory, Ints]:
    """Return a memory, and the elements of each group's tile in it, shape (groups, rows, 16)."""
    name, index, layout = operand
    memory = m.memories[name]
    starts = [index] if isinstance(index, int) else _starts(m, agent, name, index, groups)
    for start in set(starts):
        _require_address(m, agent, memory, start, layout, rows)
    where = np.stack([_elements(layout, rows, start) for start in starts])
    slots = agent.slot[groups[:, 0]]
    return memory, where + (slots * memory.numel)[:, None, None]


def _starts(m: Machine, agent: Agent, name: str, index: Any, groups: Ints) -> list[int]:
    """Return where the tile of each group begins, one number if that is the same everywhere."""
    indices = agent.spread(index)[groups]
    starts = indices[:, 0]
    differs = (indices != starts[:, None]).any(axis=1)
    if differs.any():
        odd = np.unique(indices[np.argmax(differs)])
        raise ProtocolError(
            f"{m.where(agent)}: the tile of one warp or warp group begins at {name}{odd.tolist()}; "
            f"needed the same element in all its threads"
        )
    return [int(start) for start in (starts[:1] if (starts == starts[0]).all() else starts)]


@lru_cache(maxsize=512)
def _elements(layout: Layout, rows: int, start: int) -> Ints:
    """Return which elements of its array a tile consists of, shape (rows, 16)."""
    offsets = layout.offset(np.arange(rows)[:, None], np.arange(DEPTH))
    where: Ints = layout.permuted(start * ITEM + offsets) // ITEM
    where.flags.writeable = False
    return where


@lru_cache(maxsize=512)
def _bounds(layout: Layout, rows: int, start: int) -> tuple[int, int]:
    """Return the first and the last element of a tile in its array."""
    where = _elements(layout, rows, start)
    return int(where.min()), int(where.max())


def _require_address(
    m: Machine, agent: Agent, memory: Memory, start: int, layout: Layout, rows: int
) -> None:
    """A tile begins where its layout allows it, and is inside its array."""
    if memory.aligned_bytes < layout.align_bytes:
        raise ProtocolError(
            f"{m.where(agent)}: {memory.name} is aligned to {memory.aligned_bytes} bytes; swizzle "
            f"{layout.swizzle} needs {layout.align_bytes}"
        )
    problem = layout.misplaced(start * ITEM, rows)
    if problem:
        raise ProtocolError(f"{m.where(agent)}: a tile begins at {memory.name}[{start}], {problem}")
    low, high = _bounds(layout, rows, start)
    if low < 0 or high >= memory.numel:
        raise ProtocolError(
            f"{m.where(agent)}: {memory.name}[{low}:{high + 1}] is outside its {memory.numel} "
            f"elements"
        )


# who, and which registers --------------------------------------------------------------------


def _first(m: Machine, agent: Agent, d: tuple[str, Any]) -> int:
    if isinstance(d[1], int):
        return d[1]
    values = np.unique(agent.spread(d[1])[agent.active()])
    if values.size > 1:
        raise ProtocolError(
            f"{m.where(agent)}: the accumulators begin at {d[0]}{values.tolist()}; needed the same "
            f"register in all threads"
        )
    return int(values[0])


def _accumulators(m: Machine, agent: Agent, name: str) -> tuple[Registers, Accumulators]:
    """Return registers, from now on watched."""
    registers = agent.registers[name]
    if registers.accumulators is None:
        registers.accumulators = Accumulators.of(
            m.blocks * m.warps_per_block, registers.data.shape[1]
        )
    return registers, registers.accumulators


def _require_accumulators(
    m: Machine,
    agent: Agent,
    team: Team,
    name: str,
    registers: Registers,
    state: Accumulators,
    first: int,
    n: int,
) -> None:
    """The accumulators exist, are written and shown, and no other kind of product changes them."""
    end, size = first + n // 2, registers.data.shape[1]
    if first < 0 or end > size:
        raise ProtocolError(
            f"{m.where(agent)}: {name}[{first}:{end}] is outside its {size} elements"
        )
    if registers.written is not None:
        unwritten = ~registers.written[team.lanes.reshape(-1), first:end]
        if unwritten.any():
            lane, column = np.argwhere(unwritten)[0]
            raise ProtocolError(
                f"{m.where(agent)}: adds to {name}[{first + int(column)}] before it is written, in "
                f"{m.thread(agent, int(team.lanes.reshape(-1)[lane]))}"
            )
    hidden = state.hidden(team.warps, slice(first, end))
    if hidden.any():
        raise ProtocolError(
            f"{m.where(agent)}: need not see what is in {name}[{first + _column(hidden)}]; a "
            f"WgmmaFence of {name} before the first product, and after what writes the register, "
            f"is missing"
        )
    other = state.otherwise(team.warps, slice(first, end), _shape(first, n))
    if other.any():
        raise ProtocolError(
            f"{m.where(agent)}: adds to {name}[{first + _column(other)}] while a product of "
            f"another shape that changes it is in flight; needed a WgmmaWait for that product"
        )


def _column(found: NDArray[np.bool_]) -> int:
    return int(np.argmax(found.any(axis=0)))


def _require_groups(m: Machine, agent: Agent, team: Team) -> None:
    """Products are those of whole warp groups."""
    count = np.bincount(team.warps // WARPS)
    split = np.flatnonzero(count % WARPS)
    if split.size:
        first = int(team.lanes[np.argmax(team.warps // WARPS == split[0]), 0])
        raise ProtocolError(
            f"{m.where(agent)}: {int(count[split[0]])} of {WARPS} warps of a warp group execute "
            f"it, that of {m.thread(agent, first)} among them; needed all"
        )


def _require_agreement(
    m: Machine, agent: Agent, team: Team, progress: Progress, tiles: tuple[int, int]
) -> None:
    """The warps of a group issue the same products, on the same tiles."""
    warp = int(team.warps[0])
    group = warp // WARPS
    if (warp % m.warps_per_block // WARPS + 1) * GROUP > m.threads:
        raise ProtocolError(
            f"{m.where(agent)}: {agent.name} is of a warp group with {m.threads % GROUP} "
            f"threads; needed {GROUP}"
        )
    products = progress.by_group.setdefault(group, [])
    number, mine = int(progress.products[warp]), Issued(agent.at, tiles, agent.name)
    if number == len(products):
        products.append(mine)
    other = products[number]
    if other.stmt is not agent.at or other.tiles != tiles:
        raise ProtocolError(
            f"{m.where(agent)}: product {number} of {agent.name} is of the tiles at {tiles}; that "
            f"of {other.agent}, of the same warp group, is {describe(other.stmt)} of those at "
            f"{other.tiles}; needed the same"
        )


# groups --------------------------------------------------------------------------------------


def fence(m: Machine, agent: Agent, accumulator: str, size: int) -> None:
    """Show the first `size` registers, as they are, to products issued later."""
    team = Team.of(m, agent)
    _, state = _accumulators(m, agent, accumulator)
    state.show(team.warps, size)


def commit(m: Machine, agent: Agent) -> None:
    """Close the open group."""
    team = Team.of(m, agent)
    Progress.of(m).closed[team.warps] += 1
    m.groups(agent, KIND).commit()


def wait(m: Machine, agent: Agent, pending: int, accumulator: str, size: int) -> Iterator[Wait]:
    """Wait for all but `pending` groups; the first `size` registers are to be used after it."""
    team = Team.of(m, agent)
    progress, groups = Progress.of(m), m.groups(agent, KIND)
    complete = np.maximum(progress.closed[team.warps] - pending, 0)
    flights = [f for f in groups.flights(groups.complete(pending)) if not f.landed]
    if flights:
        why = f"{m.where(agent)}: products that are not complete"
        yield Wait(lambda: all(f.landed for f in flights), why)
    progress.complete[team.warps] = np.maximum(progress.complete[team.warps], complete)
    if m.order is not None:
        m.order.landed(agent, (KIND, agent.name), int(complete[0]))
    if accumulator:
        _, state = _accumulators(m, agent, accumulator)
        state.settle(team.warps, size, complete)


def check_exit(m: Machine) -> None:
    """Raise where a block has ended with products in flight, or not all warps issued them."""
    if KIND not in m.board:
        return
    progress = Progress.of(m)
    if (progress.issued > progress.complete).any():
        warp = int(np.argmax(progress.issued > progress.complete))
        raise ProtocolError(
            f"kernel {m.kernel}: warp {warp % m.warps_per_block} of a block ends with "
            f"{describe(progress.latest)} in flight; a WgmmaCommit and a WgmmaWait for it are "
            f"missing"
        )
    by_group = progress.products.reshape(-1, WARPS)
    if (by_group != by_group[:, :1]).any():
        group = by_group[np.argmax((by_group != by_group[:, :1]).any(axis=1))]
        raise ProtocolError(
            f"kernel {m.kernel}: the warps of a warp group have issued {group.tolist()} products; "
            f"needed the same ones of all"
        )
