"""Tiles in shared memory, with a ring or without, loaded inside the loop of another ring."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from fuser import (
    FusionDefinition,
    LoadStoreOpType,
    MemoryType,
    ParallelType,
    Pipelined,
    WarpSpecialized,
)
from fuser.schedule.circular import CircularBufferType

P, L = ParallelType, LoadStoreOpType
ROWS, COLS = 4, 128
"""Of a tile; the outer ring holds a number for each row of its tiles."""
LOADS = (L.set, L.cp_async, L.tma)
OUTER = (Pipelined(war="mbarrier"), Pipelined("token", "barrier"))
ROLES, HANDED = WarpSpecialized(), WarpSpecialized(num_registers=(24, 256))


@dataclass(frozen=True)
class Case:
    """``y = x + w[:, None]``: tiles of `w` in the loop over rows, of `x` in that over columns.

    Attributes
    ----------
    outer
        Type of the outer ring; in roles, its consumers load the tiles of `x`.
    stages
        Of the outer ring.
    inner
        Stages of the inner ring; 0: a tile without one.
    beside
        The tile of `x` is as wide as the row and lies in the outer ring's own loop.
    """

    load: L
    outer: CircularBufferType
    stages: int
    inner: int
    beside: bool = False

    def __str__(self) -> str:
        how = "roles", *(["registers"] if self.outer == HANDED else [])
        if isinstance(self.outer, Pipelined):
            how = self.outer.sync, self.outer.war
        words = self.load.name, *how, f"S{self.stages}"
        return "-".join((*words, f"inner{self.inner}", *(["beside"] * self.beside)))

    def inputs(self, rng: np.random.Generator, trips: int, inner: int) -> list[np.ndarray]:
        """Return arrays of so many trips, the last of which are cut short where they may be."""
        rows = ROWS * trips - (trips > 1)
        cols = COLS if self.beside else COLS * inner - 4 * (inner > 1)
        shapes = (rows, cols), (rows,)
        return [rng.integers(-99, 100, shape).astype("f4") for shape in shapes]

    def fusion(self) -> FusionDefinition:
        """Return the definition and its schedule."""
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, COLS if self.beside else -1], True)
            w = fd.define_tensor([-1], True)
            y = x + fd.ops.broadcast_in_dim(w, fd.ops.shape(x), [0])
            fd.add_output(y)
        few, tile = w.cache_after(), x.cache_after(self.load)
        for t in (few, tile):
            t.set_memory_type(MemoryType.shared)
        few.split(0, ROWS)
        for t in (y, tile):
            t.split(0, ROWS)
            t.split(2, COLS)
            t.reorder({2: 1, 1: 2})  # rows / 4, columns / 128, 4, 128
        y.axis(3).parallelize(P.block_x)
        if self.load is L.tma:
            tile.axis(2).parallelize(P.tma)
            tile.axis(3).parallelize(P.tma)
        else:
            tile.axis(3).parallelize(P.block_x)
        few.inline_at(y, 1)
        tile.inline_at(y, 1 if self.beside else 2)
        few.circular_buffer(self.stages, type=self.outer)
        if self.inner:
            tile.circular_buffer(self.inner, type=Pipelined(war="mbarrier"))
        return fd


CASES = [
    *(Case(load, outer, 3, inner) for load, outer, inner in product(LOADS, OUTER, (0, 1, 2))),
    *(Case(load, outer, 2, 0, True) for load, outer in product(LOADS, OUTER)),
    *(Case(load, ROLES, 2, 0) for load in LOADS),
    *(Case(load, ROLES, 2, 2) for load in (L.set, L.tma)),
    Case(L.tma, ROLES, 2, 0, True),
    Case(L.tma, HANDED, 1, 2),
]


@dataclass(frozen=True)
class Once:
    """``y = x + b``: rows of `x` in a ring with roles, the tile of `b` loaded before they part."""

    load: L
    outer: WarpSpecialized = ROLES

    def __str__(self) -> str:
        return f"{self.load.name}-{'registers' if self.outer == HANDED else 'roles'}"

    def inputs(self, rng: np.random.Generator, trips: int) -> list[np.ndarray]:
        """Return arrays of so many rows."""
        return [rng.integers(-99, 100, shape).astype("f4") for shape in ((trips, COLS), (COLS,))]

    def fusion(self) -> FusionDefinition:
        """Return the definition and its schedule."""
        with FusionDefinition() as fd:
            x, b = fd.define_tensor([-1, COLS], True), fd.define_tensor([COLS], True)
            y = x + fd.ops.broadcast_in_dim(b, fd.ops.shape(x), [1])
            fd.add_output(y)
        row, tile = x.cache_after(L.tma), b.cache_after(self.load)
        for t in (row, tile):
            t.set_memory_type(MemoryType.shared)
        y.axis(1).parallelize(P.block_x)
        row.axis(1).parallelize(P.tma)
        tile.axis(0).parallelize(P.tma if self.load in (L.tma, L.bulk) else P.block_x)
        row.inline_at(y, 1)
        row.circular_buffer(2, type=self.outer)
        return fd


ONCE = [*map(Once, (L.set, L.cp_async, L.tma, L.bulk)), Once(L.bulk, HANDED)]
