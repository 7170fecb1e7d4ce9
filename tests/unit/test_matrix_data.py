"""The matrix's own inputs: products that come out the same in every order."""

from __future__ import annotations

import numpy as np
import pytest
from matrix.arrays import LAYOUTS, SHAPES, arrange
from matrix.reductions import factors

from fuser.core.dtypes import DataType


@pytest.mark.parametrize("dtype", [d for d in DataType if d.is_float], ids=repr)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_partial_product_overflows_or_vanishes(
    shape: tuple[int, ...], layout: str, dtype: DataType, rng: np.random.Generator
) -> None:
    x = arrange(factors(dtype, shape, layout, rng), layout).astype(np.float64)
    assert np.abs(np.log2(np.abs(x))).sum() <= 126  # so neither does any in f32
    if x.size > 1 and dtype.nbytes > 1:
        assert (np.abs(x) != 1).any()
