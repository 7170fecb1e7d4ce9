"""Naming index expressions costs what there is to name, not its square."""

from collections.abc import Callable

import numpy as np
import pytest
from manual_schedules import program

from fuser import FusionDefinition, ParallelType
from fuser.passes import names

pytestmark = pytest.mark.unit


def across(copies: int) -> None:
    """Copies far apart, each under a guard and with an index of its own."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(y := fd.ops.mul(x, 2.0))
    y.split(0, copies, inner_split=False)
    y.axis(1).parallelize(ParallelType.block_x)
    y.axis(0).unroll()
    program(fd, [np.ones(1000, np.float32)])


def rows(copies: int) -> None:
    """Copies side by side, without any guard."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[copies, -1], contiguity=True)
        fd.add_output(y := fd.ops.mul(x, 2.0))
    y.axis(1).parallelize(ParallelType.block_x)
    y.axis(0).unroll()
    program(fd, [np.ones((copies, 9), np.float32)])


@pytest.mark.parametrize("build", [across, rows])
def test_a_name_is_looked_for_where_it_is(build: Callable[[int], None], monkeypatch):
    looks, look = 0, names._occurrences

    def counted(*args):
        nonlocal looks
        looks += 1
        return look(*args)

    monkeypatch.setattr(names, "_occurrences", counted)
    taken: list[int] = []
    for copies in (16, 64):
        looks = 0
        build(copies)
        taken.append(looks)
    assert taken[1] < 5 * taken[0]
