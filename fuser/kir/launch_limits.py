"""What every GPU accepts of a launch: extents of grid and block, threads, clusters."""

from __future__ import annotations

from typing import TypeAlias

from fuser.core.errors import LaunchError

Dim3: TypeAlias = tuple[int, int, int]

GRID_LIMIT: Dim3 = (2**31 - 1, 65535, 65535)
BLOCK_LIMIT: Dim3 = (1024, 1024, 64)
MAX_THREADS = 1024
"""Threads of the largest block, of a kernel whose registers leave room for it."""


def check_extents(
    kernel: str,
    grid: Dim3,
    block: Dim3,
    max_threads: int = MAX_THREADS,
    registers: int | None = None,
) -> None:
    """Raise `LaunchError` when a grid or block extent is outside what the hardware takes.

    Parameters
    ----------
    kernel
        Its name.
    max_threads, registers
        Threads of its largest block, and the registers per thread that are the reason.
    """
    (gx, gy, gz), (bx, by, bz) = grid, block  # all in one condition: this is on the hot path
    if (
        0 < gx <= GRID_LIMIT[0]
        and 0 < gy <= GRID_LIMIT[1]
        and 0 < gz <= GRID_LIMIT[2]
        and 0 < min(block)
        and bz <= BLOCK_LIMIT[2]
        and bx * by * bz <= max_threads
    ):
        return
    for what, extents, limits in (("grid", grid, GRID_LIMIT), ("block", block, BLOCK_LIMIT)):
        for axis, extent, limit in zip("xyz", extents, limits, strict=True):
            if not 1 <= extent <= limit:
                raise LaunchError(
                    f"kernel {kernel}: {what} extent {axis} is {extent}; needed 1 to {limit}"
                )
    reason = "" if registers is None else f" ({registers} registers per thread)"
    raise LaunchError(
        f"kernel {kernel}: block {block} has {bx * by * bz} threads; "
        f"needed at most {max_threads}{reason}"
    )


def check_cluster_tiles(kernel: str, grid: Dim3, cluster: Dim3) -> None:
    """Raise `LaunchError` where clusters do not tile the grid."""
    if any(n % side for n, side in zip(grid, cluster, strict=True)):
        raise LaunchError(
            f"kernel {kernel}: grid {grid} of clusters {cluster}; needed extents that are "
            "multiples of the cluster's"
        )
