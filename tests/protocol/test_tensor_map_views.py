"""Strided and transposed views are tensor maps: the copy engine loads them, and results are exact.

Which dimension has stride 1 is part of the shape class; boxes lie in shared memory in the order of
the array, and readers follow. Arrays are random whole numbers, so twice of them is exact.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from rings.interpret import exact

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.core.errors import FallbackWarning, ScheduleError
from fuser.kir.core import walk_stmts
from fuser.kir.stmts import TensorLoad, TensorStore
from fuser.kir.tensor_map import TensorMapParam
from fuser.runtime.tensor_map import tma_obstacle
from fuser.schedule.circular import Pipelined, WarpSpecialized

pytestmark = pytest.mark.protocol

P, L, D = ParallelType, LoadStoreOpType, DataType
KINDS = [Pipelined(war="mbarrier"), Pipelined("token", "barrier"), WarpSpecialized()]
ROWS, COLUMNS = 8, 16


def tiles(
    kind=KINDS[0],
    stages=2,
    *,
    rows=ROWS,
    columns=COLUMNS,
    order=(),
    boxes=1,
    dtype=D.Float,
    **layout,
):
    """``y = 2 x``: tiles of a matrix, a strip of rows a block, `boxes` boxes a stage."""
    layout = {"shape": [-1, -1], "contiguity": False, **layout}
    with FusionDefinition() as fd:
        x = fd.define_tensor(dtype=dtype, **layout)
        y = fd.ops.cast(x * 2.0, dtype=D.Double)
        fd.add_output(y)
    cache = x.cache_after(L.tma)
    cache.set_memory_type(MemoryType.shared)
    for t in (y, cache):
        t.split(1, columns * boxes)
        t.split(0, rows)
        t.reorder({2: 1})  # strip, trip, row, column
        t.axis(0).parallelize(P.grid_x)
    y.merge(2, 3)
    y.split(2, 32)
    y.axis(3).parallelize(P.block_x)
    if boxes > 1:
        cache.split(3, columns)
        cache.reorder({3: 2})  # strip, trip, box, row, column
    if order:
        cache.set_allocation_domain(order)
    for axis in (-2, -1):
        cache.axis(axis).parallelize(P.tma)
    cache.inline_at(y, 2)
    cache.circular_buffer(stages, None, kind)
    return fd


def cubes(stages=2, tile=(4, 8, 16)):
    """``y = 2 x`` of three dimensions, a box of all three in each trip along the first."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1, -1])
        y = fd.ops.cast(x * 2.0, dtype=D.Double)
        fd.add_output(y)
    cache = x.cache_after(L.tma)
    cache.set_memory_type(MemoryType.shared)
    for t in (y, cache):
        for d in (2, 1, 0):
            t.split(d, tile[d])
        t.reorder({2: 1, 4: 2})
    for _ in range(2):
        y.merge(3, 4)
    y.axis(3).parallelize(P.block_x)
    for axis in (3, 4, 5):
        cache.axis(axis).parallelize(P.tma)
    cache.inline_at(y, 3)
    cache.circular_buffer(stages)
    return fd


def numbers(rng, *shape, dtype="f4"):
    """Return random whole numbers that begin at a multiple of 16 bytes."""
    count = int(np.prod(shape))
    memory = np.zeros(count + 64, dtype)
    first = -memory.ctypes.data % 16 // memory.itemsize
    x = memory[first : first + count].reshape(shape)
    x[...] = rng.integers(-9, 9, shape)
    return x


def kernel_of(fd, x):
    (kernel,) = program_of(fd, bind(fd, [x], True), True).kernels
    return kernel


def loaded(fd, x):
    """Return the tensor map by which a kernel loads; raise unless it does."""
    kernel = kernel_of(fd, x)
    assert any(isinstance(s, TensorLoad) for s in walk_stmts(kernel.body))
    assert kernel.fallbacks == ()
    (param,) = (p for p in kernel.params if isinstance(p, TensorMapParam))
    return param


def same(what, fd, x, seeds=2):
    """Functional and checked execution are exactly the reference; nothing is warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        exact(what, fd, [x], 2 * x.astype("f8"), seeds)
    call = bind(fd, [x], True)
    addresses = {name: view.pointer for name, view in call.views.items()}
    assert tma_obstacle(program_of(fd, call, True), call.env, addresses) is None


def views(rng):
    """Return views of a matrix, and which dimension of each is the first of its map."""
    square = numbers(rng, 40, 72)
    return {
        "rows": (square, 1),
        "turned": (square.T, 0),
        "padded rows": (square[:, :37], 1),
        "padded rows, turned": (square[:, :37].T, 0),
        "columns from 16 bytes on": (square[:, 4:44], 1),
        "every other row": (square[::2], 1),
        "every other column of the transpose": (square.T[4:, ::2], 0),
        "rows that overlap": (as_strided(square, (19, 24), (4 * 4, 4)), 1),
        "one row for all": (np.broadcast_to(square[1], (19, 72)), 1),
        "one column for all": (np.broadcast_to(square[1][:, None], (72, 19)), 0),
        "a single row": (square[3:4], 1),
    }


@pytest.mark.parametrize("view", views(np.random.default_rng(0)))
def test_views_are_tensor_maps(view, rng):
    x, first = views(rng)[view]
    fd = tiles()
    same(view, fd, x)
    param = loaded(fd, x)
    size = ("x_size0", "x_size1")
    assert (repr(param.dims[0]), param.box[0]) == (size[first], (ROWS, COLUMNS)[first])


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("boxes", [1, 2])
def test_every_kind_of_ring(kind, stages, boxes, rng):
    fd = tiles(kind, stages, boxes=boxes)
    for view in ("turned", "padded rows", "padded rows, turned"):
        x, _ = views(rng)[view]
        same((view, kind, stages, boxes), fd, x)
        loaded(fd, x)


@pytest.mark.parametrize("dtype", [D.BFloat16, D.Double, D.Int8], ids=lambda d: d.short)
def test_other_widths(dtype, rng):
    fd = tiles(rows=32, columns=32, dtype=dtype)
    x = numbers(rng, 48, 64).astype(dtype.np).T
    same(dtype, fd, x, 1)
    assert loaded(fd, x).box == (32, 32)


def test_a_layout_has_a_variant(rng):
    """One definition: by rows, by columns, and by threads where neither serves."""
    fd, x = tiles(), numbers(rng, 40, 72)
    classes = {bind(fd, [view], True).cls for view in (x, x.T, x[:, :37].T, x[:, ::2])}
    assert len(classes) == 4
    same("rows", fd, x, 0)
    same("turned", fd, x.T, 0)
    with pytest.warns(FallbackWarning, match="x is not contiguous along its last dimension"):
        (y,) = fd.manual_execute([x[:, ::2]], backend="interpret")
    np.testing.assert_array_equal(y, 2 * x[:, ::2].astype("f8"))
    assert [loaded(fd, view).box for view in (x, x.T)] == [(16, 8), (8, 16)]


@pytest.mark.parametrize("columns", [40, 44, 42, 41])
def test_the_pitch_of_a_transpose_is_part_of_the_class(columns, rng):
    """Its rows begin at multiples of 16 bytes or they do not: nobody promised either."""
    fd, x = tiles(), numbers(rng, 24, columns)
    if columns % 4 == 0:
        same(columns, fd, x.T, 1)
        loaded(fd, x.T)
        return
    text = f"stride of dimension 1 of x is {4 * columns} bytes; needed a multiple of 16"
    with pytest.warns(FallbackWarning, match=text):
        (y,) = fd.manual_execute([x.T], backend="interpret")
    np.testing.assert_array_equal(y, 2 * x.T.astype("f8"))


def test_the_pitch_by_the_name_of_an_equal_size(rng):
    """``z + x``: the sizes of x are those of z, and the stride of x.T is one of them."""
    with FusionDefinition() as fd:
        z = fd.define_tensor(shape=[-1, -1], contiguity=True)
        x = fd.define_tensor(shape=[-1, -1])
        y = z + x
        fd.add_output(y)
    caches = [t.cache_after(L.tma) for t in (z, x)]
    for t in (y, *caches):
        t.split(1, 16)
        t.split(0, 8)
        t.reorder({2: 1})
    y.axis(3).parallelize(P.block_x)
    for cache in caches:
        cache.set_memory_type(MemoryType.shared)
        cache.axis(2).parallelize(P.tma)
        cache.axis(3).parallelize(P.tma)
        cache.inline_at(y, 2)
        cache.circular_buffer(2)
    inputs = [numbers(rng, 24, 40), numbers(rng, 40, 24).T]
    exact("sum", fd, inputs, (inputs[0].astype("f8") + inputs[1]).astype("f4"))
    (kernel,) = program_of(fd, bind(fd, inputs, True), True).kernels
    assert kernel.fallbacks == ()
    assert sum(isinstance(s, TensorLoad) for s in walk_stmts(kernel.body)) >= 2


@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 0, 2), (2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("padded", [0, 4])
def test_three_dimensions_in_any_order(axes, padded, rng):
    back = np.argsort(axes)
    shape = [(12, 16, 20)[d] for d in axes]
    x = numbers(rng, *shape[:2], shape[2] + padded)[..., : shape[2]].transpose(back)
    assert x.shape == (12, 16, 20)
    fd = cubes()
    same((axes, padded), fd, x, 1)
    param, inner = loaded(fd, x), axes[-1]
    assert repr(param.dims[0]) == f"x_size{inner}"
    assert sorted(param.box) == [4, 8, 16]
    assert param.box[0] == (4, 8, 16)[inner]


# ---- what the definition promises, and what the schedule sets -----------------------------------


def test_a_promised_order(rng):
    fd = tiles(contiguity=True, stride_order=[0, 1])
    x = numbers(rng, 24, 40).T
    same("promised", fd, x)
    assert loaded(fd, x).box == (8, 16)


def test_an_order_that_is_set_is_left_alone(rng):
    """The tile lies column by column: by TMA where the array does too, else by threads."""
    fd = tiles(order=[0, 1, 3, 2])
    x = numbers(rng, 40, 24)
    same("columns", fd, x.T)
    assert loaded(fd, x.T).box == (8, 16)
    text = (
        r"x_cache: threads copy it, .* because its box has axes \[3, 2\] in shared memory and "
        r"\[2, 3\] in x; the copy engine keeps the order of the dimensions .* pass an array that "
        "is contiguous along dimension 0"
    )
    with pytest.warns(FallbackWarning, match=text):
        (y,) = fd.manual_execute([x], backend="interpret")
    np.testing.assert_array_equal(y, 2 * x.astype("f8"))


def test_an_order_that_no_array_has_is_refused(rng):
    fd = tiles(order=[0, 1, 3, 2], contiguity=True)
    text = r"its box has axes \[3, 2\] in shared memory and \[2, 3\] in x; .* no sizes or address"
    with pytest.raises(ScheduleError, match=text):
        fd.manual_execute([numbers(rng, 24, 40)], backend="interpret")


@pytest.mark.parametrize("turned", [False, True])
def test_a_box_that_is_wide_one_way_only(turned, rng):
    """Boxes of 32 x 2: columns of a transpose, rows of nothing."""
    fd = tiles(rows=32, columns=2)
    x = numbers(rng, 40, 64)
    if turned:
        same("wide", fd, x.T)
        assert loaded(fd, x.T).box == (32, 2)
        return
    with pytest.warns(FallbackWarning, match="along dimension 1, where a box has 8 bytes; needed"):
        (y,) = fd.manual_execute([x], backend="interpret")
    np.testing.assert_array_equal(y, 2 * x.astype("f8"))


# ---- behind the load ----------------------------------------------------------------------------


def copy(**layout):
    """``y = x``, stored out of the stage that it was loaded into."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], **layout)
        y = fd.ops.set(x)
        fd.add_output(y)
    cache = x.cache_after(L.tma)
    cache.set_memory_type(MemoryType.shared)
    for t in (y, cache):
        t.split(1, COLUMNS)
        t.split(0, ROWS)
        t.reorder({2: 1})
        t.axis(0).parallelize(P.grid_x)
        t.axis(2).parallelize(P.tma)
        t.axis(3).parallelize(P.tma)
    through = y.cache_before(L.tma)
    through.inline_at(y)
    cache.inline_at(through, 2)
    cache.circular_buffer(2)
    return fd


def test_a_copy_of_a_transpose_is_loaded_by_tma_and_stored_by_threads(rng):
    fd, x = copy(), numbers(rng, 40, 24)
    exact("rows", fd, [x], x)
    assert kernel_of(fd, x).fallbacks == ()
    text = "y: threads store it, .* because x_cache lies in the order of x, not in that of y"
    with pytest.warns(FallbackWarning, match=text):
        exact("turned", fd, [x.T], x.T)
    kinds = {type(s) for s in walk_stmts(kernel_of(fd, x.T).body)}
    assert TensorLoad in kinds
    assert TensorStore not in kinds
    with pytest.raises(ScheduleError, match="order the axes of both alike"):
        copy(contiguity=True, stride_order=[0, 1]).manual_execute([x.T], backend="interpret")
