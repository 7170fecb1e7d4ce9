"""Hand-made schedules of outputs that are empty in one call, though no input is."""

from typing import Any

import numpy as np
import pytest
from manual_schedules import run_checked

from fuser import FusionDefinition, ParallelType
from fuser.api.execute import bind, program_of
from fuser.runtime.plan import make_plan

pytestmark = pytest.mark.protocol
P = ParallelType

KINDS = (P.grid_x, P.grid_y, P.block_x, P.block_y)
SIZES = (1, 2, 3, 5)  # of which the first two leave nothing of a slice that begins at 2


def rest(fd: FusionDefinition, x: Any, rank: int = 1, dim: int = 0) -> Any:
    """Return what is right of element 2, of an extent that may be 0."""
    starts = [0] * rank
    starts[dim] = 2
    return fd.ops.slice(x, starts, [1000] * rank)


def check(fd: FusionDefinition, data: np.ndarray) -> None:
    expected = fd.execute([data], backend="interpret")
    by_hand = fd.manual_execute([data], backend="interpret")
    for results in (by_hand, run_checked(fd, [data], 1)):
        for got, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(got, wanted)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [None, 2])
def test_one_output(kind, factor, n, rng):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(y := fd.ops.add(rest(fd, x), 1.0))
    if factor is not None:
        y.split(0, factor)
    y.axis(0).parallelize(kind)
    data = rng.integers(-9, 9, n).astype(np.float32)
    check(fd, data)
    call = bind(fd, [data])
    launches = make_plan(program_of(fd, call, manual=True), call.env).launches
    assert launches == (None,) if n <= 2 else None not in launches


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("second", [None, *KINDS])
@pytest.mark.parametrize("first", KINDS)
def test_the_other_output_is_not_empty(first, second, n, rng):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        fd.add_output(y := fd.ops.add(rest(fd, x), 1.0))
        fd.add_output(z := fd.ops.neg(x))
    y.axis(0).parallelize(first)
    if second is not None:
        z.axis(0).parallelize(second)
    check(fd, rng.integers(-9, 9, n).astype(np.float32))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_reduction_of_nothing_and_nothing_reduced(kind, op, dim, n, rng):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        fd.add_output(y := getattr(fd.ops, op)(rest(fd, x, 2, dim), [1]))
    if kind.is_grid:
        y.reorder({0: 1})
        y.axis(1).parallelize(P.block_z)
        y.axis(0).parallelize(kind)
    else:
        y.axis(1).parallelize(kind)
    check(fd, rng.integers(-9, 9, (4, n) if dim else (n, 4)).astype(np.float32))


@pytest.mark.parametrize("kind", [P.block_x, P.grid_x])
def test_known_to_be_empty(kind, rng):
    """No kernel at all; beside another output, a kernel for that."""
    data = rng.integers(-9, 9, (3, 2)).astype(np.float32)
    for others in (0, 1):
        with FusionDefinition() as fd:
            x = fd.define_tensor(shape=[-1, 2], contiguity=True)
            fd.add_output(y := fd.ops.add(rest(fd, x, 2, 1), 1.0))
            if others:
                fd.add_output(fd.ops.neg(x))
        y.axis(1).parallelize(kind)
        empty, *rest_of_them = fd.manual_execute([data], backend="interpret")
        assert empty.shape == (3, 0)
        assert len(rest_of_them) == others
        for other in rest_of_them:
            np.testing.assert_array_equal(other, -data)
