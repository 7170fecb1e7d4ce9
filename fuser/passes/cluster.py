"""Clusters of blocks: the launch they ask for, and which boxes their blocks share.

A box whose coordinates do not depend on a cluster axis is the same in all blocks along that axis.
The first of them loads it and multicasts it to all; every block announces the bytes to itself.

A stage is filled again when the readers of all blocks are done with it: they arrive on the mbarrier
of every block, or all threads of the cluster meet at the end of a trip. Loops of trips lie in no
condition on the block, and count the same in each, so that all blocks come by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from fuser.core.errors import ScheduleError
from fuser.core.expr import TRUE, Const, Expr, Var, all_of, equal, less, select, variables
from fuser.core.hardware import MAX_CLUSTER
from fuser.core.simplify import simplify
from fuser.core.unroll import Unroll
from fuser.kir.core import Stmt
from fuser.kir.stmts import For, If, MbarrierArriveRemote, SyncWarp
from fuser.nest.nodes import LoopNest
from fuser.passes.launch import CLUSTER, GRID, LaunchExtents
from fuser.schedule.kinds import ParallelType
from fuser.schedule.schedule import TensorSchedule

WARP = 32
LANE = Var("thread") % WARP


@dataclass(frozen=True, slots=True)
class Multicast:
    """How blocks of a cluster share a box.

    Attributes
    ----------
    mask
        Ranks of the blocks that get it, one bit each.
    leader
        Condition of the block that issues the copy.
    """

    mask: Expr
    leader: Expr


def cluster_extents(launch: LaunchExtents) -> tuple[int, int, int]:
    """Return the extents (x, y, z) of a cluster."""
    x, y, z = (_constant(e) for e in launch.of(CLUSTER))
    return x, y, z


def cluster_grid(launch: LaunchExtents) -> tuple[Expr, Expr, Expr]:
    """Return the grid's extents in blocks: grid axes count clusters, so clusters tile the grid."""
    x, y, z = (
        clusters * blocks
        for clusters, blocks in zip(launch.of(GRID), cluster_extents(launch), strict=True)
    )
    return x, y, z


def _constant(extent: Expr) -> int:
    assert isinstance(extent, Const), "the directive and check_clusters have seen to it"
    return extent.value


def check_clusters(nest: LoopNest, launch: LaunchExtents) -> None:
    """Raise `ScheduleError` where loops disagree on the cluster, or it does more than there is."""
    tensors = nest.schedule.tensors
    first: dict[ParallelType, tuple[str, Expr]] = {}
    for name, ts in tensors.items():
        for axis in ts.domain.loop:
            if not axis.parallel.is_cluster:
                continue
            extent = simplify(axis.extent, nest.facts)
            other, known = first.setdefault(axis.parallel, (name, extent))
            if extent != known or not isinstance(extent, Const):
                raise ScheduleError(
                    f"{name}: {extent} blocks along {axis.parallel.name}, and {other} has {known}; "
                    "all tensors of a kernel need the same constant"
                )
    if not first:
        return
    size = prod(cluster_extents(launch))
    names = ", ".join(dict.fromkeys(name for name, _ in first.values()))
    if size > MAX_CLUSTER:
        raise ScheduleError(
            f"{names}: a cluster of {' x '.join(map(str, cluster_extents(launch)))} blocks; at "
            f"most {MAX_CLUSTER} are possible"
        )
    for name, ts in tensors.items():
        grid = [d.parallel.name for d in ts.domain.loop if d.reduction and d.parallel.is_grid]
        if grid:
            raise ScheduleError(
                f"{name}: is reduced over {grid[0]}, and {names} is bound to clusters; a kernel of "
                "clusters reduces inside its blocks only"
            )


def shared_by_cluster(
    ts: TensorSchedule, coords: Sequence[Expr], launch: LaunchExtents
) -> tuple[Multicast | None, tuple[int, ...]]:
    """Return how the blocks of a cluster share a box, and the loop axes that do not matter to it.

    Parameters
    ----------
    coords
        Of the box, over ``a0, a1, ...``, the indices of the loop axes of `ts`.
    """
    used = frozenset[str]().union(*(variables(c) for c in coords))
    axes = [j for j, axis in enumerate(ts.domain.loop) if axis.parallel.is_cluster]
    free = tuple(j for j in axes if f"a{j}" not in used)
    own = [ts.domain.loop[j].parallel for j in axes if j not in free]
    extents: dict[ParallelType, int] = dict(zip(CLUSTER, cluster_extents(launch), strict=True))
    along = [kind for kind in CLUSTER if kind not in own and extents[kind] > 1]
    if not along:
        return None, ()
    leader = all_of(TRUE, *(equal(Var(kind.value), 0) for kind in along))
    return Multicast(_mask(extents, along, own, {}), leader), free


def _mask(
    extents: Mapping[ParallelType, int],
    along: Sequence[ParallelType],
    own: Sequence[ParallelType],
    at: Mapping[ParallelType, int],
) -> Expr:
    """Return the bits of all blocks along some axes, by where a block is on its own axes."""
    if own:
        kind, *rest = own
        last = extents[kind] - 1
        mask = _mask(extents, along, rest, {**at, kind: last})
        for i in reversed(range(last)):
            here = _mask(extents, along, rest, {**at, kind: i})
            mask = select(equal(Var(kind.value), i), here, mask)
        return mask
    x, y, z = CLUSTER
    ranges = ([at.get(k, 0)] if k not in along else range(extents[k]) for k in (z, y, x))
    ranks = ((k * extents[y] + j) * extents[x] + i for k, j, i in product(*ranges))
    return Const(sum(1 << rank for rank in ranks))


def release_to_all(
    empty: str, stage: Expr, blocks: int, why: str, *, by_warp: bool
) -> tuple[Stmt, ...]:
    """Return what tells every block of a cluster that this thread (or its warp) has read a stage.

    Of a warp, lane r arrives at the block of rank r.
    """
    if by_warp:
        arrive = MbarrierArriveRemote(empty, stage, LANE)
        return (SyncWarp(why), If(less(LANE, blocks), (arrive,)))
    each = MbarrierArriveRemote(empty, stage, Var("r"))
    return (For("r", Const(blocks), (each,), Unroll("full")),)
