"""h = x + residual and its RMS norm, both written: the block boundary of a Llama layer."""

import ml_dtypes
import numpy as np

from fuser import DataType, FusionDefinition

HIDDEN, EPSILON = 4096, 1e-5

with FusionDefinition() as fd:
    shape, bf16 = [-1, HIDDEN], DataType.BFloat16
    x = fd.define_tensor(shape=shape, contiguity=[True, True], dtype=bf16)
    residual = fd.define_tensor(shape=shape, contiguity=[True, True], dtype=bf16)
    weight = fd.define_tensor(shape=[HIDDEN], contiguity=[True], dtype=bf16)
    h = fd.ops.add(x, residual)  # Float: bf16 operands are computed in f32
    h_out = fd.ops.cast(h, bf16)
    normalised = fd.ops.rms_norm(h, [HIDDEN], weight, EPSILON)
    y = fd.ops.cast(normalised, bf16)
    fd.add_output(h_out)
    fd.add_output(y)

rng = np.random.default_rng(0)
rows = 256
x_array, residual_array = rng.standard_normal((2, rows, HIDDEN)).astype(ml_dtypes.bfloat16)
weight_array = rng.standard_normal(HIDDEN).astype(ml_dtypes.bfloat16)

h_result, y_result = fd.validate([x_array, residual_array, weight_array])
print(f"h: {h_result.dtype}{list(h_result.shape)}  y: {y_result.dtype}{list(y_result.shape)}")
