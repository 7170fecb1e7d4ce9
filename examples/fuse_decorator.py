"""A Python function on arrays, traced once per kind of arguments."""

import numpy as np

import fuser


@fuser.fuse
def swiglu(gate, up, scale=1.0):
    """silu(gate) * up * scale"""
    return fuser.ops.silu(gate) * up * scale


rng = np.random.default_rng(0)
gate, up = rng.standard_normal((2, 512, 1024)).astype(np.float32)
out = swiglu(gate, up, 0.5)

wide = gate.astype(np.float64)
expected = wide / (1 + np.exp(-wide)) * up * 0.5
print(f"out: {out.dtype}{list(out.shape)}, max error {abs(out - expected).max():.1e}")
