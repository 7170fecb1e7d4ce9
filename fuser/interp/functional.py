"""Functional mode: all threads of a chunk of blocks step together, vectorised by NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fuser.core.errors import InputError
from fuser.core.expr import evaluate
from fuser.interp.launch import Launch, bind
from fuser.kir.core import Kernel, walk_stmts
from fuser.kir.evaluate import run_body
from fuser.kir.program import Buffer, Program
from fuser.kir.stmts import DeclareRegisters
from fuser.sim import wgmma
from fuser.sim.agent import Array
from fuser.sim.machine import Machine
from fuser.sim.mbarrier import check_balance
from fuser.sim.memory import poison, strided_view
from fuser.sim.races import deadlock

LIVE_ELEMENTS = 1 << 18
"""Register elements of the widest array that are alive at once: small enough for caches."""

SHARED_BYTES = 1 << 28
"""Shared memory of the blocks of one chunk, at most."""


def run_program(
    program: Program,
    env: Mapping[str, int],
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Any] | None = None,
) -> dict[str, Array]:
    """Run all kernels; return the program's buffers, and inputs that are outputs, by name.

    Parameters
    ----------
    env
        Sizes and strides (in elements) of the inputs.
    arrays
        Inputs by name; strided, transposed and expanded arrays are used where they lie. An input
        that a kernel writes, or that an output is copied into, is changed in place.
    scalars
        Scalar inputs by name.

    Raises
    ------
    ProtocolError
        An access outside a tensor, a misaligned vector, a barrier in divergent code.
    """
    buffers = {b.name: allocate(b, env) for b in program.buffers}
    flat = {**arrays, **{name: memory for name, (memory, _) in buffers.items()}}
    for kernel in program.kernels:
        run_kernel(kernel, env, flat, scalars)
    results = {name: view for name, (_, view) in buffers.items()}
    results.update((o.buffer, arrays[o.buffer]) for o in program.outputs if o.buffer in arrays)
    for output in program.outputs:
        if output.copy_into is not None:
            arrays[output.copy_into][...] = results[output.buffer]
    return results


def allocate(buffer: Buffer, env: Mapping[str, int]) -> tuple[Array, Array]:
    """Return a buffer's flat memory, poisoned (or zero), and the strided view of it.

    Raises
    ------
    InputError
        There is not so much memory.
    """
    numel = int(evaluate(buffer.numel, env))
    dtype = buffer.dtype.np
    shape = tuple(int(evaluate(e, env)) for e in buffer.shape)
    try:
        memory = np.zeros(numel, dtype) if buffer.zeroed else poison(numel, dtype)
    except MemoryError:
        raise InputError(
            f"buffer {buffer.name}: is {buffer.dtype.name}{list(shape)}; {numel * dtype.itemsize} "
            "bytes of memory are needed"
        ) from None
    strides = tuple(int(evaluate(e, env)) * dtype.itemsize for e in buffer.strides)
    if 0 in shape:
        return memory, np.empty(shape, dtype)
    return memory, strided_view(memory, shape, strides)


def run_kernel(
    kernel: Kernel,
    env: Mapping[str, int],
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Any] | None = None,
    *,
    check_index: bool = False,
) -> None:
    """Run one kernel, if it has any threads, on `arrays` (inputs and outputs by parameter name).

    Parameters
    ----------
    check_index
        Check every index expression of an ``i32`` kernel against overflow (slower).
    """
    launch = bind(kernel, env, arrays, scalars or {})
    if launch.is_empty:
        return
    per_chunk = _blocks_per_chunk(launch)
    with np.errstate(all="ignore"):
        for first in range(0, launch.blocks, per_chunk):
            last = min(first + per_chunk, launch.blocks)
            _run_chunk(launch, first, last, check_index and kernel.index == "i32")


def _blocks_per_chunk(launch: Launch) -> int:
    registers = (s.size for s in walk_stmts(launch.kernel.body) if isinstance(s, DeclareRegisters))
    live = LIVE_ELEMENTS // (launch.threads * max(registers, default=1))
    nbytes = sum(s.nbytes for s in launch.kernel.shared)
    blocks = max(1, min(live, SHARED_BYTES // nbytes if nbytes else live))
    return -(-blocks // launch.cluster_size) * launch.cluster_size


def _run_chunk(launch: Launch, first: int, last: int, check_index: bool) -> None:
    blocks = last - first
    memories = {**launch.tensors, **launch.shared(blocks)}
    machine = Machine(
        launch.kernel.name,
        launch.block,
        blocks,
        memories,
        narrow_index=check_index,
        barriers=launch.mbarriers(blocks),
        maps=launch.maps,
        cluster=launch.kernel.cluster,
    )
    agent = launch.agent("all threads", np.arange(first, last), np.arange(launch.threads))
    for wait in run_body(launch.kernel.body, machine, agent):
        if not wait.ready():
            raise deadlock(launch.kernel.name, {agent.name: wait}, ())
    check_balance(machine)
    wgmma.check_exit(machine)
