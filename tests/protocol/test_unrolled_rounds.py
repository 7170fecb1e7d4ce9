"""Trip loops that are partially unrolled: rounds of several trips, and trips that make none."""

from __future__ import annotations

import numpy as np
import pytest
from manual_schedules import program, run_checked

from fuser import (
    FusionDefinition,
    LoadStoreOpType,
    MemoryType,
    ParallelType,
    Pipelined,
    WarpSpecialized,
)
from fuser.protocol.model import analyse
from fuser.protocol.mutants import mutants
from fuser.protocol.verdict import check
from fuser.schedule.circular import CircularBufferType

pytestmark = pytest.mark.protocol

P, L = ParallelType, LoadStoreOpType
ROLES = WarpSpecialized(P.block_x)


def rounds(load: LoadStoreOpType, kind: CircularBufferType, copies: int) -> FusionDefinition:
    """Return ``y = 2 x``, tiles of 64 a trip and `copies` trips a round."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    tile = x.cache_after(load)
    tile.set_memory_type(MemoryType.shared)
    for t in (y, tile):
        t.split(0, 64)
    y.axis(1).parallelize(P.block_x)
    tile.axis(1).parallelize(P.tma if load in (L.tma, L.bulk) else P.block_x)
    tile.inline_at(y, 1)
    tile.circular_buffer(2, type=kind)
    y.axis(0).unroll(copies)
    return fd


@pytest.mark.parametrize("copies", [2, 3])
@pytest.mark.parametrize(
    "kind", [Pipelined(war="mbarrier"), Pipelined(war="barrier"), ROLES], ids=str
)
@pytest.mark.parametrize("load", [L.bulk, L.set], ids=lambda load: load.name)
def test_rounds_and_what_is_left_are_explored(load, kind, copies):
    """Nothing is wrong, and nothing is proved either: a round is several trips."""
    fd = rounds(load, kind, copies)
    x = np.arange(640, dtype="f4")
    np.testing.assert_array_equal(run_checked(fd, [x], 0)[0], x * 2)
    (kernel,) = program(fd, [x]).kernels
    found = check(kernel)
    assert (found.reach, found.trips) == ("explored", (6,)), found.note
    assert "unrolled" in found.note


def test_every_number_of_trips_is_counted():
    """Of a size with as many trips as tiles, not only with whole rounds."""
    (kernel,) = program(rounds(L.set, ROLES, 2), [np.ones(640, "f4")]).kernels
    analysis = analyse(kernel)
    assert analysis is not None
    assert [size.tile for size in analysis.sizes] == [64]


def test_mistakes_in_what_is_left_are_found():
    (kernel,) = program(rounds(L.bulk, Pipelined(war="mbarrier"), 2), [np.ones(640, "f4")]).kernels
    wrong = [check(m.kernel).reach for m in mutants(kernel)]
    assert wrong.count("wrong") > len(wrong) // 2
    assert "proved" not in wrong
