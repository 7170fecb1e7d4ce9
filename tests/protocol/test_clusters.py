"""Clusters on the modelled machine: what blocks owe each other, every mistake of it caught."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from rings.cells import Cell, definition
from rings.families import L

from fuser.api.execute import bind, program_of
from fuser.core.dtypes import DataType
from fuser.core.errors import LaunchError, ProtocolError
from fuser.core.expr import ONE, ZERO, Const, Expr, Var, equal
from fuser.interp.checked import check_kernel
from fuser.interp.functional import allocate, run_kernel
from fuser.kir.core import BarrierArray, Kernel, Stmt, TensorParam, walk_stmts
from fuser.kir.scalar import Element, FromIndex
from fuser.kir.stmts import (
    ClusterSync,
    For,
    If,
    MbarrierArrive,
    MbarrierArriveExpectTx,
    MbarrierArriveRemote,
    MbarrierArriveToken,
    MbarrierInit,
    MbarrierInitFence,
    MbarrierInval,
    MbarrierWait,
    MbarrierWaitToken,
    Store,
    SyncThreads,
    TensorLoad,
)
from fuser.kir.verify import verify_kernel
from fuser.passes.rewrite import map_bodies

pytestmark = pytest.mark.protocol

SEEDS = range(4)
TYPES = ("parity-mbarrier", "token-mbarrier", "ws")
"""Readers of all blocks arrive on each block's barriers."""
MEETING = ("parity-barrier", "token-barrier")
"""All threads of the cluster meet at the end of a trip."""
Body = tuple[Stmt, ...]


# ---- rings: a boxful for two blocks --------------------------------------------------------------


def cell_of(kind: str, blocks: int = 2) -> Cell:
    return Cell("multicast", (L.tma, L.tma), 2, 1, kind, trips="3S+1", edge="whole", cluster=blocks)


@lru_cache
def kernel_of(cell: Cell) -> Kernel:
    fd = definition(cell)
    (kernel,) = program_of(fd, bind(fd, cell.inputs(), True), True).kernels
    return kernel


def run_all(cell: Cell, kernel: Kernel) -> None:
    """Check interleavings of a kernel that may be wrong, on a cell's inputs."""
    for seed in SEEDS:
        run(cell, kernel, seed)


def run(cell: Cell, kernel: Kernel, seed: int) -> None:
    """Check one interleaving."""
    fd, inputs = definition(cell), cell.inputs()
    call = bind(fd, inputs, True)
    (buffer,) = program_of(fd, call, True).buffers
    _, view = allocate(buffer, call.env)
    arrays = {name: v.numpy() for name, v in call.views.items()} | {buffer.name: view}
    done = check_kernel(kernel, call.env, arrays, blocks=2, seed=seed)
    np.testing.assert_array_equal(done[buffer.name].astype("f8"), cell.reference(inputs))


def edited(kernel: Kernel, edit: Callable[[Stmt], Body]) -> Kernel:
    """Return a kernel in which every statement is replaced, innermost first."""

    def body(stmts: Body) -> Body:
        return tuple(new for s in stmts for new in edit(map_bodies(s, body)))

    changed = replace(kernel, body=body(kernel.body))
    assert changed.body != kernel.body, "the mistake was not made"
    return changed


def swap(kind: type[Stmt], new: Callable[..., Body], where: str = "") -> Callable[[Stmt], Body]:
    """Return an edit of the statements of one class whose text has `where` in it."""
    return lambda s: new(s) if isinstance(s, kind) and where in repr(s) else (s,)


def unless_leader(s: If) -> Body:
    return s.body if repr(s.cond) == "cx == 0" else (s,)


def announced(s: Stmt, more: int, *, leader: bool = False) -> Body:
    """Return an announcement of other bytes, or one that only the leader makes."""
    match s:
        case MbarrierArriveExpectTx(barrier, index, nbytes):
            new: Stmt = replace(s, tx_bytes=nbytes + more)
            plain: Stmt = MbarrierArrive(barrier, index)
        case MbarrierArriveToken(expect_tx=nbytes) if nbytes is not None:
            new, plain = replace(s, expect_tx=nbytes + more), replace(s, expect_tx=None)
        case _:
            return (s,)
    return (If(equal(RANK, 0), (new,), (plain,)),) if leader else (new,)


RANK = Var("cluster_rank")
MISTAKES: dict[str, tuple[Callable[[Stmt], Body], str]] = {
    "remote arrive dropped": (swap(MbarrierArriveRemote, lambda s: ()), "deadlock"),
    "arrives at its own block only": (
        swap(MbarrierArriveRemote, lambda s: (replace(s, rank=RANK),)), "race on|arrivals at once",
    ),
    "counts its own readers only": (
        swap(MbarrierInit, lambda s: (replace(s, count=Const(s.count.value // 2)),), "empty"),
        "race|arrivals at once|waiter last knew|more bytes",
    ),
    "counts readers of three": (
        swap(MbarrierInit, lambda s: (replace(s, count=s.count + s.count // 2),), "empty"),
        "deadlock",
    ),
    "no cluster barrier at init": (
        swap(ClusterSync, lambda s: (), "initialised"),
        "without order after its init|no barrier",
    ),
    "a block's barrier at init": (
        swap(ClusterSync, lambda s: (SyncThreads(s.why),), "initialised"),
        "without order after its init|no barrier",
    ),
    "no cluster barrier at exit": (
        swap(ClusterSync, lambda s: (), "any more"),
        "without order after its last use|nobody inside a wait|phase that has not begun|no barrier",
    ),
    "a block's barrier at exit": (
        swap(ClusterSync, lambda s: (SyncThreads(s.why),), "any more"),
        "without order after its last use|phase that has not begun|no barrier",
    ),
    "wait of a block's scope": (
        swap(MbarrierWait, lambda s: (replace(s, scope=""),), "empty"), "race on",
    ),
    "acquire dropped": (swap(MbarrierWait, lambda s: (), "empty"), "race|phase"),
    "every block multicasts": (swap(If, unless_leader), "more bytes|race on"),
    "multicast to the first alone": (
        swap(TensorLoad, lambda s: (replace(s, multicast=Const(1)) if s.multicast else s,)),
        "deadlock|ends while",
    ),
    "not multicast": (
        swap(TensorLoad, lambda s: (replace(s, multicast=None),)), "deadlock|ends while",
    ),
    "multicast beyond the cluster": (
        swap(TensorLoad, lambda s: (replace(s, multicast=Const(7)) if s.multicast else s,)),
        "mask 0x7 in a cluster of 2 blocks",
    ),
    "announces fewer bytes": (
        lambda s: announced(s, -1024), "fewer bytes|more bytes|race on|before it is written",
    ),
    "announces to the leader alone": (
        lambda s: announced(s, 0, leader=True), "more bytes|fewer bytes|race on",
    ),
    "fence dropped": (swap(MbarrierInitFence, lambda s: ()), "MbarrierInitFence"),
}  # fmt: skip


OF_READERS = (
    "remote arrive dropped", "arrives at its own block only", "counts its own readers only",
    "counts readers of three", "wait of a block's scope", "acquire dropped",
    "no cluster barrier at exit", "a block's barrier at exit",
)  # fmt: skip
"""Mistakes that need readers' arrivals: what is sent to a block that may have ended."""
OF_MEETINGS: dict[str, tuple[Callable[[Stmt], Body], str]] = {
    "no cluster barrier behind a trip": (
        swap(ClusterSync, lambda s: (), "has read"), "race on|more bytes|phase",
    ),
    "a block's barrier behind a trip": (
        swap(ClusterSync, lambda s: (SyncThreads(s.why),), "has read"), "race on|more bytes|phase",
    ),
    "the cluster meets before the reads": (
        lambda s: met_early(s) if isinstance(s, For) else (s,), "race on",
    ),
    "one block does not come by": (
        swap(
            ClusterSync, lambda s: (If(equal(RANK, 0), (s,), (SyncThreads(s.why),)),), "has read"
        ),
        "deadlock|meets another barrier",
    ),
    **{name: mistake for name, mistake in MISTAKES.items() if name not in OF_READERS},
}  # fmt: skip


def met_early(loop: For) -> Body:
    """Return a loop of trips in which the cluster meets as soon as the stage is full."""
    *body, last = loop.body
    waits = (MbarrierWait, MbarrierWaitToken)
    at = next((i for i, s in enumerate(body) if isinstance(s, waits)), None)
    if at is None or not isinstance(last, ClusterSync):
        return (loop,)
    return (replace(loop, body=(*body[: at + 1], last, *body[at + 1 :])),)


@pytest.mark.parametrize("kind", [*TYPES, *MEETING])
@pytest.mark.parametrize("blocks", [2, 4])
def test_originals_are_clean(kind, blocks):
    cell = cell_of(kind, blocks)
    run_all(cell, kernel_of(cell))


@pytest.mark.parametrize(
    ("kind", "mistake"),
    [*product(TYPES, MISTAKES), *product(MEETING, OF_MEETINGS)],
)
def test_mistakes_are_caught(kind, mistake):
    edit, text = (OF_MEETINGS if kind in MEETING else MISTAKES)[mistake]
    cell = cell_of(kind)
    wrong = edited(kernel_of(cell), edit)
    with pytest.raises(ProtocolError, match=text):
        run_all(cell, wrong)


@pytest.mark.parametrize("kind", MEETING)
@pytest.mark.parametrize("trips", ["1", "3S+1"])
def test_blocks_that_meet_send_nothing_to_one_that_has_ended(kind, trips):
    """Each waits for what is copied to it: a copy uses its barrier until then, its issuer not."""
    cell = replace(cell_of(kind), trips=trips)
    alone = edited(kernel_of(cell), swap(ClusterSync, lambda s: (SyncThreads(s.why),), "any more"))
    run_all(cell, alone)


def test_exit_before_a_peers_arrival():
    """Without inval nothing but the end of a block takes its barriers away."""
    cell = cell_of("ws")

    def edit(s: Stmt) -> Body:
        last = isinstance(s, ClusterSync) and "any more" in s.why
        return () if last or isinstance(s, MbarrierInval) else (s,)

    wrong = edited(kernel_of(cell), edit)
    with pytest.raises(ProtocolError, match=r"may have ended before block \d warp \d uses its"):
        run_all(cell, wrong)


# ---- small kernels -------------------------------------------------------------------------------

Y = TensorParam("y", DataType.Int32, "out", Const(64))
THREAD = Var("thread")


FOUR = Const(4)


def small(body: Body, grid: Expr = FOUR, cluster: tuple[int, int, int] = (2, 1, 1)) -> Kernel:
    """Return a kernel of blocks of one warp with one mbarrier."""
    extents = (grid, ONE, ONE)
    block = (Const(32), ONE, ONE)
    barriers = (BarrierArray("b", 1),)
    return Kernel("k", (Y,), (), extents, block, "i32", body, barriers=barriers, cluster=cluster)


def store(index: Expr, value: Expr) -> Stmt:
    return If(equal(THREAD, 0), (Store("y", index, FromIndex(value, DataType.Int32)),))


INIT = If(equal(THREAD, 0), (MbarrierInit("b", ZERO, ONE), MbarrierInitFence()))


def ping(scope: str) -> Kernel:
    """Every block tells its neighbour, then reads what that one wrote to global memory."""
    at = Var("bx") * 2 + Var("cx")
    other = Var("bx") * 2 + 1 - Var("cx")
    read = Store("y", at + 8, Element("y", other, DataType.Int32))
    return small((
        INIT, ClusterSync("b is there"), store(at, at * 3),
        If(equal(THREAD, 0), (MbarrierArriveRemote("b", ZERO, 1 - RANK),)),
        MbarrierWait("b", ZERO, ZERO, "the neighbour has written", scope),  # type: ignore[arg-type]
        If(equal(THREAD, 0), (read,)), ClusterSync("nobody arrives any more"),
    ))  # fmt: skip


def test_messages_between_blocks():
    kernel = ping("cluster")
    verify_kernel(kernel)
    arrays = {"y": np.full(64, -1, "i4")}
    run_kernel(kernel, {}, arrays)
    assert arrays["y"][8:12].tolist() == [3, 0, 9, 6]
    for seed in SEEDS:
        done = check_kernel(kernel, {}, {"y": np.full(64, -1, "i4")}, seed=seed)
        assert done["y"][8:12].tolist() == [3, 0, 9, 6]


def test_a_wait_of_block_scope_learns_nothing_from_other_blocks():
    with pytest.raises(ProtocolError, match="race on y"):
        check_kernel(ping(""), {}, {"y": np.full(64, -1, "i4")})


def test_coordinates_of_blocks():
    """Clusters tile the grid: a block is found by its cluster and its place there."""
    x, y = Var("bx") * 2 + Var("cx"), Var("by") * 3 + Var("cy")
    kernel = replace(
        small((store(y * 4 + x, RANK),), cluster=(2, 3, 1)), grid=(Const(4), Const(6), ONE)
    )
    arrays = {"y": np.full(64, -1, "i4")}
    run_kernel(kernel, {}, arrays)
    expected = [[y % 3 * 2 + x % 2 for x in range(4)] for y in range(6)]
    assert arrays["y"][:24].reshape(6, 4).tolist() == expected
    done = check_kernel(kernel, {}, {"y": np.full(64, -1, "i4")}, blocks=99)
    assert done["y"][:24].reshape(6, 4).tolist() == expected


def refused(text: str, body: Body) -> None:
    for seed in SEEDS:
        with pytest.raises(ProtocolError, match=text):
            check_kernel(small(body), {}, {"y": np.zeros(64, "i4")}, seed=seed)


def test_one_block_misses_the_cluster_barrier():
    refused("deadlock", (If(equal(RANK, 0), (ClusterSync("half of them"),)),))


def test_cluster_barrier_of_some_threads():
    refused("in divergent code", (If(equal(THREAD, 0), (ClusterSync("one thread"),)),))


def test_blocks_at_different_cluster_barriers():
    here, there = ClusterSync("here"), ClusterSync("there")
    refused("meets another barrier", (If(equal(RANK, 0), (here,), (there,)),))


def test_rank_outside_of_the_cluster():
    arrive = If(equal(THREAD, 0), (MbarrierArriveRemote("b", ZERO, Const(2)),))
    refused("rank 2 of a cluster of 2 blocks", (INIT, ClusterSync("b is there"), arrive))


def test_grid_that_clusters_do_not_tile():
    kernel = small((store(ZERO, ONE),), grid=Var("n"))
    text = re.escape("grid (3, 1, 1) of clusters (2, 1, 1)")
    with pytest.raises(LaunchError, match=text):
        run_kernel(kernel, {"n": 3}, {"y": np.zeros(64, "i4")})


def test_chosen_clusters_run_whole():
    """`blocks` counts clusters: both blocks of the second of three write."""
    at = Var("bx") * 2 + Var("cx")
    kernel = small((ClusterSync("all"), store(at, at)), grid=Const(6))
    done = check_kernel(kernel, {}, {"y": np.full(64, -1, "i4")}, blocks=[1])
    assert done["y"][:6].tolist() == [-1, -1, 2, 3, -1, -1]


def test_statements_are_there():
    """The tests above would be empty without these."""
    for kind in (*TYPES, *MEETING):
        found = {type(s) for s in walk_stmts(kernel_of(cell_of(kind)).body)}
        assert ClusterSync in found
        assert (MbarrierArriveRemote in found) == (kind in TYPES)
