"""Where a ring whose loop all threads of the block run may stand."""

from __future__ import annotations

from fuser.core.errors import ScheduleError
from fuser.nest.nodes import Ring
from fuser.passes.state import Lowering, Scope


def check_place(state: Lowering, ring: Ring, scope: Scope) -> None:
    """Raise `ScheduleError` where threads of the block would not come by the ring's barriers."""
    names = ", ".join(ring.tensors)
    if scope.team is not None:
        raise ScheduleError(
            f"{names}: loaded by a ring inside the roles of another one, which not all threads of "
            "the block run; it comes behind a warp-specialised ring with num_registers, or lies "
            "inside its loop: needed a ring without num_registers, or loops apart from it"
        )
    axis = state.extra_axis
    if axis is not None and not ring.buffer.is_specialized and axis in scope.hardware:
        raise ScheduleError(
            f"{names}: loaded by a pipelined ring inside a loop over {axis.name}, which the "
            "producers of a warp-specialised ring of this kernel do not run; needed its loop of "
            f"trips outside of {axis.name}"
        )
