"""Inputs that TMA cannot load take a variant without it, which says so once and is right."""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.api.manual import build_manual
from fuser.core.errors import FallbackWarning
from fuser.kir.core import walk_stmts
from fuser.kir.stmts import BulkLoad, TensorLoad
from fuser.runtime.arrays import ArrayView, view_of
from fuser.runtime.tensor_map import tma_obstacle
from fuser.schedule.circular import Pipelined, WarpSpecialized

pytestmark = pytest.mark.protocol

P, L, D = ParallelType, LoadStoreOpType, DataType
KINDS = [Pipelined(war="mbarrier"), Pipelined("token", "barrier"), WarpSpecialized()]
COSTS = (
    "Results are the same, but loads are slower and take registers and issue slots from the "
    "computation; "
)


def staged(x, load):
    cache = x.cache_after(load)
    cache.set_memory_type(MemoryType.shared)
    return cache


def rows(load=L.tma, kind=KINDS[0], dtype=D.Float, contiguity=False, rank=2, tile=64):
    """``y = 2 x``, tiles of a row in trips."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1] * rank, contiguity=contiguity, dtype=dtype)
        y = fd.ops.cast(x * 2.0, dtype=D.Double)
        fd.add_output(y)
    cache = staged(x, load)
    last = rank - 1
    for t in (y, cache):
        t.split(last, tile)
        if rank == 2:
            t.axis(0).parallelize(P.grid_x)
    y.split(rank, 32)
    y.axis(rank + 1).parallelize(P.block_x)
    cache.axis(rank).parallelize(P.tma)
    cache.inline_at(y, rank)
    cache.circular_buffer(3, type=kind)
    return fd


def said(fd, x):
    """Run, compare with float64, return what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (y,) = fd.manual_execute([x], backend="interpret")
    np.testing.assert_array_equal(y, 2 * x.astype("f8"))
    assert all(w.category is FallbackWarning for w in caught)
    return [str(w.message) for w in caught]


def uses_engine(fd, x):
    (kernel,) = program_of(fd, bind(fd, [x], True), True).kernels
    return any(isinstance(s, TensorLoad | BulkLoad) for s in walk_stmts(kernel.body))


def shifted(rng, shape, start, dtype="f4"):
    """Return random numbers that begin `start` elements behind a multiple of 16 bytes."""
    count = int(np.prod(shape))
    memory = np.zeros(count + 64, dtype)
    first = -memory.ctypes.data % 16 // memory.itemsize + start
    x = memory[first : first + count].reshape(shape)
    x[...] = rng.integers(-9, 9, shape)
    return x


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("load", [L.tma, L.bulk])
def test_once_for_each_class(load, kind, rng):
    fd = rows(load, kind)
    aligned, one = shifted(rng, (3, 256), 0), shifted(rng, (3, 256), 1)
    assert said(fd, aligned) == []
    assert uses_engine(fd, aligned)
    (text,) = said(fd, one)
    assert text == (
        "x_cache: threads copy it, element by element, and not TMA, because x begins at a multiple "
        "of 4 bytes only (shape [3, 256], strides [256, 1], 4 bytes an element, address % 16 = 4). "
        f"{COSTS}pass an array that begins at a multiple of 16 bytes, or choose the threads' "
        "copies yourself with LoadStoreOpType.cp_async"
    )
    assert not uses_engine(fd, one)
    assert said(fd, one) == []
    assert said(fd, shifted(rng, (3, 256), 3)) == []  # of the same class: a multiple of 4 bytes
    assert said(fd, aligned) == []
    (text,) = said(fd, shifted(rng, (3, 256), 2))
    assert "x begins at a multiple of 8 bytes only" in text
    assert "address % 16 = 8" in text
    assert said(fd, one) == []


def test_the_line_that_runs_the_fusion(rng):
    with pytest.warns(FallbackWarning) as caught:
        rows().manual_execute([shifted(rng, (2, 64), 1)], backend="interpret")
    (record,) = caught
    assert record.filename == __file__


def test_every_fusion_says_it(rng):
    x = shifted(rng, (2, 64), 1)
    assert [len(said(fd, x)) for fd in (rows(), rows())] == [1, 1]


def test_not_again_in_another_thread(rng):
    fd, x = rows(), shifted(rng, (2, 64), 1)
    start = threading.Barrier(8)
    results = []

    def call():
        start.wait()
        results.append(fd.manual_execute([x], backend="interpret")[0])

    threads = [threading.Thread(target=call) for _ in range(8)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert len(caught) == 1
    assert len(results) == 8
    for y in results:
        np.testing.assert_array_equal(y, 2 * x.astype("f8"))


def test_a_warning_made_an_error_stops_one_call(rng):
    fd, x = rows(), shifted(rng, (2, 64), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        with pytest.raises(FallbackWarning, match="x_cache: threads copy it"):
            fd.manual_execute([x], backend="interpret")
    assert said(fd, x) == []


def test_what_is_asked_of_threads_is_no_fallback(rng):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1])
        y = fd.ops.cast(x * 2.0, dtype=D.Double)
        fd.add_output(y)
    cache = staged(x, L.set)
    for t in (y, cache):
        t.split(1, 64)
        t.axis(2).parallelize(P.block_x)
    cache.inline_at(y, 2)
    cache.circular_buffer(3)
    assert said(fd, shifted(rng, (3, 256), 1)) == []


WIDE = np.arange(40 * 600, dtype="f4").reshape(40, 600)
FOUND = {
    "stride": (L.tma, WIDE.reshape(-1)[: 9 * 511].reshape(9, 511),
               "the stride of dimension 0 of x is 2044 bytes; needed a multiple of 16 (shape "
               "[9, 511], strides [511, 1], 4 bytes an element", "pad rows"),
    "view": (L.tma, np.lib.stride_tricks.as_strided(WIDE, (5, 64), (4 * 601, 4)),
             "the stride of dimension 0 of x is 2404 bytes; needed a multiple of 16", "pad rows"),
    "columns": (L.tma, WIDE[:, ::2], "x is not contiguous along its last dimension",
                "pass a contiguous array"),
    "turned": (L.tma, WIDE.T, "x is contiguous along dimension 0, where a box has 4 bytes; needed "
               "a multiple of 16", "pass a contiguous array"),
    "gaps": (L.bulk, WIDE[:, ::2], "a box of x has gaps", "pass a contiguous array"),
    "length": (L.bulk, WIDE[:, :66].copy(),
               "the offset of a box of x is not always a multiple of 16 bytes", "pad rows"),
}  # fmt: skip


@pytest.mark.parametrize("case", FOUND)
def test_what_was_found_and_what_to_do(case):
    load, x, found, cure = FOUND[case]
    fd = rows(load)
    (text,) = said(fd, x)
    assert text.startswith(
        f"x_cache: threads copy it, element by element, and not TMA, because {found}"
    )
    assert f"{COSTS}{cure}" in text
    assert not uses_engine(fd, x)
    fits = WIDE[:, :64].copy()
    assert said(fd, fits) == []
    assert uses_engine(fd, fits)


def test_the_length_of_a_vector():
    fd = rows(L.bulk, rank=1)
    (text,) = said(fd, WIDE.reshape(-1)[:1001])
    assert "the length of a box of x is not always a multiple of 16 bytes" in text
    assert said(fd, WIDE.reshape(-1)[:1004]) == []


def test_rows_without_promise_may_be_padded(rng):
    """Rows of 511 are loaded by TMA where they lie 512 apart, and are not where they do not."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 511], dtype=D.Float)
        y = fd.ops.cast(x * 2.0, dtype=D.Double)
        fd.add_output(y)
    cache = staged(x, L.tma)
    for t in (y, cache):
        t.split(1, 64)
    cache.axis(2).parallelize(P.tma)
    cache.inline_at(y, 2)
    cache.circular_buffer(2)
    padded = shifted(rng, (6, 512), 0)[:, :511]
    assert said(fd, padded) == []
    assert uses_engine(fd, padded)
    (text,) = said(fd, padded.copy())
    assert "the stride of dimension 0 of x is 2044 bytes; needed a multiple of 16" in text


def test_extents_past_the_coordinates_of_a_box():
    """No such memory is made: only the class of a call is looked at."""
    fd = rows(rank=1, dtype=D.Int8)
    view = view_of(np.zeros(64, "i1"), what="x")
    for extent, far in ((2**31 - 16, False), (2**31 + 16, True)):
        x = ArrayView(1 << 20, (extent,), (1,), D.Int8, "cpu", 0, "numpy", view.owner)
        call = bound(fd, x)
        (kernel,) = build_manual(fd.fusion, fd.hand, call[0], call[1]).kernels
        assert bool(kernel.fallbacks) is far
        assert any("an extent of more than 2147483647" in line for line in kernel.header) is far


def bound(fd, view):
    """Return the class and the sizes of a call with one input, which is only described."""
    from fuser.api.shape_class import classify
    from fuser.fusion.bind import bind_sizes

    (name,) = (t.name for t in fd.arguments)
    sizes = bind_sizes(fd.fusion, {name: view}, {})
    cls, strides = classify(fd.fusion, {name: view}, sizes)
    return cls, {**sizes, **strides}


def test_chosen_variants_meet_the_rules_of_the_driver(rng):
    """Whatever the array, the maps of its variant can be encoded; and TMA is used where it can."""
    fd, memory = rows(tile=16), np.arange(40_000, dtype="f4")
    base = -memory.ctypes.data % 16 // 4
    used = 0
    for _ in range(50):
        start, step = int(rng.choice([0, 0, 4, 1, 2, 3])), int(rng.choice([1, 1, 1, 2]))
        shape = (int(rng.integers(1, 6)), int(rng.integers(1, 70)))
        pitch = shape[1] * step
        pitch = int(rng.choice([pitch, pitch + 1, -(-pitch // 4) * 4]))
        x = np.lib.stride_tricks.as_strided(memory[base + start :], shape, (4 * pitch, 4 * step))
        said(fd, x)
        call = bind(fd, [x], True)
        program = program_of(fd, call, True)
        addresses = {name: view.pointer for name, view in call.views.items()}
        assert tma_obstacle(program, call.env, addresses) is None
        if min(shape) > 1 and start % 4 == 0 and step == 1 and pitch % 4 == 0:
            assert uses_engine(fd, x), (shape, pitch)
            used += 1
    assert 5 < used < 45


def test_a_broken_variant_would_be_seen(rng):
    """The test above can fail: the map of an aligned array refuses a shifted address."""
    fd, x = rows(), shifted(rng, (3, 256), 0)
    call = bind(fd, [x], True)
    program = program_of(fd, call, True)
    moved = {name: replace(view, pointer=view.pointer + 4) for name, view in call.views.items()}
    reason = tma_obstacle(program, call.env, {name: v.pointer for name, v in moved.items()})
    assert reason is not None
    assert "address" in reason
