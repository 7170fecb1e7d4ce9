"""Products of tensor cores on a GPU: every layout, width, epilogue and ring, at the edges of tiles.

Inputs are small integers, so that results are exact; outputs are poisoned before every run and
what lies behind them is compared.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from plain_products import EDGES, PLAIN
from product_cases import CASES
from rings.on_gpu import guarded_memory

from fuser.core.errors import FallbackWarning
from fuser.runtime.log import CompileWarning

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

NAN = 0xFF
"""A byte of which every float is NaN."""
REPEATS = 3
LARGE = ("128B-kk", "128B-mn", "n256-turned", "m128", "stages4-roles", "stages4-barrier")
LARGE_SHAPE = (1024, 1032, 2056)


@pytest.fixture(autouse=True)
def _copies_by_threads_are_expected():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        warnings.simplefilter("ignore", CompileWarning)
        yield


@pytest.mark.parametrize("name", PLAIN)
def test_edges(name, rng):
    product = PLAIN[name]().schedule()
    for m, n, k in EDGES:
        arrays = product.arrays(rng, m, n, k)
        expected = product.reference(arrays)
        with guarded_memory(NAN):
            for _ in range(REPEATS):
                (got,) = product.fd.manual_execute(arrays, backend="cuda")
                np.testing.assert_array_equal(got.astype("f8"), expected, f"{m} x {n} x {k}")


@pytest.mark.parametrize("name", CASES)
def test_among_other_computations(name, rng):
    case = CASES[name]
    fd, inputs = case.build(), case.inputs(rng)
    with guarded_memory(NAN):
        for _ in range(REPEATS):
            case.require(inputs, fd.manual_execute(inputs, backend="cuda"))


@pytest.mark.parametrize("name", LARGE)
def test_large(name, rng):
    """Many blocks on every multiprocessor; each run is bit by bit the same."""
    product = PLAIN[name]().schedule()
    arrays = product.arrays(rng, *LARGE_SHAPE)
    expected = product.reference(arrays)
    for _ in range(REPEATS):
        (got,) = product.fd.manual_execute(arrays, backend="cuda")
        np.testing.assert_array_equal(got.astype("f8"), expected)


def test_what_is_no_number_stays_where_it_is(rng):
    """What is not in a row or a column of the result does not reach it, also past the edges."""
    product = PLAIN["128B-kk"]().schedule()
    for k in (72, 17):
        a, b = product.arrays(rng, 70, 72, k)
        a[3, 5], b[64, 1] = np.nan, np.inf
        (got,) = product.fd.manual_execute([a, b], backend="cuda")
        clean = np.ones((70, 72), bool)
        clean[3], clean[:, 64] = False, False
        a[3, 5], b[64, 1] = 0, 0
        assert np.isnan(got[3]).all()
        assert not np.isfinite(got[:, 64]).any()
        np.testing.assert_array_equal(got[clean], product.reference([a, b])[clean])
