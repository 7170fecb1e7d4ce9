"""Products of tensor cores on the interpreter: layouts, edges, and what else is in the kernel.

`tests/gpu/test_products_gpu.py` runs the same schedules at more shapes, on a GPU;
``FUSER_RING_MATRIX=all`` runs all of them here.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
from plain_products import EDGES, PLAIN
from product_cases import CASES
from rings.interpret import run_by_hand

from fuser.core.errors import FallbackWarning

pytestmark = pytest.mark.protocol

ALL = os.environ.get("FUSER_RING_MATRIX") == "all"
SOME = (
    "none-mn", "32B-mk", "64B-kn", "128B-mn", "n8", "n256-turned", "narrow",
    "with_bias-f16", "stages0", "stages1-barrier", "roles-m128", "rolled",
)  # fmt: skip
AMONG = (
    "two_roles", "two_plain_a", "gated", "by_itself_128", "with_sum_one_stage",
    "sum_of_batch", "cluster_columns", "cluster_token", "cluster_barrier", "rows_block_y",
    "columns_serial", "resident", "beside_96", "twice_out", "through_shared", "further_out",
    "in_pairs",
)  # fmt: skip


@pytest.mark.parametrize("name", CASES if ALL else AMONG)
def test_among_other_computations(name, rng):
    """In checked mode as well."""
    case = CASES[name]
    inputs = case.inputs(rng)
    case.require(inputs, run_by_hand(case.build(), inputs))


@pytest.mark.parametrize("name", PLAIN if ALL else SOME)
def test_product(name, rng):
    product = PLAIN[name]().schedule()
    arrays = product.arrays(rng, 72, 72, 136)
    (got,) = product.fd.manual_execute(arrays, backend="interpret")
    np.testing.assert_array_equal(got.astype("f8"), product.reference(arrays))


@pytest.mark.parametrize("turned", [(False, False), (True, True)])
def test_edges(turned, rng):
    product = PLAIN["128B-mn" if all(turned) else "128B-kk"]().schedule()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for m, n, k in EDGES[1:-1]:
            arrays = product.arrays(rng, m, n, k)
            (got,) = product.fd.manual_execute(arrays, backend="interpret")
            np.testing.assert_array_equal(got.astype("f8"), product.reference(arrays))


def test_threads_copy_odd_rows(rng):
    """With zeros where the tensor ends, and seen by the tensor cores."""
    product = PLAIN["128B-kk"]().schedule()
    arrays = product.arrays(rng, 65, 40, 17)
    with pytest.warns(FallbackWarning, match="threads copy it"):
        (got,) = product.fd.manual_execute(arrays, backend="interpret")
    np.testing.assert_array_equal(got.astype("f8"), product.reference(arrays))
