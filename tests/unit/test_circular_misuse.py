"""Misuse of circular buffers that would hang, crash or compute wrong numbers: refused, at its line.

`test_circular_errors.py` has the rules of single directives; here are options of the wrong kind,
axes of roles, dependences and boxes that no inputs could mend.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.core.errors import ScheduleError
from fuser.schedule.circular import Pipelined, WarpSpecialized

pytestmark = pytest.mark.unit

P, L, D = ParallelType, LoadStoreOpType, DataType
VECTOR = np.arange(1000, dtype="f4")
MATRIX = np.arange(8 * 640, dtype="f4").reshape(8, 640)


def staged(x, load):
    cache = x.cache_after(load)
    cache.set_memory_type(MemoryType.shared)
    return cache


def stream(threads=64, tile=256):
    """``y = 2 x`` of a vector, a tile a trip; not buffered yet."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    cache = staged(x, L.tma)
    y.split(0, tile)
    y.split(1, threads)
    y.axis(2).parallelize(P.block_x)
    cache.split(0, tile)
    cache.axis(1).parallelize(P.tma)
    cache.inline_at(y, 1)
    return fd, y, cache


def run(fd, *inputs):
    return fd.manual_execute(list(inputs), backend="interpret")


def refusal(call, *args, **kwargs):
    """Return the text of a refusal behind this file's name and a line of it."""
    with pytest.raises(ScheduleError) as caught:
        call(*args, **kwargs)
    where, _, text = str(caught.value).partition(": ")
    file, _, line = where.rpartition(":")
    assert file == __file__, str(caught.value)
    assert line.isdigit()
    return text


# ---- the user's line ---------------------------------------------------------------------------


def test_a_refused_directive_names_its_line():
    _, _, cache = stream()
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(ScheduleError) as caught:
        cache.circular_buffer(0)
    text = "x_cache: circular_buffer: 0 stages; at least 1 is needed"
    assert str(caught.value) == f"{__file__}:{line}: {text}"


def test_refused_lowering_names_the_line_of_the_last_directive():
    fd, _, cache = stream(threads=48)
    line = inspect.currentframe().f_lineno + 1
    cache.circular_buffer(2, type=WarpSpecialized())
    with pytest.raises(ScheduleError) as caught:
        run(fd, VECTOR)
    text = "x_cache: warp-specialised over 48 threads; whole warps of 32 are needed"
    assert str(caught.value) == f"{__file__}:{line}: {text}"


def test_a_refused_option_names_its_line():
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(ScheduleError) as caught:
        Pipelined("tokens")
    text = "Pipelined: sync 'tokens'; needed 'parity' or 'token'"
    assert str(caught.value) == f"{__file__}:{line}: {text}"


# ---- options of the wrong kind -----------------------------------------------------------------


@pytest.mark.parametrize(("args", "text"), [
    (("3",), "stages '3'; an int is needed"),
    ((3.0,), "stages 3.0; an int is needed"),
    ((True,), "stages True; an int is needed"),
    ((3, 1.5), "prefetch distance 1.5; an int is needed"),
    ((3, 1, "pipelined"), "type 'pipelined'; needed Pipelined(...) or WarpSpecialized(...)"),
    ((3, 1, None), "type None; needed Pipelined(...) or WarpSpecialized(...)"),
])  # fmt: skip
def test_kinds_of_options(args, text):
    fd, _, cache = stream()
    assert refusal(cache.circular_buffer, *args) == f"x_cache: circular_buffer: {text}"
    assert cache.schedule.circular is None
    np.testing.assert_array_equal(run(fd, VECTOR)[0], 2 * VECTOR)


@pytest.mark.parametrize(("kind", "args", "text"), [
    (Pipelined, ("parity", "none"), "war 'none'; needed 'barrier' or 'mbarrier'"),
    (WarpSpecialized, ("block_x",), "on 'block_x'; needed block_x, block_y or block_z"),
    (WarpSpecialized, (P.block_x, 232), "num_registers 232; needed (producer, consumer)"),
    (WarpSpecialized, (P.block_x, (40, 232, 24)),
     "num_registers (40, 232, 24); needed (producer, consumer)"),
    (WarpSpecialized, (P.block_x, (40.0, 232)),
     "40.0 registers a thread; setmaxnreg takes multiples of 8 from 24 to 256"),
    (WarpSpecialized, (P.block_x, None, "2"),
     "stage_slice_position '2'; an int or None is needed"),
    (WarpSpecialized, (P.block_x, None, None, True),
     "ping_pong is an order of consumer groups; needed a stage_slice_position right of axis "
     "block_x"),
])  # fmt: skip
def test_kinds_of_pipelines(kind, args, text):
    assert refusal(kind, *args) == f"{kind.__name__}: {text}"


def test_a_ring_stays_inside_its_loop():
    fd, y, cache = stream()
    cache.circular_buffer(3)
    assert refusal(cache.inline_at, y, 0) == (
        "x_cache: inline_at: position 0, and it is circular-buffered with 3 stages; at least 1 is "
        "needed"
    )
    np.testing.assert_array_equal(run(fd, VECTOR)[0], 2 * VECTOR)


# ---- the thread axis of roles ------------------------------------------------------------------


def two_streams(first, second):
    """Two outputs, each with a ring of its own, specialised on the given axes."""
    with FusionDefinition() as fd:
        x, z = (fd.define_tensor(shape=[-1], contiguity=True) for _ in range(2))
        outputs = x * 2.0, z * 3.0
        for y in outputs:
            fd.add_output(y)
    for t, y, on in zip((x, z), outputs, (first, second), strict=True):
        cache = staged(t, L.tma)
        y.split(0, 256)
        y.split(1, 32)
        y.axis(2).parallelize(P.block_x)
        cache.split(0, 256)
        cache.axis(1).parallelize(P.tma)
        cache.inline_at(y, 1)
        cache.circular_buffer(2, type=WarpSpecialized(on))
    return fd


def test_rings_specialised_on_different_axes():
    assert refusal(run, two_streams(P.block_x, P.block_y), VECTOR, VECTOR) == (
        "z_cache: warp-specialised on block_y, and x_cache of the same kernel on block_x; all must "
        "agree"
    )
    doubled, tripled = run(two_streams(P.block_x, P.block_x), VECTOR, VECTOR[:700])
    np.testing.assert_array_equal(doubled, 2 * VECTOR)
    np.testing.assert_array_equal(tripled, 3 * VECTOR[:700])


@pytest.mark.parametrize("on", [P.block_y, P.block_z])
def test_a_specialised_axis_without_threads(on):
    fd, _, cache = stream()
    cache.circular_buffer(2, type=WarpSpecialized(on))
    assert refusal(run, fd, VECTOR) == (
        f"x_cache: warp-specialised on {on.name}, to which no loop is bound; needed "
        "ParallelType.block_x, the slowest varying axis that has threads"
    )


def test_a_specialised_axis_of_one_thread():
    fd, y, cache = stream()
    y.split(1, 1, inner_split=False)
    y.axis(1).parallelize(P.block_y)
    cache.circular_buffer(2, type=WarpSpecialized(P.block_y))
    assert refusal(run, fd, VECTOR) == (
        "x_cache: warp-specialised on block_y, whose loop has 1 iteration; needed "
        "ParallelType.block_x, the slowest varying axis that has threads"
    )


def test_roles_in_a_block_of_one_thread():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    cache = staged(x, L.bulk)
    for t in (y, cache):
        t.split(0, 64)
    cache.axis(1).parallelize(P.tma)
    cache.inline_at(y, 1)
    cache.circular_buffer(2, type=WarpSpecialized(P.block_x))
    assert refusal(run, fd, VECTOR) == (
        "x_cache: warp-specialised on block_x, to which no loop is bound; needed a loop of several "
        "iterations that is bound to ParallelType.block_x"
    )


def test_rows_of_threads_that_hold_more_than_the_producers():
    fd, y, cache = stream(threads=48, tile=192)
    y.axis(1).parallelize(P.block_y)
    cache.circular_buffer(2, type=WarpSpecialized(P.block_y))
    np.testing.assert_array_equal(run(fd, VECTOR)[0], 2 * VECTOR)


@pytest.mark.parametrize(("kind", "how"), [
    (Pipelined(war="mbarrier"), "loaded asynchronously"), (WarpSpecialized(), "warp-specialised"),
])  # fmt: skip
def test_the_threads_of_a_ring_are_counted(kind, how):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        s = fd.ops.sum(x, [0])
        fd.add_output(s)
    cache = staged(x, L.tma)
    s.axis(1).parallelize(P.block_x)
    cache.split(1, 64)
    cache.axis(2).parallelize(P.tma)
    cache.inline_at(s, 1)
    cache.circular_buffer(2, type=kind)
    assert refusal(run, fd, MATRIX) == (
        f"x_cache: {how}, and block_x has x_size1 threads; barriers count arrivals, which needs a "
        "constant extent"
    )


# ---- who copies what ---------------------------------------------------------------------------


@pytest.mark.parametrize("load", [L.tma, L.bulk])
@pytest.mark.parametrize("kind", [None, Pipelined(war="mbarrier"), WarpSpecialized()])
@pytest.mark.parametrize("columns", [640, 639])
def test_boxes_do_not_lie_inside_thread_axes(load, kind, columns):
    """One thread issues the copies: it would fill its own row and leave the others as they were."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    cache = staged(x, load)
    for t in (y, cache):
        t.split(0, 32)
        t.split(2, 64)
        t.axis(1).parallelize(P.block_x)
    cache.axis(3).parallelize(P.tma)
    cache.inline_at(y, 3)
    if kind is not None:
        cache.circular_buffer(2, type=kind)
    assert refusal(run, fd, np.ones((8, columns), "f4")) == (
        f"x_cache: loaded by {load.name}, and its axis 1 is bound to block_x; one thread issues "
        "all copies of a block: needed tma, serial or grid axes"
    )


COMPUTED = {
    "exp": lambda fd, x: fd.ops.exp(x),
    "slice": lambda fd, x: fd.ops.slice(x, [4], [904]),
    "neg": lambda fd, x: fd.ops.neg(x),
}


@pytest.mark.parametrize("load", [L.tma, L.bulk])
@pytest.mark.parametrize("op", COMPUTED)
def test_the_engine_copies_memory_alone(load, op):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        e = COMPUTED[op](fd, x)
        y = e + 1.0
        fd.add_output(y)
    cache = staged(e, load)
    for t in (y, cache):
        t.split(0, 64)
    cache.axis(1).parallelize(P.tma)
    cache.inline_at(y, 1)
    cache.circular_buffer(2)
    assert refusal(run, fd, VECTOR) == (
        f"e_cache: loaded by {load.name}, but copies e, which is computed by {op} and lies in no "
        "memory; needed an input, or LoadStoreOpType.set"
    )


# ---- dependences that running ahead would break ------------------------------------------------


def test_a_copy_of_a_sum_that_the_kernel_makes():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        s = fd.ops.sum(x, [1])
        e = x + fd.ops.broadcast_in_dim(s, fd.ops.shape(x), [0])
        y = e * 2.0
        fd.add_output(y)
    cache = staged(e, L.set)
    for t in (y, cache):
        t.split(1, 64)
    s.inline_at(cache, 1)
    cache.inline_at(y, 2)
    cache.circular_buffer(2)
    assert refusal(run, fd, MATRIX) == (
        "e_cache: circular-buffered, but copies e, which this kernel computes; needed an input"
    )


def test_a_copy_of_another_ring():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    first = staged(x, L.set)
    second = staged(first, L.set)
    for t in (y, first, second):
        t.split(0, 64)
    second.inline_at(y, 1)
    first.inline_at(second, 1)
    first.circular_buffer(3)
    second.circular_buffer(2)
    assert refusal(run, fd, VECTOR) == (
        f"{second.name}: circular-buffered, but copies {first.name}, which this kernel computes; "
        "needed an input"
    )


# ---- boxes that no inputs mend -----------------------------------------------------------------


def matrix_of(columns, load=L.tma, tile=64, dtype=D.BFloat16, **layout):
    """``y = 2 x`` of rows of constant length, tiles of a row in trips."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, columns], dtype=dtype, **layout)
        y = fd.ops.cast(x * 2.0, dtype=dtype)
        fd.add_output(y)
    cache = staged(x, load)
    for t in (y, cache):
        t.split(1, tile)
    cache.axis(2).parallelize(P.tma)
    cache.inline_at(y, 2)
    cache.circular_buffer(2)
    return fd


MEND = "; no sizes or address of x mend that: change the schedule, or load it by "


@pytest.mark.parametrize(("case", "text"), [
    ({"columns": 511, "contiguity": True},
     "loaded by tma, and the stride of dimension 0 of x is 1022 bytes; needed a multiple of 16"),
    ({"columns": 512, "tile": 13, "load": L.bulk, "contiguity": True},
     "loaded by bulk, and the offset of a box of x is not always a multiple of 16 bytes"),
    ({"columns": 512, "contiguity": True, "stride_order": [0, 1]},
     "loaded by tma, and x is contiguous along dimension 0, where a box has 2 bytes; needed a "
     "multiple of 16"),
    ({"columns": 511, "load": L.bulk, "contiguity": [False, True]},
     "loaded by bulk, and the offset of a box of x is not always a multiple of 16 bytes"),
])  # fmt: skip
def test_what_no_inputs_mend_is_refused(case, text):
    dtype = D.BFloat16.np
    x = np.ones((8, case["columns"]), dtype)
    if "stride_order" in case:
        x = np.asfortranarray(x)
    found = refusal(run, matrix_of(**case), x)
    assert found == f"x_cache: {text}{MEND}LoadStoreOpType.set or cp_async"


def test_a_box_larger_than_shared_memory():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1, -1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    cache = staged(x, L.tma)
    for t in (y, cache):
        t.split(2, 256)
        t.split(1, 256)
        t.reorder({3: 1, 1: 2, 2: 3})
    cache.axis(3).parallelize(P.tma)
    cache.axis(4).parallelize(P.tma)
    cache.inline_at(y, 3)
    cache.circular_buffer(2)
    assert refusal(run, fd, np.ones((2, 256, 256), "f4")) == (
        "tensor map x_cache_map of x: box is 262144 bytes; needed at most 233472"
    )


def test_a_box_that_skips_elements():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[256], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    cache = staged(x, L.tma)
    for t in (y, cache):
        t.split(0, 4, inner_split=False)
        t.reorder({0: 1})
    cache.axis(1).parallelize(P.tma)
    cache.inline_at(y, 1)
    cache.circular_buffer(2)
    assert refusal(run, fd, np.ones(256, "f4")) == (
        "x_cache: dimension 0 of x is a0 + a1 * 64 inside the box; needed one tma axis that moves "
        "it element by element"
    )


@pytest.mark.parametrize("load", [L.tma, L.bulk])
def test_a_plain_tile_beside_a_ring_is_no_misuse(load):
    """It was refused as a store."""
    with FusionDefinition() as fd:
        x, z = (fd.define_tensor(shape=[-1], contiguity=True) for _ in range(2))
        y = x - z
        fd.add_output(y)
    plain, ring = staged(x, load), staged(z, load)
    for t in (plain, ring, y):
        t.split(0, 64)
    y.axis(1).parallelize(P.block_x)
    for t in (plain, ring):
        t.axis(1).parallelize(P.tma)
        t.inline_at(y, 1)
    ring.circular_buffer(2)
    (found,) = fd.manual_execute([VECTOR, VECTOR[::-1].copy()], backend="interpret")
    np.testing.assert_array_equal(found, VECTOR - VECTOR[::-1])
