"""Long tiles, boxes that are cut short and copies that end with zeros, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from long_tiles import KINDS, L, matrix, numbers, vector, vectors

from fuser import DataType

pytestmark = pytest.mark.gpu

D = DataType


@pytest.mark.parametrize("kind", [None, *KINDS], ids=str)
@pytest.mark.parametrize(("tile", "dtype"), [
    (512, D.Float), (300, D.Float), (640, D.Float), (320, D.BFloat16), (1008, D.Int8),
], ids=lambda v: getattr(v, "short", str(v)))  # fmt: skip
def test_long_vectors(tile, dtype, kind, rng):
    fd = vector(tile, kind=kind, dtype=dtype)
    for n in (16, tile, 3 * tile + 48, 100 * tile - 16):
        x = numbers(rng, n, dtype=dtype)
        (y,) = fd.manual_execute([x], backend="cuda")
        np.testing.assert_array_equal(y.astype("f8"), 2 * x.astype("f8"))


@pytest.mark.parametrize("kind", [None, *KINDS], ids=str)
@pytest.mark.parametrize("shape", [(4, 512), (4, 300), (272, 4), (260, 16)], ids=str)
def test_long_rows_and_columns(shape, kind, rng):
    fd = matrix(*shape, kind=kind, contiguity=[False, False])
    for rows, columns in (shape, (3 * shape[0] - 1, shape[1] + 24), (1024, 2048)):
        x = numbers(rng, rows, columns)
        (y,) = fd.manual_execute([x], backend="cuda")
        np.testing.assert_array_equal(y, 2 * x.astype("f8"))
    square = numbers(rng, 600, 600)
    (y,) = fd.manual_execute([square.T], backend="cuda")
    np.testing.assert_array_equal(y, 2 * square.T.astype("f8"))


@pytest.mark.parametrize(("swizzle", "span"), [("32B", 8), ("64B", 16), ("128B", 32)])
def test_swizzled_tiles(swizzle, span, rng):
    for shape in ((8, 512), (272, span)):
        x = numbers(rng, 600, 560)
        (y,) = matrix(*shape, swizzle=swizzle).manual_execute([x], backend="cuda")
        np.testing.assert_array_equal(y, 2 * x.astype("f8"))


@pytest.mark.parametrize("kind", [None, *KINDS], ids=str)
def test_boxes_that_are_cut_short(kind, rng):
    fd = vector(512, L.bulk, kind, box=128)
    for n in (4, 128, 132, 508, 512, 1792, 2476, 1 << 20):
        x = numbers(rng, n)
        (y,) = fd.manual_execute([x], backend="cuda")
        np.testing.assert_array_equal(y, 2 * x.astype("f8"))
    fd = matrix(4, 256, L.bulk, kind, box=64)
    for shape in ((1, 4), (3, 64), (37, 300), (1025, 1028)):
        x = numbers(rng, *shape)
        (y,) = fd.manual_execute([x], backend="cuda")
        np.testing.assert_array_equal(y, 2 * x.astype("f8"))


@pytest.mark.parametrize("kind", [None, *KINDS], ids=str)
@pytest.mark.parametrize("each", [1, 4])
@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16, D.Int8], ids=lambda d: d.short)
def test_vectors_end_anywhere(dtype, each, kind, rng):
    fd = vectors(1, each, kind, dtype)
    for n in (1, 3, 255, 1024, 5001, 5002, 70_003, (1 << 20) + 5):
        x = numbers(rng, n, dtype=dtype)
        (y,) = fd.manual_execute([x], backend="cuda")
        np.testing.assert_array_equal(y.astype("f8"), 2 * x.astype("f8"))


@pytest.mark.parametrize("kind", [None, *KINDS], ids=str)
def test_rows_with_gaps_end_anywhere(kind, rng):
    fd, wide = vectors(2, 2, kind, contiguity=[False, True]), numbers(rng, 70, 1040)
    for columns in (1, 3, 4, 1037, 1038, 1040):
        (y,) = fd.manual_execute([wide[:, :columns]], backend="cuda")
        np.testing.assert_array_equal(y, 2 * wide[:, :columns].astype("f8"))
