"""Hand-made schedules on a real GPU, on NumPy, torch and cupy arrays."""

from __future__ import annotations

import importlib
import importlib.util

import numpy as np
import pytest
from manual_schedules import BY_NAME, CASES

from fuser.api.validate import compare, host_copy, tolerance
from fuser.fusion.reference import evaluate

pytestmark = pytest.mark.gpu

EACH = [(case, i) for case in CASES for i in range(len(case.shapes))]
IDS = [f"{case.name}-{i}" for case, i in EACH]


def library(name):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed on this machine")
    return importlib.import_module(name)


LIBRARIES = {
    "numpy": np.asarray,
    "torch": lambda array: library("torch").from_numpy(array).cuda(),
    "cupy": lambda array: library("cupy").asarray(array),
}


def check(fd, arrays, results):
    """Compare outputs with the float64 reference."""
    named = dict(zip((t.name for t in fd.arguments), arrays, strict=True))
    precise = evaluate(fd.fusion, named, {}, precise=True)
    rounded = evaluate(fd.fusion, named, {})
    for output, got in zip(fd.fusion.outputs, results, strict=True):
        expected = precise[output.value]
        allowed = tolerance(fd.fusion, output, precise, rounded)
        compare(output.value, host_copy(got), expected, allowed)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize(("case", "which"), EACH, ids=IDS)
def test_results(case, which, name, rng):
    fd = case.build()
    arrays = case.inputs(rng, which)
    given = [LIBRARIES[name](array) for array in arrays]
    results = fd.manual_execute(given, backend="cuda")
    kind = type(given[0]).__module__.partition(".")[0]
    assert all(type(r).__module__.partition(".")[0] == kind for r in results)
    check(fd, arrays, results)


LARGE = {
    "map_1d": ((1 << 20) + 3,),
    "vectorized": (1001, 4099),
    "transpose_swizzled": (2047, 1029),
    "max_block": (513, 9001),
    "sum_grid": (1 << 9, 4097),
    "sum_grid_columns": (5003, 700),
    "sum_outer": (3001, 515),
    "sum_rfactor": (300, 20_001),
    "softmax": (700, 3333),
}


@pytest.mark.parametrize("name", LARGE)
def test_large(name, rng):
    case, fd = BY_NAME[name], BY_NAME[name].build()
    shapes = [LARGE[name]] * len(case.shapes[0])
    arrays = [rng.standard_normal(s).astype(case.dtype.np) for s in shapes]
    first = fd.manual_execute(arrays, backend="cuda")
    check(fd, arrays, first)
    for _ in range(20):  # no result depends on the order in which blocks and warps run
        again = fd.manual_execute(arrays, backend="cuda")
        for a, b in zip(first, again, strict=True):
            assert host_copy(a).tobytes() == host_copy(b).tobytes()
