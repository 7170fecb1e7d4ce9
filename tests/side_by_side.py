"""Two rings in one kernel, one after the other, the first of them with roles."""

from __future__ import annotations

from rings.choices import staged

from fuser import FusionDefinition, LoadStoreOpType, ParallelType, Pipelined, WarpSpecialized
from fuser.schedule.circular import CircularBufferType

P, L = ParallelType, LoadStoreOpType
ROLES = WarpSpecialized(P.block_x)
FORMS = [
    *(Pipelined(sync, war) for sync in ("parity", "token") for war in ("mbarrier", "barrier")),
    ROLES, None,
]  # fmt: skip

ALL = WarpSpecialized(num_registers=(24, 256))
"""For 128 consumers: a block of 256 threads begins with 256 a thread."""
MORE = WarpSpecialized(num_registers=(40, 232))
LESS = WarpSpecialized(num_registers=(24, 240))
BEHIND: list[tuple[CircularBufferType, int, CircularBufferType | None, LoadStoreOpType]] = [
    (ALL, 128, ALL, L.tma), (ALL, 128, ALL, L.set), (MORE, 256, LESS, L.tma),
    (ALL, 128, WarpSpecialized(), L.tma), (ALL, 128, Pipelined(war="mbarrier"), L.tma),
    (ALL, 128, Pipelined("token", "barrier"), L.set), (ALL, 128, None, L.cp_async),
]  # fmt: skip
"""Type and consumers of a ring that hands registers over, type and load of one behind it."""


def both(
    second: CircularBufferType | None, load: LoadStoreOpType, swap: bool, threads: int = 32,
    first: CircularBufferType = ROLES,
) -> FusionDefinition:  # fmt: skip
    """``2 a`` through a ring with roles and ``3 b`` through another one, or a tile of one stage."""
    with FusionDefinition() as fd:
        a = fd.define_tensor(shape=[-1], contiguity=True)
        b = fd.define_tensor(shape=[-1], contiguity=True)
        y, z = a * 2.0, b * 3.0
        for out in (z, y) if swap else (y, z):
            fd.add_output(out)
    for x, out, kind, how in ((a, y, first, L.tma), (b, z, second, load)):
        cache = staged(x, how)
        for t in (out, cache):
            t.split(0, 128)
        out.split(1, threads)
        out.axis(2).parallelize(P.block_x)
        if how in (L.tma, L.bulk):
            cache.axis(1).parallelize(P.tma)
        else:
            cache.split(1, threads)
            cache.axis(2).parallelize(P.block_x)
        cache.inline_at(out, 1)
        if kind is not None:
            cache.circular_buffer(2, None, kind)
    return fd


def sums_of_rows() -> FusionDefinition:
    """Sums of rows: each thread's by a ring that hands registers over, theirs by all threads."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        s = fd.ops.sum(x, [1])
        fd.add_output(s)
    tile = staged(x, L.bulk)
    s.split(1, 512)
    s.split(2, 256)
    own = s.rfactor([1, 2])  # row, trip, element of a thread, thread
    for t in (s, own, tile):
        t.axis(0).parallelize(ParallelType.grid_x)
    for t in (s, own):
        t.axis(-1).parallelize(ParallelType.block_x)
    tile.split(1, 512)
    tile.axis(2).parallelize(ParallelType.tma)
    tile.inline_at(own, 2)
    tile.circular_buffer(2, type=MORE)
    return fd
