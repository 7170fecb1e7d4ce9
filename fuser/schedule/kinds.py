"""What a loop axis, a copy or a memory can be: the enumerations users name in schedules."""

from __future__ import annotations

from enum import Enum


class ParallelType(Enum):
    """What executes the iterations of a loop axis.

    ``mma`` axes are those of one matrix instruction: its accumulators, and what it sums over. They
    are made by ``wgmma``, not bound.

    The value of a grid, cluster or block member is the kernel's index variable for it.
    """

    serial = "serial"
    grid_x = "bx"
    grid_y = "by"
    grid_z = "bz"
    block_x = "tx"
    block_y = "ty"
    block_z = "tz"
    cluster_x = "cx"
    cluster_y = "cy"
    cluster_z = "cz"
    vectorize = "vectorize"
    unroll = "unroll"
    unswitch = "unswitch"
    tma = "tma"
    mma = "mma"

    @property
    def is_grid(self) -> bool:
        """Whether blocks of the grid execute the iterations."""
        return self in (ParallelType.grid_x, ParallelType.grid_y, ParallelType.grid_z)

    @property
    def is_block(self) -> bool:
        """Whether threads of a block execute the iterations."""
        return self in (ParallelType.block_x, ParallelType.block_y, ParallelType.block_z)

    @property
    def is_cluster(self) -> bool:
        """Whether the blocks of a cluster execute the iterations."""
        return self in (ParallelType.cluster_x, ParallelType.cluster_y, ParallelType.cluster_z)

    @property
    def is_parallel(self) -> bool:
        """Whether iterations run in different threads or blocks."""
        return self.is_grid or self.is_block or self.is_cluster


class MemoryType(Enum):
    """Where a materialised tensor lives. ``global_`` because ``global`` is a Python keyword."""

    local = "local"
    shared = "shared"
    global_ = "global"
    tensor = "tensor"


class LoadStoreOpType(Enum):
    """How a cache tensor is copied.

    ``tma`` copies boxes through a tensor map, ``bulk`` contiguous bytes without one.
    """

    set = "set"
    load_matrix = "load_matrix"
    cp_async = "cp_async"
    tma = "tma"
    bulk = "bulk"

    @property
    def is_async_proxy(self) -> bool:
        """Whether the copy engine writes shared memory, not the threads."""
        return self in (LoadStoreOpType.tma, LoadStoreOpType.bulk)
