"""Every misuse of a circular buffer: what the error says, and that it points at the user's line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from rings.families import Choices, single_dim

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.core.errors import ScheduleError
from fuser.schedule.circular import CircularBufferType, Pipelined, WarpSpecialized

pytestmark = pytest.mark.unit

P, L = ParallelType, LoadStoreOpType


def refused(text, call, *args, here=True, **kwargs):
    """Check the text of a refusal and that it names this file."""
    with pytest.raises(ScheduleError, match=re.escape(text)) as caught:
        call(*args, **kwargs)
    if here:
        assert caught.value.location is not None, str(caught.value)
        assert Path(caught.value.location.file).name == Path(__file__).name


def tensor(fd, rank, dtype=DataType.Float):
    return fd.define_tensor(shape=[-1] * rank, contiguity=[True] * rank, dtype=dtype)


def staged(x, load):
    cache = x.cache_after(load)
    cache.set_memory_type(MemoryType.shared)
    return cache


class Stream:
    """``y = x + z`` of vectors, tiles of both by one trip; inlined, not yet buffered."""

    def __init__(
        self,
        loads: tuple[LoadStoreOpType, LoadStoreOpType] = (L.tma, L.tma),
        tile: int = 256,
        dtype: DataType = DataType.Float,
        threads: int = 64,
    ) -> None:
        with FusionDefinition() as fd:
            x, z = tensor(fd, 1, dtype), tensor(fd, 1, dtype)
            y = x + z
            fd.add_output(y)
        self.fd, self.x, self.y, self.dtype = fd, x, y, dtype
        y.split(0, tile)
        y.split(1, threads)
        y.axis(2).parallelize(P.block_x)
        self.caches = [staged(t, load) for t, load in zip((x, z), loads, strict=True)]
        for cache, load in zip(self.caches, loads, strict=True):
            cache.split(0, tile)
            if load in (L.tma, L.bulk):
                cache.axis(1).parallelize(P.tma)
            else:
                cache.split(1, threads)
                cache.axis(2).parallelize(P.block_x)
            cache.inline_at(y, 1)

    def buffer(self, *types: CircularBufferType, stages: int = 3) -> Stream:
        for cache, kind in zip(self.caches, types or (Pipelined(war="mbarrier"),) * 2, strict=True):
            cache.circular_buffer(stages, None, kind)
        return self

    def run(self, n=1000):
        x = np.ones(n, self.dtype.np)
        return self.fd.manual_execute([x, x], backend="interpret")


# ---- the directive -----------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [0, -2])
def test_stages(stages):
    cache = Stream().caches[0]
    refused(f"x_cache: circular_buffer: {stages} stages; at least 1 is needed",
            cache.circular_buffer, stages, 0)  # fmt: skip


@pytest.mark.parametrize("prefetch", [3, 4, -4])
def test_prefetch_distance(prefetch):
    cache = Stream().caches[0]
    refused(f"x_cache: circular_buffer: prefetch distance {prefetch} with 3 stages; needed 0 to 2",
            cache.circular_buffer, 3, prefetch)  # fmt: skip


def test_negative_distances_count_from_the_stages():
    cache = Stream().caches[0]
    cache.circular_buffer(4, -1)
    assert cache.schedule.circular.prefetch == 3


def test_position_0():
    with FusionDefinition() as fd:
        x = tensor(fd, 1)
        fd.add_output(x + 1.0)
    kept = staged(x, L.tma)
    refused("x_cache: circular_buffer: compute-at position 0; inline it inside the loop first",
            kept.circular_buffer, 3)  # fmt: skip
    assert kept.schedule.circular is None


def test_inputs_and_computed_tensors():
    stream = Stream()
    refused("x: is an input; needed a computed tensor", stream.x.circular_buffer, 3)
    refused("circular_buffer: defined by add; needed a copy made by cache_after",
            stream.y.circular_buffer, 3)  # fmt: skip


@pytest.mark.parametrize("on", [P.grid_x, P.serial, P.tma])
def test_specialised_axis_is_a_thread_axis(on):
    refused(f"WarpSpecialized: on {on.name}; needed block_x, block_y or block_z",
            WarpSpecialized, on, here=False)  # fmt: skip


@pytest.mark.parametrize("count", [16, 30, 264])
def test_register_counts(count):
    refused(f"WarpSpecialized: {count} registers a thread; setmaxnreg takes multiples of 8 from 24 "
            "to 256", WarpSpecialized, P.block_x, (count, 240), here=False)  # fmt: skip


def test_refused_directives_leave_no_trace():
    stream = Stream().buffer()
    before = stream.caches[0].schedule.circular
    with pytest.raises(ScheduleError):
        stream.caches[0].circular_buffer(3, 7)
    assert stream.caches[0].schedule.circular == before
    stream.run()


# ---- the loop ----------------------------------------------------------------------------------


def test_options_on_one_loop_agree():
    stream = Stream()
    stream.caches[0].circular_buffer(3)
    stream.caches[1].circular_buffer(4, 2)
    refused("z_cache: circular-buffered with 4 stages, prefetch 2", stream.run)
    other = Stream().buffer(Pipelined(war="mbarrier"), Pipelined("token", "mbarrier"))
    refused("but x_cache on the same loop with 3 stages, prefetch 2", other.run)


def test_no_serial_loop_on_the_left():
    stream = Stream()
    stream.y.axis(0).parallelize(P.grid_x)
    for cache in stream.caches:
        cache.axis(0).parallelize(P.grid_x)
    refused("x_cache: circular-buffered at compute-at position 1, and no serial loop is left of "
            "it; inline it inside the loop whose trips it shall be buffered over",
            stream.buffer().run)  # fmt: skip


def test_memory_is_shared():
    stream = Stream()
    stream.caches[0].set_memory_type(MemoryType.local)
    refused("x_cache: loaded asynchronously or circular-buffered in local memory; needed shared "
            "memory", stream.run)  # fmt: skip


def test_what_the_kernel_computes_is_not_loaded_ahead():
    """A consumer inside the producer of the ring: the copy would run ahead of what it copies."""
    with FusionDefinition() as fd:
        x = tensor(fd, 1)
        e = fd.ops.exp(x)
        y = e + 1.0
        fd.add_output(y)
    made = staged(e, L.set)
    y.split(0, 64)
    fd.sched.transform_like(y, [e, made])
    for t in (e, made):
        t.inline_at(made if t is e else y, 1)
    made.circular_buffer(2)
    refused("e_cache: circular-buffered, but copies e, which this kernel computes; needed an input",
            fd.manual_execute, [np.ones(200, "f4")], backend="interpret")  # fmt: skip


# ---- boxes -------------------------------------------------------------------------------------


def test_a_box_of_too_few_bytes():
    refused("tensor map x_cache_map of x: box dim 0 is 136 elements, 136 bytes; needed a multiple "
            "of 16 bytes",
            Stream(tile=136, threads=8, dtype=DataType.Int8).buffer().run)  # fmt: skip


def test_a_box_of_too_many_dimensions():
    with FusionDefinition() as fd:
        x = tensor(fd, 6)
        y = x + 1.0
        fd.add_output(y)
    cache = staged(x, L.tma)
    for t in (y, cache):
        t.split(5, 8)
    cache.axis(6).parallelize(P.tma)
    cache.inline_at(y, 6)
    cache.circular_buffer(2)
    refused("tensor map x_cache_map of x: rank is 6; needed 1 to 5",
            fd.manual_execute, [np.ones((2,) * 5 + (16,), "f4")], backend="interpret")  # fmt: skip


def test_tma_axes_and_loads_belong_together():
    stream = Stream((L.set, L.set))
    stream.caches[0].axis(1).parallelize(P.tma)
    refused("x_cache: an axis is bound to tma, and the tensor is not copied by LoadStoreOpType.tma "
            "or bulk; bind it to threads", stream.buffer().run)  # fmt: skip
    with FusionDefinition() as fd:
        x = tensor(fd, 1)
        y = x + 1.0
        fd.add_output(y)
    cache = staged(x, L.tma)
    for t in (y, cache):
        t.split(0, 64)
    cache.inline_at(y, 1)
    cache.circular_buffer(2)
    refused("x_cache: loaded by tma, and none of its axes is bound to ParallelType.tma; bind the "
            "axes of the box",
            fd.manual_execute, [np.ones(99, "f4")], backend="interpret")  # fmt: skip


def matrix_stream(load=L.tma, order=(), axes=(2, 3), shape=(-1, -1)):
    """Tiles of 8 x 16 of a matrix: column tile, row tile, row, column."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=list(shape), contiguity=True)
        y = x + 1.0
        fd.add_output(y)
    cache = staged(x, load)
    for t in (y, cache):
        t.split(1, 16)
        t.split(0, 8)
        t.reorder({2: 0, 0: 1, 1: 2})
    if order:
        cache.set_allocation_domain(order)
    for axis in axes:
        cache.axis(axis).parallelize(P.tma)
    cache.inline_at(y, 2)
    cache.circular_buffer(2)

    def run(shape=(20, 40)):
        return fd.manual_execute([np.ones(shape, "f4")], backend="interpret")

    return run


def test_a_box_lies_in_shared_memory_as_the_engine_writes_it():
    refused("x_cache: loaded by tma, and its box has axes [3, 2] in shared memory and [2, 3] in x; "
            "the copy engine keeps the order of the dimensions; no sizes",
            matrix_stream(order=(0, 1, 3, 2)))  # fmt: skip
    refused("x_cache: the axes bound to tma are not the innermost ones of its buffer; a box lies "
            "in one piece", matrix_stream(axes=(2,)))  # fmt: skip


def test_an_unknown_extent_of_a_box():
    with FusionDefinition() as fd:
        x = tensor(fd, 2)
        y = x + 1.0
        fd.add_output(y)
    cache = staged(x, L.tma)
    cache.axis(1).parallelize(P.tma)
    cache.inline_at(y, 1)
    cache.circular_buffer(2)
    refused("x_cache: lives in shared memory and axis 1 has extent x_size1",
            fd.manual_execute, [np.ones((4, 8), "f4")], backend="interpret")  # fmt: skip


def test_boxes_of_bulk_that_are_cut_short_and_many():
    """Every other box: they are no piece of the tensor, so their sizes are added one by one."""
    with FusionDefinition() as fd:
        x = tensor(fd, 1)
        y = x + 1.0
        fd.add_output(y)
    cache = staged(x, L.bulk)
    for t in (y, cache):
        t.split(0, 260)
        t.split(1, 4)
    cache.split(0, 2)
    y.split(0, 2)
    cache.reorder({1: 2})
    cache.axis(3).parallelize(P.tma)
    cache.inline_at(y, 1)
    cache.circular_buffer(2)
    refused("x_cache: loads 65 boxes a stage, of which some may be cut short or left out; needed "
            "a constant of at most 64, or LoadStoreOpType.tma, which fills what is outside with "
            "zeros", fd.manual_execute, [np.ones(1000, "f4")], backend="interpret")  # fmt: skip


# ---- what a block has --------------------------------------------------------------------------


@pytest.mark.parametrize(("tile", "stages", "text"), [
    (8192, 8, "x_cache: circular-buffered with 8 stages of 32768 bytes, in all 262272 bytes of "
              "shared memory; 232448 are available to a block, where 7 stages fit"),
    (65536, 2, "x_cache: circular-buffered with 2 stages of 262144 bytes, in all 524320 bytes of "
               "shared memory; 232448 are available to a block, where not one stage fits, so "
               "smaller tiles are needed"),
])  # fmt: skip
def test_shared_memory(tile, stages, text):
    fd = single_dim(Choices((L.bulk,), stages, tile=tile))
    x = np.ones(3 * tile, "f4")
    refused(text, fd.manual_execute, [x], backend="interpret", here=False)


def test_the_number_of_stages_that_fit_does_fit():
    fd = single_dim(Choices((L.bulk,), 7, tile=8192))
    x = np.arange(9 * 8192, dtype="f4")
    (y,) = fd.manual_execute([x], backend="interpret")
    np.testing.assert_array_equal(y, 2 * x + 1)


def test_shared_memory_without_a_ring():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 60_000], contiguity=True)
        y = fd.ops.permute(x, [1, 0])
        fd.add_output(y)
    tile = x.cache_after()
    tile.set_memory_type(MemoryType.shared)
    y.reorder({1: 0})
    tile.inline_at(y, 1)
    refused("x_cache: 240000 bytes of shared memory; 232448 are available to a block",
            fd.manual_execute, [np.ones((2, 60_000), "f4")], backend="interpret")  # fmt: skip


# ---- roles -------------------------------------------------------------------------------------


def specialised(stream: Stream, registers=None, on=P.block_x) -> Stream:
    return stream.buffer(*(WarpSpecialized(on, registers),) * 2)


def test_roles_are_whole_warps():
    refused("x_cache: warp-specialised over 48 threads; whole warps of 32 are needed",
            specialised(Stream(tile=96, threads=48)).run)  # fmt: skip


def test_registers_change_hands_between_warp_groups():
    refused("x_cache: registers change hands among 64 consumer threads; whole warp groups of 128 "
            "are needed", specialised(Stream(), (40, 232)).run)  # fmt: skip


@pytest.mark.parametrize(("threads", "registers", "text"), [
    (128, (40, 168), "num_registers (40, 168), and a block of 256 threads begins with 256 a thread;"
                     " needed at most that for producers and at least that for consumers"),
    (256, (176, 232), "num_registers (176, 232), and a block of 384 threads begins with 168"),
    (256, (40, 240), "num_registers 40 x 128 + 240 x 256 = 66560; the block begins with 168 x 384 "
                     "= 64512, which nothing may exceed"),
])  # fmt: skip
def test_registers_that_do_not_add_up(threads, registers, text):
    refused(f"x_cache: {text}", specialised(Stream(threads=threads), registers).run)


def test_the_axis_that_is_extended_comes_last():
    stream = Stream()
    stream.y.split(1, 2)
    stream.y.axis(2).parallelize(P.block_y)
    refused("x_cache: warp-specialised on block_x, and block_y has threads too; producer warps "
            "follow the others only on the slowest varying thread axis",
            specialised(stream).run)  # fmt: skip


HANDED = WarpSpecialized(P.block_x, (40, 232))


def test_reductions_over_blocks_in_a_role():
    """What follows roles that hand registers over belongs to the consumers."""
    with FusionDefinition() as fd:
        x = tensor(fd, 1)
        s = fd.ops.sum(x, [0])
        fd.add_output(s)
    cache = staged(x, L.tma)
    for t in (s, cache):
        t.split(0, 512)
        t.split(1, 256)
        t.axis(1).parallelize(P.grid_x)
    s.axis(2).parallelize(P.block_x)
    cache.axis(2).parallelize(P.tma)
    cache.inline_at(s, 1)
    cache.circular_buffer(2, type=HANDED)
    refused("s_acc: is reduced over grid_x inside a warp role, and all threads of a block take "
            "part in that; needed a pipelined ring, or a reduction behind the roles, without "
            "num_registers", fd.manual_execute, [np.ones(5000, "f4")], backend="interpret",
            here=False)  # fmt: skip


def row_sums(inlined):
    """Partial sums in the ring of a block's row, and their sum behind it."""
    with FusionDefinition() as fd:
        x = tensor(fd, 2)
        s = fd.ops.sum(x, [1])
        fd.add_output(s)
    cache = staged(x, L.bulk)
    s.split(1, 512)
    s.split(2, 256)
    partial = s.rfactor([1, 2])
    for t in (s, partial):
        t.axis(0).parallelize(P.grid_x)
        t.axis(-1).parallelize(P.block_x)
    cache.axis(0).parallelize(P.grid_x)
    cache.split(1, 512)
    cache.axis(2).parallelize(P.tma)
    cache.inline_at(partial, 2)
    if inlined:
        partial.inline_at(s, 1)
    cache.circular_buffer(2, type=HANDED)
    return fd


@pytest.mark.parametrize("inlined", [False, True])
def test_work_behind_roles_that_gave_registers_away(inlined):
    """By the consumers in the ring's own loops, by all threads behind them: registers go back."""
    x = np.ones((5, 2000), "f4")
    (got,) = row_sums(inlined).manual_execute([x], backend="interpret")
    np.testing.assert_array_equal(got, np.full(5, 2000, "f4"))


def test_a_specialised_axis_of_unknown_extent():
    with FusionDefinition() as fd:
        x, z = tensor(fd, 1), tensor(fd, 1)
        shape = [fd.ops.size(x, 0), fd.ops.size(z, 0)]
        y = fd.ops.add(fd.ops.broadcast_in_dim(x, shape, [0]),
                       fd.ops.broadcast_in_dim(z, shape, [1]))  # fmt: skip
        fd.add_output(y)
    cache = staged(x, L.tma)
    for t in (y, cache):
        t.split(0, 64)
    y.axis(2).parallelize(P.block_x)
    cache.axis(1).parallelize(P.tma)
    cache.inline_at(y, 1)
    cache.circular_buffer(2, type=WarpSpecialized())
    refused("x_cache: warp-specialised, and block_x has z_size0 threads; barriers count arrivals, "
            "which needs a constant extent",
            fd.manual_execute, [np.ones(256, "f4"), np.ones(32, "f4")],
            backend="interpret")  # fmt: skip
