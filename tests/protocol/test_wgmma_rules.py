"""Matrix products on the interpreter: right out of every layout, and every misuse found."""

import itertools

import numpy as np
import pytest
from wgmma_kernels import Product

from fuser.core.dtypes import DataType
from fuser.interp.functional import run_kernel
from fuser.kir.verify import verify_kernel

pytestmark = pytest.mark.protocol

LAYOUTS = list(itertools.product(("k", "mn"), ("none", "32B", "64B", "128B")))


# ---- results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("a", LAYOUTS, ids="-".join)
@pytest.mark.parametrize("b", LAYOUTS, ids="-".join)
def test_functional_products(a, b, rng):
    n = int(rng.choice([8, 24, 64, 104]))
    product = Product(n, a, b, blocks=2, groups=2)
    kernel = product.kernel()
    verify_kernel(kernel)
    arrays, expected = product.arrays(rng)
    run_kernel(kernel, {}, arrays)
    np.testing.assert_array_equal(arrays["y"].reshape(expected.shape), expected)


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_every_width(n, rng):
    product = Product(n, dtype=DataType.Half)
    arrays, expected = product.arrays(rng)
    run_kernel(product.kernel(), {}, arrays)
    np.testing.assert_array_equal(arrays["y"].reshape(expected.shape), expected)
