"""Tiles of more than 256 elements along an axis: boxes by themselves, announced together."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from long_tiles import KINDS, L, kernel_of, matrix, numbers, vector
from rings import interpret
from rings.cells import Cell, definition
from rings.families import FAMILIES
from rings.interpret import exact

from fuser import DataType
from fuser.codegen.emit import emit
from fuser.core.errors import FallbackWarning, ProtocolError, ScheduleError
from fuser.core.expr import Const
from fuser.interp.checked import check_kernel
from fuser.kir.core import walk_stmts
from fuser.kir.stmts import For, MbarrierArriveExpectTx, TensorLoad, TensorStore
from fuser.kir.tensor_map import MAX_BOX, TensorMapParam
from fuser.passes.boxes import exact_extent, overhanging_extent
from fuser.passes.rewrite import map_bodies, substitute_body
from fuser.protocol.verdict import check

pytestmark = pytest.mark.protocol

D = DataType


def maps(kernel):
    """Return the boxes of a kernel's tensor maps; raise unless the engine copies."""
    assert any(isinstance(s, TensorLoad | TensorStore) for s in walk_stmts(kernel.body))
    assert kernel.fallbacks == ()
    return [p.box for p in kernel.params if isinstance(p, TensorMapParam)]


@pytest.mark.parametrize("unit", [1, 2, 4, 8, 16, 32, 64, 128])
def test_boxes_cover_an_axis(unit):
    """Many extents: multiples of the unit, legal, few, and the last begins inside."""
    for extent in range(MAX_BOX + 1, 3000, 5):
        whole, over = exact_extent(extent, unit), overhanging_extent(extent, unit)
        fewest = -(-extent // MAX_BOX)
        if whole:
            assert extent % whole == whole % unit == 0
            assert extent // whole <= 2 * fewest
        assert over % unit == 0
        assert 0 < over <= MAX_BOX
        assert (fewest - 1) * over < extent <= fewest * over
        larger = [n for n in range(whole + 1, MAX_BOX + 1) if n % unit == 0 and extent % n == 0]
        assert not [n for n in larger if extent // n <= 2 * fewest]


@pytest.mark.parametrize(("tile", "dtype", "box"), [
    (512, D.Float, 256), (300, D.Float, 160), (508, D.Float, 256), (640, D.Float, 160),
    (1000, D.BFloat16, 256), (320, D.BFloat16, 192), (512, D.Int8, 256), (1008, D.Int8, 256),
    (1024, D.Float8_e4m3fn, 256), (2048, D.Float, 256), (260, D.Double, 144),
], ids=lambda v: getattr(v, "short", str(v)))  # fmt: skip
def test_vectors(tile, dtype, box, rng):
    fd = vector(tile, dtype=dtype)
    for n in (3 * tile + tile // 2 // 16 * 16, 16):
        x = numbers(rng, n, dtype=dtype) if dtype is not D.Float8_e4m3fn else np.ones(n, dtype.np)
        exact((tile, dtype, n), fd, [x], 2 * x.astype("f8"), 1)
        assert maps(kernel_of(fd, x)) == [(box,)]


@pytest.mark.parametrize("kind", [None, *KINDS], ids=str)
@pytest.mark.parametrize("shape", [(4, 512), (2, 300), (260, 4)], ids=str)
def test_matrices(kind, shape, rng):
    """With and without rings; sizes that end in the middle of a box, and of a row of boxes."""
    fd = matrix(*shape, kind=kind)
    x = numbers(rng, 2 * shape[0] - 1, shape[1] + 24)
    exact((shape, kind), fd, [x], 2 * x.astype("f8"), 1)
    maps(kernel_of(fd, x))


def test_both_axes_of_a_box_are_long(rng):
    fd = matrix(260, 272, dtype=D.Int8, stages=1)
    x = numbers(rng, 264, 288, dtype=D.Int8)
    exact("both", fd, [x], 2 * x.astype("f8"), 1)
    assert maps(kernel_of(fd, x)) == [(144, 144)]


def test_what_the_schedule_splits_is_what_is_split(rng):
    x = numbers(rng, 3000)
    asked, boxed = (emit(kernel_of(fd, x)) for fd in (vector(512), vector(512, box=256)))
    code = 'extern "C"'  # behind the header, which says what was asked for
    assert asked.partition(code)[2] == boxed.partition(code)[2]
    assert maps(kernel_of(vector(512, box=128), x)) == [(128,)]


def test_views_and_what_threads_copy(rng):
    """Boxes of `x.T` lie the other way round; where there is no map, threads fill the same tile."""
    fd, x = matrix(4, 272, contiguity=[False, False]), numbers(rng, 20, 288)
    for view in (x, x.T, x[:, :277]):
        exact("views", fd, [view], 2 * view.astype("f8"), 1)
        maps(kernel_of(fd, view))
    for odd in (x[:, ::2], numbers(rng, 7, 301)):
        with pytest.warns(FallbackWarning):
            exact("odd", fd, [odd], 2 * odd.astype("f8"), 1)


@pytest.mark.parametrize(("swizzle", "span"), [("32B", 8), ("64B", 16), ("128B", 32)])
def test_swizzled_tiles(swizzle, span, rng):
    """Columns in boxes of a span; rows in boxes of 256 or less."""
    x = numbers(rng, 40, 560)
    wide = matrix(8, 512, swizzle=swizzle)
    exact((swizzle, "wide"), wide, [x], 2 * x.astype("f8"), 1)
    assert maps(kernel_of(wide, x)) == [(span, 8)]
    tall, y = matrix(272, span, swizzle=swizzle), numbers(rng, 280, 2 * span)
    exact((swizzle, "tall"), tall, [y], 2 * y.astype("f8"), 1)
    assert maps(kernel_of(tall, y)) == [(span, 136)]


@pytest.mark.parametrize("kind", ["parity-mbarrier", "ws"])
@pytest.mark.parametrize("family", ["store", "copy", "store_alone", "multicast", "groups_map"])
def test_families_with_long_tiles(family, kind):
    """Stored out of their stage or of another, multicast, dealt out to consumer groups."""
    cluster = 2 if family == "multicast" else 1
    if family == "groups_map":
        kind = "groups"
    loads = (L.tma,) * FAMILIES[family].inputs
    for tile, edge in product((512, 640), ("whole", "cut")):
        cell = Cell(family, loads, 2, 1, kind, tile=tile, edge=edge, trips="S+1", cluster=cluster)
        if cell.is_legal():
            interpret.check(cell, 1)
            boxes = {box[0] for box in maps(kernel_of(definition(cell), *cell.inputs()))}
            assert boxes == {256 if tile == 512 else 160}


def test_a_box_that_would_begin_off_16_bytes(rng):
    """Tiles of 302 floats: the second one begins at no multiple of 16 bytes, whatever the boxes."""
    with pytest.raises(ScheduleError, match="x_cache: loaded by tma, and the innermost coordinate"):
        vector(302).manual_execute([numbers(rng, 1000)], backend="interpret")


# ---- the protocol --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_trip_count_is_proved(kind, rng):
    x = numbers(rng, 1500)
    assert check(kernel_of(vector(300, kind=kind), x)).reach == "proved"
    assert check(kernel_of(matrix(4, 300, kind=kind), numbers(rng, 16, 600))).reach == "proved"


def announced(kernel, nbytes):
    """Return a kernel that expects other bytes."""

    def change(stmt):
        if isinstance(stmt, MbarrierArriveExpectTx):
            return replace(stmt, tx_bytes=Const(nbytes))
        return map_bodies(stmt, lambda body: tuple(map(change, body)))

    return replace(kernel, body=tuple(map(change, kernel.body)))


@pytest.mark.parametrize("nbytes", [300 * 4, 160 * 4, 512 * 4])
def test_bytes_of_the_tile_are_not_those_of_its_boxes(nbytes, rng):
    """Two boxes of 160 bring 1280 bytes, though the tile has 1200: found by proof and by runs."""
    x = numbers(rng, 1500)
    kernel = kernel_of(vector(300), x)
    assert check(announced(kernel, 1280)).reach == "proved"
    wrong = announced(kernel, nbytes)
    assert check(wrong).reach == "wrong"
    with pytest.raises(ProtocolError):
        check_kernel(wrong, {"x_size0": 1500}, {"x": x, "y": np.zeros_like(x)}, seed=1)


def test_random_tiles(rng):
    """What overhangs a tile is never read, wherever the tensor ends."""
    for dtype, tile in product((D.Float, D.BFloat16, D.Int8), rng.integers(17, 50, 2) * 16):
        n = int(rng.integers(1, 4 * tile)) * 16 // dtype.nbytes
        x = numbers(rng, n, dtype=dtype)
        exact((tile, n), vector(int(tile), dtype=dtype), [x], 2 * x.astype("f8"), 1)


def test_boxes_of_a_stage_are_no_more_states(rng):
    """They land in any order, which nobody can tell from the outside."""
    x = numbers(rng, 5000)
    one, two, eight = (check(kernel_of(vector(tile), x)) for tile in (256, 512, 2048))
    assert one.reach == two.reach == eight.reach == "proved"
    assert one.states == two.states == eight.states


def test_one_box_that_goes_wrong(rng):
    """Left out, made twice, into another stage, to another barrier: each is found."""
    kernel = kernel_of(matrix(2, 512, kind=KINDS[2], stages=3), numbers(rng, 8, 512))

    def first_of(change):
        """Take the loop over boxes apart, and change the first one."""

        def one(stmt):
            if isinstance(stmt, For) and isinstance(stmt.body[0], TensorLoad):
                boxes = [substitute_body(stmt.body, {stmt.var: Const(i)})[0] for i in range(2)]
                return (*change(boxes[0]), boxes[1])
            return (map_bodies(stmt, several),)

        def several(body):
            return tuple(part for stmt in body for part in one(stmt))

        return replace(kernel, body=several(kernel.body))

    slot = kernel.shared[0].numel // 3
    assert check(first_of(lambda box: (box,))).reach == "proved"
    for change in (
        lambda box: (),
        lambda box: (box, box),
        lambda box: (replace(box, dst_index=(box.dst_index + slot) % (3 * slot)),),
        lambda box: (replace(box, barrier_index=(box.barrier_index + 1) % 3),),
    ):
        assert check(first_of(change)).reach == "wrong"
