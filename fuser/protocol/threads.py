"""The threads of a block: how many there are, and their coordinates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fuser.core.expr import Const, Expr, evaluate
from fuser.kir.core import Kernel
from fuser.protocol.acts import block_extents

THREADS = ("thread", "tx", "ty", "tz")


def thread_env(kernel: Kernel, threads: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Return the coordinates of threads given by their linear indices."""
    x, y, _ = block_extents(kernel)
    return {"thread": threads, "tx": threads % x, "ty": threads // x % y, "tz": threads // (x * y)}


def lanes_of(cond: Expr, kernel: Kernel, threads: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the threads that a condition on threads holds for."""
    held = np.asarray(evaluate(cond, thread_env(kernel, threads)), np.bool_)
    return np.broadcast_to(held, threads.shape)


def own_indices(kernel: Kernel, threads: NDArray[np.int64]) -> dict[str, Expr]:
    """Return the thread indices that all of some threads share."""
    found = thread_env(kernel, threads)
    return {n: Const(int(found[n][0])) for n in THREADS[1:] if (found[n] == found[n][0]).all()}
