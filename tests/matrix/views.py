"""Every op that moves elements or makes them, each beside what NumPy calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.api.definition import FusionDefinition
from fuser.core.dtypes import DataType
from fuser.fusion.reference import evaluate
from fuser.ops.convert import convert
from matrix.arrays import LAYOUTS, array, define
from matrix.compare import compare
from matrix.pointwise import Execute

Ops = Any
Tensor = Any


@dataclass(frozen=True, slots=True)
class View:
    """One use of a view op on inputs of given shapes.

    Attributes
    ----------
    build
        ``(fd.ops, *inputs) -> tensor``.
    numpy
        ``(*arrays) -> array``, written without looking at the package.
    static
        Extents are constants of the definition.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    build: Callable[..., Tensor]
    numpy: Callable[..., Any]
    static: bool = False


def view(name: str, *shapes: tuple[int, ...], build: Any, numpy: Any, static: bool = False) -> View:
    return View(name, shapes, build, numpy, static)


def padded(x: np.ndarray, widths: list[tuple[int, int]], value: float) -> np.ndarray:
    """np.pad with a constant, then crop what is negative."""
    grown = [(max(a, 0), max(b, 0)) for a, b in widths]
    fill = convert(np.asarray(value), DataType.from_numpy(x.dtype))
    out = np.full([n + a + b for n, (a, b) in zip(x.shape, grown, strict=True)], fill, x.dtype)
    out[tuple(slice(a, a + n) for n, (a, _) in zip(x.shape, grown, strict=True))] = x
    crops = [slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(out.shape, widths, strict=True)]
    return out[tuple(crops)]


CUBE = (5, 1, 26)
VIEWS: tuple[View, ...] = (
    # -- broadcasting ---------------------------------------------------------------------------
    view("broadcast_in_dim-row", (26,), build=lambda o, x: o.broadcast_in_dim(x, [7, 26], [1]),
         numpy=lambda x: np.broadcast_to(x, (7, 26))),
    view("broadcast_in_dim-column", (7,), build=lambda o, x: o.broadcast_in_dim(x, [7, 26], [0]),
         numpy=lambda x: np.broadcast_to(x[:, None], (7, 26))),
    view("broadcast_in_dim-middle", (3, 5),
         build=lambda o, x: o.broadcast_in_dim(x, [3, 4, 5, 2], [0, 2]),
         numpy=lambda x: np.broadcast_to(x[:, None, :, None], (3, 4, 5, 2))),
    view("broadcast_in_dim-stretch", (1, 6), static=True,
         build=lambda o, x: o.broadcast_in_dim(x, [2, 9, 6], [1, 2]),
         numpy=lambda x: np.broadcast_to(x, (2, 9, 6))),
    view("broadcast_in_dim-scalar", (), build=lambda o, x: o.broadcast_in_dim(x, [5, 3], []),
         numpy=lambda x: np.broadcast_to(x, (5, 3))),
    view("broadcast_in_dim-of-another", (11,), (4, 11),
         build=lambda o, b, x: o.broadcast_in_dim(b, o.shape(x), [1]),
         numpy=lambda b, x: np.broadcast_to(b, x.shape)),
    view("broadcast", (5, 9), build=lambda o, x: o.broadcast(x, [True, False, True, False]),
         numpy=lambda x: x[None, :, None, :]),
    view("broadcast-both", (5,), (3,),
         build=lambda o, a, b: o.where(o.define_true(),
                                       o.expand(o.broadcast(a, [False, True]), [-1, 3]),
                                       o.broadcast_in_dim(b, [5, 3], [1])),
         numpy=lambda a, b: np.broadcast_to(a[:, None], (5, 3))),
    view("expand", (5, 1, 1), static=True, build=lambda o, x: o.expand(x, [-1, 4, 7]),
         numpy=lambda x: np.broadcast_to(x, (5, 4, 7))),
    view("expand-to-zero", (5, 1), static=True, build=lambda o, x: o.expand(x, [5, 0]),
         numpy=lambda x: np.broadcast_to(x, (5, 0))),
    view("squeeze", CUBE, static=True, build=lambda o, x: o.squeeze(x, [1]),
         numpy=lambda x: x[:, 0, :]),
    view("squeeze-all", (1, 1, 1), static=True, build=lambda o, x: o.squeeze(x, [0, 1, 2]),
         numpy=lambda x: x.reshape(())),
    # -- reordering -----------------------------------------------------------------------------
    view("permute-2d", (37, 130), build=lambda o, x: o.permute(x, [1, 0]), numpy=lambda x: x.T),
    view("permute-3d", (5, 6, 16), build=lambda o, x: o.permute(x, [2, 0, 1]),
         numpy=lambda x: x.transpose(2, 0, 1)),
    view("permute-inner-kept", (5, 6, 16), build=lambda o, x: o.permute(x, [1, 0, 2]),
         numpy=lambda x: x.transpose(1, 0, 2)),
    view("permute-negative", (2, 3, 4, 5), build=lambda o, x: o.permute(x, [-1, 0, -2, 1]),
         numpy=lambda x: x.transpose(3, 0, 2, 1)),
    view("permute-empty", (5, 0, 3), build=lambda o, x: o.permute(x, [2, 1, 0]),
         numpy=lambda x: x.T),
    view("permute-twice", (5, 6, 16),
         build=lambda o, x: o.permute(o.permute(x, [2, 0, 1]), [1, 2, 0]), numpy=lambda x: x),
    view("reshape-merge", (5, 6, 8), build=lambda o, x: o.reshape(x, [30, 8]),
         numpy=lambda x: x.reshape(30, 8)),
    view("reshape-flat", (5, 6, 8), build=lambda o, x: o.reshape(x, [-1]),
         numpy=lambda x: x.ravel()),
    view("reshape-split", (60,), build=lambda o, x: o.reshape(x, [3, -1, 4]),
         numpy=lambda x: x.reshape(3, 5, 4)),
    view("reshape-regroup", (6, 10), build=lambda o, x: o.reshape(x, [4, 15]),
         numpy=lambda x: x.reshape(4, 15)),
    view("reshape-regroup-static", (6, 10), static=True, build=lambda o, x: o.reshape(x, [15, 4]),
         numpy=lambda x: x.reshape(15, 4)),
    view("reshape-ones", (6, 10), build=lambda o, x: o.reshape(x, [1, 6, 1, 10, 1]),
         numpy=lambda x: x.reshape(1, 6, 1, 10, 1)),
    view("reshape-to-scalar", (1, 1), static=True, build=lambda o, x: o.reshape(x, []),
         numpy=lambda x: x.reshape(())),
    view("reshape-empty", (2, 1, 0, 3, 1), build=lambda o, x: o.reshape(x, [5, 0]),
         numpy=lambda x: x.reshape(5, 0)),
    view("reshape-permute-reshape", (6, 20),
         build=lambda o, x: o.reshape(o.permute(o.reshape(x, [6, 4, 5]), [1, 0, 2]), [4, 30]),
         numpy=lambda x: x.reshape(6, 4, 5).transpose(1, 0, 2).reshape(4, 30)),
    # -- parts ----------------------------------------------------------------------------------
    view("slice", (17, 26), build=lambda o, x: o.slice(x, [1, 3], [9, 23]),
         numpy=lambda x: x[1:9, 3:23]),
    view("slice-strides", (17, 26), build=lambda o, x: o.slice(x, [1, 0], [16, 26], [3, 2]),
         numpy=lambda x: x[1:16:3, 0:26:2]),
    view("slice-negative", (17, 26), build=lambda o, x: o.slice(x, [-5, -20], [-1, 100]),
         numpy=lambda x: x[-5:-1, -20:100]),
    view("slice-empty", (17, 26), build=lambda o, x: o.slice(x, [9, 0], [3, 26]),
         numpy=lambda x: x[9:3]),
    view("slice-past-the-end", (17, 26), build=lambda o, x: o.slice(x, [0, 30], [99, 40]),
         numpy=lambda x: x[:99, 30:40]),
    view("slice-of-slice", (33,),
         build=lambda o, x: o.slice(o.slice(x, [1], [30], [2]), [2], [12], [3]),
         numpy=lambda x: x[1:30:2][2:12:3]),
    view("slice-aligned", (8, 64), static=True, build=lambda o, x: o.slice(x, [0, 16], [8, 48]),
         numpy=lambda x: x[:, 16:48]),
    view("slice-misaligned", (8, 64), static=True, build=lambda o, x: o.slice(x, [0, 1], [8, 49]),
         numpy=lambda x: x[:, 1:49]),
    view("unfold", (137,), build=lambda o, x: o.unfold(x, 0, 5),
         numpy=lambda x: np.stack([x[t : t + 133] for t in range(5)], 1)),
    view("unfold-steps", (17, 26), build=lambda o, x: o.unfold(o.unfold(x, 1, 4, 3), 0, 3, 5),
         numpy=lambda x: np.stack([np.stack([x[s : s + 15 : 5, t : t + 23 : 3] for t in range(4)],
                                            2) for s in range(3)], 3)),
    view("unfold-static", (4, 64), static=True, build=lambda o, x: o.unfold(x, -1, 16, 16),
         numpy=lambda x: x.reshape(4, 4, 16)),
    view("getitem", (9, 4, 12), build=lambda o, x: x[2:, 1, ..., None, ::5],
         numpy=lambda x: x[2:, 1, ..., None, ::5]),
    view("pad", (5, 14), build=lambda o, x: o.pad(x, [1, 2, 3, 0]),
         numpy=lambda x: padded(x, [(3, 0), (1, 2)], 0)),
    view("pad-last", (5, 14), build=lambda o, x: o.pad(x, [2, 0]),
         numpy=lambda x: padded(x, [(0, 0), (2, 0)], 0)),
    view("pad-negative", (9, 14), build=lambda o, x: o.pad(x, [-3, 1, 2, -4]),
         numpy=lambda x: padded(x, [(2, -4), (-3, 1)], 0)),
    view("pad-value", (9, 14), build=lambda o, x: o.pad(x, [1, 1], 1),
         numpy=lambda x: padded(x, [(0, 0), (1, 1)], 1)),
    view("pad-empty", (0, 3), build=lambda o, x: o.pad(x, [0, 0, 1, 1], 1),
         numpy=lambda x: padded(x, [(1, 1), (0, 0)], 1)),
    view("pad-slice", (9, 14), build=lambda o, x: o.slice(o.pad(x, [2, 2]), [0, 1], [9, 17]),
         numpy=lambda x: padded(x, [(0, 0), (2, 2)], 0)[:, 1:17]),
    view("cat-rows", (3, 14), (5, 14), build=lambda o, a, b: o.cat([a, b]),
         numpy=lambda a, b: np.concatenate([a, b])),
    view("cat-columns", (3, 14), (3, 1), (3, 7), build=lambda o, *t: o.cat(t, -1),
         numpy=lambda *t: np.concatenate(t, 1)),
    view("cat-self", (3, 14), build=lambda o, x: o.cat([x, x, x], 1),
         numpy=lambda x: np.concatenate([x, x, x], 1)),
    view("cat-empty", (3, 14), (3, 0), build=lambda o, a, b: o.cat([b, a, b], 1),
         numpy=lambda a, b: a),
    view("cat-one", (3, 14), build=lambda o, x: o.cat([x], 0), numpy=lambda x: x),
    view("cat-of-views", (6, 10), (10, 6),
         build=lambda o, a, b: o.cat([o.permute(a, [1, 0]), o.slice(b, [0, 1], [10, 5])], 1),
         numpy=lambda a, b: np.concatenate([a.T, b[:, 1:5]], 1)),
    view("triu", (9, 14), build=lambda o, x: o.triu(x, 2), numpy=lambda x: np.triu(x, 2)),
    view("where-broadcast", (9, 14), (14,),
         build=lambda o, x, b: o.where(o.define_true(), x, o.broadcast_in_dim(b, o.shape(x), [1])),
         numpy=lambda x, b: x),
)  # fmt: skip


class WithTrue:
    """``fd.ops`` and a Bool scalar that is true, for views that combine two tensors."""

    def __init__(self, fd: FusionDefinition) -> None:
        self.fd = fd

    def define_true(self) -> Any:
        return self.fd.define_scalar(True, DataType.Bool)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fd.ops, name)


def cases() -> Iterator[tuple[str, View, DataType, str]]:
    """Every view in every dtype with one layout, and with all of them in Float and Int8."""
    for i, item in enumerate(VIEWS):
        for j, dtype in enumerate(DataType):
            every = dtype in (DataType.Float, DataType.Int8)
            chosen = LAYOUTS if every else (LAYOUTS[(i + j) % len(LAYOUTS)],)
            for layout in chosen:
                yield f"{item.name}-{dtype.short}-{layout}", item, dtype, layout


def check_view(
    execute: Execute, item: View, dtype: DataType, layout: str, rng: np.random.Generator
) -> None:
    """Run one view alone, and read through by a pointwise op; nothing may differ from NumPy."""
    given = [array(dtype, shape, layout, rng) for shape in item.shapes]
    with FusionDefinition() as fd:
        tensors = [define(fd, x, static=item.static) for x in given]
        result = item.build(WithTrue(fd), *tensors)
        fd.add_output(result)
        fd.add_output(fd.ops.cast(fd.ops.ne(result, 1), dtype))
    copies = [x.copy() for x in given]
    moved, computed = execute(fd, given)
    want = item.numpy(*copies)
    compare(item.name, moved, want, dtype)
    differs = (want.astype(np.float32) if dtype.is_reduced_float else want) != 1
    compare(f"{item.name}, then computed", computed, convert(differs, dtype), dtype)
    names = [a.name for a in fd.arguments]
    reference = evaluate(fd.fusion, dict(zip(names, copies, strict=True)), {}, precise=True)
    compare(f"{item.name}: reference", want, reference[fd.fusion.outputs[0].value], dtype)


# -- ops without tensor operands ---------------------------------------------------------------


def check_full(execute: Execute, dtype: DataType, shape: tuple[int, ...]) -> None:
    """Tensors of one number, constant or given at execution."""
    number: Any = 3 if not dtype.is_float else -2.5
    with FusionDefinition() as fd:
        s = fd.define_scalar(dtype=DataType.Double if dtype.is_float else DataType.Int)
        n = fd.define_scalar(dtype=DataType.Int)
        fd.add_output(fd.ops.full(list(shape), number, dtype))
        fd.add_output(fd.ops.full(list(shape), s, dtype))
        fd.add_output(fd.ops.full([n, 3], s, dtype))
    outputs = execute(fd, [number, 4])
    fill = convert(np.asarray(number), dtype)
    for got, extents in zip(outputs, (shape, shape, (4, 3)), strict=True):
        compare(f"full {extents}", got, np.full(extents, fill, dtype.np), dtype)


def check_iota(execute: Execute, dtype: DataType) -> None:
    """Ranges: from constants, from scalars, empty, and past the end of the dtype."""
    with FusionDefinition() as fd:
        n = fd.define_scalar(dtype=DataType.Int)
        for length, start, step in ((n, None, None), (130, 5, 3), (0, 1, 1), (1, -7, 2)):
            fd.add_output(fd.ops.iota(length, start, step, dtype=dtype))
        fd.add_output(fd.ops.iota(n, n, -1, dtype=dtype) if dtype.is_integer
                      else fd.ops.iota(n, 0.5, 0.25, dtype=dtype))  # fmt: skip
    outputs = execute(fd, [300])
    last = (300, 300, -1) if dtype.is_integer else (300, 0.5, 0.25)
    ranges = [(300, 0, 1), (130, 5, 3), (0, 1, 1), (1, -7, 2), last]
    for got, (length, start, step) in zip(outputs, ranges, strict=True):
        want = convert(np.arange(length) * step + start, dtype)
        compare(f"iota {length, start, step}", got, want, dtype)
