"""Tiles of tensor cores that are wider than their swizzle: boxes of a span, as split by hand."""

from __future__ import annotations

import numpy as np
import pytest
from product_schedules import SPANS, P, Product

from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.kir.core import Kernel
from fuser.kir.tensor_map import TensorMapParam

pytestmark = pytest.mark.protocol

CASES = [
    ("128B", (False, False), (64, 64, 128)),
    ("64B", (True, True), (64, 128, 64)),
    ("32B", (False, True), (64, 64, 64)),
]


def unsplit(product: Product) -> None:
    """Bind the tiles, (row, k), to the engine as they are."""
    for t in product.tiles:
        for axis in (-2, -1):
            t.axis(axis).parallelize(P.tma)
        t.set_swizzle(product.swizzle)


def kernel_of(product: Product, arrays: list[np.ndarray]) -> Kernel:
    (kernel,) = program_of(product.fd, bind(product.fd, arrays, True), True).kernels
    return kernel


@pytest.mark.parametrize(("swizzle", "turned", "tile"), CASES)
def test_as_split_by_hand(swizzle, turned, tile, rng):
    asked, by_hand = (Product(tile=tile, swizzle=swizzle, turned=turned) for _ in range(2))
    asked.schedule(boxed=unsplit)
    by_hand.schedule()
    arrays = asked.arrays(rng, 104, 72, 264)
    (c,) = asked.fd.manual_execute(arrays, backend="interpret")
    np.testing.assert_array_equal(c, asked.reference(arrays))
    kernel, other = kernel_of(asked, arrays), kernel_of(by_hand, arrays)
    code = 'extern "C"'  # behind the header, which says what was asked for
    assert emit(kernel).partition(code)[2] == emit(other).partition(code)[2]
    boxes = [p.box[0] for p in kernel.params if isinstance(p, TensorMapParam)]
    assert boxes == [SPANS[swizzle]] * 2
