"""Pipelines on the modelled machine: right and clean as written, every mutant caught."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from ring_kernels import Ring, mutant

from fuser.core.dtypes import DataType
from fuser.core.errors import ProtocolError
from fuser.core.expr import Const, Var, less
from fuser.interp.checked import check_kernel
from fuser.interp.functional import run_kernel
from fuser.kir.core import Kernel
from fuser.kir.stmts import (
    BulkCommit,
    BulkLoad,
    BulkWaitRead,
    CpAsyncArrive,
    FenceProxyAsync,
    If,
    MbarrierArrive,
    MbarrierArriveExpectTx,
    MbarrierArriveToken,
    MbarrierInit,
    MbarrierInitFence,
    MbarrierWait,
    MbarrierWaitToken,
    NamedBarrier,
    Store,
    SyncThreads,
)
from fuser.kir.verify import verify_kernel

pytestmark = pytest.mark.protocol

F32 = DataType.Float
THREAD = Var("thread")
SEEDS = range(6)


def _check(ring: Ring, trips: int, seeds) -> None:
    kernel = ring.kernel()
    verify_kernel(kernel)
    arrays = ring.arrays(trips)
    run_kernel(kernel, {"n": trips}, arrays)
    np.testing.assert_array_equal(arrays["y"], ring.expected(arrays))
    for seed in seeds:
        arrays = ring.arrays(trips, seed)
        result = check_kernel(kernel, {"n": trips}, arrays, seed=seed)
        np.testing.assert_array_equal(result["y"], ring.expected(arrays))


TRIPS = {
    "0": lambda s: 0, "1": lambda s: 1, "S-1": lambda s: s - 1, "S": lambda s: s,
    "S+1": lambda s: s + 1, "3S+1": lambda s: 3 * s + 1,
}  # fmt: skip
FORMS = {
    "parity-mbarrier": {},
    "parity-barrier": {"war": "barrier"},
    "token-mbarrier": {"sync": "token"},
    "token-barrier": {"sync": "token", "war": "barrier"},
    "roles": {"roles": True},
}
LOADS = [
    ("bulk",), ("tensor",), ("cp.async",), ("set",), ("bulk", "cp.async"), ("tensor", "set"),
    ("bulk", "tensor"), ("cp.async", "set"),
]  # fmt: skip


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("trips", TRIPS)
def test_trips(stages, form, trips):
    _check(Ring(stages, **FORMS[form]), TRIPS[trips](stages), range(2))


@pytest.mark.parametrize("loads", LOADS, ids="+".join)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("total", [False, True], ids=["map", "sum"])
def test_loads(loads, form, total):
    _check(Ring(2, loads, total=total, **FORMS[form]), 5, range(3))


@pytest.mark.parametrize("store", ["bulk", "tensor"])
@pytest.mark.parametrize("form", FORMS)
def test_stores_by_the_copy_engine(store, form):
    _check(Ring(2, ("bulk",), store=store, **FORMS[form]), 5, range(4))


@pytest.mark.parametrize("prefetch", range(4))
@pytest.mark.parametrize("war", ["barrier", "mbarrier"])
def test_every_prefetch_distance(prefetch, war):
    _check(Ring(4, ("bulk", "set"), prefetch=prefetch, war=war), 9, range(3))


def test_functional_mode_runs_many_blocks_at_once():
    for roles in (False, True):
        ring = Ring(3, ("tensor", "cp.async"), roles=roles, blocks=300)
        arrays = ring.arrays(4)
        run_kernel(ring.kernel(), {"n": 4}, arrays)
        np.testing.assert_array_equal(arrays["y"], ring.expected(arrays))


# ---- mutants -----------------------------------------------------------------------------------


def _failures(ring: Ring, kernel: Kernel, trips: int = 7) -> list[str | None]:
    """Return the error of each seed, None where there is none."""
    found: list[str | None] = []
    for seed in SEEDS:
        try:
            check_kernel(kernel, {"n": trips}, ring.arrays(trips), seed=seed)
        except ProtocolError as error:
            found.append(str(error))
        else:
            found.append(None)
    return found


def _drop(kind, **fields):
    return lambda k: mutant(k, kind, lambda stmt: (), **fields)


def _change(kind, change, **fields):
    return lambda k: mutant(k, kind, lambda s: (replace(s, **change(s)),), **fields)


def _other_stage(field):
    return lambda s: {field: (getattr(s, field) + 1) % 2}


SYNC_BEFORE, SYNC_AFTER = "the barriers exist", "nobody waits any more"
MUTANTS = {
    "drop wait full": (
        _drop(MbarrierWait, barrier="full"),
        r"race on t0\[\d+\].*a wait for the copy|reads t0\[\d+\] before it is written",
    ),
    "drop wait empty": (_drop(MbarrierWait, barrier="empty"), r"race on t0|full\[\d\] is in phase"),
    "drop arrive empty": (
        _drop(MbarrierArrive, barrier="empty"),
        r"deadlock:(.|\n)*MbarrierWait\(barrier=empty, why=the stage is free\): empty\[0\] is in "
        r"phase 0 with 64 of 64 arrivals and 0 bytes pending",
    ),
    "drop expect": (
        _drop(MbarrierArriveExpectTx),
        r"full\[\d\] is in phase 0 with 1 of 1 arrivals and -256 bytes pending",
    ),
    "drop copy": (
        _drop(BulkLoad),
        r"full\[\d\] is in phase 0 with 0 of 1 arrivals and 256 bytes pending",
    ),
    "drop init fence": (_drop(MbarrierInitFence), r"need not see full\[0\]; MbarrierInitFence"),
    "drop init": (_drop(MbarrierInit, barrier="full"), r"full\[0\] is no barrier: not initialised"),
    "drop sync after init": (
        _drop(SyncThreads, why=SYNC_BEFORE),
        r"is used by block \d warp \d without order after its init|is no barrier",
    ),
    "drop sync before inval": (
        _drop(SyncThreads, why=SYNC_AFTER),
        r"MbarrierInval.*(is invalidated without order|needed nobody|phase that has not begun)"
        r"|is no barrier: not initialised, or invalidated",
    ),
    "flip parity of full": (
        _change(MbarrierWait, lambda s: {"parity": s.parity ^ 1}, barrier="full"),
        # Who comes before the copies have landed does not wait, who comes later waits for ever.
        r"race on t0\[\d+\]|reads t0\[\d+\] before it is written"
        r"|deadlock:(.|\n)*full\[0\] is in phase 1 with 1 of 1 arrivals and 0 bytes pending",
    ),
    "flip parity of empty": (
        _change(MbarrierWait, lambda s: {"parity": s.parity ^ 1}, barrier="empty"),
        r"deadlock:(.|\n)*empty\[0\] is in phase 0 with 64 of 64 arrivals",
    ),
    "empty count too large": (
        _change(MbarrierInit, lambda s: {"count": s.count + 1}, barrier="empty"),
        r"deadlock:(.|\n)*empty\[\d\] is in phase 0 with 1 of 65 arrivals",
    ),
    "empty count too small": (
        _change(MbarrierInit, lambda s: {"count": s.count - 32}, barrier="empty"),
        r"race on t0|two phases are one parity|deadlock",
    ),
    "full count too large": (
        _change(MbarrierInit, lambda s: {"count": s.count + 1}, barrier="full"),
        r"deadlock:(.|\n)*full\[\d\] is in phase 0 with 1 of 2 arrivals and 0 bytes pending",
    ),
    "too few bytes announced": (
        _change(MbarrierArriveExpectTx, lambda s: {"tx_bytes": Const(128)}),
        r"full\[\d\] is in phase 0 with 0 of 1 arrivals and -128 bytes pending; more bytes have",
    ),
    "too many bytes announced": (
        _change(MbarrierArriveExpectTx, lambda s: {"tx_bytes": Const(512)}),
        r"deadlock:(.|\n)*full\[\d\] is in phase 0 with 0 of 1 arrivals and 256 bytes pending",
    ),
    "copy too small": (
        _change(BulkLoad, lambda s: {"nbytes": Const(128)}),
        r"full\[\d\] is in phase 0 with 0 of 1 arrivals and 128 bytes pending",
    ),
    "wait for the other stage": (
        _change(MbarrierWait, _other_stage("index"), barrier="full"),
        r"race on t0\[\d+\]|deadlock",
    ),
    "free the other stage": (
        _change(MbarrierArrive, _other_stage("index"), barrier="empty"),
        r"race on t0|deadlock|two phases are one parity",
    ),
    "copy into the other stage": (
        _change(BulkLoad, lambda s: {"dst_index": (s.dst_index + 64) % 128}),
        r"race on t0\[\d+\]|before it is written",
    ),
    "copy completes on the other stage": (
        _change(BulkLoad, _other_stage("barrier_index")),
        r"full\[\d\] is in phase|race on t0\[\d+\].*a wait for the copy",
    ),
    "arrive twice": (
        lambda k: mutant(k, MbarrierArriveExpectTx, lambda s: (s, s)),
        r"full\[\d\] is in phase 0 with 0 of 1 arrivals and \d+ bytes pending; 1 arrivals at once "
        r"are too many",
    ),
    "free by half of the threads": (
        lambda k: mutant(k, MbarrierArrive, lambda s: (If(less(THREAD % 32, 16), (s,)),)),
        r"deadlock:(.|\n)*empty\[\d\] is in phase 0 with 32 of 64 arrivals",
    ),
}  # fmt: skip


@pytest.mark.parametrize("roles", [False, True], ids=["pipelined", "roles"])
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_of_a_bulk_ring(name, roles):
    ring = Ring(2, roles=roles)
    change, text = MUTANTS[name]
    found = _failures(ring, change(ring.kernel()))
    if name == "free the other stage" and roles:
        # Right as long as the producer keeps up: only some interleavings deadlock.
        found = [f for f in found if f]
    assert found
    assert None not in found, found
    for message in found:
        assert re.search(text, message), message


OTHERS = {
    "barrier: drop release": (
        {"war": "barrier"}, _drop(SyncThreads, why="the stage has been read"), r"race on t0"),
    "token: drop wait": ({"sync": "token"}, _drop(MbarrierWaitToken), r"race on t0"),
    "token: drop arrive": (
        {"sync": "token"}, _drop(MbarrierArriveToken), r"reads tokens before it is written|bytes"),
    "token: wrong stage": (
        {"sync": "token"},
        _change(MbarrierWaitToken, _other_stage("index")),
        r"race on t0|deadlock|two phases|reads tokens"),
    "cp.async: drop arrive": (
        {"loads": ("cp.async",)}, _drop(CpAsyncArrive),
        r"full\[\d\] is in phase 0 with \d+ of \d+ arrivals"),
    "cp.async: arrive at once": (
        {"loads": ("cp.async",)},
        lambda k: mutant(k, CpAsyncArrive, lambda s: (MbarrierArrive(s.barrier, s.index),)),
        r"race on t0\[\d+\].*a copy that block .* issued at CpAsync.*a wait for the copy"),
    "set: arrive for cp.async": (
        {"loads": ("set",)},
        lambda k: mutant(k, MbarrierArrive, lambda s: (CpAsyncArrive(s.barrier, s.index),)),
        r"race on t0"),
    "set: drop wait": (
        {"loads": ("set",)}, _drop(MbarrierWait, barrier="full"),
        r"race on t0|before it is written"),
    "set: drop arrive": (
        {"loads": ("set",)}, _drop(MbarrierArrive, barrier="full"), r"deadlock"),
    "tensor: wrong bytes": (
        {"loads": ("tensor", "bulk")},
        _change(MbarrierArriveExpectTx, lambda s: {"tx_bytes": Const(256)}),
        r"full\[\d\].*(fewer bytes were announced|more bytes have landed)|race on t1|reads t1"),
    "store: drop fence": (
        {"store": "bulk"}, _drop(FenceProxyAsync),
        r"read of out\[\d+\] need not see what block .* stored at Store\(memory=out\); a FencePr"),
    "store: drop wait": ({"store": "bulk"}, _drop(BulkWaitRead), r"race on out\[\d+\]"),
    "store: drop commit": (
        {"store": "tensor"}, _drop(BulkCommit), r"race on out\[\d+\]|ends with TensorStore"),
    "store: drop barrier": (
        {"store": "bulk", "roles": True},
        _drop(NamedBarrier, why="the tile is complete"), r"race on out|before it is written"),
    "store: barrier of too many": (
        {"store": "bulk", "roles": True},
        _change(NamedBarrier, lambda s: {"threads": 96}),
        r"deadlock:(.|\n)*bar.sync 1 \(the tile before has left\) with 64 of 96 threads"),
    "roles: block barrier in a role": (
        {"roles": True},
        lambda k: mutant(k, MbarrierArrive, lambda s: (s, SyncThreads("all"))),
        r"deadlock|meets another barrier"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_mutants_of_other_rings(name):
    options, change, text = OTHERS[name]
    ring = Ring(2, **options)
    found = _failures(ring, change(ring.kernel()))
    assert None not in found, found
    for message in found:
        assert re.search(text, message), message


@pytest.mark.parametrize("roles", [False, True], ids=["pipelined", "roles"])
@pytest.mark.parametrize(
    "name", ["drop arrive empty", "drop expect", "too many bytes announced", "drop copy",
             "full count too large", "too few bytes announced", "arrive twice"],
)  # fmt: skip
def test_functional_mode_counts(name, roles):
    """Lockstep hides races, but arrivals and bytes must add up there too."""
    ring = Ring(2, roles=roles)
    change, _ = MUTANTS[name]
    with pytest.raises(ProtocolError, match=r"(full|empty)\[\d\] is in phase"):
        run_kernel(change(ring.kernel()), {"n": 7}, ring.arrays(7))


def test_a_phase_that_aliases_two_rounds_later():
    """A consumer warp that never frees a stage is lapped: its parity comes round again."""
    ring = Ring(2, roles=True)
    kernel = mutant(
        ring.kernel(), MbarrierInit, lambda s: (replace(s, count=Const(32)),), barrier="empty"
    )
    kernel = mutant(
        kernel, MbarrierArrive, lambda s: (If(less(THREAD, 32), (s,)),), barrier="empty"
    )
    kernel = mutant(kernel, Store, lambda s: (), memory="y")  # nothing to race on
    found = [f for f in _failures(ring, kernel, 30) if f]
    assert any("two phases are one parity" in f for f in found), found
    assert all(re.search(r"full\[\d\] is in phase \d+ with", f) for f in found)
