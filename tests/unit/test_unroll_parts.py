"""Directives of single loops that a ring makes of its loop of trips."""

from __future__ import annotations

import re

import pytest
from unroll_cases import TILE, kernel, ring

from fuser import FusionDefinition, LoadStoreOpType, ParallelType, Pipelined, WarpSpecialized
from fuser.core.errors import ScheduleError
from fuser.core.unroll import Unroll
from fuser.kir.core import walk_stmts
from fuser.kir.stmts import For

pytestmark = pytest.mark.unit

COLUMNS = 10 * TILE
PIPELINED, ROLES = Pipelined(war="mbarrier"), WarpSpecialized()


def trips(direct, kind=PIPELINED, columns=-1, stages=3):
    """Return the loops of trips of a ring's kernel, as ``label directive``."""

    def both(y):
        direct(y.axis(1))
        y.axis(2).unroll()

    made = kernel(ring(both, stages, kind, columns), 2, COLUMNS)
    loops = [s for s in walk_stmts(made.body) if isinstance(s, For) and s.var.startswith("i0")]
    return [f"{s.label} {s.var} {s.unroll.kind}".strip() for s in loops]


def test_each_loop_has_its_own():
    def direct(axis):
        axis.unroll(3, loop="main")
        axis.rolled(loop="prologue")
        axis.rolled(loop="epilogue")

    assert trips(direct) == [
        "prologue i0 rolled", "main i0_round rolled", "main i0 rolled", "epilogue i0 rolled"
    ]  # fmt: skip


def test_the_others_have_that_of_all():
    def direct(axis):
        axis.unroll(2)
        axis.rolled(loop="main")

    whole = trips(lambda axis: axis.unroll(2), columns=COLUMNS)
    assert whole == ["main i0_round rolled"], "eight trips; prologue and epilogue are one round"
    assert trips(direct, columns=COLUMNS) == ["main i0 rolled"]


def test_the_order_of_the_directives_is_free():
    def first(axis):
        axis.rolled(loop="main")
        axis.unroll()

    def last(axis):
        axis.unroll()
        axis.rolled(loop="main")

    assert trips(first, columns=COLUMNS) == trips(last, columns=COLUMNS) == ["main i0 rolled"]


def test_the_others_may_have_none():
    rolled = ["prologue i0 rolled", "main i0 rolled", "epilogue i0 rolled"]
    assert trips(lambda axis: axis.rolled(loop="main")) == rolled
    unrolled = trips(lambda axis: axis.unroll(loop="main"), columns=COLUMNS)
    assert unrolled == ["prologue i0 full", "epilogue i0 full"], "short: the compiler's to unroll"


def test_roles():
    def direct(axis):
        axis.unroll(3, loop="consumer")
        axis.rolled(loop="producer")

    assert trips(direct, ROLES) == ["i0_round rolled", "i0 rolled", "i0 rolled"]


def test_without_prefetch_there_is_a_main_loop_alone():
    made = trips(lambda axis: axis.unroll(2, loop="main"), stages=1)
    assert made == ["main i0_round rolled"], "of one trip left over there is no loop"


@pytest.mark.parametrize(
    ("kind", "part", "stages", "said"),
    [
        (PIPELINED, "producer", 3, "pipelined, sync parity, war mbarrier, prefetch 2, has no "
         "producer; needed prologue or main or epilogue"),
        (PIPELINED, "prologue", 1, "prefetch 0, has no prologue; needed main"),
        (ROLES, "main", 3, "warp-specialised on tx, prefetch 2, has no main; needed producer or "
         "consumer"),
    ],
)  # fmt: skip
def test_a_part_that_is_not_made(kind, part, stages, said):
    with pytest.raises(ScheduleError) as caught:
        trips(lambda axis: axis.rolled(loop=part), kind, stages=stages)
    assert f"axis 1 has the directive rolled(loop={part!r}), and ring tile" in str(caught.value)
    assert said.replace("tx", ParallelType.block_x.name) in str(caught.value)


def test_a_loop_that_no_ring_clones():
    def direct(y):
        y.axis(1).rolled()
        y.axis(2).rolled(loop="main")

    with pytest.raises(ScheduleError, match=r"axis 2 has the directive rolled\(loop='main'\), and"):
        kernel(ring(direct), 2, COLUMNS)


def test_a_ring_in_registers_clones_by_slots():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
        tile = x.cache_after(LoadStoreOpType.set)
        y.split(0, 64)
        fd.sched.transform_like(y, [tile])
        y.axis(1).parallelize(ParallelType.block_x)
        tile.axis(1).parallelize(ParallelType.block_x)
        tile.inline_at(y, 1)
        tile.circular_buffer(2)
        y.axis(0).rolled(loop="main")
    with pytest.raises(ScheduleError, match="all of its loops choose slots"):
        kernel(fd, 1000)


def test_one_part_has_one_directive():
    def direct(axis):
        axis.unroll(3, loop="main")
        axis.rolled(loop="main")

    said = "rolled: axis 1 has the directive unroll(3, loop='main') already, and this is "
    with pytest.raises(ScheduleError, match=re.escape(f"{said}rolled(loop='main'); a loop has")):
        trips(direct)


def test_a_part_must_be_known():
    said = "unroll: axis 1 with loop 'middle'; needed one of 'prologue', 'main', 'epilogue', 'pro"
    with pytest.raises(ScheduleError, match=re.escape(said)):
        trips(lambda axis: axis.unroll(2, loop="middle"))


def test_tensors_of_a_loop_must_agree_on_its_parts():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        z = fd.ops.exp(x)
        y = fd.ops.sum(z, [1])
        fd.add_output(y)
        kept = z.cache_after()
        kept.inline_at(y, 2)
        kept.axis(1).unroll(2, loop="main")
        y.axis(1).unroll(3, loop="main")
    with pytest.raises(ScheduleError, match=r"unroll\(2, loop='main'\).*one directive"):
        kernel(fd, 2, 60)


def test_repr_has_the_parts():
    def direct(y):
        y.axis(1).unroll(3, loop="main", most_products=200)
        y.axis(1).rolled(loop="epilogue")

    lines = repr(ring(direct)).splitlines()
    assert lines[-2].endswith(".axis(1).unroll(3, loop='main', most_products=200)")
    assert lines[-1].endswith(".axis(1).rolled(loop='epilogue')")


def test_what_is_written():
    main = Unroll("partial", 3)
    both = Unroll("rolled").with_part("main", main).with_part("producer", Unroll("full"))
    assert both.directive == "rolled() and unroll(3, loop='main') and unroll(loop='producer')"
    assert (both.of("main"), both.of("epilogue")) == (main, Unroll("rolled"))
    assert Unroll().with_part("main", main).of("epilogue") == Unroll()
    assert not Unroll().is_given
    assert {u.origin for _, u in both.asked_by("y: axis 1").parts} == {"y: axis 1"}
