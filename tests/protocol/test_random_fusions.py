"""Random fusions on the interpreter: every output element is one that the definition allows.

``FUSER_HYPOTHESIS=explore`` draws 5,000 examples a chunk instead of CI's 500 in all.
"""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings

from fuser import DataType, FusionDefinition
from fuser.api.fuse import FusedFunction
from tests.fuzz.check import Tally, check
from tests.fuzz.enclosure import CUDA, NUMPY, enclose, judge
from tests.fuzz.expressions import RandomFunction, functions
from tests.fuzz.fusions import RandomFusion, draw_fusion, fusions
from tests.fuzz.source import Source

pytestmark = pytest.mark.protocol

EXPLORING = os.environ.get("FUSER_HYPOTHESIS") == "explore"
EXAMPLES = settings().max_examples if EXPLORING else 500


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(fusions())
def test_random_fusions_on_the_interpreter(fusion: RandomFusion) -> None:
    note(repr(fusion))
    check(fusion, "interpret", NUMPY, Tally())


@settings(max_examples=5_000 if EXPLORING else 150, suppress_health_check=[HealthCheck.too_slow])
@given(functions())
def test_random_functions_mean_under_fuse_what_they_mean_in_numpy(case: RandomFunction) -> None:
    note(repr(case))
    # one function for every call of it, as a decorator makes
    fused = FusedFunction(lambda *args: case(*args))
    expected = case(*case.arguments)
    got = fused(*case.arguments)
    assert got.shape == np.shape(expected)
    assert got.dtype == np.float64
    fd = fused.definition(*case.arguments)
    bounds = enclose(fd.fusion, *fd.named_inputs(case.arguments), NUMPY)[fd.fusion.outputs[0].value]
    judge("result", got, DataType.Double, bounds)
    scale = np.abs(expected).max(initial=1.0)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12 * scale)


def test_the_oracle_decides_nearly_every_element() -> None:
    tally = Tally()
    for seed in range(100):
        check(draw_fusion(Source.seeded(seed)), "interpret", NUMPY, tally)
    assert tally.elements > 50_000
    assert tally.share > 0.9


@pytest.mark.parametrize(("op", "terms", "decided"), [
    ("sum", (1.0, 2.0, np.inf), True), ("prod", (1.0, 2.0, np.inf), True),
    ("sum", (1.0, np.nan, 2.0), True), ("prod", (0.0, np.inf, 3e38), True),
    ("sum", (np.inf, -np.inf, 3e38), True), ("sum", (1e-30, 1e-30, np.inf), True),
    ("sum", (-3e38, -3e38, np.inf), False), ("prod", (1e-30, 1e-30, np.inf), False),
])  # fmt: skip
def test_an_infinite_term_decides_unless_others_leave_the_range(op, terms, decided) -> None:
    """``-3e38 - 3e38 + inf`` is NaN or infinite, as the order is."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[1, -1], contiguity=True)
        fd.add_output(getattr(fd.ops, op)(x, [1]))
    (output,) = fd.fusion.outputs
    for order in itertools.permutations(terms):
        inputs = fd.named_inputs([np.array([order], np.float32)])
        (found,) = enclose(fd.fusion, *inputs, NUMPY)[output.value].known
        assert found == decided


def test_random_fusions_print_themselves() -> None:
    for seed in range(100):
        fd = draw_fusion(Source.seeded(seed)).fd
        scope: dict[str, object] = {}
        exec(repr(fd), scope)
        again = scope["fd"]
        assert isinstance(again, FusionDefinition)
        assert len(again.arguments) == len(fd.arguments), f"seed {seed}"
        assert again.fusion == fd.fusion, f"seed {seed}"


# ---- the oracle itself -------------------------------------------------------------------------


def allowed(build, *arrays, arithmetic=NUMPY):
    """Return what the oracle allows for one operation, and its dtype."""
    fd = FusionDefinition()
    tensors = [
        fd.define_tensor(shape=list(a.shape), dtype=DataType.from_numpy(a.dtype)) for a in arrays
    ]
    result = build(fd.ops, *tensors)
    fd.add_output(result)
    given, scalars = fd.named_inputs(arrays)
    return enclose(fd.fusion, given, scalars, arithmetic)[result.name], result.dtype


X = np.linspace(0.1, 3, 97, dtype=np.float32)


@pytest.mark.parametrize("arithmetic", [NUMPY, CUDA])
def test_elementary_arithmetic_must_be_exact(arithmetic):
    bounds, dtype = allowed(lambda ops, x: ops.div(ops.add(x, 1.0), x), X, arithmetic=arithmetic)
    right = (X + np.float32(1)) / X
    assert judge("right", right, dtype, bounds) == X.size
    with pytest.raises(AssertionError, match="97 of 97 elements are wrong"):
        judge("an ulp off", np.nextafter(right, np.inf, dtype=np.float32), dtype, bounds)


def test_functions_may_err_by_their_tolerance_only():
    bounds, dtype = allowed(lambda ops, x: ops.exp(x), X, arithmetic=CUDA)
    right = np.exp(X.astype(np.float64))
    judge("within", (right * (1 + 2**-22)).astype(np.float32), dtype, bounds)
    with pytest.raises(AssertionError, match="elements are wrong"):
        judge("beyond", (right * (1 + 2**-19)).astype(np.float32), dtype, bounds)


def test_a_sum_may_be_taken_in_any_order():
    x = np.random.default_rng(1).standard_normal((4, 1000)).astype(np.float32)
    bounds, dtype = allowed(lambda ops, t: ops.sum(t, [1]), x)
    judge("backwards", x[:, ::-1].cumsum(1)[:, -1], dtype, bounds)
    with pytest.raises(AssertionError, match="4 of 4 elements are wrong"):
        judge("one term missing", x[:, :-1].sum(1) + 0.1, dtype, bounds)


def test_an_exact_sum_has_one_result():
    x = np.full((2, 100), 0.25, np.float32)
    bounds, dtype = allowed(lambda ops, t: ops.sum(t, [1]), x)
    with pytest.raises(AssertionError, match="1 of 2 elements are wrong"):
        judge("off", np.float32([25, np.nextafter(np.float32(25), 30)]), dtype, bounds)


def test_errors_are_carried_on():
    """exp is uncertain by ulps, which the subtraction makes large: any of these is right."""
    build = lambda ops, x: ops.sub(ops.exp(x), float(np.exp(np.float32(1.0))))  # noqa: E731
    bounds, dtype = allowed(build, np.float32([1.0]), arithmetic=CUDA)
    judge("an ulp of e", np.float32([2**-22]), dtype, bounds)
    with pytest.raises(AssertionError, match="1 of 1 elements are wrong"):
        judge("too much", np.float32([2**-18]), dtype, bounds)


def test_a_comparison_of_uncertain_numbers_is_open_only_where_it_is_close():
    build = lambda ops, x: ops.lt(ops.exp(x), float(np.exp(np.float32(1.0))))  # noqa: E731
    bounds, _ = allowed(build, np.float32([0.5, 1.0, 1.5]), arithmetic=CUDA)
    assert bounds.known.tolist() == [True, False, True]


def test_nan_infinity_shape_and_dtype_must_match():
    x = np.float32([1.0, np.nan, np.inf])
    bounds, dtype = allowed(lambda ops, t: ops.mul(t, 2.0), x)
    judge("right", np.float32([2.0, np.nan, np.inf]), dtype, bounds)
    for wrong in ([2, 3, np.inf], [np.nan, np.nan, np.inf], [2, np.nan, np.nan], [2, np.nan, 3e38]):
        with pytest.raises(AssertionError, match="1 of 3 elements are wrong"):
            judge("wrong", np.float32(wrong), dtype, bounds)
    with pytest.raises(AssertionError, match="shape"):
        judge("shape", np.float32([2.0]), dtype, bounds)
    with pytest.raises(AssertionError, match="dtype"):
        judge("dtype", np.float64([2.0, np.nan, np.inf]), dtype, bounds)
