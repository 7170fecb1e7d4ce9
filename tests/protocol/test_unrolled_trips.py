"""Rings with unrolled, unswitched and directed loops around the trip loop: which of them are trips.

A pipelined ring runs over the innermost serial loop; what is unrolled right of it is in the stage,
what is left of it begins the ring anew. The trips of roles are counted across all loops.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import unrolled_rings
from rings import interpret
from rings.choices import staged
from unrolled_rings import BOUNDS, CASES, WIDTH, Case

from fuser import FusionDefinition, LoadStoreOpType, ParallelType, Pipelined, WarpSpecialized
from fuser.api.execute import bind, program_of
from fuser.core.errors import ScheduleError
from fuser.core.expr import Const, substitute, variables
from fuser.kir.core import Kernel
from fuser.kir.stmts import BulkLoad, Let, Store, TensorLoad
from fuser.protocol.mutants import mutants, variants
from fuser.protocol.story import tell
from fuser.protocol.verdict import check
from fuser.schedule.circular import CircularBufferType

pytestmark = pytest.mark.protocol

P, L = ParallelType, LoadStoreOpType
WARP = 32


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_tile_is_the_trips_own(case: Case, rng: np.random.Generator) -> None:
    """Functional result and one checked interleaving, for fewer and more trips than stages."""
    fd = case.fusion()
    for trips in (1, 5):
        x = rng.integers(-99, 100, case.shape(trips)).astype("f4")
        (y,) = interpret.run_by_hand(fd, [x], seed=trips)
        np.testing.assert_array_equal(y, 2 * x.astype("f8") + 1)


@pytest.mark.parametrize(
    "case",
    [
        *(Case(*c) for c in product(("su", "us"), ("parity", "token", "roles"), (L.set, L.tma))),
        *(Case("su", kind, L.set, bound) for kind in ("parity", "roles") for bound in BOUNDS[1:]),
        Case("suu", "parity", L.tma), Case("sku", "parity", L.tma), Case("u", "roles", L.tma),
    ],
    ids=str,
)  # fmt: skip
def test_the_rings_are_proved(case: Case) -> None:
    verdict = check(case.kernel())
    assert verdict.reach == "proved", verdict


@pytest.mark.parametrize(
    ("kind", "stages", "where"),
    [
        ("roles", 3, "MbarrierWait(x_cache_full) in loop i0 of the consumer of x_cache"),
        ("roles", 4, "MbarrierWait(x_cache_full) in loop i0 of the consumer of x_cache"),
        ("parity", 3, "MbarrierWait(x_cache_full)"),
        ("parity", 3, "MbarrierWait(x_cache_full) in loop i0 (epilogue)"),
        ("parity", 4, "MbarrierWait(x_cache_full) in loop i0 (epilogue)"),
        ("token", 4, "MbarrierWaitToken(x_cache_full) in loop i0 (epilogue)"),
    ],
)
def test_no_more_trips_than_stages(
    kind: str, stages: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three trips by threads: no loop goes through all the stages, yet each of them is judged."""
    monkeypatch.setattr(unrolled_rings, "WIDTH", 64)  # two warps, which read what both fill
    kernel = Case("k", kind, L.set, stages=stages).kernel()
    verdict = check(kernel)
    assert (verdict.reach, verdict.rings) == ("proved", (("x_cache", stages),))
    (mutant,) = (m for m in mutants(kernel) if (m.kind, m.where) == ("wait dropped", where))
    wrong = check(mutant.kernel)
    assert wrong.fault is not None, wrong
    assert wrong.fault.kind == "RAW", wrong


def without_the_unrolled_index(kernel: Kernel) -> Kernel:
    """Return a kernel that fills the elements of the first tile with all tiles of the stage."""

    def edit(body, at):
        stmt, lets = body[at], {s.name: s.value for s in body[:at] if isinstance(s, Let)}
        if isinstance(stmt, Store) and stmt.memory == "x_cache":
            narrow = replace(stmt, index=first(substitute(stmt.index, lets)))
        elif isinstance(stmt, BulkLoad | TensorLoad):
            narrow = replace(stmt, dst_index=first(substitute(stmt.dst_index, lets)))
        else:
            return
        yield "narrowed", (*body[:at], narrow, *body[at + 1 :])

    def first(index):
        unrolled = {name: Const(0) for name in variables(index) if name.startswith("u")}
        assert unrolled
        return substitute(index, unrolled)

    ways = [body for _, where, body in variants(kernel.body, edit) if "(main)" in where]
    assert ways
    return replace(kernel, body=ways[0])


@pytest.mark.parametrize("kind", ["parity", "token"])
@pytest.mark.parametrize("load", [L.set, L.tma, L.bulk], ids=lambda load: load.name)
def test_a_stage_filled_twice_is_found(load: L, kind: str) -> None:
    """What the protocol of stages alone would prove: the right copies land, one upon the other."""
    right = Case("su", kind, load).kernel()
    assert check(right).reach == "proved"
    verdict = check(without_the_unrolled_index(right))
    assert verdict.reach == "wrong"
    assert verdict.trips == (1,)
    assert verdict.fault is not None
    assert verdict.fault.kind == "WAW"
    assert re.fullmatch(
        r"thread 0 fills element 0 of stage \d of x_cache twice in one trip; what it held first is "
        "lost before anybody reads it",
        verdict.fault.text,
    )
    assert verdict.model is not None
    assert verdict.fault.text in tell(verdict.model, verdict.fault)[-1]


@pytest.mark.parametrize(
    ("loops", "kind", "tiles"),
    [("su", "parity", 2), ("suu", "token", 4), ("us", "parity", 1), ("su", "roles", 1)],
)
@pytest.mark.parametrize("bound", BOUNDS)
def test_a_stage_holds_what_is_unrolled_inside_the_trip_loop(loops, kind, tiles, bound):
    """A directive leaves an axis serial: that loop is then the trip loop itself."""
    kernel = Case(loops, kind, bound=bound).kernel()
    (array,) = kernel.shared
    per_stage = tiles if bound.endswith(" type") else 1
    assert array.numel == 3 * per_stage * WIDTH


def test_an_unrolled_loop_alone_is_no_pipeline():
    with pytest.raises(ScheduleError) as refused:
        Case("u", "parity").kernel()
    assert (
        "x_cache: circular-buffered at compute-at position 1, and no serial loop is left of it; "
        "inline it inside the loop whose trips it shall be buffered over, or leave axis 0 serial "
        "and unroll() it"
    ) in str(refused.value)
    assert Case("u", "parity", bound="unroll").kernel().rings


@pytest.mark.parametrize("bound", [P.serial, P.unroll])
def test_tensors_of_one_ring_count_the_same_trips(bound: P) -> None:
    """In roles the ring of `x` would go on once where that of `z` goes on four times."""

    def fusion(kind: CircularBufferType, positions: tuple[int, int]) -> FusionDefinition:
        with FusionDefinition() as fd:
            x, z = (fd.define_tensor(shape=[-1, 128], contiguity=True) for _ in range(2))
            y = x * 2.0 + z
            fd.add_output(y)
        tiles = [staged(t, L.tma) for t in (x, z)]
        for t in (y, *tiles):
            t.split(1, WIDTH)
            t.axis(1).parallelize(bound)
            t.axis(2).parallelize(P.block_x if t is y else P.tma)
        for tile, position in zip(tiles, positions, strict=True):
            tile.inline_at(y, position)
            tile.circular_buffer(3, None, kind)
        return fd

    x = np.arange(5 * 128, dtype="f4").reshape(5, 128)
    with pytest.raises(ScheduleError) as refused:
        fusion(WarpSpecialized(), (1, 2)).manual_execute([x, x], backend="interpret")
    loop = "u1" if bound is P.unroll else "i3"
    assert (
        f"z_cache: its trips are those of loops i0, {loop}, and those of x_cache on the same ring "
        "of loops i0; inline both inside the same loops, or give them the same "
        "stage_slice_position"
    ) in str(refused.value)
    ways: list[tuple[CircularBufferType, tuple[int, int]]] = [
        (WarpSpecialized(stage_slice_position=1), (1, 2)),
        (WarpSpecialized(), (2, 2)),
    ]
    if bound is P.unroll:
        ways.append((Pipelined(war="mbarrier"), (1, 2)))
    for kind, positions in ways:
        (y,) = interpret.run_by_hand(fusion(kind, positions), [x, x])
        np.testing.assert_array_equal(y, 3 * x.astype("f8"))


# ---- one stage: nothing but barriers tells its trips apart --------------------------------------

ONE_STAGE = (
    Pipelined(war="mbarrier"), Pipelined("token", "mbarrier"), Pipelined(war="barrier"),
    WarpSpecialized(P.block_x),
)  # fmt: skip


def one_stage(kind: CircularBufferType | None, load: LoadStoreOpType, copies: int) -> Kernel:
    """Return ``y = 2 x`` by tiles in one stage, or without a ring, its trips `copies` at a time."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    tile = staged(x, load)
    for t in (y, tile):
        t.split(0, 2 * WARP)
    y.axis(1).parallelize(P.block_x)
    y.axis(0).unroll(copies)
    tile.axis(1).parallelize(P.tma if load is L.tma else P.block_x)
    tile.inline_at(y, 1)
    if kind is not None:
        tile.circular_buffer(1, 0 if isinstance(kind, Pipelined) else None, kind)
    call = bind(fd, [np.ones(20 * WARP, np.float32)], True)
    (kernel,) = program_of(fd, call, True).kernels
    return kernel


@pytest.mark.parametrize("load", [L.tma, L.set, L.cp_async], ids=lambda load: load.name)
@pytest.mark.parametrize("kind", ONE_STAGE, ids=["parity", "token", "barrier", "roles"])
def test_unrolled_trips_of_one_stage_are_told_apart(
    kind: CircularBufferType, load: LoadStoreOpType
) -> None:
    """The ring is right, and mistakes in it are found."""
    kernel = one_stage(kind, load, 3)  # of two copies each would have a parity of its own
    assert check(kernel).reach == "explored"
    for mutant in mutants(kernel)[::3]:
        assert check(mutant.kernel).reach == "wrong", (mutant.kind, mutant.where)


def test_an_unrolled_tile_without_a_ring_is_explored() -> None:
    assert check(one_stage(None, L.tma, 3)).reach == "explored"
