"""Schedules made by hand, and how to run them: shared by the protocol, golden, NVRTC and GPU tests.

A case builds a definition whose schedule is set; sizes never divide evenly unless they must.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.interp.checked import check_kernel
from fuser.interp.functional import allocate
from fuser.kir.program import Program

P = ParallelType


@dataclass(frozen=True)
class Case:
    """One hand-made schedule and the input shapes to run it on."""

    name: str
    build: Callable[[], FusionDefinition]
    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    dtype: DataType = DataType.Float

    def inputs(self, rng: np.random.Generator, which: int) -> list[Any]:
        """Return random arrays of the `which`-th shapes."""
        return [rng.standard_normal(s).astype(self.dtype.np) for s in self.shapes[which]]


def program(fd: FusionDefinition, inputs: list[Any]) -> Program:
    """Return the manual program for these inputs."""
    return program_of(fd, bind(fd, inputs), manual=True)


def run_checked(fd: FusionDefinition, inputs: list[Any], seed: int) -> list[np.ndarray]:
    """Run all blocks of the manual kernel in checked mode; return the outputs."""
    call = bind(fd, inputs)
    made = program_of(fd, call, manual=True)
    (kernel,) = made.kernels
    arrays = {name: view.numpy() for name, view in call.views.items()}
    memory = {b.name: allocate(b, call.env) for b in made.buffers}
    arrays |= {name: (view if view.ndim else flat) for name, (flat, view) in memory.items()}
    arrays = {name: arrays[name] for name in {p.name for p in kernel.params} & arrays.keys()}
    done = check_kernel(kernel, call.env, arrays, call.scalars, blocks=1 << 20, seed=seed)
    shapes = {name: view.shape for name, (_, view) in memory.items()}
    return [done[o.buffer].reshape(shapes[o.buffer]) for o in made.outputs if o.returned]


def tensor(fd: FusionDefinition, rank: int, dtype: DataType = DataType.Float) -> Any:
    """Define a contiguous tensor of symbolic extents."""
    return fd.define_tensor(shape=[-1] * rank, contiguity=[True] * rank, dtype=dtype)


# ---- maps --------------------------------------------------------------------------------------


def map_1d() -> FusionDefinition:
    with FusionDefinition() as fd:
        x, b = tensor(fd, 1), tensor(fd, 1)
        y = fd.ops.relu(fd.ops.add(x, b))
        fd.add_output(y)
        y.split(0, 96)
        y.axis(0).parallelize(P.grid_x)
        y.axis(1).parallelize(P.block_x)
    return fd


def map_2d() -> FusionDefinition:
    """An outer split, a reorder, a merge of split parts, two hardware dimensions each."""
    with FusionDefinition() as fd:
        x, y = tensor(fd, 2), tensor(fd, 2)
        z = fd.ops.mul(fd.ops.sin(x), y)
        fd.add_output(z)
        z.split(0, 8)
        z.split(2, 7, inner_split=False)
        z.reorder({1: 3})
        z.merge(0, 1)
        z.axis(0).parallelize(P.grid_x)
        z.axis(2).parallelize(P.block_y)
    return fd


def map_3d() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = tensor(fd, 3)
        y = fd.ops.add(fd.ops.permute(x, [2, 0, 1]), 1.0)
        fd.add_output(y)
        y.merge(1, 2)
        y.split(1, 32)
        y.split(0, 3)
        y.reorder({-1: 0})
        y.axis(0).parallelize(P.block_x)
        y.axis(1).parallelize(P.grid_y)
        y.axis(3).parallelize(P.grid_x)
        y.axis(2).parallelize(P.unroll)
    return fd


def two_outputs() -> FusionDefinition:
    """Outputs of different shapes, each with loops of its own, in one kernel."""
    with FusionDefinition() as fd:
        x = tensor(fd, 2)
        y = fd.ops.neg(x)
        z = fd.ops.mul(fd.ops.slice(y, [0, 0], [3, 4]), 2.0)
        fd.add_output(y)
        fd.add_output(z)
        y.merge(0, 1)
        y.split(0, 64)
        y.axis(0).parallelize(P.grid_x)
        y.axis(1).parallelize(P.block_x)
        z.axis(0).parallelize(P.block_y)
        z.axis(1).parallelize(P.block_x)
    return fd


def vectorized() -> FusionDefinition:
    """Register caches on both sides, copied as 16-byte vectors."""
    with FusionDefinition() as fd:
        x, b = tensor(fd, 2), tensor(fd, 2)
        y = fd.ops.relu(fd.ops.add(x, b))
        fd.add_output(y)
        x_c, b_c = x.cache_after(), b.cache_after()
        y.cache_before()
        y.merge(0, 1)
        y.split(0, 4)
        y.split(0, 64)
        fd.sched.transform_like(y)
        y.axis(0).parallelize(P.grid_x)
        y.axis(1).parallelize(P.block_x)
        fd.sched.parallelize_like(y)
        for t in (x_c, b_c, y):
            t.axis(-1).parallelize(P.vectorize)
        fd.sched.inline_most()
    return fd


def vectorized_half() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = tensor(fd, 1, DataType.Half)
        y = fd.ops.cast(fd.ops.mul(x, 3.0), DataType.Half)
        fd.add_output(y)
        x.cache_after()
        y.split(0, 8)
        y.split(0, 32)
        y.axis(0).parallelize(P.grid_x)
        y.axis(1).parallelize(P.block_x)
        y.axis(2).parallelize(P.vectorize)
        fd.sched.transform_like(y)
        fd.sched.parallelize_like(y)
        fd.sched.inline_most()
    return fd


def inlined_at(position: int) -> Callable[[], FusionDefinition]:
    """A producer in registers, computed inside the first `position` loops of its consumer."""

    def build() -> FusionDefinition:
        with FusionDefinition() as fd:
            x = fd.define_tensor(shape=[-1, 24], contiguity=True)
            t = fd.ops.exp(x)
            y = fd.ops.add(t, 1.0)
            fd.add_output(y)
            y.split(1, 8)
            y.split(0, 4)
            y.axis(0).parallelize(P.grid_x)
            fd.sched.transform_like(y, [t])
            fd.sched.parallelize_like(y)
            t.inline_at(y, position)
        return fd

    return build


# ---- shared memory -----------------------------------------------------------------------------


def transpose(swizzled: bool, allocation: bool = False) -> Callable[[], FusionDefinition]:
    """Tiles of 32 x 32 through shared memory: rows in, columns out."""

    def build() -> FusionDefinition:
        with FusionDefinition() as fd:
            x = tensor(fd, 2)
            y = fd.ops.permute(x, [1, 0])
            fd.add_output(y)
            tile = x.cache_after()
            tile.set_memory_type(MemoryType.shared)
            y.split(1, 32)
            y.split(0, 32)
            y.reorder({1: 2})
            y.axis(0).parallelize(P.grid_y)
            y.axis(1).parallelize(P.grid_x)
            fd.sched.transform_like(y)
            fd.sched.parallelize_like(y)
            y.split(2, 8)
            y.axis(3).parallelize(P.block_y)
            y.axis(4).parallelize(P.block_x)
            tile.reorder({2: 3})
            tile.split(2, 8)
            if swizzled:
                tile.merge(2, 3)
                tile.swizzle(2, 3)
                tile.split(2, 8)
            tile.axis(3).parallelize(P.block_y)
            tile.axis(4).parallelize(P.block_x)
            if allocation:
                tile.set_allocation_domain([0, 1, 4, 2, 3])
            tile.inline_at(y, 2)
        return fd

    return build


def shared_in_a_loop() -> FusionDefinition:
    """One block walks over row tiles: written as vectors, read by other threads, overwritten."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 64], contiguity=True)
        y = fd.ops.add(fd.ops.permute(x, [1, 0]), 1.0)
        fd.add_output(y)
        tile = x.cache_after()
        tile.set_memory_type(MemoryType.shared)
        y.split(1, 8)
        y.reorder({1: 0})
        fd.sched.transform_like(y)
        y.merge(1, 2)
        y.split(1, 96)
        y.axis(2).parallelize(P.block_x)
        tile.reorder({2: 1})
        tile.split(2, 4)
        tile.merge(1, 2)
        tile.split(1, 96)
        tile.axis(2).parallelize(P.block_x)
        tile.axis(3).parallelize(P.vectorize)
        tile.inline_at(y, 1)
    return fd


def shared_by_each_block() -> FusionDefinition:
    """A tile whose loops know nothing of the grid: every block fills its own."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[12, 20], contiguity=True)
        e = fd.ops.exp(x)
        y = fd.ops.mul(e, 2.0)
        fd.add_output(y)
        e.set_memory_type(MemoryType.shared)
        y.axis(1).parallelize(P.grid_x)
    return fd


def sum_from_shared() -> FusionDefinition:
    """A reduction whose operand waits in shared memory; rows over blocks, columns over threads."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 100], contiguity=True)
        e = fd.ops.exp(x)
        m = fd.ops.max(e, [1])
        y = fd.ops.sum(fd.ops.sub(e, fd.ops.broadcast_in_dim(m, fd.ops.shape(x), [0])), [1])
        fd.add_output(y)
        held = e.cache_after()
        held.set_memory_type(MemoryType.shared)
        y.split(1, 32)
        y.axis(0).parallelize(P.grid_x)
        y.axis(2).parallelize(P.block_x)
        fd.sched.transform_like(y)
        fd.sched.parallelize_like(y)
        fd.sched.inline_at(y, 1, best_effort=True)
    return fd


# ---- reductions --------------------------------------------------------------------------------


def sum_serial() -> FusionDefinition:
    """One thread a row."""
    with FusionDefinition() as fd:
        x = tensor(fd, 2)
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
        y.split(0, 32)
        y.axis(0).parallelize(P.grid_x)
        y.axis(1).parallelize(P.block_x)
    return fd


def sum_threads(threads: int) -> Callable[[], FusionDefinition]:
    """A warp or a block a row."""

    def build() -> FusionDefinition:
        with FusionDefinition() as fd:
            x = tensor(fd, 2)
            y = fd.ops.max(x, [1])
            fd.add_output(y)
            y.split(1, threads)
            y.axis(0).parallelize(P.grid_x)
            y.axis(2).parallelize(P.block_x)
        return fd

    return build


def sum_odd_block() -> FusionDefinition:
    """Rows over y, columns over x, as many threads as elements: the last warp is partial."""
    with FusionDefinition() as fd:
        x = tensor(fd, 2)
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
        y.axis(0).parallelize(P.block_y)
        y.axis(1).parallelize(P.block_x)
    return fd


def sum_grid() -> FusionDefinition:
    """Everything in one number: threads, then blocks; the last block stores."""
    with FusionDefinition() as fd:
        x = tensor(fd, 2)
        y = fd.ops.sum(x, [0, 1])
        fd.add_output(y)
        y.merge(0, 1)
        y.split(0, 64)
        y.split(0, 3)
        y.axis(0).parallelize(P.grid_x)
        y.axis(2).parallelize(P.block_x)
    return fd


def sum_grid_columns() -> FusionDefinition:
    """Columns over threads, rows over blocks, and a map of the total in the last block."""
    with FusionDefinition() as fd:
        x = tensor(fd, 2)
        s = fd.ops.sum(x, [0])
        y = fd.ops.mul(s, 2.0)
        fd.add_output(y)
        y.split(0, 32)
        y.axis(0).parallelize(P.grid_x)
        y.axis(1).parallelize(P.block_x)
        s.split(1, 32)
        s.split(0, 5)
        s.reorder({2: 0, 3: 1})
        s.axis(0).parallelize(P.grid_x)
        s.axis(1).parallelize(P.block_x)
        s.axis(2).parallelize(P.grid_y)
        s.inline_at(y, 2)
    return fd


def sum_outer() -> FusionDefinition:
    """A block of two dimensions: x along kept columns, y along reduced rows."""
    with FusionDefinition() as fd:
        x = tensor(fd, 2)
        y = fd.ops.sum(x, [0])
        fd.add_output(y)
        y.split(1, 16)
        y.split(0, 4)
        y.reorder({2: 0, 3: 1})
        y.axis(0).parallelize(P.grid_x)
        y.axis(1).parallelize(P.block_x)
        y.axis(3).parallelize(P.block_y)
    return fd


def sum_rfactor() -> FusionDefinition:
    """Serial partial sums of four accumulators, then threads, then the block."""
    with FusionDefinition() as fd:
        x = tensor(fd, 2)
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
        y.split(1, 4)
        y.split(1, 32)
        part = y.rfactor([1])
        y.axis(0).parallelize(P.grid_x)
        y.axis(1).parallelize(P.block_x)
        part.axis(0).parallelize(P.grid_x)
        part.axis(2).parallelize(P.block_x)
        part.reorder({1: 3})
        part.inline_at(y, 2)
    return fd


def rfactor_half() -> FusionDefinition:
    """max of fp16: the padding of the view must be minus infinity of the accumulator."""
    with FusionDefinition() as fd:
        x = tensor(fd, 2, DataType.Half)
        y = fd.ops.max(x, [0, 1])
        fd.add_output(y)
        y.merge(0, 1)
        y.split(0, 32)
        part = y.rfactor([0])
        part.axis(1).parallelize(P.block_x)
        y.axis(0).parallelize(P.block_x)
        part.reorder({1: 0})
    return fd


def softmax() -> FusionDefinition:
    """A row a block; both reductions inside the row loop."""
    with FusionDefinition() as fd:
        x = tensor(fd, 2)
        shape = fd.ops.shape(x)
        m = fd.ops.max(x, [1])
        e = fd.ops.exp(fd.ops.sub(x, fd.ops.broadcast_in_dim(m, shape, [0])))
        s = fd.ops.sum(e, [1])
        y = fd.ops.div(e, fd.ops.broadcast_in_dim(s, shape, [0]))
        fd.add_output(y)
        y.split(1, 64)
        y.axis(0).parallelize(P.grid_x)
        y.axis(2).parallelize(P.block_x)
        fd.sched.transform_like(y)
        fd.sched.parallelize_like(y)
        fd.sched.inline_at(y, 1)
    return fd


def layer_norm() -> FusionDefinition:
    """The row kept in registers, statistics as outputs too."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 200], contiguity=True)
        shape = fd.ops.shape(x)
        total = fd.ops.sum(x, [1])
        mean = fd.ops.mul(total, 1 / 200)
        d = fd.ops.sub(x, fd.ops.broadcast_in_dim(mean, shape, [0]))
        v = fd.ops.sum(fd.ops.mul(d, d), [1])
        r = fd.ops.rsqrt(fd.ops.add(fd.ops.mul(v, 1 / 200), 1e-5))
        y = fd.ops.mul(d, fd.ops.broadcast_in_dim(r, shape, [0]))
        fd.add_output(y)
        fd.add_output(v)
        x_c = x.cache_after()
        y.split(1, 4)
        y.split(1, 32)
        y.axis(0).parallelize(P.grid_x)
        y.axis(2).parallelize(P.block_x)
        fd.sched.transform_like(y)
        fd.sched.parallelize_like(y)
        x_c.axis(-1).parallelize(P.vectorize)
        y.axis(-1).parallelize(P.vectorize)
        fd.sched.inline_at(y, 1, best_effort=True)
    return fd


ROWS = (((1, 1),), ((5, 31),), ((3, 200),), ((7, 257),))
MATRICES = (((1, 1),), ((37, 65),), ((33, 130),))
PAIRS = (((1, 1), (1, 1)), ((5, 13), (5, 13)), ((37, 130), (37, 130)))

CASES = (
    Case("map_1d", map_1d, (((1,), (1,)), ((95,), (95,)), ((1000,), (1000,)))),
    Case("map_2d", map_2d, PAIRS),
    Case("map_3d", map_3d, (((1, 1, 1),), ((2, 5, 7),), ((9, 4, 11),))),
    Case("two_outputs", two_outputs, (((3, 4),), ((5, 77),))),
    Case("vectorized", vectorized, PAIRS),
    Case("vectorized_half", vectorized_half, (((1,),), ((77,),), ((1024,),)), DataType.Half),
    *(Case(f"inlined_at_{p}", inlined_at(p), (((1, 24),), ((13, 24),))) for p in (1, 2, 3, 4)),
    Case("transpose", transpose(False), MATRICES),
    Case("transpose_swizzled", transpose(True), MATRICES),
    Case("transpose_allocation", transpose(False, True), MATRICES),
    Case("shared_in_a_loop", shared_in_a_loop, (((1, 64),), ((5, 64),), ((27, 64),))),
    Case("shared_by_each_block", shared_by_each_block, (((12, 20),),)),
    Case("sum_from_shared", sum_from_shared, (((1, 100),), ((6, 100),))),
    Case("sum_serial", sum_serial, ROWS),
    Case("max_warp", sum_threads(32), ROWS),
    Case("max_block", sum_threads(96), ROWS),
    Case("sum_odd_block", sum_odd_block, (((1, 1),), ((3, 33),), ((7, 100),))),
    Case("sum_grid", sum_grid, ROWS),
    Case("sum_grid_columns", sum_grid_columns, (((1, 1),), ((13, 40),), ((200, 9),))),
    Case("sum_outer", sum_outer, (((1, 1),), ((13, 40),), ((200, 9),))),
    Case("sum_rfactor", sum_rfactor, ROWS),
    Case("rfactor_half", rfactor_half, ROWS, DataType.Half),
    Case("softmax", softmax, ROWS),
    Case("layer_norm", layer_norm, (((1, 200),), ((5, 200),))),
)
BY_NAME = {case.name: case for case in CASES}
