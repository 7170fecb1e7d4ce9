"""Which extents of a launch are known to be no 0: the others get a guard."""

import pytest

from fuser.core.expr import Const, Expr, Var, ceil_div, maximum, minimum
from fuser.core.simplify import Facts, simplify
from fuser.passes.launch import _at_least_one

pytestmark = pytest.mark.unit

N, M = Var("x_size0"), Var("x_size1")
SOME = (
    N, N * M, ceil_div(N, 4), ceil_div(ceil_div(N, 4), 8), ceil_div(N * M, 128), minimum(N, 3),
    maximum(N, M), maximum(ceil_div(N, 4), minimum(M, 8) - 2), minimum(ceil_div(N, 4), 7), Const(1),
)  # fmt: skip
MAYBE_NONE = (
    maximum(minimum(N, 1000) - 2, 0), ceil_div(N - 1, 4), N // 4, minimum(N, M - 1),
    maximum(N - 1, M - 2), Const(0), maximum(N - 3, 0) * M,
)  # fmt: skip


@pytest.mark.parametrize("extent", SOME)
def test_sizes_are_at_least_one(extent: Expr):
    facts = Facts()
    assert _at_least_one(simplify(extent, facts), facts)


@pytest.mark.parametrize("extent", MAYBE_NONE)
def test_what_is_left_of_a_size_may_be_none(extent: Expr):
    facts = Facts()
    assert not _at_least_one(simplify(extent, facts), facts)
