"""Mutants that are right after all, because another statement says the same: listed, one by one.

``check --matrix`` demands that each of them is proved and explored, and that no other one is right.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuser.protocol.mutants import Mutant
from fuser.schedule.circular import CircularBufferType, Pipelined


@dataclass(frozen=True, slots=True)
class Harmless:
    """A mutant that is right.

    Attributes
    ----------
    kind, where
        As in `Mutant`.
    said_by
        The statement that says what the mutant leaves out.
    stages
        Kernels of so many stages have it.
    """

    kind: str
    where: str
    said_by: str
    stages: tuple[int, ...] = (2, 3)

    def is_about(self, mutant: Mutant) -> bool:
        """Whether it is this mutant."""
        return (self.kind, self.where) == (mutant.kind, mutant.where)


TILE = "the barrier of the tile"
"""A block that stores out of a tile meets in every trip, between its last use of a stage and the
store: by then all lanes of all warps have read that stage, and nobody waits on its barriers."""
ACQUIRE = "MbarrierWait(x_cache_empty) in loop i0 (main)"
CONVERGENCE = "SyncWarp(all lanes have read the stage) in loop i0"
RELEASE = "SyncThreads(every thread has read its stage of x_cache) in loop i0 (main)"
FAREWELL = "SyncThreads(nobody waits on the barriers of x_cache any more)"
TURN = "MbarrierWait(x_cache_turn) in loop i0 of the consumer of x_cache"


def of_stores_out_of_tiles(form: CircularBufferType) -> tuple[Harmless, ...]:
    """Return the list of a ring of loads with tiles that are filled and stored in its loop."""
    if not isinstance(form, Pipelined):
        where = f"{CONVERGENCE} of the consumer of x_cache"
        return (Harmless("convergence dropped", where, TILE),)
    last = Harmless("barrier dropped", FAREWELL, TILE)
    if form.war == "barrier":
        return Harmless("barrier dropped", RELEASE, TILE), last
    found = (
        Harmless("acquire dropped", ACQUIRE, TILE),
        Harmless("convergence dropped", f"{CONVERGENCE} (main)", TILE),
        last,
    )
    if form.sync == "token":  # the wait stands in a body of its own, without a use behind it
        return found
    return (*found, Harmless("wait moved behind the use", ACQUIRE, TILE))


OF_SINGLE_TURNS = (
    Harmless("wait dropped", TURN, "the barriers of a stage, always the same group's", (2,)),
    Harmless("parity flipped", TURN, "x_cache_full: either group may begin, turns alternate"),
    Harmless("wait moved behind the use", TURN, "the same wait before the turn is passed on"),
)
"""Two groups whose turns are one trip long, on two stages or more."""


SERVED = "the waits of each block for all that is copied to it: nothing else comes from its peers"
GONE = "ClusterSync(nobody waits on the barriers of b_cache any more)"


def of_clusters(form: CircularBufferType) -> tuple[Harmless, ...]:
    """Return the list of a ring that the blocks of a cluster share."""
    if not isinstance(form, Pipelined) or form.war == "mbarrier":
        return ()
    kinds = "cluster barrier dropped", "barrier of a block alone"
    return tuple(Harmless(kind, GONE, SERVED) for kind in kinds)


TOGETHER = "the wait for products, which all lanes of a warp wait for together"
BEHIND = "the end of the loop: trips are over, and nobody fills the stage that is given back last"
CONSUMER = "of the consumer of a_cache"


def of_products(
    form: CircularBufferType, loops: str = "i0", *, ends: bool = True
) -> tuple[Harmless, ...]:
    """Return the list of a ring that matrix products read.

    Parameters
    ----------
    loops
        The loop of trips, and what is around it, as places of statements name them.
    ends
        Whether no trips come behind those of the loop.
    """
    sync, arrive = "SyncWarp(all lanes have read the stage)", "MbarrierArrive(a_cache_empty)"
    inner, _, outer = loops.partition(" in ")
    if isinstance(form, Pipelined):
        where = f"{sync} in loop {inner} (main){outer and f' in loop {outer}'}"
        made = Harmless("convergence dropped", where, TOGETHER, (1, 2, 3))
        return () if form.war == "barrier" else (made,)
    inside = f" in loop {outer}" if outer else ""
    found = (
        Harmless("convergence dropped", f"{sync} in loop {inner}{inside} {CONSUMER}", TOGETHER),
        Harmless("convergence dropped", f"{sync}{inside} {CONSUMER}", TOGETHER),
    )
    if not ends:
        return found
    waited = f"WgmmaWait(the products of c_acc are complete){inside} {CONSUMER}"
    return (
        *found,
        Harmless("release dropped", f"{arrive}{inside} {CONSUMER}", BEHIND),
        Harmless("stage changed", f"{arrive}{inside} {CONSUMER}", BEHIND),
        Harmless("product wait moved behind the release", waited, BEHIND),
    )
