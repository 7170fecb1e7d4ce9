"""Layouts of matrix operands against the canonical ones of the PTX ISA, and what is refused."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from tensor_map_cases import swizzled
from wgmma_kernels import DEPTH, SPAN, THREAD, Product, Tile, changed

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import ONE, Const, Var, less
from fuser.kir.core import SharedArray
from fuser.kir.matrix import MatrixLayout
from fuser.kir.stmts import (
    DeclareRegisters,
    If,
    Role,
    Roles,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)
from fuser.kir.verify import verify_kernel

pytestmark = pytest.mark.unit

F32, BF16 = DataType.Float, DataType.BFloat16
LEADING, STRIDE = 4096 + 16, 8192 + 48
T = 8
"""Elements of 16 bytes."""
L, S = LEADING // 2, STRIDE // 2
CANONICAL = {
    ("k", "none"): (((8, T), (0, S)), ((T, 1), (2, L))),
    ("k", "32B"): (((8, 2 * T), (0, S)), ((T, 1), (2, T))),
    ("k", "64B"): (((8, 4 * T), (0, S)), ((T, 1), (2, T))),
    ("k", "128B"): (((8, 8 * T), (0, S)), ((T, 1), (2, T))),
    ("mn", "none"): (((T, 1), (1, T), (0, S)), ((8, T), (0, L))),
    ("mn", "32B"): (((T, 1), (2, T), (0, L)), ((8, 2 * T), (0, S))),
    ("mn", "64B"): (((T, 1), (4, T), (0, L)), ((8, 4 * T), (0, S))),
    ("mn", "128B"): (((T, 1), (8, T), (0, L)), ((8, 8 * T), (0, S))),
}
"""By major and swizzle, the nested (extent, stride) pairs of rows and of k, innermost first, in
elements; extent 0: whatever is left. PTX ISA: canonical layouts, for elements of 16 bits."""


def place(coordinate, pairs):
    """Return where a coordinate of nested extents and strides lies."""
    total = 0
    for extent, stride in pairs:
        inside = coordinate % extent if extent else coordinate
        coordinate = coordinate // extent if extent else 0
        total += inside * stride
    return total


@pytest.mark.parametrize(("major", "swizzle"), CANONICAL)
def test_offsets_are_those_of_the_canonical_layouts(major, swizzle):
    layout = MatrixLayout(major, swizzle, LEADING, STRIDE)
    rows, columns = CANONICAL[major, swizzle]
    for row, k in itertools.product(range(256), range(16)):
        assert layout.offset(row, k) == 2 * (place(row, rows) + place(k, columns))
    table = layout.offset(np.arange(256)[:, None], np.arange(16))
    assert table.shape == (256, 16)
    assert table[77, 13] == layout.offset(77, 13)


@pytest.mark.parametrize("swizzle", SPAN)
def test_the_swizzle_permutes_addresses(swizzle):
    layout = MatrixLayout("k", swizzle, 0, 1024)
    memory = np.arange(4096, dtype=np.int64)
    moved = swizzled(memory, 0 if swizzle == "none" else SPAN[swizzle])
    np.testing.assert_array_equal(moved[layout.permuted(memory)], memory)
    assert layout.permuted(1024 + 128 * 5 + 16 * 2) == {
        "none": 1696, "32B": 1712, "64B": 1712, "128B": 1776,
    }[swizzle]  # fmt: skip


@pytest.mark.parametrize(
    ("swizzle", "mode", "align"),
    [("none", 0, 16), ("128B", 1, 1024), ("64B", 2, 512), ("32B", 3, 256)],
)
def test_modes_and_alignment(swizzle, mode, align):
    layout = MatrixLayout("mn", swizzle, 1024, 1024)
    assert (layout.mode, layout.align_bytes, layout.span_bytes) == (mode, align, SPAN[swizzle])
    assert layout.is_transposed
    assert not replace(layout, major="k").is_transposed


@pytest.mark.parametrize("major", ["k", "mn"])
@pytest.mark.parametrize("swizzle", SPAN)
@pytest.mark.parametrize("rows", [8, 24, 64])
def test_a_tile_by_the_engine_is_a_tile_of_the_layout(major, swizzle, rows, rng):
    tile = Tile(rows, major, swizzle)
    values = rng.integers(0, 1 << 16, (rows, DEPTH)).astype(np.uint16)
    image = tile.image(values)
    layout = tile.layout()
    for step in range(DEPTH // 16):
        offsets = layout.offset(np.arange(rows)[:, None], np.arange(16))
        where = layout.permuted(2 * tile.start(step) + offsets) // 2
        assert not layout.misplaced(2 * tile.start(step), rows)
        np.testing.assert_array_equal(image[where], values[:, 16 * step : 16 * step + 16])


# ---- refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leading", "stride", "text"),
    [
        (8, 1024, "leading byte offset 8"),
        (0, 1000, "stride byte offset 1000"),
        (-16, 0, "leading byte offset -16"),
        (0, 1 << 18, "stride byte offset 262144"),
    ],
)
def test_strides_that_no_descriptor_holds(leading, stride, text):
    text = f"^MatrixLayout: {text}; needed a multiple of 16, at most 262128$"
    with pytest.raises(VerifyError, match=text):
        MatrixLayout("k", "128B", leading, stride)


@pytest.mark.parametrize(
    ("major", "swizzle", "rows", "start", "text"),
    [
        ("k", "128B", 64, 8, "byte 8; needed a multiple of 16"),
        ("k", "128B", 64, 1024 + 96, ""),
        ("k", "128B", 64, 112, "byte 112 of a pattern of swizzle 128B; needed at most 96"),
        ("k", "64B", 64, 512 + 64, "byte 64 of a pattern of swizzle 64B; needed at most 32"),
        ("k", "32B", 64, 256, ""),
        ("k", "32B", 64, 16, "byte 16 of a pattern of swizzle 32B; needed at most 0"),
        ("k", "none", 64, 16, ""),
        ("mn", "128B", 64, 2048, ""),
        ("mn", "128B", 64, 16, "byte 16 of a pattern of swizzle 128B; needed at most 0"),
        ("mn", "128B", 8, 112, ""),
        ("mn", "128B", 8, 128, "byte 128 of a pattern of swizzle 128B; needed at most 112"),
    ],
)
def test_where_a_tile_may_begin(major, swizzle, rows, start, text):
    assert MatrixLayout(major, swizzle, 1024, 1024).misplaced(start, rows) == text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"n": 4}, "^Wgmma of d: 4 columns; needed a multiple of 8, at most 256$"),
        ({"n": 264}, "^Wgmma of d: 264 columns; needed a multiple of 8, at most 256$"),
        ({"dtype": F32}, "^Wgmma of d: operands of f32; needed bf16 or f16$"),
    ],
)
def test_statement_errors(fields, text):
    with pytest.raises(VerifyError, match=text):
        replace(Product(8).products()[0], **fields)


def change(kind, **fields):
    return lambda k: changed(k, kind, lambda s: (replace(s, **fields),))


def arrays(**fields):
    return lambda k: replace(k, shared=tuple(replace(s, **fields) for s in k.shared))


def block(threads):
    return lambda k: replace(k, block=(threads, ONE, ONE))


def role(first, threads, groups=1):
    """Let a role multiply."""

    def make(k):
        at = next(i for i, s in enumerate(k.body) if isinstance(s, WgmmaFence))
        body = Roles((Role("multiplier", first, threads, k.body[at:-1], groups),))
        return block(Const(384))(replace(k, body=(*k.body[:at], body)))

    return make


REFUSED = {
    "unknown array": (
        change(Wgmma, a="c"), r"Wgmma reads c; needed a shared array, one of \['a', 'b'\]"),
    "tensor": (
        change(Wgmma, b="y"), r"Wgmma reads y; needed a shared array, one of \['a', 'b'\]"),
    "dtype": (arrays(dtype=DataType.Half), r"Wgmma reads a of f16; needed bf16"),
    "alignment": (
        arrays(align_bytes=512), r"Wgmma reads a, aligned to 512 bytes; swizzle 128B needs 1024"),
    "misaligned": (
        change(Wgmma, b_index=Const(4)),
        r"Wgmma reads a tile from b\[4\] on, byte 8; needed a multiple of 16"),
    "in a pattern": (
        change(Wgmma, a_index=Const(64)),
        r"Wgmma reads a tile from a\[64\] on, byte 128 of a pattern of swizzle 128B; needed at "
        r"most 96"),
    "outside": (
        change(Wgmma, a_index=Const(512)),
        r"Wgmma reads a\[512:4560\], as elements before the swizzle; it has 4096"),
    "no registers": (
        change(Wgmma, accumulator="e"),
        r"Wgmma has accumulators in e, no register array; needed f32 registers"),
    "other registers": (
        change(WgmmaFence, accumulator="piece"),
        r"WgmmaFence has accumulators in piece, bf16 registers; needed f32 registers"),
    "few registers": (
        change(DeclareRegisters, size=3), r"WgmmaFence has accumulators d\[0:4\]; it has 3"),
    "late registers": (
        change(Wgmma, first=Const(1)), r"Wgmma has accumulators d\[1:5\]; it has 4"),
    "wait": (
        change(WgmmaWait, size=5), r"WgmmaWait has accumulators d\[0:5\]; it has 4"),
    "block": (
        block(Const(160)),
        r"WgmmaFence of the block: threads 0 to 159; needed whole warp groups of 128"),
    "part of a role": (
        role(128, 256, 4),
        r"WgmmaFence of role multiplier, group 0: threads 128 to 191; needed whole warp groups"),
    "role": (
        role(64, 128),
        r"WgmmaFence of role multiplier: threads 64 to 191; needed whole warp groups of 128"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_kernel_errors(name):
    make, text = REFUSED[name]
    with pytest.raises(VerifyError, match=f"^kernel product: {text}"):
        verify_kernel(make(Product(8).kernel()))


@pytest.mark.parametrize(
    "make",
    [
        role(128, 256, 2),
        block(Var("threads")),
        lambda k: change(Wgmma, a_index=THREAD // 128, first=THREAD // 128)(k),
        lambda k: block(Const(160))(
            changed(
                k,
                Wgmma | WgmmaFence | WgmmaCommit | WgmmaWait,
                lambda s: (If(less(THREAD, 128), (s,)),),
            )
        ),
        lambda k: replace(k, shared=(*k.shared, SharedArray("c", F32, 4))),
    ],
)
def test_kernels_that_may_be_right(make):
    verify_kernel(make(Product(8).kernel()))
