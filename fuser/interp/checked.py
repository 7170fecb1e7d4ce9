"""Checked mode: warps of a few blocks as agents, in a seeded random order, judged for races."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fuser.core.errors import ProtocolError
from fuser.interp.launch import Launch, bind
from fuser.kir.core import Kernel, TensorParam, walk_stmts
from fuser.kir.evaluate import run_body
from fuser.kir.stmts import Wgmma
from fuser.sim import wgmma
from fuser.sim.agent import Agent, Array, Wait
from fuser.sim.machine import Machine
from fuser.sim.mbarrier import check_balance
from fuser.sim.memory import strided_view
from fuser.sim.races import RaceMonitor, deadlock

WARP = 32
HASTE = (0.02, 0.3, 0.9)
"""How likely a copy lands before the next statement; one is drawn per run, so that some runs have
copies that take long."""

Programs: TypeAlias = dict[str, Iterator[Wait]]
"""Agents that have not finished, by name; advancing one runs its current statement."""
Interleaving: TypeAlias = Callable[[Machine, Programs, np.random.Generator], None]
"""Advances agents, and lets copies land, until all agents have finished."""


def interleave(machine: Machine, programs: Programs, rng: np.random.Generator) -> None:
    """Advance agents, and let copies land, in random order until all agents have finished."""
    blocked: dict[str, Wait] = {}
    finished = list[str]()
    haste = HASTE[int(rng.integers(len(HASTE)))] if machine.barriers else 0.5
    draws = _draws(rng)
    while programs:
        landing = [f for f in machine.flights if f.may_land()]
        runnable = [name for name in programs if name not in blocked or blocked[name].ready()]
        if landing and (not runnable or next(draws) < haste):
            machine.land(landing[int(next(draws) * len(landing))])
            continue
        if not runnable:
            raise deadlock(machine.kernel, blocked, finished)
        name = runnable[int(next(draws) * len(runnable))]
        blocked.pop(name, None)
        wait = next(programs[name], None)
        if wait is None:
            del programs[name]
            finished.append(name)
        elif not wait.ready():
            blocked[name] = wait


def _draws(rng: np.random.Generator) -> Iterator[float]:
    """Yield random numbers of [0, 1): many are drawn at once, which takes a tenth of the time."""
    while True:
        yield from rng.random(1024).tolist()


def check_kernel(
    kernel: Kernel,
    env: Mapping[str, int],
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Any] | None = None,
    *,
    blocks: Sequence[int] | int = 4,
    seed: int = 0,
    order: Interleaving = interleave,
) -> dict[str, Array]:
    """Run some blocks of a kernel on copies of `arrays`; return the tensors it may write.

    Parameters
    ----------
    blocks
        Linear block numbers, or how many to take: the first, the last, and random ones between.
        Numbers of clusters, in a kernel that has them: all their blocks run.
    seed
        Decides the interleaving; printed with every failure.
    order
        How agents take turns.

    Raises
    ------
    ProtocolError
        A race, a deadlock, an uninitialised read, an access out of bounds.
    """
    rng = np.random.default_rng(seed)
    launch = bind(kernel, env, arrays, scalars or {})
    tensors = {
        name: replace(memory, data=memory.data.copy()) if memory.writable else memory
        for name, memory in launch.tensors.items()
    }
    launch = replace(launch, tensors=tensors)
    try:
        with np.errstate(all="ignore"):
            warps = Warps.of(launch, _choose_blocks(launch, blocks, rng))
            order(warps.machine, warps.programs, rng)
            warps.finish()
    except ProtocolError as error:
        raise ProtocolError(f"{error} (seed {seed})") from error
    return {
        name: strided_view(memory.data, arrays[name].shape, arrays[name].strides)
        for name, memory in tensors.items()
        if memory.writable
    }


def _choose_blocks(
    launch: Launch, blocks: Sequence[int] | int, rng: np.random.Generator
) -> NDArray[np.int64]:
    size = launch.cluster_size
    clusters = _choose_clusters(launch.blocks // size, blocks, rng)
    return (clusters[:, None] * size + np.arange(size)).reshape(-1)


def _choose_clusters(
    total: int, chosen: Sequence[int] | int, rng: np.random.Generator
) -> NDArray[np.int64]:
    if not isinstance(chosen, int):
        return np.asarray(chosen, np.int64)
    if total <= chosen:
        return np.arange(total)
    inner = rng.permutation(np.arange(1, total - 1))[: max(0, chosen - 2)]
    return np.sort(np.concatenate(([0, total - 1][:chosen], inner)).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Warps:
    """The warps of some blocks of a launch, about to begin, and the machine they act on.

    Attributes
    ----------
    programs
        By agent; advancing one runs its current statement.
    """

    machine: Machine
    monitor: RaceMonitor
    agents: tuple[Agent, ...]
    programs: Programs

    @classmethod
    def of(cls, launch: Launch, ids: NDArray[np.int64]) -> Warps:
        """Return the warps of blocks `ids`, watched for races."""
        kernel = launch.kernel
        machine = Machine(
            kernel.name,
            launch.block,
            ids.size,
            {**launch.tensors, **launch.shared(ids.size)},
            narrow_index=kernel.index == "i32",
            track_registers=True,
            interleaved=True,
            barriers=launch.mbarriers(ids.size),
            maps=launch.maps,
            cluster=kernel.cluster,
        )
        agents = tuple(_warps(launch, ids))
        holds = {p.name for p in kernel.params if isinstance(p, TensorParam) and p.mode != "out"}
        products = any(isinstance(s, Wgmma) for s in walk_stmts(kernel.body))
        machine.monitor = monitor = RaceMonitor(machine, agents, holds, products=products)
        machine.order = monitor.order
        programs = {a.name: run_body(kernel.body, machine, a) for a in agents}
        return cls(machine, monitor, agents, programs)

    def finish(self) -> None:
        """Raise `ProtocolError` where blocks must not end like this; let all copies land."""
        self.monitor.check_exit()
        while self.machine.flights:
            self.machine.land(next(f for f in self.machine.flights if f.may_land()))
        check_balance(self.machine)
        wgmma.check_exit(self.machine)


def _warps(launch: Launch, ids: NDArray[np.int64]) -> Iterator[Agent]:
    for slot, block in enumerate(ids):
        for first in range(0, launch.threads, WARP):
            tid = np.arange(first, min(first + WARP, launch.threads))
            agent = launch.agent(f"block {block} warp {first // WARP}", np.asarray([block]), tid)
            agent.slot += slot
            yield agent
