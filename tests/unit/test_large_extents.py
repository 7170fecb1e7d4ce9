"""Splits by more than there can be: refused with numbers, not by an allocation that fails."""

import numpy as np
import pytest

from fuser import FusionDefinition, MemoryType, ParallelType
from fuser.core.errors import ScheduleError
from fuser.core.expr import Const, Var
from fuser.schedule.domain import LoopDomain

pytestmark = pytest.mark.unit
P = ParallelType


def columns():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 4], contiguity=True)
        fd.add_output(m := fd.ops.max(x, [0]))
    return fd, x, m


TOO_FAR = r"m: split: .*at most 2147483647 is possible"


@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("factor", [2**40, 2**31, 2**70])
def test_what_no_index_counts_to(factor, axis, inner):
    _, _, m = columns()
    with pytest.raises(ScheduleError, match=TOO_FAR):
        m.split(axis, factor, inner)


@pytest.mark.parametrize("axis", [0, 1])
def test_splits_that_round_up_together(axis):
    """The outer axis of the first has an extent of 1."""
    _, _, m = columns()
    m.split(axis, 2**16)
    with pytest.raises(ScheduleError, match=TOO_FAR):
        m.split(axis, 2**16)


def test_what_indices_do_count_to():
    """Also those of 64 bits, where the extent itself is that large."""
    for extent in (Const(2**33 + 1), Const(1000), Var("n")):
        domain = LoopDomain.of((extent, Const(3)))
        for factor in (7, 128, 2**20):
            split = domain.split(0, Const(factor))
            assert split.merge(0, 1).split(0, Const(64)).loop


def test_registers_of_too_many_bytes():
    fd, _, m = columns()
    m.split(-1, 2**20)
    text = r"m_acc: 1048576 x f32 in the registers of each thread, 4194304 bytes; 524288 are"
    with pytest.raises(ScheduleError, match=text) as caught:
        fd.manual_execute([np.ones((3, 4), np.float32)], backend="interpret")
    assert caught.value.location is not None


def test_a_tile_of_too_many_bytes():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(y := fd.ops.add(x, 1.0))
    tile = x.cache_after()
    tile.set_memory_type(MemoryType.shared)
    y.split(0, 2**30)
    y.split(1, 64)
    y.axis(2).parallelize(P.block_x)
    fd.sched.transform_like(y)
    fd.sched.parallelize_like(y)
    tile.inline_at(y, 1)
    with pytest.raises(ScheduleError, match="x_cache: 4294967296 bytes of shared memory; "):
        fd.manual_execute([np.ones(3, np.float32)], backend="interpret")
