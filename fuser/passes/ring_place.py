"""Where a ring may stand: all threads that its barriers count must come by them."""

from __future__ import annotations

from fuser.core.errors import ScheduleError
from fuser.core.expr import Const
from fuser.nest.nodes import Ring
from fuser.passes.state import Lowering, Scope, Team


def check_place(state: Lowering, ring: Ring, scope: Scope, peers: int) -> None:
    """Raise `ScheduleError` where not all threads would come by the ring's barriers.

    Parameters
    ----------
    peers
        Blocks that share what the ring loads.
    """
    names = ", ".join(ring.tensors)
    if scope.team is not None:
        check_inside_role(names, scope.team, peers)
        return
    axis = state.extra_axis
    if axis is not None and not ring.buffer.is_specialized and axis in scope.hardware:
        raise ScheduleError(
            f"{names}: loaded by a pipelined ring inside a loop over {axis.name}, which the "
            "producers of a warp-specialised ring of this kernel do not run; needed its loop of "
            f"trips outside of {axis.name}"
        )


def check_inside_role(names: str, team: Team, peers: int) -> None:
    """Raise `ScheduleError` unless the consumers of another ring can run this one alone."""
    if not isinstance(team.barrier, Const):
        raise ScheduleError(
            f"{names}: loaded by a ring of barriers inside of consumer groups, which would need "
            "barriers for each of them; needed LoadStoreOpType.set without circular_buffer, or "
            "the loop of the ring that has the groups"
        )
    if peers > 1:
        raise ScheduleError(
            f"{names}: multicast in a cluster inside of a warp role, and a cluster meets with all "
            "of its threads; needed a tile that each block loads (LoadStoreOpType.bulk), or the "
            "loop of the ring that has the roles"
        )
