"""The tests of the matrix: test files import them and define `execute` and `numpy_ulps`.

`execute(fd, inputs)` runs a fusion on one backend; `numpy_ulps` is how far NumPy's own functions
may be from the exact value where NumPy is the backend.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.core.dtypes import DataType
from fuser.ops import POINTWISE, OpSpec, accepted_dtypes
from matrix import pointwise, reductions, views
from matrix.arrays import LARGE, LAYOUTS, SHAPES
from matrix.pointwise import Execute

D = DataType
BATCHES = list(pointwise.batches())
WIDEST = {
    s.name: next(d for d in (D.Float, D.Int32, D.Bool) if d in accepted_dtypes(s))
    for s in POINTWISE
}
MACHINERY = [s for s in POINTWISE if s.name in ("set", "ne", "where")]


def named(cases: Any) -> list[Any]:
    return [pytest.param(*rest, id=name) for name, *rest in cases]


# -- pointwise -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turn", "dtype", "ops"),
    [pytest.param(i, *rest, id=name) for i, (name, *rest) in enumerate(BATCHES)],
)
def test_ops(
    execute: Execute,
    numpy_ulps: float,
    turn: int,
    dtype: DataType,
    ops: tuple[OpSpec, ...],
    rng: np.random.Generator,
) -> None:
    for shape, layout in pointwise.pairs(turn):
        pointwise.check_ops(execute, ops, dtype, shape, layout, rng, numpy_ulps)


@pytest.mark.parametrize("dtype", list(D), ids=lambda d: d.short)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_and_shape(
    execute: Execute, layout: str, dtype: DataType, rng: np.random.Generator
) -> None:
    for shape in SHAPES:
        pointwise.check_ops(execute, MACHINERY, dtype, shape, layout, rng)


@pytest.mark.parametrize("spec", POINTWISE, ids=lambda s: s.name)
def test_ops_at_full_size(
    execute: Execute, numpy_ulps: float, spec: OpSpec, rng: np.random.Generator
) -> None:
    pointwise.check_ops(execute, [spec], WIDEST[spec.name], LARGE, "contiguous", rng, numpy_ulps)


@pytest.mark.parametrize("spec", POINTWISE, ids=lambda s: s.name)
def test_ops_against_python(
    execute: Execute, numpy_ulps: float, spec: OpSpec, rng: np.random.Generator
) -> None:
    for dtype in accepted_dtypes(spec):
        pointwise.check_against_python(execute, spec, dtype, rng, numpy_ulps)


@pytest.mark.parametrize("dtype", list(D), ids=lambda d: d.short)
def test_casts(execute: Execute, dtype: DataType, rng: np.random.Generator) -> None:
    for shape, layout in pointwise.pairs(dtype.nbytes):
        pointwise.check_casts(execute, dtype, shape, layout, rng)


@pytest.mark.parametrize("dtype", [D.Int8, D.Int32, D.Int, D.BFloat16, D.Float, D.Double], ids=repr)
def test_ops_with_scalars(
    execute: Execute, numpy_ulps: float, dtype: DataType, rng: np.random.Generator
) -> None:
    ops = [s for s in POINTWISE if s.arity == 2 and dtype in accepted_dtypes(s)]
    for first in range(0, len(ops), 6):
        pointwise.check_scalars(execute, ops[first : first + 6], dtype, rng, numpy_ulps)


# -- views -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("item", "dtype", "layout"), named(views.cases()))
def test_views(
    execute: Execute, item: views.View, dtype: DataType, layout: str, rng: np.random.Generator
) -> None:
    views.check_view(execute, item, dtype, layout, rng)


@pytest.mark.parametrize("dtype", list(D), ids=lambda d: d.short)
def test_full(execute: Execute, dtype: DataType) -> None:
    for shape in SHAPES:
        views.check_full(execute, dtype, shape)


@pytest.mark.parametrize("dtype", [d for d in D if d is not D.Bool], ids=lambda d: d.short)
def test_iota(execute: Execute, dtype: DataType) -> None:
    views.check_iota(execute, dtype)


# -- reductions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "shape", "layout"), named(reductions.cases()))
def test_reductions(
    execute: Execute, dtype: DataType, shape: tuple[int, ...], layout: str, rng: np.random.Generator
) -> None:
    reductions.check_reductions(execute, dtype, shape, layout, rng)


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16, D.Int32], ids=repr)
def test_reductions_at_full_size(
    execute: Execute, dtype: DataType, dims: tuple[int, ...], rng: np.random.Generator
) -> None:
    reductions.check_full_size(execute, dtype, LARGE, dims, rng)


@pytest.mark.parametrize("shape", [(), (1,), (11,), (5, 0, 3), (37, 1, 130)], ids=str)
@pytest.mark.parametrize("dtype", reductions.STATISTICS_DTYPES, ids=lambda d: d.short)
def test_statistics(
    execute: Execute, dtype: DataType, shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    mean = 100.0 if dtype.kind == "uint" or dtype.nbytes > 2 else 1.0
    layout = LAYOUTS[dtype.nbytes % 3]
    reductions.check_statistics(execute, dtype, shape, layout, mean, rng)


@pytest.mark.parametrize("shape", reductions.NORM_SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [d for d in D if d.is_float], ids=lambda d: d.short)
def test_norms(
    execute: Execute, dtype: DataType, shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    for layout in ("contiguous", "misaligned") if dtype.nbytes > 1 else ("transposed",):
        reductions.check_norms(execute, dtype, shape, layout, rng)
