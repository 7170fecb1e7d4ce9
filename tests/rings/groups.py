"""Fusions whose trips are dealt out to consumer groups."""

from __future__ import annotations

from dataclasses import replace

from fuser import DataType, FusionDefinition
from rings.choices import (
    DEPTH,
    GROUPS,
    TURN,
    Choices,
    P,
    affine,
    buffered,
    shared_out,
    staged,
    tensor,
    tiled,
)


def groups_map(c: Choices) -> FusionDefinition:
    """``y = 2 x + 1`` of a vector, a tile a trip, every other one for the same consumer group."""
    fd, x, y = affine(1, c)
    cache = staged(x, c.single)
    for t in (y, cache):
        t.split(0, c.tile)
        t.split(0, GROUPS)  # round, group, element of a tile
        t.axis(1).parallelize(P.block_y)
    y.split(2, c.threads // GROUPS)
    y.axis(3).parallelize(P.block_x)
    cache.axis(2).parallelize(P.tma)
    buffered(cache, y, 2, c)
    return fd


def groups_sum(c: Choices) -> FusionDefinition:
    """``s = sum(x, 1)``: a row a thread, a tile of rows a group, columns in trips."""
    rows = c.threads // GROUPS
    with FusionDefinition() as fd:
        x = tensor(fd, 2, c.dtype)
        s = fd.ops.sum(fd.ops.cast(x, dtype=DataType.Float), [1])
        fd.add_output(s)
    cache = staged(x, c.single)
    for t in (s, cache):
        t.split(0, rows)
        t.split(0, GROUPS)
        t.split(3, DEPTH)
        t.reorder({3: 2, 2: 3})  # round, group, trip, row, column
        t.axis(1).parallelize(P.block_y)
    s.axis(3).parallelize(P.block_x)
    for axis in (3, 4):
        cache.axis(axis).parallelize(P.tma)
    buffered(cache, s, 3, c)
    return fd


def groups_stream(c: Choices) -> FusionDefinition:
    """``y = 2 x + 1``, or ``+ z``, of vectors: `TURN` tiles a group, each input by its own load."""
    with FusionDefinition() as fd:
        x, *others = (tensor(fd, 1, c.dtype) for _ in c.loads)
        y = x * 2.0 + (others[0] if others else 1.0)
        y = fd.ops.cast(y, dtype=c.dtype)
        fd.add_output(y)
    caches = [staged(t, load) for t, load in zip((x, *others), c.loads, strict=True)]
    own = replace(c, threads=c.threads // GROUPS)
    shared_out(y, 0, own)
    for cache, load in zip(caches, c.loads, strict=True):
        tiled(cache, 0, load, own)
    for t in (y, *caches):
        t.split(0, TURN)
        t.split(0, GROUPS)  # round, group, trip, what is in a tile
        t.axis(1).parallelize(P.block_y)
    for cache in caches:
        buffered(cache, y, 3, c)
    return fd


def groups_multicast(c: Choices) -> FusionDefinition:
    """``y = 2 x + b`` of rows over the blocks of clusters, whose groups have `TURN` tiles a turn.

    The tiles of `b` are multicast; each block loads its own rows of `x`.
    """
    with FusionDefinition() as fd:
        x, b = tensor(fd, 2, c.dtype), tensor(fd, 1, c.dtype)
        y = fd.ops.add(x * 2.0, fd.ops.broadcast_in_dim(b, fd.ops.shape(x), [1]))
        y = fd.ops.cast(y, dtype=c.dtype)
        fd.add_output(y)
    caches = [staged(t, load) for t, load in zip((x, b), c.loads, strict=True)]
    own = replace(c, threads=c.threads // GROUPS)
    y.split(0, c.cluster)  # cluster, block of it, column
    fd.sched.transform_like(y, caches)
    shared_out(y, 2, own)
    for cache, load in zip(caches, c.loads, strict=True):
        tiled(cache, 2, load, own)
    for t in (y, *caches):
        t.split(2, TURN)
        t.split(2, GROUPS)  # cluster, block of it, round, group, trip, what is in a tile
        for axis, bound in enumerate((P.grid_x, P.cluster_x, P.serial, P.block_y)):
            if bound is not P.serial:
                t.axis(axis).parallelize(bound)
    for cache in caches:
        buffered(cache, y, 5, c)
    return fd
