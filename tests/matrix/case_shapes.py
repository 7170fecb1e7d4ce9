"""Bug reports on shapes, views and indexing, by their numbers in the collection."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.api.definition import FusionDefinition
from fuser.core.dtypes import DataType
from fuser.ops.convert import convert
from matrix.arrays import array, define, poisoned
from matrix.compare import compare, ulp
from matrix.pointwise import Execute

D = DataType
Rng = np.random.Generator


@pytest.mark.parametrize("extent", [2, 5, 6, 7])
@pytest.mark.parametrize("inner", [1, 3, 4, 130])
def test_case_1_reshape_then_outer_sum(execute: Execute, extent: int, inner: int, rng: Rng) -> None:
    x = rng.normal(size=(2 * extent, inner))
    with FusionDefinition() as fd:
        t = define(fd, x)
        fd.add_output(fd.ops.sum(fd.ops.reshape(t, [2, extent, inner]), [1]))
    want = x.reshape(2, extent, inner).sum(1)
    scale = np.abs(x).reshape(2, extent, inner).sum(1)
    compare("sum", execute(fd, [x])[0], want, D.Double, extent * ulp(scale, D.Double))


@pytest.mark.parametrize(
    "shape", [(256, 1, 1, 4), (256, 1, 1, 1), (1, 1, 7, 1), (3, 1, 40, 1)], ids=str
)
@pytest.mark.parametrize("promise", [False, True])
def test_case_2_broadcast_dims_next_to_a_reduced_one(
    execute: Execute, shape: tuple[int, ...], promise: bool
) -> None:
    x = np.ones(shape, np.float32)
    for dims in ([-1], [-2], [0], [1, 2], [1, 3]):
        with FusionDefinition() as fd:
            fd.add_output(fd.ops.sum(define(fd, x, promise=promise), dims))
        compare(f"sum over {dims}", execute(fd, [x])[0], x.sum(tuple(dims)), D.Float)


@pytest.mark.parametrize("strides", [(0, 0), (0, 1), (2, 0)], ids=str)
@pytest.mark.parametrize("dims", [[0], [1], [0, 1]], ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (40, 70)], ids=str)
def test_case_7_reducing_a_stride_of_zero(
    execute: Execute, shape: tuple[int, int], strides: tuple[int, int], dims: list[int]
) -> None:
    memory = np.arange(3, 300, dtype=np.float32)
    x = np.lib.stride_tricks.as_strided(memory, shape, [4 * s for s in strides])
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(define(fd, x), dims))
    compare("sum", execute(fd, [x])[0], x.sum(tuple(dims)), D.Float)


@pytest.mark.parametrize("static", [False, True])
def test_case_8_broadcast_in_dim_both_ways(execute: Execute, static: bool, rng: Rng) -> None:
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((3, 1), (3,)))
    with FusionDefinition() as fd:
        column, row = define(fd, a, static=True), define(fd, b, static=static)
        row = fd.ops.broadcast_in_dim(row, [3, 3], [1])
        fd.add_output(fd.ops.add(fd.ops.broadcast_in_dim(column, [3, 3], [0, 1]), row))
        fd.add_output(fd.ops.add(column, row))
    for got in execute(fd, [a, b]):
        compare("a + b", got, a.astype(np.float64) + b, D.Float)


@pytest.mark.parametrize("columns", [1, 130, 2048])
def test_case_10_unrelated_wide_inputs(execute: Execute, columns: int, rng: Rng) -> None:
    x0, x1 = (rng.normal(size=(64, columns)).astype(np.float32) for _ in range(2))
    x2 = rng.normal(size=64).astype(np.float32)
    with FusionDefinition() as fd:
        t0, t1, t2 = (define(fd, x) for x in (x0, x1, x2))
        x3 = fd.ops.broadcast_in_dim(t2, fd.ops.shape(t0), [0])
        fd.add_output(fd.ops.add(x3, t0))
        fd.add_output(fd.ops.sum(fd.ops.add(x3, t1), [0]))
    outer, total = execute(fd, [x0, x1, x2])
    column = x2.astype(np.float64)[:, None]
    compare("x3 + x0", outer, column + x0, D.Float)
    scale = (np.abs(column) + np.abs(x1)).sum(0)
    compare("sum", total, (column + x1).sum(0), D.Float, 9 * ulp(scale, D.Float))


@pytest.mark.parametrize("kind", ["slice", "pad", "pad to zero", "stepped slice"])
@pytest.mark.parametrize("dims", [[1], [0], [0, 1]], ids=str)
def test_case_11_summing_a_dim_made_one(
    execute: Execute, kind: str, dims: list[int], rng: Rng
) -> None:
    x = rng.integers(-9, 9, (7, 5)).astype(np.float32)
    with FusionDefinition() as fd:
        t = define(fd, x)
        y = {
            "slice": lambda: fd.ops.slice(t, [0, 2], [7, 3]),
            "pad": lambda: fd.ops.pad(t, [-4, 0]),
            "pad to zero": lambda: fd.ops.pad(t, [-5, 0]),
            "stepped slice": lambda: fd.ops.slice(t, [0, 0], [7, 5], [1, 9]),
        }[kind]()
        fd.add_output(fd.ops.sum(y, dims))
        fd.add_output(y)
    part = {
        "slice": x[:, 2:3],
        "pad": x[:, 4:],
        "pad to zero": x[:, 5:],
        "stepped slice": x[:, ::9],
    }
    total, moved = execute(fd, [x])
    compare("moved", moved, part[kind], D.Float)
    compare("sum", total, part[kind].sum(tuple(dims)), D.Float)


@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16, D.Int32, D.Bool], ids=repr)
@pytest.mark.parametrize("shape", [(3, 5), (1,), (0, 4), (70, 1000)], ids=str)
def test_case_13_no_tensor_inputs(
    execute: Execute, dtype: DataType, shape: tuple[int, ...]
) -> None:
    with FusionDefinition() as fd:
        filled = fd.ops.full(list(shape), 1, dtype)
        fd.add_output(fd.ops.sum(filled, [0]))
        fd.add_output(fd.ops.sum(filled))
        fd.add_output(fd.ops.iota(shape[0]))
    result = dtype if dtype.is_float else D.Int
    columns, total, ordinals = execute(fd, [])
    ones = np.ones(shape)
    compare("columns", columns, convert(ones.sum(0), result), result)
    compare("total", total, convert(ones.sum(), result), result)
    compare("iota", ordinals, np.arange(shape[0]), D.Int)


@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16], ids=repr)
@pytest.mark.parametrize("target", [D.Float8_e4m3fn, D.Float8_e5m2], ids=repr)
@pytest.mark.parametrize("shape", [(4, 64), (37, 128), (1, 32)], ids=str)
def test_case_14_quantise_by_blocks(
    execute: Execute, dtype: DataType, target: DataType, shape: tuple[int, int], rng: Rng
) -> None:
    x = convert(rng.normal(size=shape) * 30, dtype)
    blocks = shape[1] // 32
    with FusionDefinition() as fd:
        t = define(fd, x)
        parts = fd.ops.reshape(fd.ops.cast(t, D.Float), [shape[0], blocks, 32])
        top = fd.ops.max(fd.ops.abs(parts), [2], keepdim=True)
        scale = fd.ops.exp2(fd.ops.floor(fd.ops.log2(top)))
        scaled = fd.ops.div(parts, scale)
        fd.add_output(fd.ops.cast(fd.ops.reshape(scaled, list(shape)), target))
        fd.add_output(scale)
    quantised, scales = execute(fd, [x])
    wide = x.astype(np.float64).reshape(shape[0], blocks, 32)
    want = np.exp2(np.floor(np.log2(np.abs(wide).max(2, keepdims=True))))
    compare("scales", scales, want, D.Float, 2 * ulp(want, D.Float))
    compare("quantised", quantised, (wide / want).reshape(shape), target)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((2, 1, 0, 3, 1), [5, 0]),
        ((0, 4), [-1]),
        ((0, 4), [0, 2, 2]),
        ((4, 0), [0, 4]),
        ((0,), [-1, 3]),
    ],
    ids=str,
)
@pytest.mark.parametrize("static", [False, True])
def test_case_16_reshape_of_nothing(
    execute: Execute, before: tuple[int, ...], after: list[int], static: bool
) -> None:
    x = np.zeros(before, np.float32)
    with FusionDefinition() as fd:
        y = fd.ops.reshape(define(fd, x, static=static), after)
        fd.add_output(y)
        fd.add_output(fd.ops.neg(y))
        fd.add_output(fd.ops.sum(y, [0]))
    moved, negated, total = execute(fd, [x])
    want = x.reshape(tuple(after) if after != [-1, 3] else (0, 3))
    assert moved.shape == negated.shape == want.shape
    compare("sum of nothing", total, want.sum(0), D.Float)


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("static", [False, True])
def test_case_17_cat_with_an_empty_tensor(
    execute: Execute, position: int, static: bool, rng: Rng
) -> None:
    parts = [rng.normal(size=(1, 4, 20, 3)).astype(np.float32) for _ in range(2)]
    parts.insert(position, np.zeros((1, 4, 20, 0), np.float32))
    with FusionDefinition() as fd:
        tensors = [define(fd, x, static=static) for x in parts]
        fd.add_output(fd.ops.cat(tensors, 3))
        fd.add_output(fd.ops.cat([tensors[position], tensors[position - 1]], -1))
    whole, one = execute(fd, parts)
    compare("cat", whole, np.concatenate(parts, 3), D.Float)
    compare("cat of one and nothing", one, parts[position - 1], D.Float)


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16, D.Int8], ids=repr)
def test_case_27_alignment_is_checked_per_call(
    execute: Execute, dtype: DataType, offset: int, rng: Rng
) -> None:
    memory = array(dtype, (8200,), "contiguous", rng)
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1], contiguity=[True], dtype=dtype)
        fd.add_output(fd.ops.set(t))
    for start in (0, offset, 0):
        x = memory[start : start + 8192]
        compare(f"x[{start}:]", execute(fd, [x])[0], x, dtype)


@pytest.mark.parametrize("stride", [511, 512, 513])
def test_case_29_odd_row_strides(execute: Execute, stride: int, rng: Rng) -> None:
    x = poisoned((33, stride), D.BFloat16.np)[:, :500]
    x[...] = convert(rng.normal(size=x.shape), D.BFloat16)
    with FusionDefinition() as fd:
        t = define(fd, x)
        fd.add_output(fd.ops.add(t, 1.0))
        fd.add_output(fd.ops.max(t, [1]))
    added, top = execute(fd, [x])
    compare("x + 1", added, x.astype(np.float64) + 1, D.Float)
    compare("max", top, x.astype(np.float64).max(1), D.BFloat16)


@pytest.mark.parametrize("columns", [1, 15, 16, 466, 512])
@pytest.mark.parametrize("dtype", [D.Int8, D.Float], ids=repr)
def test_case_30_writing_inside_a_wider_buffer(
    execute: Execute, columns: int, dtype: DataType, rng: Rng
) -> None:
    wide = array(dtype, (37, 600), "contiguous", rng)
    before = wide.copy()
    y = array(dtype, (37, columns), "contiguous", rng)
    with FusionDefinition() as fd:
        target, source = define(fd, wide[:, :columns]), define(fd, y)
        fd.add_output(fd.ops.set(source), target)
    assert execute(fd, [wide[:, :columns], y]) == []
    compare("written", wide[:, :columns], y, dtype)
    compare("beside", wide[:, columns:], before[:, columns:], dtype)


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("dtype", [D.Int32, D.BFloat16, D.Int8], ids=repr)
def test_case_32_slices_that_start_off_alignment(
    execute: Execute, start: int, dtype: DataType, rng: Rng
) -> None:
    line, matrix = (
        array(dtype, (4099,), "contiguous", rng),
        array(dtype, (9, 64), "contiguous", rng),
    )
    with FusionDefinition() as fd:
        a, b = define(fd, line, promise=True), define(fd, matrix, promise=True)
        fd.add_output(fd.ops.slice(a, [start], [start + 4090]))
        fd.add_output(fd.ops.slice(b, [0, start], [9, 48]))
        fd.add_output(fd.ops.pad(b, [start, 0], 1))
    one, two, three = execute(fd, [line, matrix])
    compare("1-D", one, line[start : start + 4090], dtype)
    compare("columns", two, matrix[:, start:48], dtype)
    compare("pad", three[:, start:], matrix, dtype)
    compare("fill", three[:, :start], np.ones((9, start), dtype.np), dtype)


@pytest.mark.parametrize("delta", [-1, 0, 1])
@pytest.mark.parametrize("tile", [128, 512, 1024, 2048])
@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16, D.Int8], ids=repr)
def test_case_61_sizes_around_a_tile(
    execute: Execute, dtype: DataType, tile: int, delta: int, rng: Rng
) -> None:
    n = tile + delta
    x = rng.integers(-8, 9, (3, n)).astype(np.float32)
    x = convert(x, dtype)
    with FusionDefinition() as fd:
        t = define(fd, x, promise=True)
        fd.add_output(fd.ops.neg(t))
        fd.add_output(fd.ops.sum(t, [1], dtype=D.Float if dtype.is_float else D.Int))
        fd.add_output(fd.ops.max(t, [0]))
        fd.add_output(fd.ops.permute(t, [1, 0]))
        fd.add_output(fd.ops.pad(t, [1, 1]))
        fd.add_output(fd.ops.cat([t, t], 1))
        fd.add_output(fd.ops.slice(t, [0, 1], [3, n]))
        fd.add_output(fd.ops.cast(t, D.Double))
    a = x.astype(np.float64)
    wants: list[Any] = [-a, a.sum(1), a.max(0), a.T, np.pad(a, ((0, 0), (1, 1)))]
    wants += [np.concatenate([a, a], 1), a[:, 1:], a]
    for output, got, want in zip(fd.fusion.outputs, execute(fd, [x]), wants, strict=True):
        value = fd.fusion.value(output.value)
        compare(value.op, got, convert(want, value.dtype), value.dtype)


def test_case_75_twelve_dimensions(execute: Execute, rng: Rng) -> None:
    x = rng.normal(size=(2, 1, 2, 3, 1, 2, 1, 2, 1, 2, 3, 1)).astype(np.float32)
    order = [int(d) for d in rng.permutation(12)]
    with FusionDefinition() as fd:
        t = define(fd, x)
        fd.add_output(fd.ops.permute(fd.ops.add(t, 1.0), order))
        fd.add_output(fd.ops.max(t, [0, 3, 5, 7]))
    moved, top = execute(fd, [x])
    compare("permuted", moved, (x.astype(np.float64) + 1).transpose(order), D.Float)
    compare("max", top, x.max((0, 3, 5, 7)), D.Float)


def test_case_75_three_hundred_pointers(execute: Execute, rng: Rng) -> None:
    arrays = [rng.normal(size=100).astype(np.float32) for _ in range(150)]
    with FusionDefinition() as fd:
        for x in arrays:
            fd.add_output(fd.ops.neg(define(fd, x)))
    for x, got in zip(arrays, execute(fd, arrays), strict=True):
        compare("neg", got, -x, D.Float)


def test_case_75_a_chain_of_a_thousand_ops(execute: Execute, rng: Rng) -> None:
    x = rng.integers(-9, 9, (7, 33)).astype(np.int32)
    with FusionDefinition() as fd:
        y = define(fd, x)
        for i in range(1000):
            y = fd.ops.add(y, 1) if i % 2 else fd.ops.neg(y)
        fd.add_output(y)
    compare("chain", execute(fd, [x])[0], x, D.Int32)
