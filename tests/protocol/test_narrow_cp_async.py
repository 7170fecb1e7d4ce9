"""Rings asked to load by ``cp.async`` where its 4, 8 or 16 bytes do not fit: stores, released."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType, Pipelined
from fuser.api.execute import bind, program_of
from fuser.interp.checked import check_kernel
from fuser.interp.functional import allocate

pytestmark = pytest.mark.protocol

DTYPES = {
    DataType.Float: np.float32,
    DataType.BFloat16: ml_dtypes.bfloat16,
    DataType.Int8: np.int8,
}


def ring(dtype: DataType, width: int, sync: str) -> FusionDefinition:
    """Return ``y = 2 x`` by rows, whose tiles of 256 are copied `width` elements at a time."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=dtype)
        y = fd.ops.add(x, x)
        fd.add_output(y)
    tile = x.cache_after(LoadStoreOpType.cp_async)
    tile.set_memory_type(MemoryType.shared)
    here, there = (2, 3) if width > 1 else (3, 2)  # elements are read by other threads
    for tv, threads in ((tile, here), (y, there)):
        tv.split(1, 256)
        tv.split(2, 64 if threads == 3 else (width if width > 1 else 4))
        tv.axis(threads).parallelize(ParallelType.block_x)
    if width > 1:
        tile.axis(3).parallelize(ParallelType.vectorize)
    for tv in (tile, y):
        tv.axis(0).parallelize(ParallelType.grid_x)
    tile.inline_at(y, 2)
    tile.circular_buffer(3, 2, Pipelined(sync=sync))
    return fd


@pytest.mark.parametrize("sync", ["parity", "token"])
@pytest.mark.parametrize(("width", "columns"), [(1, 768), (1, 1001), (2, 768), (4, 768), (4, 1000)])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.short)
def test_every_access_is_released(dtype, width, columns, sync, rng):
    fd = ring(dtype, width, sync)
    x = rng.integers(-9, 9, (2, columns)).astype(DTYPES[dtype])
    call = bind(fd, [x], True)
    program = program_of(fd, call, True)
    (kernel,), (buffer,) = program.kernels, program.buffers
    for seed in range(3):
        _, out = allocate(buffer, call.env)
        done = check_kernel(kernel, call.env, {"x": x, buffer.name: out}, seed=seed)
        np.testing.assert_array_equal(np.asarray(done[buffer.name]).reshape(x.shape), x + x)
