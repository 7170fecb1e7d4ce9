"""Rings in registers on the loop of a ring with barriers: one loop for the trips of both."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import Literal

import numpy as np
from rings.choices import staged

from fuser import FusionDefinition, LoadStoreOpType, ParallelType, Pipelined, WarpSpecialized
from fuser.schedule.circular import CircularBufferType

P, L = ParallelType, LoadStoreOpType
THREADS = 64
TILE = 2 * THREADS
Source = Literal["own", "shared", "elsewhere"]
PIPELINED = Pipelined(war="mbarrier")
LOADS = (L.set, L.cp_async, L.bulk)


@dataclass(frozen=True)
class Case:
    """``y = 2 x + z``: tiles of `x` in a ring with barriers.

    Attributes
    ----------
    stages, distance
        Of the ring with barriers.
    slots, ahead
        Of the ring in registers.
    source
        What is loaded into registers: the tiles of `x`, which nobody else reads; the same, and `y`
        reads them, too; or `z`.
    trips
        Trips, if they are known.
    """

    type: CircularBufferType = PIPELINED
    stages: int = 3
    distance: int = 2
    slots: int = 2
    ahead: int = 1
    source: Source = "own"
    load: LoadStoreOpType = L.tma
    trips: int = -1

    def __str__(self) -> str:
        kind = "roles"
        if isinstance(self.type, Pipelined):
            kind = f"{self.type.sync}-{self.type.war}"
        depths = f"{self.stages}.{self.distance}-{self.slots}.{self.ahead}"
        known = f"-N{self.trips}" * (self.trips >= 0)
        return f"{kind}-{depths}-{self.source}-{self.load.name}{known}"

    def inputs(self, rng: np.random.Generator, trips: int) -> list[np.ndarray]:
        """Return arrays of so many trips, the last of which is cut short."""
        n = TILE * trips - 4 * (trips > 1)
        return [rng.integers(-99, 100, n).astype("f4") for _ in range(2)]

    def expected(self, x: np.ndarray, z: np.ndarray) -> np.ndarray:
        """Return the output in float64."""
        return x.astype("f8") * (5 if self.source == "shared" else 2) + z

    def fusion(self) -> FusionDefinition:
        """Return the definition and its schedule."""
        n = -1 if self.trips < 0 else TILE * self.trips - 4 * (self.trips > 1)
        with FusionDefinition() as fd:
            x, z = (fd.define_tensor([n], True) for _ in range(2))
            copy = x if self.source == "elsewhere" else fd.ops.set(x)
            y = copy * 2.0 + z
            if self.source == "shared":
                y = y + x * 3.0
            fd.add_output(y)
        tile = staged(x, self.load)
        part = z.cache_after() if self.source == "elsewhere" else copy
        by_threads = [] if self.load in (L.tma, L.bulk) else [tile]
        for t in (y, part, tile):
            t.split(0, TILE)
        for t in (y, part, *by_threads):
            t.split(1, THREADS)
            t.axis(2).parallelize(P.block_x)
        if not by_threads:
            tile.axis(1).parallelize(P.tma)
        part.inline_at(y, 1)
        tile.inline_at(part if self.source == "own" else y, 1)
        tile.circular_buffer(self.stages, self.distance, self.type)
        part.circular_buffer(self.slots, self.ahead)
        return fd


TYPES = [
    *(Pipelined(sync, war) for sync in ("parity", "token") for war in ("mbarrier", "barrier")),
    WarpSpecialized(),
]  # fmt: skip
CASES = [
    *(Case(kind, source=source) for kind in TYPES for source in ("own", "elsewhere")),
    *(Case(kind, 4, 3, 3, 2, load=load) for kind, load in zip(TYPES, cycle(LOADS), strict=False)),
    *(Case(kind, 2, 1, 1, 0) for kind in TYPES),
    *(Case(kind, 3, 1, 3, 2, "elsewhere") for kind in TYPES),
    *(Case(kind, 2, 0, 2, 0) for kind in TYPES[:3]),
    *(Case(source=source, trips=n) for source in ("own", "elsewhere") for n in (1, 2, 7)),
    *(Case(kind, 3, 2, slots, 0, "shared") for kind in TYPES for slots in (1, 2)),
    Case(TYPES[1], trips=40),
    Case(WarpSpecialized(), trips=5),
]  # fmt: skip
