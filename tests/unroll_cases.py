"""Fusions whose loops have unroll directives, run at trip counts around the copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import (
    DataType,
    FusionDefinition,
    LoadStoreOpType,
    MemoryType,
    ParallelType,
    Pipelined,
    WarpSpecialized,
)
from fuser.api.execute import bind, program_of
from fuser.kir.core import Kernel

P = ParallelType
TILE, THREADS = 256, 64
"""Elements of a trip of a ring, and threads that read them."""
ALL = None
"""All trips of a loop, where a number of copies could stand."""


def trips_around(copies: int) -> tuple[int, ...]:
    """Return the trip counts at which main loop and remainder begin, end and are empty."""
    return tuple(dict.fromkeys((0, 1, copies - 1, copies, copies + 1, 2 * copies + 3)))


def columns(fd: FusionDefinition, x: Any, part: bool) -> Any:
    """Return an input, or as many of its columns as a second input says: there may be none."""
    return x[:, : fd.define_scalar(DataType.Int)] if part else x


def summed(copies: int | str, inner: str = "rolled", part: bool = False) -> FusionDefinition:
    """A reduction: rows in blocks, `copies` of the columns, each a loop of three, rolled or not."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1, 3], contiguity=True)
        y = fd.ops.sum(fd.ops.exp(columns(fd, x, part)), [1, 2])
        fd.add_output(y)
        y.axis(0).parallelize(P.grid_x)
        y.axis(1).rolled() if copies == "rolled" else y.axis(1).unroll(copies)
        y.axis(2).rolled() if inner == "rolled" else y.axis(2).unroll()
    return fd


def mapped(copies: int) -> FusionDefinition:
    """A map: every thread stores `copies` columns a round."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.mul(fd.ops.sin(x), 2.0)
        fd.add_output(y)
        y.axis(0).parallelize(P.block_x)
        y.axis(1).unroll(copies)
    return fd


def in_a_function(copies: int, part: bool = False) -> FusionDefinition:
    """As `summed`; the inner loops are device functions."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1, 3], contiguity=True)
        y = fd.ops.sum(columns(fd, x, part), [1, 2])
        fd.add_output(y)
        y.axis(0).parallelize(P.grid_x)
        y.axis(1).unroll(copies)
        y.axis(2).rolled()
        y.axis(2).outlined()
    return fd


PIPELINED, TOKENS = Pipelined(war="mbarrier"), Pipelined("token", "mbarrier")


def ring(
    direct: Callable[[Any], None],
    stages: int = 3,
    kind: Pipelined | WarpSpecialized = PIPELINED,
    extent: int = -1,
    load: LoadStoreOpType = LoadStoreOpType.tma,
    part: bool = False,
) -> FusionDefinition:
    """A reduction of rows through a ring of tiles.

    `direct` is given the sum, whose axes are rows, trips, four elements of a thread, threads.
    """
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, extent], contiguity=True)
        y = fd.ops.sum(columns(fd, x, part), [1])
        fd.add_output(y)
        tile = x.cache_after(load)
        tile.set_memory_type(MemoryType.shared)
        y.split(1, TILE)
        fd.sched.transform_like(y, [tile])
        y.split(2, THREADS)
        y.axis(0).parallelize(P.grid_x)
        tile.axis(0).parallelize(P.grid_x)
        if load is LoadStoreOpType.tma:
            tile.axis(2).parallelize(P.tma)
        else:
            tile.split(2, THREADS)
            tile.axis(3).parallelize(P.block_x)
        y.axis(3).parallelize(P.block_x)
        tile.inline_at(y, 2)
        tile.circular_buffer(stages, type=kind)
        direct(y)
    return fd


def directed(trips: int | str | None, elements: int | str | None) -> Callable[[Any], None]:
    """Return what sets the directives of both loops: copies, `ALL`, or ``"rolled"``."""

    def direct(y: Any) -> None:
        for axis, copies in ((1, trips), (2, elements)):
            chosen = y.axis(axis)
            chosen.rolled() if copies == "rolled" else chosen.unroll(copies)

    return direct


def in_parts(copies: int) -> FusionDefinition:
    """A ring with `copies` of a trip in the main loop, and others in those around it."""

    def direct(y: Any) -> None:
        y.axis(1).rolled()
        y.axis(1).unroll(copies, loop="main")
        y.axis(1).unroll(2, loop="epilogue")
        y.axis(2).unroll()

    return ring(direct)


@dataclass(frozen=True)
class Case:
    """A fusion, the extents of its input for a number of trips, and how many copies it makes.

    Attributes
    ----------
    part
        The second of these extents is what the fusion reads of its input, which is larger: rows
        have results without trips too, and the schedule runs for none.
    """

    name: str
    build: Callable[[int], FusionDefinition]
    shape: Callable[[int], tuple[int, ...]]
    copies: tuple[int, ...] = (2, 3, 5)
    part: bool = False

    def __str__(self) -> str:
        return self.name

    def inputs(self, trips: int, copies: int, rng: np.random.Generator) -> list[Any]:
        """Return the inputs with which the loop runs so often."""
        rows, extent, *rest = self.shape(trips)
        whole = self.shape(2 * copies + 4)[1] if self.part else extent
        x = rng.standard_normal((rows, whole, *rest)).astype(np.float32)
        return [x, extent] if self.part else [x]


def columns_of(trips: int) -> tuple[int, ...]:
    """Return the shape of rows of `trips` tiles, the last one cut short."""
    return 3, max(0, trips * TILE - 4)


CASES = (
    Case("summed", summed, lambda trips: (3, trips, 3)),
    Case("mapped", mapped, lambda trips: (37, trips)),
    Case("in_a_function", in_a_function, lambda trips: (3, trips, 3), (3,)),
    Case("ring", lambda n: ring(directed(n, ALL)), columns_of, (3, 4)),
    Case("ring, tokens", lambda n: ring(directed(n, ALL), kind=TOKENS), columns_of, (2,)),
    Case(
        "ring, tokens, rolled", lambda n: ring(directed("rolled", ALL), n, TOKENS), columns_of, (3,)
    ),
    Case("ring, loop by loop", in_parts, columns_of, (3,)),
    Case("ring, roles", lambda n: ring(directed(n, 3), kind=WarpSpecialized()), columns_of, (3,)),
)
ROLES, CP_ASYNC = WarpSpecialized(), LoadStoreOpType.cp_async
PARTS = (
    Case("sum", lambda n: summed(n, part=True), lambda n: (3, n, 3), (2, 3, 5), True),
    Case("copies", lambda n: summed(n, "full", part=True), lambda n: (3, n, 3), (4,), True),
    Case("rolled", lambda _: summed("rolled", part=True), lambda n: (3, n, 3), (2,), True),
    Case("function", lambda n: in_a_function(n, part=True), lambda n: (3, n, 3), (3,), True),
    *(
        Case(f"{name}, {what}", build, columns_of, copies, True)
        for name, how in {
            "ring": {}, "roles": {"kind": ROLES}, "cp_async": {"load": CP_ASYNC},
            "cp_async roles": {"kind": ROLES, "load": CP_ASYNC},
        }.items()
        for what, build, copies in (
            ("all", lambda n, how=how: ring(directed(n, ALL), part=True, **how), (2, 3)),
            ("rolled", lambda _, how=how: ring(directed("rolled", 3), part=True, **how), (3,)),
        )
    ),
)  # fmt: skip
"""Cases whose kernel is launched for no trips of a loop, too."""
RUNS = [(case, copies) for case in (*CASES, *PARTS) for copies in case.copies]
IDS = [f"{case.name}-{copies}" for case, copies in RUNS]


def run(case: Case, copies: int, rng: np.random.Generator, **how: Any) -> None:
    """Run one case by hand, with all trips around its copies, against the float64 reference.

    Without trips the kernel runs nevertheless where a case reads a part of its input. Where it
    reads all of one without elements, the automatic path runs instead of the schedule.
    """
    fd = case.build(copies)
    for trips in trips_around(copies):
        inputs = case.inputs(trips, copies, rng)
        if trips or case.part:
            assert "scheduled by hand" in kernel_for(fd, inputs).header
        fd.validate(inputs, manual=True, **how)


def kernel(fd: FusionDefinition, *shape: int) -> Kernel:
    """Return the kernel of a schedule for an input of this shape."""
    return kernel_for(fd, [np.ones(shape, np.float32)])


def kernel_for(fd: FusionDefinition, inputs: list[Any]) -> Kernel:
    """Return the kernel of a schedule for these inputs."""
    (made,) = program_of(fd, bind(fd, inputs, manual=True), manual=True).kernels
    return made
