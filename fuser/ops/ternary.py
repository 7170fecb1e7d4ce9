"""Rows of the ops with three and four operands."""

from __future__ import annotations

import numpy as np

import fuser.ops.meanings as meanings
from fuser.ops.spec import OpSpec, Text, Tolerance

TERNARY: tuple[OpSpec, ...] = (
    OpSpec("where", 3, "select", np.where, Text.everything("({0} ? {1} : {2})")),
    OpSpec(
        "clamp", 3, "arithmetic", meanings.clamp, Text.numbers("min_nan(max_nan({0}, {1}), {2})")
    ),
    OpSpec(
        "threshold", 3, "arithmetic", meanings.threshold,
        Text.numbers("({0} <= {1} ? {2} : {0})"),
    ),
    OpSpec("lerp", 3, "float", meanings.lerp, Text.floats("lerp({0}, {1}, {2})"), Tolerance(2, 2)),
    OpSpec(
        "addcmul", 4, "arithmetic", meanings.addcmul,
        Text(
            "({0} + __fmul_rn({3} * {1}, {2}))", "({0} + __dmul_rn({3} * {1}, {2}))",
            "iadd({0}, imul({3}, imul({1}, {2})))",
        ),
        Tolerance(2, 2),
    ),
    OpSpec(
        "fma", 3, "float", meanings.fma, Text("fmaf({0}, {1}, {2})", "fma({0}, {1}, {2})"),
        Tolerance(1, 1),
    ),
)  # fmt: skip
