"""The blocks of a cluster in a protocol: each has barriers, rings and meetings of its own.

Every block is compiled on its own, as the block of its rank; names tell apart what belongs to whom.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fuser.core.expr import Const, Expr, evaluate, variables
from fuser.kir.core import Kernel
from fuser.protocol.errors import Unsupported

Mask = NDArray[np.bool_]


OF_BLOCK = " of block "


def placed(kernel: Kernel, name: str, rank: int) -> str:
    """Return the name of what the block of a rank has; a block alone needs no rank."""
    return name if kernel.cluster_size == 1 else f"{name}{OF_BLOCK}{rank}"


def unplaced(name: str) -> str:
    """Return the name that a block's part of a kernel has in the kernel."""
    return name.partition(OF_BLOCK)[0]


def position(kernel: Kernel, rank: int) -> dict[str, Expr]:
    """Return the coordinates of the block of a rank in its cluster."""
    x, y, _ = kernel.cluster
    at = {"cx": rank % x, "cy": rank // x % y, "cz": rank // (x * y), "cluster_rank": rank}
    return {name: Const(value) for name, value in at.items()}


def by_rank(
    e: Expr, size: int, lanes: NDArray[np.int64], env: dict[str, NDArray[np.int64]]
) -> Iterator[tuple[int, Mask]]:
    """Yield the ranks that an expression over threads has, each with the lanes that have it."""
    if variables(e) - env.keys():
        raise Unsupported(f"a block of the cluster is chosen by {e}")
    ranks = np.broadcast_to(np.asarray(evaluate(e, env)), lanes.shape)
    for rank in map(int, np.unique(ranks)):
        if not 0 <= rank < size:
            continue  # no lane that takes part has it, or checked execution reports it
        yield rank, ranks == rank


def members(mask: Expr | None, own: int, size: int) -> tuple[int, ...]:
    """Return the ranks that a copy reaches: the block's own, or those of its mask."""
    if mask is None:
        return (own,)
    if variables(mask):
        raise Unsupported(f"a copy is multicast to {mask}")
    bits = int(evaluate(mask, {}))
    return tuple(rank for rank in range(size) if bits >> rank & 1)
