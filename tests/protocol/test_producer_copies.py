"""Copies by the threads of a producer role: every element of a stage, each by one thread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from manual_schedules import program, run_checked

from fuser import FusionDefinition, LoadStoreOpType, MemoryType, ParallelType, WarpSpecialized
from fuser.protocol.verdict import check

pytestmark = pytest.mark.protocol

P, L = ParallelType, LoadStoreOpType
THREADS = [L.set, L.cp_async]
GROUP = (24, 256)
"""Registers that change hands: producers are four warps."""


def holds(fd: FusionDefinition, x: np.ndarray, prove: bool = True) -> None:
    """Assert values without a GPU, checked ones, and the proof: long where producers are many."""
    (got,) = fd.manual_execute([x], backend="interpret")
    np.testing.assert_array_equal(got, x * 2)
    np.testing.assert_array_equal(run_checked(fd, [x], 1)[0], x * 2)
    (kernel,) = program(fd, [x]).kernels
    assert not prove or check(kernel).reach == "proved"


def rows(
    load: LoadStoreOpType, on: ParallelType, row: ParallelType, column: ParallelType,
    extents: tuple[int, int], registers: tuple[int, int] | None,
) -> FusionDefinition:  # fmt: skip
    """Return ``y = 2 x``: rows are threads around the loop of trips over pieces of columns."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[extents[0], -1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    tile = x.cache_after(load)
    tile.set_memory_type(MemoryType.shared)
    for t in (y, tile):
        t.split(1, extents[1])
        t.axis(0).parallelize(row)
        t.axis(2).parallelize(column)
    tile.inline_at(y, 2)
    tile.circular_buffer(2, type=WarpSpecialized(on, registers))
    return fd


@pytest.mark.parametrize(("extents", "registers"), [((2, 32), None), ((4, 32), GROUP)])
@pytest.mark.parametrize(("on", "row", "column"), [
    (P.block_y, P.block_y, P.block_x),
    (P.block_z, P.block_z, P.block_x),
    (P.block_y, P.block_x, P.block_y),
])  # fmt: skip
@pytest.mark.parametrize("load", THREADS, ids=lambda load: load.name)
def test_threads_around_the_trips(load, on, row, column, extents, registers, rng):
    """Indices of the loops around a fill are the consumers': producers copy for all of them."""
    x = rng.standard_normal((extents[0], 80)).astype("f4")
    holds(rows(load, on, row, column, extents, registers), x, registers is None)


@pytest.mark.parametrize("load", THREADS, ids=lambda load: load.name)
def test_threads_between_two_loops_of_trips(load, rng):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 2, -1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    tile = x.cache_after(load)
    tile.set_memory_type(MemoryType.shared)
    for t in (y, tile):
        t.split(2, 32)
        t.axis(1).parallelize(P.block_y)
        t.axis(3).parallelize(P.block_x)
    tile.inline_at(y, 3)
    tile.circular_buffer(2, type=WarpSpecialized(P.block_y))
    holds(fd, rng.standard_normal((3, 2, 80)).astype("f4"))


SERIAL: dict[str, Callable[..., object]] = {
    "elements": lambda t: None,
    "vectors": lambda t: (t.split(1, 4), t.axis(2).parallelize(P.vectorize)),
    "one vector": lambda t: (
        t.split(1, 128), t.split(2, 4), t.axis(3).parallelize(P.vectorize),
        t.axis(2).unroll(2),
    ),
    "unrolled": lambda t: (t.split(1, 16), t.axis(1).unroll(2), t.axis(2).unroll()),
}  # fmt: skip


@pytest.mark.parametrize("registers", [None, GROUP], ids=["one warp", "four warps"])
@pytest.mark.parametrize("loops", SERIAL)
@pytest.mark.parametrize("load", THREADS, ids=lambda load: load.name)
def test_a_tile_without_thread_axes(load, loops, registers, rng):
    """Its serial loops are shared out, or one thread copies it: all of them would race."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    tile = x.cache_after(load)
    tile.set_memory_type(MemoryType.shared)
    for t in (y, tile):
        t.split(0, 128)
    y.axis(1).parallelize(P.block_x)
    SERIAL[loops](tile)
    tile.inline_at(y, 1)
    tile.circular_buffer(2, type=WarpSpecialized(P.block_x, registers))
    x = rng.standard_normal(300 if loops == "elements" else 384)
    holds(fd, x.astype("f4"), registers is None)


def test_a_tile_of_one_element(rng):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 1], contiguity=True)
        y = fd.ops.broadcast_in_dim(x, [5, 128], [0, 1]) * 2.0
        fd.add_output(y)
    tile = x.cache_after()
    tile.set_memory_type(MemoryType.shared)
    y.axis(1).parallelize(P.block_x)
    tile.inline_at(y, 1)
    tile.circular_buffer(2, type=WarpSpecialized(P.block_x, GROUP))
    values = rng.standard_normal((5, 1)).astype("f4")
    np.testing.assert_array_equal(
        run_checked(fd, [values], 1)[0], np.broadcast_to(values * 2, (5, 128))
    )
