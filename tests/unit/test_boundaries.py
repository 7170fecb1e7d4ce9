"""Sizes at which recipes change their mind are part of what a program is found by."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.api.execute import bind, compiled_of, program_of
from fuser.core.boundary import Boundary, hold
from fuser.core.expr import Var

pytestmark = pytest.mark.unit

COUNTS = (
    1, 2, 3, 7, 8, 9, 15, 16, 17, 32, 33, 131, 132, 133, 1000, 1024, 1025, 16_383, 16_384, 65_536,
    1_048_576, 4_000_000,
)  # fmt: skip


def total(fd, x):
    return fd.ops.sum(x, list(range(len(x.shape))))


def row_sums(fd, x):
    return fd.ops.sum(x, [1])


def column_sums(fd, x):
    return fd.ops.sum(x, [0])


def softmax(fd, x):
    e = fd.ops.exp(x - fd.ops.max(x, [1], True))
    return e / fd.ops.sum(e, [1], True)


def tanh(fd, x):
    return fd.ops.tanh(x)


def biased(fd, x):
    row = fd.define_tensor([-1], True)
    return x + fd.ops.broadcast_in_dim(row, fd.ops.shape(x), [1])


def turned(fd, x):
    return fd.ops.permute(x, [1, 0])


def defined(build, rank=2):
    with FusionDefinition() as fd:
        fd.add_output(build(fd, fd.define_tensor([-1] * rank, True)))
    return fd


def call(fd, shape):
    """Return the bound call of arrays whose memory is never touched."""
    ranks = [value.rank for value in fd.fusion.inputs]
    return bind(fd, [np.empty(shape[len(shape) - rank :], np.float32) for rank in ranks])


def program(fd, shape):
    return program_of(fd, call(fd, shape))


FUSIONS = [total, row_sums, column_sums, softmax, tanh, biased, turned]


@pytest.mark.parametrize("cols", [1, 64, 8192])
@pytest.mark.parametrize("build", FUSIONS)
def test_the_first_call_decides_nothing_for_later_ones(build, cols, rng):
    """In whatever order sizes come, each runs what a fresh definition would run."""
    fd = defined(build)
    most = 2**33 // (4 * cols)
    for rows in rng.permutation([n for n in COUNTS if n <= most]).tolist():
        shape = (rows, cols)
        assert program(fd, shape).kernels == program(defined(build), shape).kernels, shape


@pytest.mark.parametrize("cols", [4, 64, 4096, 65_536])
@pytest.mark.parametrize("build", FUSIONS)
def test_row_counts_make_three_programs_at_most(build, cols, rng):
    fd = defined(build)
    counts = {*range(1, 40), *rng.integers(1, 1001, 100), *rng.integers(1, 2**30 // cols, 100)}
    for rows in sorted(int(n) for n in counts):
        program(fd, (rows, cols))
    assert 1 <= len(compiled_of(fd).programs) <= 3, [p.boundaries for p in compiled_of(fd).programs]


def test_lengths_of_a_sum_make_three_programs_at_most(rng):
    fd = defined(total, rank=1)
    for n in (1, 6, 100_001, 10**7 + 1, *rng.integers(1, 10**8, 100)):
        program(fd, (int(n),))
    assert len(compiled_of(fd).programs) <= 3


def test_a_long_sum_behind_a_short_one_is_right():
    """One thread adding ten million numbers one by one would be off by a tenth."""
    fd = defined(total, rank=1)
    for n in (6, 100_001, 3_000_001):
        (found,) = fd.execute([np.full(n, 0.1, np.float32)], backend="interpret")
        np.testing.assert_allclose(found, n * float(np.float32(0.1)), rtol=1e-5)


@pytest.mark.parametrize(
    ("least", "limit", "inside"),
    [(None, None, [-5, 0, 1, 4, 5]), (1, None, [1, 4, 5]), (None, 1, [-5, 0]), (0, 5, [0, 1, 4])],
)
def test_a_boundary_holds_from_its_least_to_below_its_limit(least, limit, inside):
    boundary = Boundary(Var("n"), least, limit)
    assert [n for n in (-5, 0, 1, 4, 5) if hold((boundary,), {"n": n})] == inside
