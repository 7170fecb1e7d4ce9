"""Names, order and defaults of the directives that make circular buffers."""

from __future__ import annotations

import inspect

import pytest

import fuser
from fuser import FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.sched import Sched
from fuser.api.tensor import Tensor
from fuser.schedule.circular import CircularBuffer, Pipelined, WarpSpecialized

pytestmark = pytest.mark.unit

NO_DEFAULT = inspect.Parameter.empty


def signature(method):
    """Return the parameters behind `self` with their defaults."""
    found = list(inspect.signature(method).parameters.values())[1:]
    return [(p.name, p.default) for p in found]


def test_circular_buffer():
    assert signature(Tensor.circular_buffer) == [
        ("number_of_stages", NO_DEFAULT), ("prefetch_distance", None), ("type", Pipelined()),
    ]  # fmt: skip


def test_warp_specialize():
    assert signature(Sched.warp_specialize) == [
        ("tv", NO_DEFAULT), ("number_of_stages", NO_DEFAULT), ("prefetch_distance", None),
        ("parallel_type", ParallelType.block_x), ("num_registers", None),
        ("stage_slice_position", None), ("ping_pong", False),
    ]  # fmt: skip


def test_types_and_their_options():
    assert fuser.Pipelined is Pipelined
    assert fuser.WarpSpecialized is WarpSpecialized
    assert Pipelined() == Pipelined(sync="parity", war="barrier")
    assert WarpSpecialized() == WarpSpecialized(
        on=ParallelType.block_x, num_registers=None, stage_slice_position=None, ping_pong=False
    )
    for sync in ("parity", "token"):
        for war in ("barrier", "mbarrier"):
            assert Pipelined(sync, war) == Pipelined(war=war, sync=sync)


def test_ways_to_load_and_axes_of_a_box():
    assert {"set", "load_matrix", "cp_async", "tma"} <= set(LoadStoreOpType.__members__)
    assert {"block_x", "block_y", "block_z", "tma", "serial"} <= set(ParallelType.__members__)
    assert "shared" in MemoryType.__members__


def cache():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x + 1.0
        fd.add_output(y)
    kept = x.cache_after(LoadStoreOpType.tma)
    kept.set_memory_type(MemoryType.shared)
    for t in (y, kept):
        t.split(0, 64)
    kept.inline_at(y, 1)
    return fd, kept


@pytest.mark.parametrize(("given", "stages", "ahead"), [
    ((3,), 3, 2), ((3, None), 3, 2), ((3, 0), 3, 2), ((4, -2), 4, 3), ((1,), 1, 0),
])  # fmt: skip
def test_both_spellings_are_one_directive(given, stages, ahead):
    """Roles run ahead as far as stages are free, whatever was asked for."""
    fd, kept = cache()
    fd.sched.warp_specialize(kept, *given, num_registers=None)
    kind = WarpSpecialized(ParallelType.block_x)
    assert kept.schedule.circular == CircularBuffer(stages, ahead, kind)
    _, other = cache()
    other.circular_buffer(*given, type=kind)
    assert other.schedule.circular == kept.schedule.circular


def test_registers_and_axis_by_the_short_spelling():
    fd, kept = cache()
    fd.sched.warp_specialize(kept, 2, 1, ParallelType.block_y, (40, 232))
    assert kept.schedule.circular == CircularBuffer(
        2, 1, WarpSpecialized(ParallelType.block_y, (40, 232))
    )
