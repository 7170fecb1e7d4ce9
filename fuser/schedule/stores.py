"""Which tensors the copy engine stores, and out of which tiles in shared memory."""

from __future__ import annotations

from collections.abc import Mapping

from fuser.fusion.graph import FusionGraph
from fuser.schedule.schedule import TensorSchedule


def stored_tiles(
    graph: FusionGraph, tensors: Mapping[str, TensorSchedule]
) -> dict[str, str | None]:
    """Return the outputs stored by the copy engine with the tiles they are copies of.

    A tile is None where the output is computed by the statement that stores it.
    """
    return {name: tile_of(graph, tensors, name) for name, ts in tensors.items() if ts.is_stored}


def tile_of(graph: FusionGraph, tensors: Mapping[str, TensorSchedule], output: str) -> str | None:
    """Return the tensor with loops that `output` copies, through copies without loops."""
    name = output
    while graph.value(name).op == "set":
        (name,) = graph.operand_names(name)
        if name in tensors:
            return name
    return None
