"""Matrix products on hardware, out of tiles in every layout, against NumPy.

The tiles are placed by the book, not by `MatrixLayout`: it is what these tests are the proof of.
"""

from __future__ import annotations

import numpy as np
import pytest
from wgmma_kernels import DEPTH, LAYOUTS, START, Product

from fuser.codegen.emit import emit
from fuser.core.dtypes import DataType
from fuser.core.expr import ONE, Const
from fuser.kir.program import Buffer, OutputBinding, Program
from fuser.runtime.arrays import view_of
from fuser.runtime.executor import CudaProgram

pytestmark = pytest.mark.gpu

F32, BF16, HALF = DataType.Float, DataType.BFloat16, DataType.Half
LABELS = ["-".join(layout) for layout in LAYOUTS]


def run(product: Product, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Return what the kernel writes, flat."""
    numel = Const(arrays["y"].size)
    y = Buffer("y", F32, (numel,), (ONE,), numel)
    inputs = tuple(name for name in arrays if name != "y")
    program = Program("product", inputs, (y,), (product.kernel(),), (OutputBinding("y"),))
    views = {name: view_of(arrays[name]) for name in inputs}
    made = CudaProgram(program, emit).run({}, views, {})
    return np.asarray(made["y"][0])


def check(product: Product, rng: np.random.Generator) -> None:
    """Compare products of small integers, which are exact."""
    arrays, expected = product.arrays(rng)
    np.testing.assert_array_equal(run(product, arrays).reshape(expected.shape), expected)


@pytest.mark.parametrize("n", [8, 64, 256])
@pytest.mark.parametrize("b", LAYOUTS, ids=LABELS)
@pytest.mark.parametrize("a", LAYOUTS, ids=LABELS)
def test_every_layout(a, b, n, rng):
    check(Product(n, a, b), rng)


@pytest.mark.parametrize("dtype", [BF16, HALF], ids=lambda d: d.short)
@pytest.mark.parametrize("n", range(8, 257, 8))
def test_every_width(n, dtype, rng):
    a, b = (LAYOUTS[i] for i in rng.integers(0, len(LAYOUTS), 2))
    check(Product(n, a, b, dtype), rng)


def test_warp_groups_and_blocks(rng):
    check(Product(64, groups=3, blocks=5), rng)


@pytest.mark.parametrize("dtype", [BF16, HALF], ids=lambda d: d.short)
def test_rounding_is_that_of_float32(dtype, rng):
    """Products are exact; a sum may lose a bit of float32 with each of its terms."""
    product = Product(128, dtype=dtype)
    arrays, _ = product.arrays(rng)
    values = {
        name: rng.standard_normal((tile.rows, DEPTH)).astype(dtype.np)
        for name, tile in product.tiles.items()
    }
    for name, tile in product.tiles.items():
        arrays[f"{name}_image"] = tile.image(values[name])
    a, b = (values[name].astype(np.float64) for name in "ab")
    error = np.abs(run(product, arrays).reshape(64, 128) - (a @ b.T + START))
    assert (error <= DEPTH * 2.0**-23 * (np.abs(a) @ np.abs(b.T) + START)).all()
