"""Rows scaled by their gain, tiles loaded by TMA ahead of their use: a circular buffer.

``python -m fuser explain examples/circular_buffer.py --timeline OUT.svg`` draws it over time.
"""

import numpy as np

from fuser import FusionDefinition, LoadStoreOpType, MemoryType, ParallelType, Pipelined

TILE, THREADS = 256, 64

with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True])
    gain = fd.define_tensor(shape=[-1], contiguity=[True])
    y = x * fd.ops.broadcast_in_dim(gain, [x.size(0), x.size(1)], [0]) + 1.0
    fd.add_output(y)

tile = x.cache_after(LoadStoreOpType.tma)
tile.set_memory_type(MemoryType.shared)
y.split(1, TILE)  # row, trip, element of a tile
y.split(2, THREADS)  # row, trip, element of a thread, thread
y.axis(0).parallelize(ParallelType.grid_x)
y.axis(3).parallelize(ParallelType.block_x)
tile.split(1, TILE)
tile.axis(0).parallelize(ParallelType.grid_x)
tile.axis(2).parallelize(ParallelType.tma)
tile.inline_at(y, 2)
tile.circular_buffer(number_of_stages=4, prefetch_distance=3, type=Pipelined())

rng = np.random.default_rng(0)
rows, gains = rng.standard_normal((8, 10_000), np.float32), rng.standard_normal(8, np.float32)
(out,) = fd.manual_execute([rows, gains])
print(f"largest difference from NumPy: {abs(out - (rows * gains[:, None] + 1)).max():.1e}")
