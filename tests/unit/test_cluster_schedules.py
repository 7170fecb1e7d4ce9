"""Clusters in schedules and kernels: what is multicast, what the launch is, what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rings import interpret
from rings.families import Choices, buffered, multicast, staged, tensor

from fuser import DataType, FusionDefinition, LoadStoreOpType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.core.errors import ScheduleError, VerifyError
from fuser.core.expr import ONE, Const, Expr, Var, evaluate
from fuser.kir.core import Kernel, walk_stmts
from fuser.kir.stmts import (
    ClusterSync,
    For,
    MbarrierArriveRemote,
    MbarrierArriveToken,
    MbarrierInit,
    SyncThreads,
    TensorLoad,
)
from fuser.protocol.rings import places
from fuser.schedule.circular import CircularBufferType, Pipelined, WarpSpecialized

pytestmark = pytest.mark.unit

P, L = ParallelType, LoadStoreOpType
TWO = Choices((L.tma, L.tma), cluster=2)


def kernel_of(fd: FusionDefinition, *inputs: np.ndarray) -> Kernel:
    (kernel,) = program_of(fd, bind(fd, inputs, True), True).kernels
    return kernel


def rows(columns: int = 512) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((5, columns), "f4"), np.zeros(columns, "f4")


def refused(text, call, *args, here=True):
    """Check the text of a refusal and that it names this file."""
    with pytest.raises(ScheduleError, match=re.escape(text)) as caught:
        call(*args)
    if here:
        assert caught.value.location is not None
        assert Path(caught.value.location.file).name == Path(__file__).name


# ---- what a schedule becomes ---------------------------------------------------------------------


def test_one_block_loads_for_all():
    kernel = kernel_of(multicast(TWO), *rows())
    assert kernel.cluster == (2, 1, 1)
    assert [int(evaluate(e, {"x_size0": 5})) for e in kernel.grid] == [6, 1, 1]
    loads = [s for s in walk_stmts(kernel.body) if isinstance(s, TensorLoad)]
    masks = {s.dst: s.multicast for s in loads}
    assert masks == {"x_cache": None, "b_cache": Const(3)}
    counts = {s.barrier: s.count for s in walk_stmts(kernel.body) if isinstance(s, MbarrierInit)}
    assert counts == {"x_cache_full": Const(1), "x_cache_empty": Const(4)}


def test_text_of_a_cluster():
    text = emit(kernel_of(multicast(TWO), *rows()))
    assert "__launch_bounds__(64) __cluster_dims__(2, 1, 1) fusion(" in text
    assert "const idx bx = blockIdx.x / 2, cx = blockIdx.x % 2" in text
    assert "tensor_load_multicast(b_cache" in text
    assert ".multicast::cluster [%0], [%1, {%4}], [%2], %3;" in text
    assert text.count("cluster_sync();  //") == 2


def test_without_clusters_nothing_is_said_of_them():
    fd = multicast(Choices((L.tma, L.tma), cluster=1))
    kernel = kernel_of(fd, *rows())
    assert kernel.cluster == (1, 1, 1)
    text = emit(kernel)
    function = text[text.index('extern "C"') :]
    assert "cluster" not in function
    assert "multicast" not in text
    assert not any(isinstance(s, ClusterSync) for s in walk_stmts(kernel.body))


def test_boxes_that_differ_are_not_shared():
    """Every block loads its own rows: a cluster that shares nothing has no cluster barriers."""
    with FusionDefinition() as fd:
        x = tensor(fd, 2, DataType.Float)
        y = x * 2.0
        fd.add_output(y)
    cache = staged(x, L.tma)
    y.split(0, 2)
    y.split(2, 256)
    fd.sched.transform_like(y, [cache])
    y.axis(3).parallelize(P.block_x)
    cache.axis(3).parallelize(P.tma)
    for t in (y, cache):
        t.axis(0).parallelize(P.grid_x)
        t.axis(1).parallelize(P.cluster_x)
    buffered(cache, y, 3, Choices())
    x = np.arange(5 * 700, dtype="f4").reshape(5, 700)
    assert not any(isinstance(s, ClusterSync) for s in walk_stmts(kernel_of(fd, x).body))
    (got,) = fd.manual_execute([x], backend="interpret")
    np.testing.assert_array_equal(got, 2 * x)


def test_boxes_that_cannot_be_encoded_are_copied_by_each_block():
    """A misaligned operand falls back to threads, and needs nobody else."""
    memory = np.zeros(4 * (512 + 1), "u1").view("f4")
    x, b = rows()
    b = memory[1:]
    assert b.ctypes.data % 16
    kernel = kernel_of(multicast(TWO), x, b)
    assert not any(isinstance(s, ClusterSync) for s in walk_stmts(kernel.body))
    assert any("copied by threads, not TMA" in line for line in kernel.header)


def grid_of_products(c: tuple[int, int]) -> FusionDefinition:
    """``y = a[i] + b[j]`` over clusters in both dimensions: each operand is shared along one."""
    with FusionDefinition() as fd:
        a, b = tensor(fd, 2, DataType.Float), tensor(fd, 2, DataType.Float)
        shape = [fd.ops.size(a, 0), fd.ops.size(b, 0), fd.ops.size(a, 1)]
        y = fd.ops.add(
            fd.ops.broadcast_in_dim(a, shape, [0, 2]), fd.ops.broadcast_in_dim(b, shape, [1, 2])
        )
        fd.add_output(y)
    caches = [staged(t, L.tma) for t in (a, b)]
    y.split(1, c[1])
    y.split(0, c[0])
    y.split(4, 64)
    fd.sched.transform_like(y, caches)
    y.axis(5).parallelize(P.block_x)
    for t in (y, *caches):
        for axis, kind in enumerate((P.grid_x, P.cluster_x, P.grid_y, P.cluster_y)):
            t.axis(axis).parallelize(kind)
    for cache in caches:
        cache.axis(5).parallelize(P.tma)
        buffered(cache, y, 5, Choices(stages=2))
    return fd


@pytest.mark.parametrize("sides", [(2, 2), (2, 4), (1, 2)])
def test_each_operand_is_shared_along_one_side(sides):
    fd = grid_of_products(sides)
    rng = np.random.default_rng(7)
    a, b = rng.integers(-9, 9, (3, 200)).astype("f4"), rng.integers(-9, 9, (5, 200)).astype("f4")
    (got,) = fd.manual_execute([a, b], backend="interpret")
    np.testing.assert_array_equal(got, a[:, None] + b[None])
    found: dict[str, Expr | None] = {}
    for place in places(kernel_of(fd, a, b).body):
        if isinstance(place.stmt, TensorLoad):
            mask = place.stmt.multicast
            found[place.stmt.dst] = None if mask is None else place.expr(mask)
    x, y = sides
    for at in range(x):
        for other in range(y):
            env = {"cx": at, "cy": other}
            along_y, along_x = found["a_cache"], found["b_cache"]
            assert along_y is not None
            assert evaluate(along_y, env) == sum(1 << (at + x * j) for j in range(y))
            if x == 1:
                assert along_x is None
            else:
                assert along_x is not None
                assert evaluate(along_x, env) == sum(1 << (i + x * other) for i in range(x))


def test_a_load_without_stages_is_multicast_too():
    """One box before its use, no ring: the cluster meets before the copy and after the reads."""
    with FusionDefinition() as fd:
        b = tensor(fd, 1, DataType.Float)
        x = tensor(fd, 2, DataType.Float)
        y = x + fd.ops.broadcast_in_dim(b, fd.ops.shape(x), [1])
        fd.add_output(y)
    cache = staged(b, L.tma)
    y.split(0, 2)
    y.split(2, 128)
    fd.sched.transform_like(y, [cache])
    y.axis(3).parallelize(P.block_x)
    cache.axis(3).parallelize(P.tma)
    for t in (y, cache):
        t.axis(0).parallelize(P.grid_x)
        t.axis(1).parallelize(P.cluster_x)
    cache.inline_at(y, 3)
    inputs = [np.arange(300, dtype="f4"), np.ones((3, 300), "f4")]
    (got,) = fd.manual_execute(inputs, backend="interpret")
    np.testing.assert_array_equal(got, inputs[0] + inputs[1])
    found = [type(s) for s in walk_stmts(kernel_of(fd, *inputs).body)]
    assert found.count(ClusterSync) == 2
    assert MbarrierArriveRemote not in found


def test_trips_may_be_outside_of_the_blocks():
    """The cluster axis lies right of the position: inside the fill, where it is no loop."""
    with FusionDefinition() as fd:
        x, b = tensor(fd, 2, DataType.Float), tensor(fd, 1, DataType.Float)
        y = x + fd.ops.broadcast_in_dim(b, fd.ops.shape(x), [1])
        fd.add_output(y)
    caches = [staged(t, L.tma) for t in (x, b)]
    y.split(0, 2)
    y.split(2, 128)
    y.reorder({2: 0})  # trip, cluster, block of it, element
    fd.sched.transform_like(y, caches)
    y.axis(3).parallelize(P.block_x)
    for cache in caches:
        cache.axis(3).parallelize(P.tma)
    for t in (y, *caches):
        t.axis(1).parallelize(P.grid_x)
        t.axis(2).parallelize(P.cluster_x)
    for cache in caches:
        buffered(cache, y, 1, Choices(stages=2))
    inputs = [np.ones((5, 700), "f4"), np.arange(700, dtype="f4")]
    (got,) = fd.manual_execute(inputs, backend="interpret")
    np.testing.assert_array_equal(got, inputs[0] + inputs[1])
    assert "tensor_load_multicast(b_cache" in emit(kernel_of(fd, *inputs))


# ---- every type ----------------------------------------------------------------------------------

TYPES = (
    *(Pipelined(s, w) for s in ("parity", "token") for w in ("mbarrier", "barrier")),
    WarpSpecialized(),
)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.words)
def test_how_blocks_learn_that_a_stage_is_free(kind: CircularBufferType):
    """By arrivals from all blocks, or where all of them meet at the end of every trip."""
    kernel = kernel_of(multicast(replace(TWO, type=kind)), *rows())
    meets = isinstance(kind, Pipelined) and kind.war == "barrier"
    found = [s for s in walk_stmts(kernel.body) if isinstance(s, ClusterSync)]
    assert len(found) == 2 + meets
    assert not any(isinstance(s, SyncThreads) for s in walk_stmts(kernel.body))
    remote = [s for s in walk_stmts(kernel.body) if isinstance(s, MbarrierArriveRemote)]
    assert bool(remote) != meets
    if meets:
        loops = [s for s in walk_stmts(kernel.body) if isinstance(s, For) and s.label == "main"]
        assert [loop.body[-1] for loop in loops] == [
            ClusterSync("every thread has read its stage of x_cache")
        ]
        assert not any("empty" in barrier.name for barrier in kernel.barriers)


@pytest.mark.parametrize("kind", [Pipelined("token", w) for w in ("mbarrier", "barrier")])
def test_each_block_announces_to_itself_what_is_copied_to_it(kind: CircularBufferType):
    """With tokens all threads of a block arrive; one says the bytes of both boxes."""
    kernel = kernel_of(multicast(replace(TWO, type=kind)), *rows())
    (full,) = [s for s in walk_stmts(kernel.body) if isinstance(s, MbarrierInit)
               and "full" in s.barrier]  # fmt: skip
    assert full.count == Const(64)
    arrivals = [p for p in places(kernel.body) if isinstance(p.stmt, MbarrierArriveToken)]
    said = [p.expr(p.stmt.expect_tx) for p in arrivals if p.stmt.expect_tx is not None]
    assert len(arrivals) == 2 * len(said) == 4  # prologue and main loop; the elected thread, others
    for e in said:
        assert [int(evaluate(e, {"bx": bx, "cx": cx, "x_size0": 5})) for bx, cx in
                ((0, 0), (0, 1), (2, 0), (2, 1))] == [2048, 2048, 2048, 1024]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.words)
@pytest.mark.parametrize(("rows", "elements"), [(3, 500), (7, 20)])
def test_clusters_beyond_a_rings_own(kind: CircularBufferType, rows: int, elements: int):
    """Another output has more clusters, or fewer: all blocks of one come by its barriers."""
    with FusionDefinition() as fd:
        x, b = tensor(fd, 2, DataType.Float), tensor(fd, 1, DataType.Float)
        w = tensor(fd, 1, DataType.Float)
        z, y = w * 2.0, x + fd.ops.broadcast_in_dim(b, fd.ops.shape(x), [1])
        fd.add_output(z)
        fd.add_output(y)
    caches = [staged(t, L.tma) for t in (x, b)]
    z.split(0, 32)
    z.split(0, 2)
    z.axis(2).parallelize(P.block_x)
    y.split(0, 2)
    y.split(2, 256)
    fd.sched.transform_like(y, caches)
    y.split(3, 32)
    y.axis(4).parallelize(P.block_x)
    for t in (z, y, *caches):
        t.axis(0).parallelize(P.grid_x)
        t.axis(1).parallelize(P.cluster_x)
    for cache in caches:
        cache.axis(3).parallelize(P.tma)
        buffered(cache, y, 3, Choices(stages=2, type=kind))
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-9, 9, n).astype("f4") for n in ((rows, 1000), 1000, elements)]
    doubled, added = interpret.run_by_hand(fd, arrays, rows)
    np.testing.assert_array_equal(doubled, 2 * arrays[2])
    np.testing.assert_array_equal(added, arrays[0] + arrays[1])


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.words)
def test_stores_out_of_a_stage_that_is_multicast(kind: CircularBufferType):
    """The block that stores is the one that fills it again: it knows when its store has read."""
    with FusionDefinition() as fd:
        x, b = tensor(fd, 1, DataType.Float), tensor(fd, 1, DataType.Float)
        z, y = x * 2.0, fd.ops.set(b)
        fd.add_output(z)
        fd.add_output(y)
    z.split(0, 32)
    z.split(0, 2)
    for axis, bound in enumerate((P.grid_x, P.cluster_x, P.block_x)):
        z.axis(axis).parallelize(bound)
    cache = staged(b, L.tma)
    for t in (y, cache):
        t.split(0, 256)
        t.axis(1).parallelize(P.tma)
    through = y.cache_before(L.tma)
    through.inline_at(y)
    buffered(cache, through, 1, Choices(stages=3, prefetch=1, type=kind))
    inputs = [np.arange(200, dtype="f4"), np.arange(2000, dtype="f4")]
    kernel = kernel_of(fd, *inputs)
    (load, *_) = [s for s in walk_stmts(kernel.body) if isinstance(s, TensorLoad)]
    assert load.multicast == Const(3)
    for seed in range(3):
        doubled, copied = interpret.run_by_hand(fd, inputs, seed)
        np.testing.assert_array_equal(doubled, 2 * inputs[0])
        np.testing.assert_array_equal(copied, inputs[1])


# ---- what is refused -----------------------------------------------------------------------------


@pytest.fixture
def product():
    with FusionDefinition() as fd:
        x = tensor(fd, 2, DataType.Float)
        s = fd.ops.sum(x, [1])
        y = x * 2.0
        fd.add_output(s)
        fd.add_output(y)
    return fd, s, y


def test_axes_that_no_cluster_runs(product):
    _, s, y = product
    refused("parallelize: axis 0 to cluster_x has extent x_size0; a constant from 1 to 8",
            y.axis(0).parallelize, P.cluster_x)  # fmt: skip
    y.split(0, 9)
    refused("axis 1 to cluster_y has extent 9; a constant from 1 to 8",
            y.axis(1).parallelize, P.cluster_y)  # fmt: skip
    s.split(1, 2)
    refused("parallelize: axis 2 to cluster_x is a reduction; the blocks of a cluster do not",
            s.axis(2).parallelize, P.cluster_x)  # fmt: skip


def test_clusters_that_are_too_large(product):
    fd, _, y = product
    y.split(0, 4)
    y.split(2, 4)
    y.axis(1).parallelize(P.cluster_x)
    y.axis(3).parallelize(P.cluster_y)
    x = np.zeros((8, 64), "f4")
    refused("a cluster of 4 x 4 x 1 blocks; at most 8 are possible", fd.manual_execute, [x],
            here=False)  # fmt: skip


def test_clusters_that_disagree(product):
    fd, s, y = product
    y.split(0, 4)
    y.axis(1).parallelize(P.cluster_x)
    s.split(0, 2)
    s.axis(1).parallelize(P.cluster_x)
    refused("all tensors of a kernel need the same constant", fd.manual_execute,
            [np.zeros((8, 64), "f4")], here=False)  # fmt: skip


def test_no_grid_reduction_among_clusters(product):
    fd, s, y = product
    y.split(0, 2)
    y.axis(1).parallelize(P.cluster_x)
    s.split(1, 16)
    s.axis(0).parallelize(P.block_y)
    s.axis(1).parallelize(P.grid_x)
    s.axis(2).parallelize(P.block_x)
    refused("is reduced over grid_x, and", fd.manual_execute, [np.zeros((8, 64), "f4")],
            here=False)  # fmt: skip


@pytest.mark.parametrize(
    ("cluster", "text"),
    [
        ((3, 3, 1), "kernel k: cluster (3, 3, 1); needed 1 to 8 blocks"),
        ((0, 1, 1), "kernel k: cluster (0, 1, 1); needed 1 to 8 blocks"),
        ((4, 1, 1), "needed extents that are multiples of the cluster's"),
    ],
)
def test_kernels_of_impossible_clusters(cluster, text):
    grid = (Const(6), Var("n"), ONE)
    kernel = Kernel("k", (), (), grid, (Const(32), ONE, ONE), "i32", (), cluster=cluster)
    with pytest.raises(VerifyError, match=re.escape(text)):
        kernel.verify()
