"""Rings in loops some of which are unrolled, unswitched or have a directive."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from rings.choices import ENGINE, GROUPS, staged

from fuser import FusionDefinition, LoadStoreOpType, ParallelType, Pipelined, WarpSpecialized
from fuser.api.execute import bind, program_of
from fuser.kir.core import Kernel
from fuser.schedule.circular import CircularBufferType

P, L = ParallelType, LoadStoreOpType
WIDTH = 32
"""Elements of a tile, one a thread."""
EXTENTS = {"s": -1, "k": 3, "u": 2, "g": GROUPS}
TYPES: dict[str, CircularBufferType | None] = {
    "parity": Pipelined(war="mbarrier"), "token": Pipelined("token", "barrier"),
    "roles": WarpSpecialized(),
    "groups": WarpSpecialized(P.block_y, stage_slice_position=3),
    "registers": None,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """``y = 2 x + 1`` in loops over tiles.

    Attributes
    ----------
    loops
        Loops left of the position: s(erial) of unknown and k of known extent, u(nrolled) as
        `bound` says, g(roups).
    kind
        A key of `TYPES`.
    bound
        A parallel type, or a directive of a serial axis.
    """

    loops: str
    kind: str
    load: L = L.set
    bound: str = "unroll type"
    stages: int = 3

    def __str__(self) -> str:
        words = self.loops, self.kind, self.load.name, self.bound.replace(" ", "-")
        return "-".join((*words, str(self.stages)))

    def shape(self, trips: int) -> list[int]:
        return [trips if c == "s" else EXTENTS[c] for c in self.loops] + [WIDTH]

    def fusion(self) -> FusionDefinition:
        rank = len(self.loops)
        with FusionDefinition() as fd:
            x = fd.define_tensor(shape=self.shape(-1), contiguity=True)
            y = x * 2.0 + 1.0
            fd.add_output(y)
        tile = x.cache_after(self.load) if self.kind == "registers" else staged(x, self.load)
        for t in (y, tile):
            for j, loop in enumerate(self.loops):
                if loop == "g":
                    t.axis(j).parallelize(P.block_y)
                elif loop == "u" and self.bound.endswith(" type"):
                    t.axis(j).parallelize(P[self.bound.removesuffix(" type")])
                elif loop == "u" and t is y:
                    getattr(t.axis(j), self.bound)()
            t.axis(rank).parallelize(P.tma if t is tile and self.load in ENGINE else P.block_x)
        tile.inline_at(y, rank)
        tile.circular_buffer(self.stages, None, TYPES[self.kind] or Pipelined())
        return fd

    def kernel(self, trips: int = 3) -> Kernel:
        fd = self.fusion()
        call = bind(fd, [np.ones(self.shape(trips), "f4")], True)
        (kernel,) = program_of(fd, call, True).kernels
        return kernel


BOUNDS = ("unroll type", "unswitch type", "unroll", "rolled")
ORDERS = ("su", "us", "suu", "sku", "suk", "usu")
CASES = [
    *(Case(*c) for c in product(ORDERS, ("parity", "roles"), (L.set, L.tma))),
    *(Case(loops, kind) for loops, kind in product(ORDERS, ("token", "registers"))),
    *(Case("su", *c) for c in product(("parity", "roles"), (L.set,), BOUNDS[1:], (1, 4))),
    *(Case("us", *c) for c in product(("parity", "roles"), (L.tma,), BOUNDS[1:], (2,))),
    *(Case("u", "roles", load) for load in (L.set, L.tma)),
    *(Case(loops, "groups", L.set, bound, 4) for loops in ("sgu", "sug") for bound in BOUNDS[:2]),
]
