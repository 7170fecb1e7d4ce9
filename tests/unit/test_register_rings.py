"""Rings in registers: what is refused and in which words, and which loops they become."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from rings.families import Choices, nested
from rings.text import listing

from fuser import FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.core.errors import ScheduleError
from fuser.kir.core import walk_stmts
from fuser.kir.stmts import For
from fuser.schedule.circular import Pipelined, WarpSpecialized

pytestmark = pytest.mark.unit

P, L = ParallelType, LoadStoreOpType


class Stream:
    """``y = x + z`` of vectors, both copied into registers by one loop of tiles."""

    def __init__(self, load: LoadStoreOpType = L.set, tile: int = 256) -> None:
        with FusionDefinition() as fd:
            x, z = (fd.define_tensor(shape=[-1], contiguity=True) for _ in range(2))
            y = x + z
            fd.add_output(y)
        self.fd, self.y = fd, y
        self.caches = [t.cache_after(load) for t in (x, z)]
        for t in (y, *self.caches):
            t.split(0, tile)
            t.split(1, 64)
            t.axis(2).parallelize(P.block_x)
        for cache in self.caches:
            cache.inline_at(y, 1)

    def inputs(self, n: int = 1000) -> list[np.ndarray]:
        return [np.arange(n, dtype="f4")] * 2

    def refused(self, text: str) -> None:
        """Check the text of a refusal and that it names this file."""
        with pytest.raises(ScheduleError, match=re.escape(text)) as caught:
            self.fd.manual_execute(self.inputs(), backend="interpret")
        assert caught.value.location is not None, str(caught.value)
        assert Path(caught.value.location.file).name == Path(__file__).name


# ---- errors ------------------------------------------------------------------------------------


def test_other_warps_cannot_fill_registers():
    stream = Stream()
    stream.caches[0].circular_buffer(2, type=WarpSpecialized())
    stream.refused(
        "x_cache: circular-buffered in registers and warp-specialised on block_x; other warps "
        "cannot write a thread's registers; needed Pipelined()"
    )


@pytest.mark.parametrize("kind", [Pipelined("token"), Pipelined(war="mbarrier")])
def test_there_are_no_barriers_to_choose(kind):
    stream = Stream()
    stream.caches[1].circular_buffer(2, type=kind)
    stream.refused(
        f"z_cache: circular-buffered in registers with {kind}; registers have no barriers, so that "
        "sync and war mean nothing; needed Pipelined()"
    )


@pytest.mark.parametrize("load", [L.tma, L.bulk, L.cp_async])
def test_asynchronous_copies_end_in_shared_memory(load):
    stream = Stream(load)
    for cache in stream.caches:
        cache.circular_buffer(2)
    stream.refused(
        f"x_cache: circular-buffered in registers and loaded by {load.name}, which writes shared "
        "memory; needed LoadStoreOpType.set, or shared memory"
    )


def test_a_tensor_has_one_circular_buffer():
    stream = Stream()
    stream.caches[0].circular_buffer(3)
    text = "x_cache: circular_buffer: it is circular-buffered with 3 stages already; needed one"
    with pytest.raises(ScheduleError, match=re.escape(text)) as caught:
        stream.caches[0].circular_buffer(2, 1)
    assert caught.value.location is not None
    assert stream.fd.hand.tensors["x_cache"].circular.stages == 3


def test_options_on_one_loop_agree():
    stream = Stream()
    stream.caches[0].circular_buffer(3)
    stream.caches[1].circular_buffer(3, 1)
    stream.refused(
        "z_cache: circular-buffered with 3 stages, prefetch 1, Pipelined(sync='parity', "
        "war='barrier'), but x_cache on the same loop with 3 stages, prefetch 2"
    )


def test_the_loop_of_a_ring_with_barriers():
    """One loop for the trips of both, in rounds of the slots."""
    stream = Stream()
    stream.caches[1].set_memory_type(MemoryType.shared)
    for cache in stream.caches:
        cache.circular_buffer(2)
    a = np.arange(1000, dtype="f4")
    (found,) = stream.fd.manual_execute([a, a + 1], backend="interpret")
    np.testing.assert_array_equal(found, 2 * a + 1)


def test_no_serial_loop_on_the_left():
    stream = Stream()
    for t in (stream.y, *stream.caches):
        t.axis(0).parallelize(P.grid_x)
    stream.caches[0].circular_buffer(2)
    stream.refused(
        "x_cache: circular-buffered at compute-at position 1, and no serial loop is left of it; "
        "inline it inside the loop whose trips it shall be buffered over"
    )


@pytest.mark.parametrize("inside", [False, True])
def test_what_is_copied_is_complete_before_the_loop(inside):
    """A tile of the same trip cannot be read ahead; one that was loaded before the loop can."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 512], contiguity=True)
        y = x + 1.0
        fd.add_output(y)
    tile = x.cache_after()
    tile.set_memory_type(MemoryType.shared)
    part = tile.cache_after()
    for t in (y, part, tile):
        t.split(1, 64)
        t.axis(2).parallelize(P.block_x)
    part.inline_at(y, 2)
    tile.inline_at(part, 2 if inside else 1)
    part.circular_buffer(2)
    a = np.arange(2048, dtype="f4").reshape(4, 512)
    if inside:
        text = (
            "x_cache_cache: circular-buffered in registers over its axis 1, but what it copies, "
            "x_cache, is computed inside that loop; inline x_cache outside of it"
        )
        with pytest.raises(ScheduleError, match=re.escape(text)):
            fd.manual_execute([a], backend="interpret")
    else:
        np.testing.assert_array_equal(fd.manual_execute([a], backend="interpret")[0], a + 1)


def test_registers_are_not_chosen_at_run_time():
    """Every thread would load a whole tile and pick its element by its index."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x + 1.0
        fd.add_output(y)
    part = x.cache_after()
    for t in (y, part):
        t.split(0, 8)
    y.axis(1).parallelize(P.block_x)
    part.inline_at(y, 1)
    part.circular_buffer(2)
    text = (
        "x_cache: circular-buffered in registers, and its element tx + i0_slot * 8 depends on tx "
        "at run time; registers have no addresses: bind its axes to the threads that read them, "
        "and read the others in loops of constant extent"
    )
    with pytest.raises(ScheduleError, match=re.escape(text)):
        fd.manual_execute([np.ones(99, "f4")], backend="interpret")


def test_a_slot_has_a_known_size():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = x + 1.0
        fd.add_output(y)
    part = x.cache_after()
    part.inline_at(y, 1)
    part.circular_buffer(2)
    text = "x_cache: lives in local memory and axis 1 has extent x_size1; a constant extent is"
    with pytest.raises(ScheduleError, match=re.escape(text)):
        fd.manual_execute([np.ones((4, 5), "f4")], backend="interpret")


# ---- loops -------------------------------------------------------------------------------------


def test_the_loops_by_name():
    """Few, known trips are unrolled; else there are rounds of as many trips as there are slots."""
    short = listing(nested(Choices(tile=512, slots=2)), [np.ones(999, "f4")], "k")
    after = short.split("after register-rings")[1].split("after ")[0]
    assert "prologue: for i3 in [0, 1)  # serial, full" in after
    assert "main: for i3 in [0, 3)  # serial, full" in after
    assert "epilogue: for i3 in [3, 4)  # serial, full" in after
    stream = Stream()
    for cache in stream.caches:
        cache.circular_buffer(3, 1)
    after = listing(stream.fd, stream.inputs(), "k").split("after register-rings")[1]
    lines = [line.strip() for line in after.split('extern "C"')[0].splitlines()]
    loops = [line for line in lines if re.search(r"_round|_slot|when 0", line)]
    n = "(x_size0 + 255) / 256"
    assert [line for line in loops if not line.startswith("assign")] == [
        "prologue: for i0_slot in [0, 1)  # serial, full",
        f"when 0 < {n}:",
        f"main: for i0_round in [0, max({n} - 1, 0) / 3)  # serial, rolled",
        "for i0_slot in [0, 3)  # serial, full",
        f"epilogue: for i0_round in [max({n} - 1, 0) / 3, ({n} + 2) / 3)  # serial, rolled",
        "for i0_slot in [0, 3)  # serial, full",
        f"when i0_round * 3 + i0_slot + 1 < {n}:",
        f"when i0_round * 3 + i0_slot < {n}:",
    ]


def test_loops_over_the_registers_of_a_slot_are_unrolled():
    """However long they are: 32 elements of a thread, twice as many as a loop unrolls by itself."""
    stream = Stream(tile=32 * 64)
    for cache in stream.caches:
        cache.circular_buffer(2)
    call = bind(stream.fd, stream.inputs(), True)
    (kernel,) = program_of(stream.fd, call, True).kernels
    loops = [s for s in walk_stmts(kernel.body) if isinstance(s, For) and s.trip() == 32]
    assert len(loops) >= 3
    assert {s.unroll.kind for s in loops} == {"full"}


@pytest.mark.parametrize("ring", [True, False])
@pytest.mark.parametrize("directive", ["rolled", "by 2", "all"])
def test_a_directive_that_leaves_a_loop_around_registers(ring: bool, directive: str) -> None:
    """The same words, and the line of the directive, with and without a ring."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
    cache = x.cache_after()
    y.split(1, 4)
    fd.sched.transform_like(y, [cache])
    for t in (y, cache):
        t.axis(0).parallelize(P.block_x)
    cache.inline_at(y, 2)
    if ring:
        cache.circular_buffer(2)
    axis = y.axis(2)
    line = sys._getframe().f_lineno + 1
    {"rolled": axis.rolled, "by 2": lambda: axis.unroll(2), "all": axis.unroll}[directive]()
    inputs = [np.ones((5, 13), np.float32)]
    if directive == "all":
        (total,) = fd.manual_execute(inputs, backend="interpret")
        np.testing.assert_array_equal(total, np.full(5, 13.0))
        return
    text = "y_acc: axis 2 is a loop in the code and chooses elements of x_cache, which is in "
    with pytest.raises(ScheduleError, match=re.escape(text)) as caught:
        fd.manual_execute(inputs, backend="interpret")
    assert caught.value.location is not None
    assert (Path(caught.value.location.file).name, caught.value.location.line) == (
        Path(__file__).name, line,
    )  # fmt: skip
