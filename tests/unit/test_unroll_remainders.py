"""What unroll(n) leaves over: nothing where the sizes of a shape class say so."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.kir.core import Kernel, walk_stmts
from fuser.kir.stmts import For, If

pytestmark = pytest.mark.unit

P = ParallelType


def summed(tile: int, factor: int) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
    if tile > 1:
        y.split(1, tile)
    y.axis(0).parallelize(P.grid_x)
    y.axis(1).unroll(factor)
    return fd


def kernel(fd: FusionDefinition, columns: int) -> Kernel:
    call = bind(fd, [np.ones((3, columns), "f4")], True)
    (made,) = program_of(fd, call, True).kernels
    return made


def left_over(made: Kernel) -> int:
    """Return the loops and branches of trips that make no round."""
    loops = [s for s in walk_stmts(made.body) if isinstance(s, For) and s.unroll.origin]
    return len([s for s in loops if "_round" not in s.var]) + sum(
        isinstance(s, If) and "x_size1" in repr(s.cond) for s in made.body
    )


@pytest.mark.parametrize(
    ("columns", "tile", "factor", "left"),
    [
        (96, 1, 2, 0), (96, 1, 4, 0), (96, 1, 16, 0), (96, 1, 32, 1), (96, 1, 3, 1),
        (100, 1, 4, 0), (100, 1, 8, 1), (96, 8, 2, 0), (96, 8, 4, 1), (96, 16, 2, 1),
        (96, 3, 4, 1),
    ],
)  # fmt: skip
def test_sizes_that_are_multiples_leave_nothing(
    columns: int, tile: int, factor: int, left: int, rng: np.random.Generator
) -> None:
    """16 is the largest number by which sizes are known to be divisible."""
    fd = summed(tile, factor)
    made = kernel(fd, columns)
    rounds = [s for s in walk_stmts(made.body) if isinstance(s, For) and "_round" in s.var]
    assert len(rounds) == 1
    assert left_over(made) == left
    for size in (columns, columns + 48, columns + 1):  # the last is another class
        x = rng.standard_normal((3, size)).astype(np.float32)
        fd.validate([x], manual=True, backend="interpret")


def test_no_other_size_runs_a_kernel_without_a_remainder() -> None:
    fd = summed(1, 4)
    assert left_over(kernel(fd, 96)) == 0
    assert left_over(kernel(fd, 97)) == 1


def test_rings_keep_the_remainder() -> None:
    """They are checked for any number of trips, not those alone that a shape class has."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
    tile = x.cache_after(LoadStoreOpType.cp_async)
    tile.set_memory_type(MemoryType.shared)
    y.split(1, 8)
    fd.sched.transform_like(y, [tile])
    for t in (y, tile):
        t.axis(0).parallelize(P.grid_x)
        t.axis(2).parallelize(P.block_x)
    tile.inline_at(y, 2)
    tile.circular_buffer(1)
    y.axis(1).unroll(2)
    made = kernel(fd, 160)
    assert any(isinstance(s, If) and "x_size1" in repr(s.cond) for s in walk_stmts(made.body))
