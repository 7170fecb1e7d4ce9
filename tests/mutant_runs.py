"""Checked execution of the mutants that ``python -m fuser check --matrix`` makes.

Inputs are small integers, so that sums are exact in float32 in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from fuser.api.definition import FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.cli import pipelines
from fuser.cli.check_matrix import Family
from fuser.core.errors import ProtocolError
from fuser.interp.checked import Interleaving, Programs, check_kernel, interleave
from fuser.interp.functional import allocate
from fuser.kir.core import Kernel
from fuser.sim.agent import Wait
from fuser.sim.machine import Machine
from fuser.sim.races import deadlock

Array = np.ndarray
TILE = 256
REFERENCES: dict[Any, Callable[..., list[Array]]] = {
    pipelines.ring_map: lambda x, z=0.0: [x * 2 + 1 + z],
    pipelines.ring_rows: lambda x: [x * 2 + 1],
    pipelines.ring_store: lambda x: [x * 2 + 1],
    pipelines.ring_copy: lambda x: [x, x * 2],
    pipelines.ring_multicast: lambda x, b: [x + b],
    pipelines.ring_sum: lambda x: [x.sum()],
    pipelines.ring_groups: lambda x: [x.sum(1)],
    pipelines.ring_products: lambda a, b: [a @ b.T],
    pipelines.ring_persistent: lambda x: [x + x.sum(1, keepdims=True)],
}
"""Outputs in float64, by what builds the fusion."""


def built_by(family: Family) -> Any:
    """Return the function that builds the fusions of a family."""
    return family.build.func if isinstance(family.build, partial) else family.build


def shape(family: Family, trips: tuple[int, ...], cut: int) -> tuple[int, ...]:
    """Return the extents of the first input for so many trips by level, the last `cut` short."""
    elements = max(TILE * trips[-1] - cut, 0)
    build = built_by(family)
    if build is pipelines.ring_groups:  # a round is 64 rows
        return max(64 * trips[0] - cut, 0), family.shape[1]
    if build is pipelines.ring_products:
        rows = 64 * trips[0] if family.rank > 1 else family.shapes[0][0]
        return rows, max(64 * trips[-1] - 8 * bool(cut), 0)  # tensor maps want 16 bytes
    if build is pipelines.ring_persistent:
        return trips[0], 512
    if build is pipelines.ring_multicast:  # a row a block
        return family.shapes[0][0], elements
    return (trips[0], elements) if build is pipelines.ring_rows else (elements,)


def inputs_of(family: Family, shape: tuple[int, ...], rng: np.random.Generator) -> Iterator[Array]:
    """Yield inputs of small integers, the first one of a shape."""
    others = [(*other[:-1], shape[-1]) for other in family.shapes[1:]]
    others = others or [shape] * (family.tensors - 1)
    for extents in (shape, *others):
        yield rng.integers(-9, 10, extents).astype(family.dtype)


def greedy(machine: Machine, programs: Programs, rng: np.random.Generator) -> None:
    """Let whoever is first in a random order run as long as it can; copies land soon, or late.

    Agents get as far apart as the protocol lets them, which turns at every statement hardly do.
    """
    ranked = list(rng.permutation(sorted(programs)))
    soon = bool(rng.integers(2))
    blocked: dict[str, Wait] = {}
    finished = list[str]()
    while programs:
        landing = [f for f in machine.flights if f.may_land()]
        name = next((n for n in ranked if n not in blocked or blocked[n].ready()), None)
        if landing and (soon or name is None):
            machine.land(landing[int(rng.integers(len(landing)))])
            continue
        if name is None:
            raise deadlock(machine.kernel, blocked, finished)
        wait = next(programs[name], None)
        blocked.pop(name, None)
        if wait is None:
            del programs[name]
            ranked.remove(name)
            finished.append(name)
        elif not wait.ready():
            blocked[name] = wait


def complaint(
    family: Family,
    fd: FusionDefinition,
    kernel: Kernel,
    shape: tuple[int, ...],
    seed: int,
    order: Interleaving = interleave,
) -> str:
    """Return what one interleaving of a kernel of `fd` reports, or that numbers are wrong."""
    rng = np.random.default_rng(seed)
    inputs = list(inputs_of(family, shape, rng))
    call = bind(fd, inputs, True)
    program = program_of(fd, call, True)
    memory = {name: view.numpy() for name, view in call.views.items()}
    for buffer in program.buffers:
        flat, view = allocate(buffer, call.env)
        memory[buffer.name] = view if view.ndim else flat
        flat.fill(np.nan)
    try:
        done = check_kernel(kernel, call.env, memory, seed=seed, order=order)
    except ProtocolError as error:
        return str(error)
    for buffer, want in zip(program.buffers, expected(family, inputs), strict=True):
        got = np.asarray(done[buffer.name], "f8")
        if not np.array_equal(got.reshape(np.shape(want)), want):
            return f"{buffer.name} is wrong"
    return ""


def expected(family: Family, inputs: list[Array]) -> list[Array]:
    """Return the outputs in float64."""
    return REFERENCES[built_by(family)](*(x.astype("f8") for x in inputs))


def complaints(
    family: Family,
    fd: FusionDefinition,
    kernel: Kernel,
    shapes: list[tuple[int, ...]],
    seeds: range,
) -> Iterator[str]:
    """Yield what each of a few interleavings reports; nothing is launched without elements."""
    for seed in seeds:
        for order in (interleave, greedy):
            for extents in shapes:
                if all(extents):
                    yield complaint(family, fd, kernel, extents, seed, order)
