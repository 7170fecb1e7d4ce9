"""Softmax over the rows of a matrix of any size: one definition, two shapes."""

import numpy as np

from fuser import DataType, FusionDefinition

with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
    peak = fd.ops.max(x, [1], keepdim=True)
    e = fd.ops.exp(x - peak)
    total = fd.ops.sum(e, [1], keepdim=True)
    out = e / total
    fd.add_output(out)

rng = np.random.default_rng(0)
for shape in ((37, 130), (256, 1024)):
    (result,) = fd.validate([rng.standard_normal(shape).astype(np.float32)])
    print(f"{shape}: rows sum to 1 within {abs(result.sum(1) - 1).max():.1e}")
