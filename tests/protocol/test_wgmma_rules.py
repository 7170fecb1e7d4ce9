"""Matrix products on the interpreter: right out of every layout, and every misuse found."""

import re
from dataclasses import replace

import numpy as np
import pytest
from wgmma_kernels import DEPTH, IV, LAYOUTS, START, THREAD, Product, changed

from fuser.core.dtypes import DataType
from fuser.core.errors import ProtocolError
from fuser.core.expr import ZERO, Const, equal, less
from fuser.interp.checked import check_kernel
from fuser.interp.functional import run_kernel
from fuser.kir.core import BarrierArray
from fuser.kir.scalar import Element, Literal
from fuser.kir.stmts import (
    BulkLoad,
    DeclareRegisters,
    FenceProxyAsync,
    For,
    If,
    MbarrierArriveExpectTx,
    MbarrierInit,
    MbarrierInitFence,
    MbarrierInval,
    MbarrierWait,
    Role,
    Roles,
    Store,
    SyncThreads,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)
from fuser.kir.verify import verify_kernel

pytestmark = pytest.mark.protocol

F32, BF16 = DataType.Float, DataType.BFloat16
SEEDS = range(3)


def run(kernel, product, rng):
    """Return the result of functional mode."""
    arrays, expected = product.arrays(rng)
    run_kernel(kernel, {}, arrays)
    return arrays["y"].reshape(expected.shape), expected


def check(kernel, product, rng, seed):
    """Return the result of checked mode."""
    arrays, expected = product.arrays(rng)
    return check_kernel(kernel, {}, arrays, seed=seed)["y"].reshape(expected.shape), expected


# ---- results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("a", LAYOUTS, ids="-".join)
@pytest.mark.parametrize("b", LAYOUTS, ids="-".join)
def test_functional_products(a, b, rng):
    n = int(rng.choice([8, 24, 64, 104]))
    product = Product(n, a, b, blocks=2, groups=2)
    kernel = product.kernel()
    verify_kernel(kernel)
    np.testing.assert_array_equal(*run(kernel, product, rng))


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_every_width(n, rng):
    product = Product(n, dtype=DataType.Half)
    np.testing.assert_array_equal(*run(product.kernel(), product, rng))


@pytest.mark.parametrize("layout", LAYOUTS, ids="-".join)
def test_checked_products(layout, rng):
    product = Product(24, layout, LAYOUTS[-1 - LAYOUTS.index(layout)])
    for seed in SEEDS[:2]:
        np.testing.assert_array_equal(*check(product.kernel(), product, rng, seed))


def test_sums_are_those_of_float32(rng):
    product = Product(64)
    arrays, _ = product.arrays(rng)
    a, b = (rng.standard_normal((64, 64)).astype(BF16.np) for _ in "ab")
    arrays["a_image"], arrays["b_image"] = (
        product.tiles[name].image(x) for name, x in (("a", a), ("b", b))
    )
    run_kernel(product.kernel(), {}, arrays)
    a, b = a.astype("f8"), b.astype("f8")
    error = np.abs(arrays["y"].reshape(64, 64) - (a @ b.T + START))
    assert (error <= 64 * 2.0**-24 * (np.abs(a) @ np.abs(b.T) + START)).all()


def in_roles(product, threads=128, first=128):
    """Return a kernel that fills the tiles with `first` threads and multiplies with others."""
    kernel = product.kernel()
    at = next(i for i, s in enumerate(kernel.body) if isinstance(s, SyncThreads)) + 1
    store = product.store()[0].body[0]
    store = replace(store, index=store.index - Const(64 * product.n))  # the second group's rows
    rest = (*kernel.body[at:-1], For("i", Const(product.n // 2), (store,)))
    roles = Roles((Role("multiplier", first, threads, rest),))
    return replace(kernel, body=(*kernel.body[:at], roles))


def test_products_of_a_role(rng):
    """Threads 128 to 255 of 256 multiply; they are warps 0 to 3 of their warp group."""
    product = Product(16, groups=2)
    kernel = in_roles(product)
    verify_kernel(kernel)
    got, expected = run(kernel, product, rng)
    np.testing.assert_array_equal(got[0], expected[0])
    got, expected = check(kernel, product, rng, 0)
    np.testing.assert_array_equal(got[0], expected[0])


def test_what_roles_have_shown_is_shown_behind_them(rng):
    product = Product(8, groups=2)
    kernel = product.kernel()
    shown = Roles((Role("multiplier", 0, 256, (WgmmaFence("d", 4),), groups=2),))
    kernel = changed(kernel, WgmmaFence, lambda s: (shown,))
    np.testing.assert_array_equal(*run(kernel, product, rng))
    np.testing.assert_array_equal(*check(kernel, product, rng, 0))


def test_accumulators_are_used_again(rng):
    """Declared in a loop, they begin anew; the tiles may be filled again behind a barrier."""
    product = Product(8)
    body = product.body()
    again = tuple(s for s in body if not isinstance(s, DeclareRegisters) or s.name == "d")
    pieces = tuple(s for s in body if isinstance(s, DeclareRegisters) and s.name != "d")
    loop = For("trip", Const(3), (*again, SyncThreads("the tiles have been read")))
    kernel = replace(product.kernel(), body=(*pieces, loop))
    np.testing.assert_array_equal(*run(kernel, product, rng))
    np.testing.assert_array_equal(*check(kernel, product, rng, 0))


def two_groups(pending, read):
    """Return products in two groups, with accumulators of their own, and a read of one of them."""
    product = Product(8)
    first = product.products()
    second = tuple(replace(s, accumulator="e") for s in first)
    clear = tuple(replace(s, name="e") for s in product.clear()[:1])
    clear += (For("i", Const(4), (Store("e", IV, Literal(START, F32)),)),)
    store = product.store()[0].body[0]
    body = (
        *product.body()[: -len(first) - 4],
        *clear,
        WgmmaFence("d", 4),
        WgmmaFence("e", 4),
        *first,
        WgmmaCommit(),
        *second,
        WgmmaCommit(),
        WgmmaWait(pending, "the first is complete", read, 4),
        For("i", Const(4), (replace(store, value=Element(read, IV, F32)),)),
        WgmmaWait(0, "all are complete"),
    )
    return product, replace(product.kernel(), body=body)


@pytest.mark.parametrize(("pending", "read"), [(1, "d"), (0, "d"), (0, "e")])
def test_groups_complete_in_order(pending, read, rng):
    product, kernel = two_groups(pending, read)
    np.testing.assert_array_equal(*run(kernel, product, rng))
    np.testing.assert_array_equal(*check(kernel, product, rng, 0))


def test_a_later_group_is_not_complete(rng):
    product, kernel = two_groups(1, "e")
    text = r"reads e\[0\] while a product that changes it is in flight"
    with pytest.raises(ProtocolError, match=text):
        run(kernel, product, rng)
    with pytest.raises(ProtocolError, match=text):
        check(kernel, product, rng, 0)


def test_products_land_in_order(rng):
    """A float32 of 2^24 does not see a 1 that is added to it."""
    product = Product(8)
    arrays, _ = product.arrays(rng)
    values = {name: np.zeros((tile.rows, DEPTH), BF16.np) for name, tile in product.tiles.items()}
    values["a"][:, [0, 16, 32]] = 4096, 1, -4096
    values["b"][:, [0, 16, 32]] = 4096, 1, 4096
    for name, tile in product.tiles.items():
        arrays[f"{name}_image"] = tile.image(values[name])
    for seed in range(6):
        done = check_kernel(product.kernel(), {}, arrays, seed=seed)
        np.testing.assert_array_equal(done["y"], 0.0)


def halves(first):
    """Return a kernel with a group for each half of k, and a store to `a` behind the first's end.

    Only warp 0 reads and writes row 0 of A; the halves of its 128 bytes are those of k.
    """
    product = Product(8)
    done = WgmmaWait(1, "the first half has been read")
    store = If(less(THREAD, 32), (Store("a", THREAD + first, Literal(0.0, BF16)),))
    one, two, *more = product.products()
    body = []
    for stmt in product.body():
        if stmt not in (one, two, *more):
            body.append(stmt)
        elif stmt == more[-1]:
            body += [one, two, WgmmaCommit(), *more]
    return product, before(WgmmaWait, done, store)(replace(product.kernel(), body=tuple(body)))


def test_tiles_of_complete_groups_are_free(rng):
    product, kernel = halves(0)
    np.testing.assert_array_equal(*check(kernel, product, rng, 0))


def test_tiles_of_later_groups_are_not(rng):
    product, kernel = halves(32)
    text = (
        r"race on a\[32\]: the write by .* the read by a product .*; a wait for the product between"
    )
    with pytest.raises(ProtocolError, match=text):
        check(kernel, product, rng, 0)


def copied(product):
    """Return a kernel whose tiles are filled by the copy engine."""
    kernel = product.kernel()
    at = next(i for i, s in enumerate(kernel.body) if isinstance(s, SyncThreads)) + 1
    elected, nbytes = equal(THREAD, 0), {n: 2 * t.numel for n, t in product.tiles.items()}
    copies = (
        MbarrierArriveExpectTx("full", ZERO, Const(sum(nbytes.values()))),
        *(BulkLoad(n, ZERO, f"{n}_image", ZERO, Const(b), "full", ZERO) for n, b in nbytes.items()),
    )
    body = (
        If(elected, (MbarrierInit("full", ZERO, Const(1)), MbarrierInitFence())),
        SyncThreads("the barrier exists"),
        If(elected, copies),
        MbarrierWait("full", ZERO, ZERO, "the tiles are full"),
        *kernel.body[at:],
        SyncThreads("nobody waits any more"),
        If(elected, (MbarrierInval("full", ZERO),)),
    )
    return replace(kernel, body=body, barriers=(BarrierArray("full", 1),))


def test_tiles_by_the_copy_engine_need_no_fence(rng):
    product = Product(8)
    kernel = copied(product)
    verify_kernel(kernel)
    np.testing.assert_array_equal(*run(kernel, product, rng))
    text = (
        r"race on [ab]\[\d+\]: the read by a product that block .* is not ordered after the write "
        r"by a copy that block .*; a wait for the copy between|"
        r"reads [ab]\[\d+\] before it is written"
    )
    for seed in SEEDS:
        np.testing.assert_array_equal(*check(kernel, product, rng, seed))
        with pytest.raises(ProtocolError, match=text):
            check(drop(MbarrierWait)(kernel), product, rng, seed)


# ---- misuse ------------------------------------------------------------------------------------


def drop(kind):
    return lambda k: changed(k, kind, lambda s: ())


def change(kind, **fields):
    return lambda k: changed(k, kind, lambda s: (replace(s, **fields),))


def before(kind, *stmts):
    return lambda k: changed(k, kind, lambda s: (*stmts, s))


def after(kind, *stmts):
    return lambda k: changed(k, kind, lambda s: (s, *stmts))


def unread(k):
    """Leave out the wait and what reads the accumulators."""
    return replace(drop(WgmmaWait)(k), body=drop(WgmmaWait)(k).body[:-1])


def unfilled(k):
    """Leave the accumulators as they are declared."""
    at = next(i for i, s in enumerate(k.body) if isinstance(s, DeclareRegisters) and s.name == "d")
    return replace(k, body=k.body[: at + 1] + k.body[at + 2 :])


def wrapped(condition):
    return lambda k: changed(k, Wgmma, lambda s: (If(condition, (s,)),))


ZERO_D = Store("d", Const(3), Literal(0.0, F32))
OVERWRITE = Store("a", THREAD, Literal(0.0, BF16))
FENCE = r"Wgmma\(accumulator=d, a=a, b=b, n=8\): need not see what is in d\[0\]; a WgmmaFence of d"
READS = (
    r"Store\(memory=y\): reads d\[0\] while a product that changes it is in flight, in block "
    r"\(0, 0, 0\) thread \(\d+, 0, 0\); needed a WgmmaWait for the product that names d"
)
WRITES = READS.replace(r"memory=y\): reads d\[0", r"memory=d\): writes d\[3")
ENDS = r"ends with Wgmma\(accumulator=d, a=a, b=b, n=8\)"
MISUSE = {
    "no fence": (drop(WgmmaFence), FENCE, FENCE),
    "a fence of other registers": (
        change(WgmmaFence, size=2),
        r"need not see what is in d\[2\]",
        r"need not see what is in d\[2\]",
    ),
    "written behind the fence": (
        after(WgmmaFence, ZERO_D),
        r"need not see what is in d\[3\]",
        r"need not see what is in d\[3\]",
    ),
    "no wait": (drop(WgmmaWait), READS, READS),
    "a wait that names no registers": (change(WgmmaWait, accumulator=""), READS, READS),
    "a wait for all but one group": (change(WgmmaWait, pending=1), READS, READS),
    "no commit": (drop(WgmmaCommit), READS, READS),
    "written in flight": (before(WgmmaWait, ZERO_D), WRITES, WRITES),
    "declared anew in flight": (
        before(WgmmaWait, DeclareRegisters("d", F32, 4)),
        r"declares d\[0\] while a product",
        r"declares d\[0\] while a product",
    ),
    "exit in flight": (
        unread,
        rf"warp 0 of a block {ENDS} in flight; a WgmmaCommit and a WgmmaWait for it are missing",
        rf"{ENDS} of block 0 warp \d in flight; a wait for it is missing",
    ),
    "no proxy fence": (
        drop(FenceProxyAsync),
        None,
        r"wgmma's read of [ab]\[\d+\] need not see what block .* stored at VectorStore\(memory=[ab]"
        r".*a FenceProxyAsync of that thread is missing",
    ),
    "no barrier": (drop(SyncThreads), None, r"race on [ab]|reads [ab]\[\d+\] before it is written"),
    "own tile overwritten in flight": (
        before(WgmmaWait, If(less(THREAD, 32), (OVERWRITE,))),
        None,
        r"race on a\[\d+\]: the write by block .* at Store\(memory=a\) is not ordered after the "
        r"read by a product that block .* issued at Wgmma.*; a wait for the product between them",
    ),
    "tile overwritten in flight": (
        before(WgmmaWait, OVERWRITE),
        None,
        r"race on a\[\d+\]: the (write by block .* the read by a product|read by a product)",
    ),
    "tile overwritten without a barrier": (
        after(WgmmaWait, OVERWRITE),
        None,
        r"race on a\[\d+\]: the (write by block .* the read by a product|read by a product)",
    ),
    "divergent": (
        wrapped(less(THREAD % 32, 16)),
        r"divergent code; 16 of 32 threads of a warp execute it, block .* among them; needed all",
        r"divergent code; 16 of 32 threads of a warp execute it, block .* among them; needed all",
    ),
    "divergent wait": (
        lambda k: changed(k, WgmmaWait, lambda s: (If(less(THREAD % 32, 16), (s,)),)),
        r"WgmmaWait.*: divergent code; 16 of 32",
        r"WgmmaWait.*: divergent code; 16 of 32",
    ),
    "half of a warp group": (
        wrapped(less(THREAD, 64)),
        r"2 of 4 warps of a warp group execute it, that of block .* among them; needed all",
        r"the warps of a warp group have issued \[4, 4, 0, 0\] products; needed the same ones of",
    ),
    "misaligned": (
        change(Wgmma, a_index=Const(4)),
        r"a tile begins at a\[4\], byte 8; needed a multiple of 16",
        r"a tile begins at a\[4\], byte 8; needed a multiple of 16",
    ),
    "in the middle of a pattern": (
        change(Wgmma, b_index=Const(64)),
        r"a tile begins at b\[64\], byte 128 of a pattern of swizzle 128B; needed at most 96",
        r"a tile begins at b\[64\], byte 128 of a pattern of swizzle 128B; needed at most 96",
    ),
    "out of bounds": (
        change(Wgmma, a_index=Const(512)),
        r"a\[\d+:\d+\] is outside its 4096 elements",
        r"a\[\d+:\d+\] is outside its 4096 elements",
    ),
    "tiles of a warp": (
        change(Wgmma, a_index=THREAD % 32 // 16 * 8),
        r"the tile of one warp or warp group begins at a\[0, 8\]; needed the same element in all",
        r"the tile of one warp or warp group begins at a\[0, 8\]; needed the same element in all",
    ),
    "tiles of a warp group": (
        change(Wgmma, a_index=THREAD // 64 * 8),
        r"the tile of one warp or warp group begins at a\[0, 8\]; needed the same element in all",
        r"product 0 of block 0 warp \d is of the tiles at \(\d, 0\); that of block 0 warp \d, of "
        r"the same warp group, is Wgmma\(.*\) of those at \(\d, 0\); needed the same",
    ),
    "array without the pattern's alignment": (
        lambda k: replace(k, shared=tuple(replace(s, align_bytes=256) for s in k.shared)),
        r"a is aligned to 256 bytes; swizzle 128B needs 1024",
        r"a is aligned to 256 bytes; swizzle 128B needs 1024",
    ),
    "accumulators that are not written": (
        unfilled, None, r"adds to d\[0\] before it is written, in block"),
    "too few accumulators": (
        change(Wgmma, first=Const(1)),
        r"d\[1:5\] is outside its 4 elements",
        r"d\[1:5\] is outside its 4 elements",
    ),
    "accumulators of a thread": (
        change(Wgmma, first=THREAD % 2),
        r"the accumulators begin at d\[0, 1\]; needed the same register in all threads",
        r"the accumulators begin at d\[0, 1\]; needed the same register in all threads",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_in_functional_mode(name, rng):
    make, text, _ = MISUSE[name]
    product = Product(8)
    kernel = make(product.kernel())
    if text is None:  # lockstep hides it
        run(kernel, product, rng)
        return
    with pytest.raises(ProtocolError, match=text):
        run(kernel, product, rng)


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_in_checked_mode(name, rng):
    make, _, text = MISUSE[name]
    product = Product(8)
    kernel = make(product.kernel())
    for seed in SEEDS:
        with pytest.raises(ProtocolError) as error:
            check(kernel, product, rng, seed)
        assert re.search(text, str(error.value)), str(error.value)
        assert f"(seed {seed})" in str(error.value)


def test_products_of_different_shape_on_the_same_registers(rng):
    product = Product(16)
    (one, *_) = product.products()
    more = (replace(one, n=8), WgmmaCommit())
    kernel = before(WgmmaWait, *more)(product.kernel())
    text = r"adds to d\[0\] while a product of another shape that changes it is in flight; needed a"
    with pytest.raises(ProtocolError, match=text):
        run(kernel, product, rng)
    with pytest.raises(ProtocolError, match=text):
        check(kernel, product, rng, 0)


def test_a_block_that_is_no_warp_group(rng):
    product = Product(8)
    kernel = replace(product.kernel(), block=(Const(96), Const(1), Const(1)))
    with pytest.raises(ProtocolError, match=r"3 of 4 warps of a warp group execute it"):
        run(kernel, product, rng)
    kernel = changed(kernel, If, lambda s: ())
    with pytest.raises(ProtocolError, match=r"is of a warp group with 96 threads; needed 128"):
        check(kernel, product, rng, 0)


@pytest.mark.parametrize("first", [ZERO, Const(4)])
def test_part_of_a_register_array(first, rng):
    """Other registers of the array may be used while products are in flight."""
    product = Product(8)
    kernel = product.kernel()
    size = first.value + 4
    other = Const((first.value + 4) % 8)
    body = []
    for s in changed(kernel, Wgmma, lambda s: (replace(s, first=first),)).body:
        match s:
            case DeclareRegisters("d"):
                body.append(replace(s, size=8))
            case For() if s.body[0] == product.clear()[1].body[0]:
                body.append(replace(s, extent=Const(8)))
            case WgmmaFence():
                body.append(replace(s, size=size))
            case WgmmaWait():
                body += [Store("d", other, Literal(1.0, F32)), replace(s, size=size)]
            case For() if s.body[0] == product.store()[0].body[0]:
                store = replace(s.body[0], value=Element("d", first + IV, F32))
                body.append(replace(s, body=(store,)))
            case _:
                body.append(s)
    kernel = replace(kernel, body=tuple(body))
    np.testing.assert_array_equal(*run(kernel, product, rng))
    np.testing.assert_array_equal(*check(kernel, product, rng, 0))
