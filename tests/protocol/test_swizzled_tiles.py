"""Ring tiles whose 16-byte pieces the copy engine permutes: readers follow, results are exact."""

from __future__ import annotations

import numpy as np
import pytest
from rings.interpret import exact

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.core.errors import FallbackWarning, ScheduleError
from fuser.kir.core import walk_stmts
from fuser.kir.stmts import TensorLoad, VectorLoad
from fuser.kir.tensor_map import TensorMapParam
from fuser.schedule.circular import Pipelined, WarpSpecialized

pytestmark = pytest.mark.protocol

P, L, D = ParallelType, LoadStoreOpType, DataType
KINDS = [Pipelined(war="mbarrier"), Pipelined("token", "barrier"), WarpSpecialized()]
SPANS = {"32B": 32, "64B": 64, "128B": 128}


def tiles(
    swizzle, rows=16, columns=None, *, dtype=D.Float, kind=KINDS[0], stages=2, boxes=1, vector=1,
    load=L.tma, **layout
):  # fmt: skip
    """``y = 2 x``: tiles of a matrix in trips along its rows, one span wide by default."""
    columns = columns or SPANS[swizzle] // dtype.nbytes
    layout = {"shape": [-1, -1], "contiguity": False, **layout}
    with FusionDefinition() as fd:
        x = fd.define_tensor(dtype=dtype, **layout)
        y = fd.ops.cast(x * 2.0, dtype=D.Double if vector == 1 else dtype)
        fd.add_output(y)
    cache = x.cache_after(load)
    cache.set_memory_type(MemoryType.shared)
    for t in (y, cache):
        t.split(1, columns * boxes)
        t.split(0, rows)
        t.reorder({2: 1})
        t.axis(0).parallelize(P.grid_x)
    if vector > 1:
        y.split(3, vector)
        y.axis(4).parallelize(P.vectorize)
    y.axis(2).parallelize(P.block_x)
    if boxes > 1:
        cache.split(3, columns)
        cache.reorder({3: 2})
    for axis in (-2, -1):
        cache.axis(axis).parallelize(P.tma)
    cache.set_swizzle(swizzle)
    cache.inline_at(y, 2)
    cache.circular_buffer(stages, None, kind)
    return fd


def numbers(rng, *shape, dtype="f4"):
    """Return random whole numbers that begin at a multiple of 16 bytes."""
    count = int(np.prod(shape))
    memory = np.zeros(count + 64, dtype)
    first = -memory.ctypes.data % 16 // memory.itemsize
    x = memory[first : first + count].reshape(shape)
    x[...] = rng.integers(-9, 9, shape)
    return x


def loaded(fd, x):
    """Return the kernel of a call and its tensor map; raise unless it loads through one."""
    (kernel,) = program_of(fd, bind(fd, [x], True), True).kernels
    assert any(isinstance(s, TensorLoad) for s in walk_stmts(kernel.body))
    assert kernel.fallbacks == ()
    (param,) = (p for p in kernel.params if isinstance(p, TensorMapParam))
    return kernel, param


@pytest.mark.parametrize("swizzle", SPANS)
@pytest.mark.parametrize("dtype", [D.Int8, D.BFloat16, D.Float, D.Double], ids=lambda d: d.short)
@pytest.mark.parametrize("boxes", [1, 2])
def test_results_are_exact(swizzle, dtype, boxes, rng):
    fd = tiles(swizzle, dtype=dtype, boxes=boxes)
    x = numbers(rng, 40, 144, dtype=dtype.np)
    exact((swizzle, dtype, boxes), fd, [x], 2 * x.astype("f8"), 1)
    kernel, param = loaded(fd, x)
    (array,) = kernel.shared
    assert param.swizzle == swizzle
    assert array.align_bytes == 8 * SPANS[swizzle]
    assert array.nbytes // 2 % array.align_bytes == 0


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_every_kind_of_ring(kind, stages, rng):
    fd, x = tiles("128B", 32, kind=kind, stages=stages), numbers(rng, 40, 72)
    exact((kind, stages), fd, [x], 2 * x.astype("f8"))
    loaded(fd, x)


def test_readers_find_the_pieces(rng):
    """Row r of 128 bytes has piece p at p ^ (r % 8): eight rows, all banks."""
    x = numbers(rng, 16, 32)
    kernel, _ = loaded(tiles("128B", vector=4), x)
    assert "(tx * 8 + i3 ^ tx % 8) * 4" in emit(kernel)
    kernel, param = loaded(tiles("none", columns=32, vector=4), x)
    assert param.swizzle == "none"
    assert "^ tx" not in emit(kernel)


def test_pieces_are_read_whole(rng):
    fd, x = tiles("128B", vector=4), numbers(rng, 40, 72)
    exact("vectors", fd, [x], 2 * x.astype("f8"))
    kernel, _ = loaded(fd, x)
    assert any(isinstance(s, VectorLoad) and s.width == 4 for s in walk_stmts(kernel.body))


def test_a_transpose_and_the_threads_copies(rng):
    """Boxes of a span both ways serve both orders; without a map, threads permute alike."""
    fd, x = tiles("64B"), numbers(rng, 40, 72)
    for view in (x, x.T, x[:, :37], x[:, :37].T):
        exact("views", fd, [view], 2 * view.astype("f8"), 1)
        assert loaded(fd, view)[1].swizzle == "64B"
    for odd in (x[:, ::2], numbers(rng, 40, 71), numbers(rng, 40, 71).T):
        with pytest.warns(FallbackWarning):
            exact("odd", fd, [odd], 2 * odd.astype("f8"), 1)


def test_a_box_that_is_a_span_one_way_only(rng):
    fd, x = tiles("128B", rows=8), numbers(rng, 40, 72)
    exact("rows", fd, [x], 2 * x.astype("f8"), 1)
    text = "along dimension 0, where a box has 32 bytes; needed 128, the span of its swizzle"
    with pytest.warns(FallbackWarning, match=text):
        exact("columns", fd, [x.T], 2 * x.T.astype("f8"), 1)


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_wider_tile_is_boxes_of_a_span(kind, rng):
    """By itself: as the schedule would split it, whichever axis the array is contiguous along."""
    fd, x = tiles("64B", 32, 32, kind=kind), numbers(rng, 40, 72)
    for view in (x, x.T):
        exact(("boxes", kind), fd, [view], 2 * view.astype("f8"), 1)
        assert loaded(fd, view)[1].box == (16, 32)


@pytest.mark.parametrize(("swizzle", "columns"), [("128B", 16), ("32B", 4)])
def test_a_box_is_as_wide_as_the_span(swizzle, columns, rng):
    fd = tiles(swizzle, rows=128, columns=columns)
    text = f"box dim 0 is {columns} elements, {4 * columns} bytes; needed"
    with pytest.raises(ScheduleError, match=f"{text}.* the span of swizzle {swizzle}"):
        fd.manual_execute([numbers(rng, 128, 64)], backend="interpret")


def test_boxes_begin_where_the_pattern_does(rng):
    fd = tiles("128B", rows=4, boxes=2)
    text = "its boxes have 512 bytes, and several lie .* needed a multiple of 1024"
    with pytest.raises(ScheduleError, match=text):
        fd.manual_execute([numbers(rng, 16, 64)], backend="interpret")


@pytest.mark.parametrize("load", [L.bulk, L.cp_async, L.set])
def test_only_tensor_maps_permute(load):
    with pytest.raises(ScheduleError, match="set_swizzle: needed a tile that"):
        tiles("128B", load=load)


def test_an_unknown_swizzle():
    text = "x_cache: set_swizzle: '16B'; needed one of 'none', '32B', '64B', '128B'"
    with pytest.raises(ScheduleError, match=text):
        tiles("16B", columns=4)


def test_nothing_is_stored_out_of_a_swizzled_stage(rng):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1])
        y = fd.ops.set(x)
        fd.add_output(y)
    cache = x.cache_after(L.tma)
    cache.set_memory_type(MemoryType.shared)
    for t in (y, cache):
        t.split(1, 32)
        t.split(0, 8)
        t.reorder({2: 1})
        t.axis(2).parallelize(P.tma)
        t.axis(3).parallelize(P.tma)
    cache.set_swizzle("128B")
    through = y.cache_before(L.tma)
    through.inline_at(y)
    cache.inline_at(through, 2)
    cache.circular_buffer(2)
    text = "y: stored by tma out of x_cache, .* swizzle of 128 bytes; set no swizzle"
    with pytest.raises(ScheduleError, match=text):
        fd.manual_execute([numbers(rng, 16, 64)], backend="interpret")
