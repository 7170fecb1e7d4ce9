"""Elements that views show outside their operand: right, and tested for once in the source."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.api.execute import compiled_of
from fuser.codegen.emit import emit

CASES = {
    "pad": lambda ops, x: ops.pad(x, [2, 3, -1, 1], 1.5),
    "pad twice": lambda ops, x: ops.pad(ops.pad(x, [1, 0, 2, 0], 2.0), [-2, 3], float("nan")),
    "cat": lambda ops, x: ops.cat([x, x, x], 1),
    "cat of pads": lambda ops, x: ops.cat([ops.pad(x, [1, 1], 3.0), ops.pad(x, [-1, 1])], 1),
    "pad of cat": lambda ops, x: ops.pad(ops.cat([x, x * 2], 0), [0, 1, 1, 0], -1.0),
}


def sources(fd):
    """Return the kernels of a fusion that has been executed, without their prelude."""
    texts = [emit(k) for p in compiled_of(fd).programs for k in p.kernels]
    return [text[text.index('extern "C"') :] for text in texts]


@pytest.mark.protocol
@pytest.mark.parametrize("case", CASES)
def test_a_fill_costs_one_test_of_its_condition(case, rng):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        fd.add_output(CASES[case](fd.ops, x))
    for shape in ((5, 9), (1, 1), (4, 64)):
        fd.validate([rng.standard_normal(shape).astype(np.float32)], backend="interpret")
    for source in sources(fd):
        assert "?" in source
        # a condition right inside its own `? :`
        assert not re.search(r"= \(?([^;?]+) \? \(?\1 \?", source)
        assert not re.search(r": \(?([^;?]+) \? \(?\1 \?", source)
