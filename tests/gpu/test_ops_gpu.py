"""The whole vocabulary on a GPU, through the public API, against NumPy in float64.

Memory that a run allocates is poisoned first, so an element that no thread writes is seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from matrix import on_gpu, pointwise, reductions, views
from matrix.arrays import LAYOUTS, SHAPES
from matrix.pointwise import Execute
from matrix.suite import *  # noqa: F403

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
