"""Loads of several kinds beside each other: with rings and without, in groups, clusters and boxes.

Each runs in checked mode, on sizes that end in the middle of a tile.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from rings import interpret

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.api.tensor import Tensor
from fuser.cli import pipelines
from fuser.protocol.verdict import check
from fuser.schedule.circular import CircularBufferType, Pipelined, WarpSpecialized

pytestmark = [
    pytest.mark.protocol,
    pytest.mark.filterwarnings("ignore::fuser.core.errors.FallbackWarning"),
]

P, L = ParallelType, LoadStoreOpType
KINDS = (L.tma, L.bulk, L.cp_async, L.set)
PAIRS = tuple(itertools.combinations_with_replacement(KINDS, 2))
TILE, THREADS = 256, 64
PIPELINED, ROLES = Pipelined(war="mbarrier"), WarpSpecialized()


def named(value: object) -> str:
    return value.name if isinstance(value, LoadStoreOpType) else str(value)


def tile(x: Tensor, load: L, axis: int) -> Tensor:
    """Stage a tile of `x`: axis `axis` holds its elements."""
    cache = x.cache_after(load)
    cache.set_memory_type(MemoryType.shared)
    cache.split(axis - 1, TILE)
    if load in (L.tma, L.bulk):
        cache.axis(axis).parallelize(P.tma)
    else:
        cache.split(axis, THREADS)
        cache.axis(axis + 1).parallelize(P.block_x)
    return cache


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).integers(-40, 41, shape).astype("f4")


def two_inputs(
    loads: tuple[L, L], rings: tuple[CircularBufferType | None, CircularBufferType | None]
) -> FusionDefinition:
    """``y = 2 x + z``: each input by a load of its own, in a ring or in a single tile."""
    with FusionDefinition() as fd:
        x, z = (fd.define_tensor(shape=[-1], contiguity=True) for _ in range(2))
        y = x * 2.0 + z
        fd.add_output(y)
    y.split(0, TILE)
    caches = [tile(t, load, 1) for t, load in zip((x, z), loads, strict=True)]
    y.split(1, THREADS)
    y.axis(2).parallelize(P.block_x)
    for cache, ring in zip(caches, rings, strict=True):
        cache.inline_at(y, 1)
        if ring is not None:
            cache.circular_buffer(3, None, ring)
    return fd


@pytest.mark.parametrize("loads", PAIRS, ids=lambda pair: "+".join(map(named, pair)))
@pytest.mark.parametrize(
    "rings", [(None, None), (PIPELINED, None), (None, PIPELINED)], ids=["plain", "first", "second"]
)
def test_a_ring_beside_a_tile_and_tiles_alone(
    loads: tuple[L, L],
    rings: tuple[CircularBufferType | None, CircularBufferType | None],
) -> None:
    """``PointwiseCpAsync`` of the seed, circular-buffered or not."""
    x, z = numbers(3000), numbers(3000) + 1
    interpret.exact((loads, rings), two_inputs(loads, rings), [x, z], x * 2 + z, seeds=1)


@pytest.mark.parametrize("loads", PAIRS, ids=lambda pair: "+".join(map(named, pair)))
def test_pairs_in_consumer_groups(loads: tuple[L, L]) -> None:
    """Every other tile is for the same group, whatever brings it."""
    kind = WarpSpecialized(P.block_y, None, 2)
    with FusionDefinition() as fd:
        x, z = (fd.define_tensor(shape=[-1], contiguity=True) for _ in range(2))
        y = x * 2.0 + z
        fd.add_output(y)
    caches = [t.cache_after(load) for t, load in zip((x, z), loads, strict=True)]
    for t in (y, *caches):
        t.split(0, TILE)
        t.split(0, 2)
        t.axis(1).parallelize(P.block_y)
    y.split(2, THREADS)
    y.axis(3).parallelize(P.block_x)
    for cache, load in zip(caches, loads, strict=True):
        cache.set_memory_type(MemoryType.shared)
        if load in (L.tma, L.bulk):
            cache.axis(2).parallelize(P.tma)
        else:
            cache.split(2, 32)
            cache.axis(3).parallelize(P.block_x)
        cache.inline_at(y, 2)
        cache.circular_buffer(4, None, kind)
    a, b = numbers(3000), numbers(3000) + 1
    interpret.exact(loads, fd, [a, b], a * 2 + b, seeds=1)


@pytest.mark.parametrize("load", KINDS, ids=named)
@pytest.mark.parametrize("kind", [PIPELINED, ROLES], ids=["pipelined", "roles"])
def test_multicast_beside_other_loads(load: L, kind: CircularBufferType) -> None:
    """``y[r, c] = 2 x[r, c] + b[c]``: a cluster shares b, each block loads its own of x."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        b = fd.define_tensor(shape=[-1], contiguity=True)
        y = x * 2.0 + fd.ops.broadcast_in_dim(b, fd.ops.shape(x), [1])
        fd.add_output(y)
    caches = [x.cache_after(load), b.cache_after(L.tma)]
    y.split(0, 2)
    y.split(2, TILE)
    fd.sched.transform_like(y, caches)
    y.split(3, THREADS)
    y.axis(4).parallelize(P.block_x)
    for cache, how in zip(caches, (load, L.tma), strict=True):
        cache.set_memory_type(MemoryType.shared)
        if how in (L.tma, L.bulk):
            cache.axis(3).parallelize(P.tma)
        else:
            cache.split(3, THREADS)
            cache.axis(4).parallelize(P.block_x)
    for t in (y, *caches):
        t.axis(0).parallelize(P.grid_x)
        t.axis(1).parallelize(P.cluster_x)
    for cache in caches:
        cache.inline_at(y, 3)
        cache.circular_buffer(3, None, kind)
    given, bias = numbers(5, 1000), numbers(1000)
    interpret.exact((load, kind), fd, [given, bias], given * 2 + bias, seeds=1)


@pytest.mark.parametrize("span", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("rank", [3, 4, 5])
def test_boxes_of_three_to_five_dimensions(rank: int, span: str) -> None:
    """Middle dimensions by twos, the last by a swizzle's span; all of them overhang."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1] * rank, contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    cache = x.cache_after(L.tma)
    cache.set_memory_type(MemoryType.shared)
    width = {"none": 8, "32B": 8, "64B": 16, "128B": 32}[span]
    outer = [0, *(2 * i + 1 for i in range(rank - 1))]
    inner = [2 * i + 2 for i in range(rank - 1)]
    for t in (y, cache):
        t.split(rank - 1, width)
        for d in range(1, rank - 1):
            t.split(2 * d - 1, 2)
        t.reorder({old: new for new, old in enumerate(outer + inner)})
    for axis in range(rank, 2 * rank - 1):
        cache.axis(axis).parallelize(P.tma)
    if span != "none":
        cache.set_swizzle(span)
    cache.inline_at(y, rank)
    cache.circular_buffer(3, 2, PIPELINED)
    given = numbers(*[3] * (rank - 1), 40)
    interpret.exact((rank, span), fd, [given], given * 2, seeds=1)


@pytest.mark.parametrize("turns", [False, True], ids=["own stages", "ping-pong"])
def test_products_in_consumer_groups_are_proved(turns: bool) -> None:
    """Two rounds of trips a group, behind ``wgmma.wait_group``."""
    kind = WarpSpecialized(P.block_y, None, 3, turns)
    fd = pipelines.ring_group_products(L.tma, 2, None, kind, 2)
    inputs = [np.zeros(shape, DataType.Half.np) for shape in ((512, 128), (64, 128))]
    (kernel,) = program_of(fd, bind(fd, inputs, True), True).kernels
    verdict = check(kernel)
    assert (verdict.reach, verdict.note) == ("proved", "")
