"""Nested loops over trips that are proved as one: which are, which are not, and that both agree."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.cli import pipelines
from fuser.kir.core import Kernel
from fuser.protocol.joined import joined
from fuser.protocol.model import analyse
from fuser.protocol.mutants import mutants
from fuser.protocol.verdict import check, prove
from fuser.schedule.circular import CircularBufferType, Pipelined, WarpSpecialized

pytestmark = pytest.mark.protocol

P, L = ParallelType, LoadStoreOpType


def kernel_of(fd: FusionDefinition, *shape: int) -> Kernel:
    (kernel,) = program_of(fd, bind(fd, [np.zeros(shape, "f4")], True), True).kernels
    return kernel


def rows(stages: int, load: L = L.tma) -> Kernel:
    """A ring of roles that goes on from row to row."""
    return kernel_of(pipelines.ring_rows(load, stages, None, WarpSpecialized()), 512, 512)


def planes(kind: CircularBufferType, stages: int = 2) -> Kernel:
    """``y = 2 x``: planes, rows, and tiles of a row, each a loop."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1, -1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    cache = x.cache_after(L.tma)
    cache.set_memory_type(MemoryType.shared)
    y.split(2, 256)
    y.split(3, 64)
    y.axis(4).parallelize(P.block_x)
    cache.split(2, 256)
    cache.axis(3).parallelize(P.tma)
    cache.inline_at(y, 3)
    cache.circular_buffer(stages, type=kind)
    return kernel_of(fd, 3, 4, 1000)


@pytest.mark.parametrize(("stages", "load"), [(1, L.tma), (2, L.bulk), (3, L.tma), (4, L.bulk)])
def test_stages_that_go_on_over_rows_are_counted_once(stages: int, load: L) -> None:
    analysis = analyse(rows(stages, load))
    assert analysis is not None
    one = joined(analysis)
    assert one is not None
    assert (analysis.levels, one.levels) == (2, 1)
    outcome, _ = prove(analysis)
    assert outcome.complete
    assert outcome.fault is None
    assert outcome.states == prove(one)[0].states


def test_eight_stages_are_proved() -> None:
    verdict = check(rows(8))
    assert (verdict.reach, verdict.note) == ("proved", "")


@pytest.mark.parametrize("stages", [1, 2])
def test_the_loops_as_they_are_are_right_too(stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = rows(stages)
    monkeypatch.setattr("fuser.protocol.verdict.joined", lambda _: None)
    apart = check(kernel)
    monkeypatch.undo()
    together = check(kernel)
    assert apart.reach == together.reach == "proved"
    assert together.states < apart.states


def test_every_mutant_is_wrong_both_ways() -> None:
    for mutant in mutants(rows(2)):
        what = mutant.kind, mutant.where
        assert check(mutant.kernel).reach == "wrong", what
        analysis = analyse(mutant.kernel)
        assert analysis is not None
        one = joined(analysis)
        if one is not None:
            assert prove(one)[0].fault is not None, what


@pytest.mark.parametrize(
    "kind", [Pipelined(war="mbarrier"), Pipelined("token", "mbarrier"), WarpSpecialized()], ids=str
)
def test_trips_of_three_loops_are_proved(kind: CircularBufferType) -> None:
    verdict = check(planes(kind))
    assert (verdict.reach, verdict.note) == ("proved", "")


@pytest.mark.parametrize("kind", [Pipelined(war="mbarrier"), WarpSpecialized()], ids=str)
def test_mistakes_inside_of_three_loops_are_found(kind: CircularBufferType) -> None:
    found = [m for m in mutants(planes(kind)) if m.kind.startswith(("wait", "release", "parity"))]
    assert len(found) > 3
    for mutant in found[::2]:
        assert check(mutant.kernel).reach == "wrong", (mutant.kind, mutant.where)


@pytest.mark.parametrize(
    ("stages", "kind"),
    [(2, Pipelined(war="mbarrier")), (3, Pipelined("token", "mbarrier"))],
    ids=str,
)
def test_a_ring_that_begins_anew_in_each_row_is_not_joined(
    stages: int, kind: CircularBufferType
) -> None:
    kernel = kernel_of(pipelines.ring_rows(L.bulk, stages, stages - 1, kind), 512, 512)
    analysis = analyse(kernel)
    assert analysis is not None
    assert joined(analysis) is None
    assert check(kernel).reach == "proved"
