"""Bias and GELU in one kernel, defined operation by operation."""

import ml_dtypes
import numpy as np

from fuser import DataType, FusionDefinition

HIDDEN = 4096

with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[-1, HIDDEN], contiguity=[True, True], dtype=DataType.BFloat16)
    bias = fd.define_tensor(shape=[HIDDEN], contiguity=[True], dtype=DataType.BFloat16)
    biased = fd.ops.add(x, fd.ops.broadcast_in_dim(bias, fd.ops.shape(x), [1]))
    activated = fd.ops.gelu(biased, approximate="tanh")
    out = fd.ops.cast(activated, DataType.BFloat16)
    fd.add_output(out)

rng = np.random.default_rng(0)
x_array = rng.standard_normal((256, HIDDEN)).astype(ml_dtypes.bfloat16)
bias_array = rng.standard_normal(HIDDEN).astype(ml_dtypes.bfloat16)

# validate() executes the fusion and compares with the built-in float64 reference.
(result,) = fd.validate([x_array, bias_array])
print(f"out: {result.dtype}{list(result.shape)}")
