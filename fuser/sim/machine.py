"""The machine a kernel-IR statement acts on: memories, barriers, and a monitor that may watch.

One statement rule serves both modes. In functional mode the only agent is every thread of a chunk
of blocks in lockstep; in checked mode agents are warps and the monitor judges their accesses.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fuser.core.errors import ProtocolError
from fuser.core.expr import Const, Expr, Var
from fuser.sim.accumulators import Accumulators
from fuser.sim.agent import Agent, Array, Mask, Registers, Wait, any_lane
from fuser.sim.copies import Flight, Groups, TensorMap
from fuser.sim.indexing import Int32OverflowError, evaluate_checked, evaluate_index
from fuser.sim.memo import inputs_of
from fuser.sim.memory import Memory, gather, lane_columns, poison, scatter
from fuser.sim.phases import Knowledge, Mbarriers
from fuser.sim.proxy import Actor as CopyActor
from fuser.sim.proxy import AsyncOrder

__all__ = ["Agent", "Machine", "Monitor", "Wait"]

WARP, GROUP = 32, 128
"""Threads of a warp, and of a warp group."""
AccessKind = Literal["read", "write"]


class Monitor(Protocol):
    """Watches accesses and orders them; raises `ProtocolError` when two of them race."""

    def access(
        self, agent: Agent, memory: Memory, where: Array, kind: AccessKind, value: Any = None
    ) -> None:
        """Record that the active lanes touch flat addresses `where`, shape (active, width)."""

    def barrier(self, agent: Agent, what: str) -> Iterator[Wait]:
        """Arrive at the barrier of the agent's block and wait for the others."""
        ...

    def cluster_barrier(self, agent: Agent, what: str) -> Iterator[Wait]:
        """Arrive at the barrier of the agent's cluster and wait for the others."""
        ...

    def atomic(self, agent: Agent, key: Hashable) -> None:
        """Order `agent` after every earlier atomic on `key`, and later ones after `agent`."""

    def copy(
        self,
        agent: Agent,
        memory: Memory,
        where: Array,
        kind: AccessKind,
        actor: CopyActor,
        time: int,
    ) -> None:
        """Record that `agent` issues a copy that touches `where` between now and its landing."""


@dataclass(slots=True)
class Machine:
    """Memories by name, `blocks` thread blocks of shape `block` (x, y, z).

    Attributes
    ----------
    cluster
        Blocks of a cluster (x, y, z); `blocks` are whole clusters, rank by rank.
    board
        What the threads of a block exchange inside collectives, by (name, block).
    narrow_index
        Check that index arithmetic stays inside 32 bits.
    track_registers
        Report reads of registers that nobody wrote.
    interleaved
        Agents take turns at every statement, and copies land when the scheduler says so; else
        copies land when they are issued.
    barriers, maps
        Mbarrier arrays and tensor maps by name.
    order
        Clocks of asynchronous operations, when somebody watches.
    flights
        Copies and deferred arrivals that have not landed.
    knowledge
        Which phases of the barriers each agent knows to have ended.
    """

    kernel: str
    block: tuple[int, int, int]
    blocks: int
    memories: dict[str, Memory]
    monitor: Monitor | None = None
    narrow_index: bool = False
    track_registers: bool = False
    interleaved: bool = False
    barriers: Mapping[str, Mbarriers] = field(default_factory=dict[str, Mbarriers])
    maps: Mapping[str, TensorMap] = field(default_factory=dict[str, TensorMap])
    order: AsyncOrder | None = None
    flights: list[Flight] = field(default_factory=list[Flight])
    board: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any])
    cluster: tuple[int, int, int] = (1, 1, 1)
    knowledge: Knowledge = field(init=False)

    def __post_init__(self) -> None:
        self.knowledge = Knowledge.of(self.barriers, self.blocks)

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def cluster_size(self) -> int:
        """Blocks of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    @property
    def warps_per_block(self) -> int:
        """Warps of a block, up to whole warp groups."""
        return -(-self.threads // GROUP) * GROUP // WARP

    def warps(self, agent: Agent) -> NDArray[np.int64]:
        """Return the number of each lane's warp; that of a group's first is a multiple of 4."""
        return agent.slot * self.warps_per_block + agent.tid // WARP

    def index(self, agent: Agent, e: Expr) -> Any:
        """Evaluate an index expression for the lanes of `agent`."""
        if isinstance(e, Const):
            return e.value
        if isinstance(e, Var):
            return agent.env[e.name]
        env = agent.env
        inputs = tuple([env[name] for name in inputs_of(e)])
        if not self.narrow_index:
            return agent.remember(e, lambda: evaluate_index(e, env), *inputs)
        try:
            return agent.remember(e, lambda: evaluate_checked(e, env, None), *inputs)
        except Int32OverflowError:
            pass  # in whatever lanes; now look at those that count
        try:
            return evaluate_checked(e, env, agent.mask)
        except Int32OverflowError as error:
            raise ProtocolError(f"{self.where(agent)}: {error}") from error

    def where(self, agent: Agent) -> str:
        """Return kernel and statement for an error text."""
        return f"kernel {self.kernel}, {describe(agent.at)}"

    # registers -------------------------------------------------------------------------------

    def declare_registers(self, agent: Agent, name: str, dtype: np.dtype[Any], size: int) -> None:
        """Give every lane `size` fresh elements."""
        old = agent.registers.get(name)
        if old is not None and old.accumulators is not None:
            self._use_accumulators(
                agent, name, old.accumulators, 0, agent.mask, old.data.shape[1], "declares"
            )
        shape = (agent.lanes, size)
        written = np.zeros(shape, np.bool_) if self.track_registers else None
        agent.registers[name] = Registers(poison(shape, dtype), written)

    def _read_registers(self, agent: Agent, name: str, index: Any, mask: Mask, width: int) -> Array:
        registers = agent.registers[name]
        columns = self._columns(agent, name, index, mask, width)
        if registers.written is not None:
            unwritten = ~registers.written[columns]
            unwritten = unwritten if mask is None else unwritten & mask[:, None]
            if unwritten.any():
                lane = int(np.argwhere(unwritten)[0][0])
                raise ProtocolError(
                    f"{self.where(agent)}: reads {name} before it is written, in "
                    f"{self.thread(agent, lane)}"
                )
        if registers.accumulators is not None:
            self._use_accumulators(agent, name, registers.accumulators, index, mask, width, "reads")
        data: Array = registers.data[columns]
        return data.reshape(-1) if width == 1 else data

    def _write_registers(self, agent: Agent, name: str, index: Any, value: Any, width: int) -> None:
        registers, mask = agent.registers[name], agent.mask
        columns = self._columns(agent, name, index, mask, width)
        if registers.accumulators is not None:
            self._use_accumulators(
                agent, name, registers.accumulators, index, mask, width, "writes"
            )
        if mask is None and np.shape(value) == registers.data.shape and width > 1:
            registers.data = np.asarray(value)  # a whole, freshly gathered array: keep it
        else:
            rows = np.asarray(value, registers.data.dtype)
            rows = rows.reshape(-1, width) if width > 1 or rows.ndim else rows
            old = registers.data[columns]
            registers.data[columns] = rows if mask is None else np.where(mask[:, None], rows, old)
        if registers.written is not None:
            registers.written[columns] |= agent.active()[:, None]

    def _use_accumulators(
        self,
        agent: Agent,
        name: str,
        state: Accumulators,
        index: Any,
        mask: Mask,
        width: int,
        verb: str,
    ) -> None:
        """Raise where a product in flight changes registers that an ordinary statement uses."""
        if verb != "writes" and not state.flying.any():
            return
        active = agent.active() if mask is None else mask
        warps = self.warps(agent)[active]
        columns = lane_columns(agent.spread(index)[active], width)
        found = state.first_flying(warps, columns)
        if found is not None:
            lane, column = found
            raise ProtocolError(
                f"{self.where(agent)}: {verb} {name}[{column}] while a product that changes it is "
                f"in flight, in {self.thread(agent, int(np.flatnonzero(active)[lane]))}; needed a "
                f"WgmmaWait for the product that names {name}"
            )
        if verb == "writes":
            state.hide(warps, columns)

    def _columns(self, agent: Agent, name: str, index: Any, mask: Mask, width: int) -> Any:
        size = agent.registers[name].data.shape[1]
        self._check_bounds(agent, name, index, mask, width, size)
        if isinstance(index, int):
            return slice(None), slice(index, index + width)
        safe = index if mask is None else np.where(mask, index, 0)
        return np.arange(agent.lanes)[:, None], lane_columns(safe, width)

    # memories --------------------------------------------------------------------------------

    def load(self, agent: Agent, name: str, index: Any, mask: Mask, width: int = 1) -> Array:
        """Read `width` elements per lane of `mask`; other lanes get something unspecified."""
        if name in agent.registers:
            return self._read_registers(agent, name, index, mask, width)
        memory = self.memories[name]
        where, touched = self._touch(agent, memory, index, mask, width)
        if self.monitor is not None:
            self.monitor.access(agent, memory, touched, "read")
        return gather(memory.data, where, width)

    def store(self, agent: Agent, name: str, index: Any, value: Any, width: int = 1) -> None:
        """Write `width` elements per active lane."""
        if name in agent.registers:
            self._write_registers(agent, name, index, value, width)
            return
        memory = self.memories[name]
        if not memory.writable:
            raise ProtocolError(f"{self.where(agent)}: writes {name}, an input of the kernel")
        where, touched = self._touch(agent, memory, index, agent.mask, width)
        if self.monitor is not None:
            shape = (agent.lanes, width)
            written = np.broadcast_to(np.asarray(value).reshape(-1, width), shape)
            self.monitor.access(agent, memory, touched, "write", written[agent.active()])
        scatter(memory.data, where, value, agent.mask, width)

    def _touch(
        self, agent: Agent, memory: Memory, index: Any, mask: Mask, width: int
    ) -> tuple[Any, Array]:
        """Return what `locate` does, and what the active lanes touch if a monitor watches."""

        def make() -> tuple[Any, Array]:
            where = self.locate(agent, memory, index, mask, width)
            watched = self.monitor is not None
            return where, _touched(agent, where, mask, width) if watched else agent.tid[:0]

        touch: tuple[Any, Array] = agent.remember(("touch", memory.name, width), make, index, mask)
        return touch

    def locate(self, agent: Agent, memory: Memory, index: Any, mask: Mask, width: int) -> Any:
        """Return flat addresses, 0 in lanes outside `mask`."""
        self._check_bounds(agent, memory.name, index, mask, width, memory.numel)
        if width > 1:
            self.check_alignment(agent, memory, index, mask, width)
        if memory.space == "shared" and self.blocks > 1:
            index = agent.slot * memory.numel + index
        return index if isinstance(index, int) or mask is None else np.where(mask, index, 0)

    def _check_bounds(
        self, agent: Agent, name: str, index: Any, mask: Mask, width: int, numel: int
    ) -> None:
        if isinstance(index, int):
            ok = 0 <= index <= numel - width
        elif mask is None:
            ok = bool(index.min() >= 0 and index.max() <= numel - width)
        else:
            ok = bool(((index >= 0) & (index <= numel - width))[mask].all())
        if ok or not any_lane(mask):
            return
        indices = agent.spread(index)
        bad = agent.active() if mask is None else mask
        bad = bad & ((indices < 0) | (indices > numel - width))
        lane = int(np.argmax(bad))
        what = (
            f"{name}[{int(indices[lane])}]"
            if width == 1
            else (f"{name}[{int(indices[lane])}:{int(indices[lane]) + width}]")
        )
        raise ProtocolError(
            f"{self.where(agent)}: {what} is outside its {numel} elements, in "
            f"{self.thread(agent, lane)}"
        )

    def check_alignment(
        self, agent: Agent, memory: Memory, index: Any, mask: Mask, width: int
    ) -> None:
        """Raise `ProtocolError` unless `width` elements at an index may be moved at once."""
        if width * memory.dtype.nbytes > memory.aligned_bytes:
            raise ProtocolError(
                f"{self.where(agent)}: moves {width * memory.dtype.nbytes} bytes at once, but "
                f"{memory.name} is aligned to {memory.aligned_bytes} only"
            )
        odd = agent.spread(index) % width != 0
        odd = odd if mask is None else odd & mask
        if odd.any():
            lane = int(np.argmax(odd))
            raise ProtocolError(
                f"{self.where(agent)}: {memory.name}[{int(agent.spread(index)[lane])}] starts a "
                f"vector of {width} elements; needs a multiple of {width}, in "
                f"{self.thread(agent, lane)}"
            )

    # asynchronous operations ------------------------------------------------------------------

    def launch(self, flight: Flight) -> None:
        """Let `flight` land: at once in lockstep, else when the scheduler says so."""
        if self.interleaved:
            self.flights.append(flight)
        else:
            self.land(flight)

    def land(self, flight: Flight) -> None:
        """Make `flight` take effect."""
        flight.land()
        flight.landed = True
        if self.interleaved:
            self.flights.remove(flight)

    def groups(self, agent: Agent, kind: str) -> Groups:
        """Return the groups of copies of `kind` that `agent` has issued."""
        if not self.interleaved:  # everything has landed: nobody asks what was issued
            return Groups(np.zeros(agent.lanes, np.bool_))
        key = ("groups", kind, agent.name)
        if key not in self.board:
            self.board[key] = Groups(np.zeros(agent.lanes, np.bool_))
        groups: Groups = self.board[key]
        return groups

    # barriers --------------------------------------------------------------------------------

    def barrier(self, agent: Agent, what: str) -> Iterator[Wait]:
        """Meet the other threads of the block."""
        self._require_all(agent, what)
        if self.monitor is not None:
            yield from self.monitor.barrier(agent, what)

    def cluster_barrier(self, agent: Agent, what: str) -> Iterator[Wait]:
        """Meet the other threads of the cluster; blocks in lockstep are whole clusters."""
        self._require_all(agent, what)
        if self.monitor is not None:
            yield from self.monitor.cluster_barrier(agent, what)

    def _require_all(self, agent: Agent, what: str) -> None:
        """Raise where threads in lockstep do not all arrive at a barrier."""
        if self.monitor is None and agent.lanes != self.blocks * self.threads:
            raise ProtocolError(
                f"{self.where(agent)}: {what} in {agent.name}, a deadlock; the threads of other "
                f"roles do not arrive"
            )
        if agent.mask is not None and self.monitor is None:
            arrived = agent.mask.reshape(self.blocks, self.threads)
            split = arrived.any(axis=1) & ~arrived.all(axis=1)
            if split.any():
                block = int(np.argmax(split))
                absent = block * self.threads + int(np.argmin(arrived[block]))
                raise ProtocolError(
                    f"{self.where(agent)}: {what} in divergent code, a deadlock; "
                    f"{self.thread(agent, absent)} does not arrive"
                )

    def thread(self, agent: Agent, lane: int) -> str:
        """Return block and thread coordinates of a lane for an error text."""
        at = {n: int(agent.spread(agent.env.get(n, 0))[lane]) for n in _COORDINATES}
        sides = zip("xyz", self.cluster, strict=True)
        block = ", ".join(str(at[f"b{n}"] * side + at[f"c{n}"]) for n, side in sides)
        thread = ", ".join(str(at[n]) for n in ("tx", "ty", "tz"))
        return f"block ({block}) thread ({thread})"


_COORDINATES = ("bx", "by", "bz", "cx", "cy", "cz", "tx", "ty", "tz")


def _touched(agent: Agent, where: Any, mask: Mask, width: int) -> Array:
    """Return flat addresses of the active lanes, shape (active, width)."""
    flat = agent.spread(where)
    return lane_columns(flat if mask is None else flat[mask], width)


def describe(stmt: object) -> str:
    """Return one line that recognises a statement: its class and its scalar fields."""
    fields: tuple[str, ...] = getattr(stmt, "__match_args__", ())
    parts = [f"{n}={v}" for n in fields if isinstance(v := getattr(stmt, n), str | int) and v != ""]
    return f"{type(stmt).__name__}({', '.join(parts)})"
