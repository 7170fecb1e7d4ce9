"""Sizes that decide trip counts: the checker says nothing of those that no kernel runs with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from manual_schedules import program

from fuser import FusionDefinition, LoadStoreOpType, MemoryType, ParallelType, Pipelined
from fuser.core.expr import ZERO, Expr, Var, maximum
from fuser.kir.core import Kernel, SizeParam
from fuser.protocol.model import analyse
from fuser.protocol.sizes import fewest_trips
from fuser.protocol.verdict import check, explore_few, few_trips
from fuser.schedule.circular import CircularBufferType

pytestmark = pytest.mark.protocol

P, L = ParallelType, LoadStoreOpType
N = Var("n")


def rows(load: LoadStoreOpType, kind: CircularBufferType) -> Kernel:
    """Return the kernel of ``2 x``, a row a trip: there are rows, so the first has no guard."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 128], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    tile = x.cache_after(load)
    tile.set_memory_type(MemoryType.shared)
    y.axis(1).parallelize(P.block_x)
    tile.axis(1).parallelize(P.tma if load in (L.tma, L.bulk) else P.block_x)
    tile.inline_at(y, 1)
    tile.circular_buffer(2, type=kind)
    (kernel,) = program(fd, [np.ones((5, 128), "f4")]).kernels
    return kernel


@pytest.mark.parametrize("kind", [Pipelined(war="mbarrier"), Pipelined(war="barrier")], ids=str)
@pytest.mark.parametrize("load", [L.tma, L.bulk, L.cp_async, L.set], ids=lambda load: load.name)
def test_no_trip_where_every_size_makes_one(load, kind):
    """And the same kernel is wrong, were it called with no rows."""
    kernel = rows(load, kind)
    assert check(kernel).reach == "proved"
    analysis = analyse(kernel)
    assert analysis is not None
    assert next(few_trips(analysis)) == (1,)
    assert explore_few(analysis, "").reach == "explored"
    anything = tuple(replace(p, least=0) if isinstance(p, SizeParam) else p for p in kernel.params)
    found = check(replace(kernel, params=anything))
    assert (found.reach, found.trips) == ("wrong", (0,))


@pytest.mark.parametrize(("extent", "tile", "least", "fewest"), [
    (N, 1, 0, 0),
    (N, 1, 1, 1),
    ((N + 63) // 64, 64, 0, 0),
    ((N + 63) // 64, 64, 1, 1),
    (N // 64, 64, 1, 0),
    (N // 64, 64, 16, 0),
    (N // 64, 64, 64, 1),
    (maximum(N - 65, ZERO) // 64, 64, 1, 1),  # of that size: no trip of 1 as well as of 64
    (maximum(N - 2, ZERO), 1, 1, 1),  # n is counted, not n - 2
], ids=str)  # fmt: skip
def test_the_fewest_trips_of_a_size(extent: Expr, tile: int, least: int, fewest: int) -> None:
    assert fewest_trips("n", least, tile, [extent]) == fewest
