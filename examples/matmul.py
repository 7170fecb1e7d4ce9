"""A linear layer with a bias and ReLU: one product of tensor cores, its tiles loaded by TMA.

``python -m fuser check examples/matmul.py`` proves its pipeline for every K.
"""

import ml_dtypes
import numpy as np

from fuser import (
    DataType,
    FusionDefinition,
    LoadStoreOpType,
    MemoryType,
    ParallelType,
    WarpSpecialized,
)

M, N, K = 64, 128, 64  # rows, columns and depth of a tile

with FusionDefinition() as fd:
    x, weight = (
        fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16)
        for _ in range(2)
    )
    bias = fd.define_tensor(shape=[-1], contiguity=[True])
    every = [x.size(0), weight.size(0), x.size(1)]
    rows = fd.ops.cast(fd.ops.broadcast_in_dim(x, every, [0, 2]), dtype=DataType.Float)
    columns = fd.ops.cast(fd.ops.broadcast_in_dim(weight, every, [1, 2]), dtype=DataType.Float)
    product = fd.ops.sum(rows * columns, [2])
    shifted = product + fd.ops.broadcast_in_dim(bias, every[:2], [1])
    y = fd.ops.cast(fd.ops.relu(shifted), dtype=DataType.BFloat16)
    fd.add_output(y)

tiles = [t.cache_after(LoadStoreOpType.tma) for t in (x, weight)]
product.split(0, M)
product.split(2, N)
product.split(4, K)
product.reorder({1: 3, 2: 1, 4: 2})  # block of rows, of columns, trip, row, column, k
fd.sched.transform_like(product, tiles)
tiles[0].once(4)
tiles[1].once(3)
product.split(5, 16)
product.wgmma(3, 4, 6)
for t in (product, *tiles):
    t.axis(0).parallelize(ParallelType.grid_y)
    t.axis(1).parallelize(ParallelType.grid_x)
fd.sched.transform_like(product, [y])
fd.sched.parallelize_like(product, -1, [y])
product.inline_at(y, 2)
for t in tiles:
    t.set_memory_type(MemoryType.shared)
    t.axis(3).parallelize(ParallelType.tma)
    t.axis(4).parallelize(ParallelType.tma)
    t.set_swizzle("128B")
    t.inline_at(product, 3)
    t.circular_buffer(number_of_stages=4, type=WarpSpecialized(ParallelType.block_x))

rng = np.random.default_rng(0)
inputs = rng.standard_normal((200, 264), np.float32).astype(ml_dtypes.bfloat16)
weights = rng.standard_normal((136, 264), np.float32).astype(ml_dtypes.bfloat16)
biases = rng.standard_normal(136, np.float32)
(out,) = fd.manual_execute([inputs, weights, biases])
expected = np.maximum(inputs.astype("f8") @ weights.astype("f8").T + biases, 0)
difference = abs(out.astype("f8") - expected) / np.maximum(expected, 1)
print(f"largest relative difference from NumPy: {difference.max():.1e}")
