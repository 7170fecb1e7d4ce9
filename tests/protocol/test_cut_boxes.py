"""Stages of several boxes by ``bulk`` that end with the tensor: what comes is what is announced."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from long_tiles import KINDS, L, P, doubled, kernel_of, matrix, numbers, staged, vector
from rings.interpret import exact

from fuser import DataType
from fuser.codegen.emit import emit
from fuser.core.errors import ProtocolError
from fuser.core.expr import Const
from fuser.interp.checked import check_kernel
from fuser.kir.core import walk_stmts
from fuser.kir.stmts import BulkLoad, MbarrierArriveExpectTx
from fuser.passes.rewrite import map_bodies
from fuser.protocol.verdict import check

pytestmark = pytest.mark.protocol

TILE, BOX = 512, 128


def by_bulk(fd, *inputs):
    """Return the kernel of a call; raise unless the engine copies."""
    kernel = kernel_of(fd, *inputs)
    assert any(isinstance(s, BulkLoad) for s in walk_stmts(kernel.body))
    assert kernel.fallbacks == ()
    return kernel


def expected_of(kernel):
    """Return what the barriers of a kernel are told to expect, as it is written."""
    found = [s for s in walk_stmts(kernel.body) if isinstance(s, MbarrierArriveExpectTx)]
    return [repr(s.tx_bytes) for s in found]


@pytest.mark.parametrize("kind", [None, *KINDS], ids=str)
@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16], ids=lambda d: d.short)
def test_a_vector_ends_in_any_box(kind, dtype, rng):
    """In each of the four boxes of a tile, at its begin and in its middle."""
    fd = vector(TILE, L.bulk, kind, dtype, box=BOX)
    for n in (8, BOX, TILE - 8, 3 * TILE + 2 * BOX, 4 * TILE + 3 * BOX + 40):
        x = numbers(rng, n, dtype=dtype)
        exact((kind, dtype, n), fd, [x], 2 * x.astype("f8"), 1)
    by_bulk(fd, x)


@pytest.mark.parametrize("kind", [None, *KINDS], ids=str)
@pytest.mark.parametrize("shape", [(3, 64), (4, 132), (37, 300), (9, 516)], ids=str)
def test_rows_and_columns_end(kind, shape, rng):
    """Rows of a tile are boxes: those behind the last one do not come, the others cut short."""
    fd, x = matrix(4, 256, L.bulk, kind, box=64), numbers(rng, *shape)
    exact((kind, shape), fd, [x], 2 * x.astype("f8"), 1)
    by_bulk(fd, x)


def test_what_is_announced(rng):
    """Boxes in a row are one that is longer; rows are counted."""
    kernel = by_bulk(vector(TILE, L.bulk, box=BOX), numbers(rng, 1000))
    assert expected_of(kernel) == ["min(512, at2) * 4", "min(512, at6 - 1024) * 4"]
    assert "min(128, at2 - i1 * 128) * 4" in emit(kernel)
    kernel = by_bulk(matrix(4, 256, L.bulk, KINDS[2], box=64), numbers(rng, 37, 300))
    assert expected_of(kernel) == ["min(256, at6) * min(4, x_size0 - i0 * 4) * 4"]


def scattered(boxes=2):
    """``y = 2 x``: a stage holds every other box of two tiles, so they do not follow each other."""
    fd, x, y = doubled(1, DataType.Float)
    cache = staged(x, L.bulk)
    for t in (y, cache):
        t.split(0, 64)
        t.split(0, boxes)
        t.split(0, 2)
        t.reorder({1: 2})  # pair of groups of boxes, box, which group, element
    y.axis(3).parallelize(P.block_x)
    cache.axis(3).parallelize(P.tma)
    cache.inline_at(y, 1)
    cache.circular_buffer(2)
    return fd


def test_boxes_far_apart_are_added_one_by_one(rng):
    fd = scattered()
    for n in (4, 64, 200, 260, 512, 1300, 1800):
        x = numbers(rng, n)
        exact(n, fd, [x], 2 * x.astype("f8"), 1)
    assert check(by_bulk(fd, x)).reach == "proved"


def test_rows_of_boxes_by_tma_may_be_left_out(rng):
    """A row is a box of its own: there are none behind the last row, and none are announced."""
    fd, x, y = doubled(2, DataType.Float)
    cache = staged(x, L.tma)
    for t in (y, cache):
        t.split(1, 64)
        t.split(0, 4)
        t.reorder({2: 0, 0: 1, 1: 2})  # column tile, row tile, row, column
        t.axis(0).parallelize(P.grid_x)
    y.axis(3).parallelize(P.block_x)
    cache.axis(3).parallelize(P.tma)
    cache.inline_at(y, 2)
    cache.circular_buffer(3)
    for rows in (1, 4, 14):
        values = numbers(rng, rows, 100)
        exact(rows, fd, [values], 2 * values.astype("f8"), 1)
    assert check(kernel_of(fd, values)).reach == "proved"


# ---- the protocol --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_trip_count_is_proved(kind, rng):
    fd = vector(TILE, L.bulk, kind, box=TILE // 2)
    assert check(by_bulk(fd, numbers(rng, 1500))).reach == "proved"
    fd = matrix(2, 64, L.bulk, kind, box=64)
    assert check(by_bulk(fd, numbers(rng, 37, 300))).reach == "proved"


def mistaken(kernel, kind, **fields):
    """Return a kernel in which every statement of a kind has other fields."""

    def change(stmt):
        if isinstance(stmt, kind):
            return replace(stmt, **fields)
        return map_bodies(stmt, lambda body: tuple(map(change, body)))

    return replace(kernel, body=tuple(map(change, kernel.body)))


@pytest.mark.parametrize(("kind", "fields"), [
    (MbarrierArriveExpectTx, {"tx_bytes": Const(4 * TILE)}),
    (BulkLoad, {"nbytes": Const(4 * BOX)}),
], ids=["a whole tile is expected", "a whole box is copied"])  # fmt: skip
def test_a_size_that_is_not_cut_is_found(kind, fields, rng):
    """By proof, which says that whole tiles were right, and by a run that ends inside a box."""
    x = numbers(rng, 1500)
    kernel = by_bulk(vector(TILE, L.bulk, box=BOX), x)
    wrong = mistaken(kernel, kind, **fields)
    assert check(wrong).reach == "wrong"
    with pytest.raises(ProtocolError):
        check_kernel(wrong, {"x_size0": 1500}, {"x": x, "y": np.zeros_like(x)}, seed=1)
    whole = numbers(rng, 2 * TILE)
    out = {"x": whole, "y": np.zeros_like(whole)}
    done = check_kernel(wrong, {"x_size0": whole.size}, out, seed=1)
    np.testing.assert_array_equal(done["y"], 2 * whole)
