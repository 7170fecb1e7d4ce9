"""The threads of a block: how many there are, and their coordinates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fuser.core.expr import Const
from fuser.kir.core import Kernel
from fuser.protocol.errors import Unsupported

THREADS = ("thread", "tx", "ty", "tz")


def thread_env(kernel: Kernel, threads: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Return the coordinates of threads given by their linear indices."""
    x, y, _ = block_extents(kernel)
    return {"thread": threads, "tx": threads % x, "ty": threads // x % y, "tz": threads // (x * y)}


def block_extents(kernel: Kernel) -> tuple[int, int, int]:
    """Return the block's extents."""
    x, y, z = (e.value if isinstance(e, Const) else 0 for e in kernel.block)
    if not x * y * z:
        raise Unsupported(f"kernel {kernel.name}: block {kernel.block} is not constant")
    return x, y, z


def block_threads(kernel: Kernel) -> int:
    """Return the number of threads."""
    x, y, z = block_extents(kernel)
    return x * y * z
