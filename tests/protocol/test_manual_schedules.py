"""Hand-made schedules compute what the fusion means, under every interleaving tried."""

import numpy as np
import pytest
from manual_schedules import CASES, run_checked, tensor

from fuser import DataType, FusionDefinition
from fuser.api.validate import compare, tolerance
from fuser.fusion.reference import evaluate

pytestmark = pytest.mark.protocol

EACH = [(case, i) for case in CASES for i in range(len(case.shapes))]
IDS = [f"{case.name}-{i}" for case, i in EACH]


@pytest.mark.parametrize(("case", "which"), EACH, ids=IDS)
def test_functional(case, which, rng):
    fd = case.build()
    fd.validate(case.inputs(rng, which), manual=True, backend="interpret")


@pytest.mark.parametrize(("case", "which"), EACH, ids=IDS)
def test_checked(case, which, rng):
    fd = case.build()
    inputs = case.inputs(rng, which)
    arrays = dict(zip((t.name for t in fd.arguments), inputs, strict=True))
    precise = evaluate(fd.fusion, arrays, {}, precise=True)
    rounded = evaluate(fd.fusion, arrays, {})
    for seed in range(2):
        results = run_checked(fd, inputs, seed)
        for output, got in zip(fd.fusion.outputs, results, strict=True):
            expected = precise[output.value]
            allowed = tolerance(fd.fusion, output, precise, rounded)
            compare(output.value, np.asarray(got), expected, allowed)


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["Int32", "Bool", "UInt8", "BFloat16", "Float8_e4m3fn", "Double"])
def test_rfactor_of_every_dtype(op, dtype, rng):
    """The padding of a split that does not divide is the identity of the accumulator."""
    kind = DataType[dtype]
    with FusionDefinition() as fd:
        x = tensor(fd, 2, kind)
        s = getattr(fd.ops, op)(x, [0])
        fd.add_output(s)
    s.split(0, 4)
    s.split(0, 2)
    s.reorder({3: 0})
    part = s.rfactor([1, 3])
    part.inline_at(s, 1)
    values = (-1, 1) if kind.is_float else (0, 1, 2)  # exact in every order
    data = rng.choice(values, (11, 3)).astype(kind.np)
    fd.validate([data], manual=True, backend="interpret")
