"""Fusions with hand-made circular buffers, with inputs for them and references in float64.

The definitions are those of ``python -m fuser check --matrix`` (`fuser.cli.pipelines`). Every
function returns ``(fd, inputs, reference)``; `program` lowers it, `run` executes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition, LoadStoreOpType
from fuser.api.execute import bind, program_of
from fuser.cli import pipelines
from fuser.kir.core import Kernel
from fuser.schedule.circular import CircularBufferType

Case = tuple[FusionDefinition, list[np.ndarray], np.ndarray]


def ring_map(
    load: LoadStoreOpType,
    S: int,
    P: int | None,
    type: CircularBufferType,
    n: int = 768,
    tile: int = 256,
    threads: int = 64,
    second: LoadStoreOpType | None = None,
    dtype: DataType = DataType.Float,
    seed: int = 0,
) -> Case:
    """``y = x * 2 + 1`` over tiles, ``+ z`` with a `second` load."""
    fd = pipelines.ring_map(load, S, P, type, tile, threads, second, dtype)
    rng = np.random.default_rng(seed)
    x, z = (rng.standard_normal(n).astype(dtype.np) for _ in range(2))
    reference = x.astype("f8") * 2 + 1
    if second is None:
        return fd, [x], reference
    return fd, [x, z], reference + z.astype("f8")


def ring_rows(
    load: LoadStoreOpType,
    S: int,
    P: int | None,
    type: CircularBufferType,
    shape: tuple[int, int] = (3, 768),
    tile: int = 256,
    threads: int = 64,
    seed: int = 0,
) -> Case:
    """``y = x * 2 + 1`` of rows: tiles in a loop inside a persistent loop over rows."""
    fd = pipelines.ring_rows(load, S, P, type, tile, threads)
    x = np.random.default_rng(seed).standard_normal(shape).astype("f4")
    return fd, [x], x.astype("f8") * 2 + 1


def ring_sum(
    load: LoadStoreOpType,
    S: int,
    P: int | None,
    type: CircularBufferType,
    n: int = 768,
    tile: int = 256,
    threads: int = 64,
    dtype: DataType = DataType.Float,
    seed: int = 0,
) -> Case:
    """``s = sum(x)`` over tiles."""
    fd = pipelines.ring_sum(load, S, P, type, tile, threads, dtype)
    x = np.random.default_rng(seed).standard_normal(n).astype(dtype.np)
    return fd, [x], np.asarray(x.astype("f8").sum())


def ring_persistent(
    load: LoadStoreOpType,
    S: int,
    P: int | None,
    type: CircularBufferType,
    rows: int = 3,
    columns: int = 512,
    threads: int = 64,
    seed: int = 0,
) -> Case:
    """``y = x + sum(x, 1)``: a row a trip, reduced over threads in the ring."""
    fd = pipelines.ring_persistent(load, S, P, type, columns, threads)
    x = np.random.default_rng(seed).standard_normal((rows, columns)).astype("f4")
    return fd, [x], x.astype("f8") + x.astype("f8").sum(1, keepdims=True)


def kernel(case: Case) -> Kernel:
    """Return the only kernel of a case."""
    fd, inputs, _ = case
    (only,) = program_of(fd, bind(fd, list[Any](inputs), True), True).kernels
    return only


def run(case: Case, backend: str = "interpret") -> np.ndarray:
    """Execute a case; return its output."""
    fd, inputs, _ = case
    (out,) = fd.manual_execute(list[Any](inputs), backend=backend)
    return np.asarray(out)
