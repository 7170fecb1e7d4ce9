"""The whole vocabulary on a GPU, through the public API, against NumPy in float64.

Memory that a run allocates is poisoned first, so an element that no thread writes is seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from matrix import on_gpu, pointwise, reductions, views
from matrix.arrays import LAYOUTS, SHAPES, define
from matrix.pointwise import Execute
from matrix.suite import *  # noqa: F403

from fuser.api.definition import FusionDefinition
from fuser.core.dtypes import DataType
from fuser.ops import POINTWISE

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

MOVERS = [s for s in POINTWISE if s.name in ("set", "ne", "where")]
IN_FLOAT_AND_BYTES = [
    pytest.param(item, dtype, layout, id=name)
    for name, item, dtype, layout in views.cases()
    if dtype in (DataType.BFloat16, DataType.Int8)
]


@pytest.fixture(autouse=True)
def poison() -> Iterator[None]:
    with on_gpu.poisoned_memory():
        yield


@pytest.fixture
def execute() -> Execute:
    return on_gpu.run_on_numpy


@pytest.fixture
def execute_torch() -> Execute:
    pytest.importorskip("torch", reason="torch is not installed on this machine")
    return on_gpu.run_on_torch


@pytest.fixture
def numpy_ulps() -> float:
    """Nothing is forgiven: the rows' tolerances are those of the CUDA text."""
    return 0.0


@pytest.mark.parametrize("dtype", list(DataType), ids=lambda d: d.short)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_torch_layouts(
    execute_torch: Execute, layout: str, dtype: DataType, rng: np.random.Generator
) -> None:
    for shape in SHAPES:
        pointwise.check_ops(execute_torch, MOVERS, dtype, shape, layout, rng)


@pytest.mark.parametrize(("item", "dtype", "layout"), IN_FLOAT_AND_BYTES)
def test_torch_views(
    execute_torch: Execute,
    item: views.View,
    dtype: DataType,
    layout: str,
    rng: np.random.Generator,
) -> None:
    views.check_view(execute_torch, item, dtype, layout, rng)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Double], ids=repr)
def test_torch_reductions(
    execute_torch: Execute, layout: str, dtype: DataType, rng: np.random.Generator
) -> None:
    reductions.check_reductions(execute_torch, dtype, (37, 1, 130), layout, rng)


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Double], ids=lambda d: d.short)
def test_rests_of_all_magnitudes(
    execute: Execute, dtype: DataType, rng: np.random.Generator
) -> None:
    """The rest of a division is exact, so every bit must be that of the C library."""
    count, bits = 1 << 18, np.dtype(f"u{dtype.nbytes}")
    a, b = (rng.integers(0, 2 ** (8 * dtype.nbytes), count, bits).view(dtype.np) for _ in range(2))
    near = np.ldexp(b, rng.integers(-2, 60, count)).astype(dtype.np)  # quotients just about 2^k
    near = (near.view(bits) + rng.integers(-2, 3, count).astype(bits)).view(dtype.np)
    tiny = (b.view(bits) >> rng.integers(0, 8 * dtype.nbytes, count).astype(bits)).view(dtype.np)
    for x, y in ((a, b), (near, b), (a, tiny), (tiny, b), (a, np.full_like(b, 3.0))):
        with FusionDefinition() as fd:
            for name in ("fmod", "mod"):
                fd.add_output(fd.ops.pointwise(name, [define(fd, z) for z in (x, y)]))
        rest, modulo = execute(fd, [x, y, x, y])
        want = np.fmod(x, y)
        np.testing.assert_array_equal(rest, want)
        assert (np.signbit(rest) == np.signbit(want))[~np.isnan(want)].all()
        turned = (want != 0) & ((want < 0) != (y < 0))
        np.testing.assert_array_equal(modulo, np.where(turned, want + y, want))
