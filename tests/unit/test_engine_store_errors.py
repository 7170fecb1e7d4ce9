"""What is refused of stores by the copy engine: the text names the tensor and what was needed."""

import re
from pathlib import Path

import numpy as np
import pytest
from engine_stores import L, P, boxed, threaded, tile_of, vector

from fuser import FusionDefinition, MemoryType
from fuser.core.errors import ScheduleError
from fuser.schedule.circular import WarpSpecialized


class Fusion:
    """``y = 2 x + 1`` with a tile that `y` is a copy of."""

    def __init__(self, load=L.tma, rank=1, shared=True):
        with FusionDefinition() as fd:
            x = vector(fd, rank)
            y = x * 2.0 + 1.0
            fd.add_output(y)
        self.fd, self.y = fd, y
        self.tile = y.cache_before(load)
        if shared:
            self.tile.set_memory_type(MemoryType.shared)
        self.shape = (1024,) if rank == 1 else (64,) * rank

    def run(self):
        return self.fd.manual_execute([np.ones(self.shape, "f4")], backend="interpret")


def refused(text, call, *args, **kwargs):
    with pytest.raises(ScheduleError, match=re.escape(text)) as caught:
        call(*args, **kwargs)
    location = caught.value.location
    assert location is not None, str(caught.value)
    assert Path(location.file).name in (Path(__file__).name, "engine_stores.py")


def test_only_outputs_are_stored():
    with FusionDefinition() as fd:
        x = vector(fd)
        t = x * 2.0
        fd.add_output(t + 1.0)
    for load in (L.tma, L.bulk):
        refused(f"cache_before: {load.name} copies store outputs, and it is none; set is needed",
                t.cache_before, load)  # fmt: skip


def test_a_tile_is_in_shared_memory():
    f = Fusion(shared=False)
    boxed(f.y)
    f.tile.split(0, 256)
    f.tile.inline_at(f.y, 1)
    refused("y: stored by tma out of y_cache, which lives in local memory; needed shared memory",
            f.run)  # fmt: skip


def test_a_tile_owns_loops():
    f = Fusion(shared=False)
    f.tile.inline_at(f.y)
    refused("y: stored by tma, and its cache owns no loops; needed a tile in shared memory that it "
            "copies", f.run)  # fmt: skip


@pytest.mark.parametrize("load", [L.tma, L.bulk])
def test_a_box_has_axes(load):
    f = Fusion(load)
    f.y.split(0, 256)
    threaded(f.tile)
    f.tile.inline_at(f.y, 1)
    refused(f"y: stored by {load.name}, and none of its axes is bound to ParallelType.tma; bind "
            "the axes of the box", f.run)  # fmt: skip


def test_a_box_has_a_constant_extent():
    f = Fusion()
    f.y.axis(0).parallelize(P.tma)
    f.tile.split(0, 64)
    f.tile.axis(1).parallelize(P.block_x)
    refused("needed", f.run)


def test_a_box_has_256_elements_a_dimension():
    """A longer tile is stored in several boxes that fill it; 260 elements are no such."""
    f = Fusion()
    f.y.split(0, 260)
    f.y.axis(1).parallelize(P.tma)
    f.tile.split(0, 260)
    f.tile.inline_at(f.y, 1)
    refused("tensor map y_map of y: box dim 0 is 260; needed 1 to 256", f.run)


def test_rows_of_a_box_are_multiples_of_16_bytes():
    f = Fusion()
    f.y.split(0, 6)
    f.y.axis(1).parallelize(P.tma)
    f.tile.split(0, 6)
    f.tile.inline_at(f.y, 1)
    refused("24 bytes", f.run)


def test_boxes_begin_at_128_bytes():
    f = Fusion()
    f.y.split(0, 64)
    f.y.split(1, 16)
    f.y.axis(2).parallelize(P.tma)
    f.tile.split(0, 64)
    f.tile.axis(1).parallelize(P.block_x)
    f.tile.inline_at(f.y, 1)
    refused("y: its boxes have 64 bytes, and several lie behind each other in shared memory; "
            "needed a multiple of 128", f.run)  # fmt: skip


def test_a_box_is_one_piece_of_the_tile():
    f = Fusion(rank=2)
    for t in (f.y, f.tile):
        t.split(1, 32)
        t.split(0, 8)
        t.reorder({2: 1})
    for axis in (2, 3):
        f.y.axis(axis).parallelize(P.tma)
    f.tile.set_allocation_domain([0, 1, 3, 2])
    f.tile.inline_at(f.y, 2)
    refused("y: element (a2, a3) of its box lies a2 + a3 * 8 behind the first one in y_cache; a "
            "box lies in one piece, so order the axes of both alike", f.run)  # fmt: skip


def test_one_thread_stores():
    f = Fusion()
    for t in (f.y, f.tile):
        t.split(0, 256)
        t.split(0, 2)
        t.axis(1).parallelize(P.block_x)
    f.y.axis(2).parallelize(P.tma)
    f.tile.inline_at(f.y, 2)
    refused("y: stored by the copy engine inside a loop over block_x; one thread of a block issues "
            "it, so inline its tile outside of thread axes", f.run)  # fmt: skip
    f = Fusion()
    f.y.split(0, 256)
    f.y.split(1, 64)
    f.y.axis(1).parallelize(P.block_x)
    f.y.axis(2).parallelize(P.tma)
    threaded(f.tile)
    f.tile.inline_at(f.y, 1)
    refused("y: a box lies inside a loop over block_x; one thread issues it, so bind only grid "
            "axes around it", f.run)  # fmt: skip


def test_stages_of_a_tile():
    f = Fusion()
    boxed(f.y)
    threaded(f.tile)
    refused("y_cache: circular_buffer: compute-at position 0; inline it inside the loop first",
            f.tile.circular_buffer, 2)  # fmt: skip
    f.tile.inline_at(f.y, 1)
    refused("circular_buffer: 0 stages; at least 1 is needed", f.tile.circular_buffer, 0)
    refused("y_cache: circular_buffer: prefetch distance 1 and",
            f.tile.circular_buffer, 2, 1)  # fmt: skip
    refused("of a tile that the copy engine stores; it has stages only",
            f.tile.circular_buffer, 2, None, WarpSpecialized())  # fmt: skip
    f.tile.circular_buffer(2)
    refused("y_cache: circular_buffer: it has 2 stages already; needed one circular_buffer of a",
            f.tile.circular_buffer, 3)  # fmt: skip


def test_stages_need_a_loop():
    f = Fusion()
    boxed(f.y)
    threaded(f.tile)
    for t in (f.y, f.tile):
        t.axis(0).parallelize(P.grid_x)
    f.tile.inline_at(f.y, 1)
    f.tile.circular_buffer(2)
    refused("y_cache: has 2 stages to be stored out of, and no loop is left of its compute-at "
            "position 1; inline it inside the loop of its trips", f.run)  # fmt: skip


def test_tiles_of_a_loop_agree():
    with FusionDefinition() as fd:
        x = vector(fd)
        y, z = x * 2.0, x + 1.0
        fd.add_output(y)
        fd.add_output(z)
    tiles = [tile_of(out) for out in (y, z)]
    cache = x.cache_after(L.tma)
    cache.set_memory_type(MemoryType.shared)
    for out, tile, stages in zip((y, z), tiles, (2, 3), strict=True):
        boxed(out)
        threaded(tile)
        tile.inline_at(out, 1)
        tile.circular_buffer(stages)
    boxed(cache)
    cache.inline_at(tiles[0], 1)
    refused("z_cache: has 3 stages to be stored out of, and y_cache in the same loop 2; all tiles "
            "of a loop must agree", fd.manual_execute, [np.ones(1024, "f4")])  # fmt: skip


@pytest.mark.parametrize("load", [L.cp_async, L.set])
def test_a_stage_that_threads_load_is_not_stored_out_of(load):
    with FusionDefinition() as fd:
        x = vector(fd)
        y = fd.ops.set(x)
        fd.add_output(y)
    cache = x.cache_after(load)
    cache.set_memory_type(MemoryType.shared)
    boxed(y)
    through = y.cache_before(L.tma)
    through.inline_at(y)
    threaded(cache)
    cache.inline_at(through, 1)
    if load is L.cp_async:
        refused("y: stored by tma out of x_cache, which threads load by cp_async into a ring; load "
                "it by tma or bulk, or give the output a cache of its own",
                fd.manual_execute, [np.ones(1024, "f4")])  # fmt: skip
    else:
        (out,) = fd.manual_execute([np.ones(1024, "f4")], backend="interpret")
        np.testing.assert_array_equal(out, 1)


def test_stages_that_fit():
    f = Fusion()
    boxed(f.y)
    threaded(f.tile)
    f.tile.inline_at(f.y, 1)
    f.tile.circular_buffer(228)
    refused("y_cache: circular-buffered with 228 stages of 1024 bytes, in all 233472 bytes of "
            "shared memory; 232448 are available to a block, where 227 stages fit",
            f.run)  # fmt: skip
