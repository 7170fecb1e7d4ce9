"""Which loop axes the blocks of a cluster can execute."""

from __future__ import annotations

from fuser.core.errors import ScheduleError
from fuser.core.expr import Const
from fuser.core.hardware import MAX_CLUSTER
from fuser.schedule.domain import IterDomain
from fuser.schedule.kinds import ParallelType


def check_cluster_axis(axis: IterDomain, at: int, kind: ParallelType) -> None:
    """Raise `ScheduleError` unless loop axis number `at` can be bound to a cluster axis."""
    if not isinstance(axis.extent, Const) or not 1 <= axis.extent.value <= MAX_CLUSTER:
        raise ScheduleError(
            f"parallelize: axis {at} to {kind.name} has extent {axis.extent!r}; a constant from 1 "
            f"to {MAX_CLUSTER} is needed"
        )
    if not keeps_results(axis, kind):
        raise ScheduleError(
            f"parallelize: axis {at} to {kind.name} is a reduction; the blocks of a cluster do not "
            "combine results, reduce over threads or the grid"
        )


def keeps_results(axis: IterDomain, kind: ParallelType) -> bool:
    """Whether `kind` on an axis leaves no result in parts: blocks of a cluster combine none."""
    return not (kind.is_cluster and axis.reduction)
