"""The shape class of a call: everything compiled code may rely on, and nothing else.

Calls of one class run the same kernels. The class holds the stride pattern and alignment of every
input (hence which dimension has stride 1, and whether the other strides are multiples of 16 bytes),
divisibility of the sizes that decide vector width, which sizes are zero, and the width of index
arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fuser.api.layout import inner_to_outer
from fuser.core.expr import (
    ONE,
    ZERO,
    Const,
    Expr,
    Var,
    children,
    evaluate,
    product,
    substitute,
    variables,
)
from fuser.fusion.attrs import InputAttrs, IotaAttrs, ReduceAttrs, attr_exprs
from fuser.fusion.graph import FusionGraph, Value
from fuser.fusion.shapes import stride_var
from fuser.fusion.specialise import size_substitution
from fuser.kir.core import IndexType
from fuser.kir.tensor_map import MAX_COORDINATE
from fuser.passes.layout import contiguous_strides
from fuser.runtime.arrays import ArrayView

MAX_ALIGNMENT = 16
DIVISORS = (2, 4, 8, 16)
INDEX_LIMIT = 2**31 - 2**21
"""Largest element offset of 32-bit kernels; the slack holds indices of a rounded-up last tile."""


@dataclass(frozen=True, slots=True)
class InputClass:
    """Layout pattern of one input.

    Attributes
    ----------
    strides
        Over size and stride variables.
    aligned_bytes
        Power of two, at most 16, that divides its address.
    far
        An extent is larger than the coordinates of a tensor map.
    """

    strides: tuple[Expr, ...]
    aligned_bytes: int
    far: bool = False


@dataclass(frozen=True, slots=True)
class ShapeClass:
    """See the module; hashable, the key under which compiled programs are kept.

    Attributes
    ----------
    multiples
        ``(size or stride variable, power of two that divides it)``.
    fixed
        ``(size variable, its value)`` compiled in as a constant: sizes of 0, and the row length of
        a map that must divide by it to find an element's row.
    """

    inputs: tuple[tuple[str, InputClass], ...]
    multiples: tuple[tuple[str, int], ...]
    fixed: tuple[tuple[str, int], ...]
    index: IndexType


def classify(
    graph: FusionGraph,
    views: Mapping[str, ArrayView],
    sizes: Mapping[str, int],
    *,
    rows: frozenset[str] = frozenset(),
    inner: frozenset[str] | None = None,
    divisors: tuple[int, ...] = DIVISORS,
) -> tuple[ShapeClass, dict[str, int]]:
    """Return the class of a call and the values of its stride variables.

    `rows` are the sizes to make part of the class, see `row_sizes`; `inner` those whose
    divisibility is part of it, by default `inner_sizes`; `divisors` what they may be known to
    divide by, see `vector_divisors`.
    """
    inputs: list[tuple[str, InputClass]] = []
    env: dict[str, int] = {}
    largest = 0
    for name, view in views.items():
        strides = stride_pattern(graph.value(name), view, env)
        far = max(view.shape, default=0) > MAX_COORDINATE
        inputs.append((name, InputClass(strides, power_of_two(view.pointer, MAX_ALIGNMENT), far)))
        span = sum((n - 1) * s for n, s in zip(view.shape, view.strides_elems, strict=True))
        largest = max(largest, span)
    fixed = tuple(
        (name, size)
        for name, size in sorted(sizes.items())
        if name in rows or (size == 0 and "_size" in name)
    )
    largest = max(largest, *largest_numbers(graph, sizes))
    index: IndexType = "i64" if largest > INDEX_LIMIT else "i32"
    names = inner_sizes(graph) if inner is None else inner
    names |= env.keys() | turned_sizes(graph, inputs)
    multiples = {
        name: k
        for name in sorted(names)
        if (k := largest_divisor({**sizes, **env}.get(name, 0), divisors)) > 1
    }
    return ShapeClass(tuple(inputs), tuple(multiples.items()), fixed, index), env


def stride_pattern(value: Value, view: ArrayView, env: dict[str, int]) -> tuple[Expr, ...]:
    """Return the strides as expressions, adding the values of stride variables to `env`.

    A stride that equals the next inner dimension's stride times its extent is written as that
    product, so that index arithmetic can merge the dimensions. A dimension of one element may have
    any stride: it has the one of its place in the declared order, as it does with more elements.
    """
    shape = value.shape
    if 0 in view.shape:
        return contiguous_strides(shape)  # nothing is read
    declared: Sequence[int] = range(len(shape))
    if isinstance(value.attrs, InputAttrs):
        declared = value.attrs.outer_to_inner
    strides: list[Expr] = [ZERO] * len(shape)
    step: Expr = ONE
    step_elems = 1
    for d in inner_to_outer(view.shape, view.strides_elems, declared):
        actual, size = view.strides_elems[d], view.shape[d]
        if shape[d] == ONE or (size > 1 and actual == 0):
            continue
        if size <= 1 or actual == step_elems:
            strides[d] = step
            step, step_elems = step * shape[d], step_elems * size
        else:
            strides[d] = stride_var(value.name, d)
            env[stride_var(value.name, d).name] = actual
            step, step_elems = strides[d] * shape[d], actual * size
    return tuple(strides)


def largest_numbers(graph: FusionGraph, sizes: Mapping[str, int]) -> Iterator[int]:
    """Yield the magnitudes of what index arithmetic meets besides offsets into inputs.

    These are numbers of elements, extents and attributes, and the variables and constants they are
    made of: ``min(2**40, n)`` is small, but not in 32 bits.
    """
    yield 0
    exprs: set[Expr] = set()
    for value in graph.values:
        exprs |= {product(value.shape), *value.shape, *attr_exprs(value.attrs)}
        if isinstance(value.attrs, IotaAttrs):
            exprs.add(value.attrs.start + value.attrs.step * value.shape[0])
    yield from (abs(int(evaluate(e, sizes))) for e in exprs)
    yield from (abs(number) for number in leaves(exprs, sizes))


def leaves(exprs: Iterable[Expr], sizes: Mapping[str, int]) -> Iterator[int]:
    """Yield the constants in `exprs` and the values of their variables."""
    todo = set(exprs)
    seen: set[Expr] = set()
    while todo:
        e = todo.pop()
        seen.add(e)
        if isinstance(e, Const):
            yield e.value
        elif isinstance(e, Var):
            yield sizes[e.name]
        todo.update(child for child in children(e) if child not in seen)


def inner_sizes(graph: FusionGraph, min_rank: int = 2) -> frozenset[str]:
    """Return the size variables in the last extent of any value: they decide vector width.

    Linear tensors count from `min_rank` 1 on: a flat map needs no divisibility, bulk copies do.
    What is computed once per row, of extent 1, is read by all of the row and not in vectors.
    """
    stored = {value.name for value in graph.inputs} | {output.value for output in graph.outputs}
    names: set[str] = set()
    for value in graph.values:
        if len(value.shape) >= min_rank:
            inner = next((e for e in reversed(value.shape) if e != ONE), None)
            per_row = value.shape[-1] == ONE and value.name not in stored
            if inner is not None and not per_row:
                names |= variables(inner)
    return frozenset(names)


def vector_divisors(graph: FusionGraph) -> tuple[int, ...]:
    """Return what sizes of a fusion with a recipe are asked to divide by: two numbers at most.

    Elements of a whole vector of the narrowest tensor, and of half or a quarter of one. So any
    number of different row lengths makes three kernels at most.
    """
    stored = {value.name for value in graph.inputs} | {output.value for output in graph.outputs}
    widths = [v.dtype.nbytes for v in graph.values if v.shape and v.name in stored]
    whole = MAX_ALIGNMENT // min(widths, default=1)
    return tuple(d for d in (max(2, min(4, whole // 2)), whole) if 1 < d <= whole)


def largest_divisor(number: int, divisors: tuple[int, ...]) -> int:
    """Return the largest of `divisors` that divides `number`, or 1."""
    return max((d for d in divisors if number % d == 0), default=1)


def turned_sizes(graph: FusionGraph, inputs: Iterable[tuple[str, InputClass]]) -> frozenset[str]:
    """Return the size variables that are strides, of inputs whose last dimension is not contiguous.

    The extent of the dimension with stride 1 is the pitch of what is its row; `inner_sizes` knows
    those of row-major tensors.
    """
    names: set[str] = set()
    for name, known in inputs:
        shape, strides = graph.value(name).shape, known.strides
        last = max((d for d, e in enumerate(shape) if e != ONE), default=None)
        if last is not None and strides[last] != ONE and ONE in strides:
            names |= variables(shape[strides.index(ONE)])
    if not names:
        return frozenset()
    # Compiled code may know the size by the name of an equal one.
    equal = size_substitution(graph, {})
    same = (variables(substitute(Var(name), equal)) for name in names)
    return frozenset(names).union(*same)


def row_sizes(graph: FusionGraph) -> frozenset[str]:
    """Return the size variables of row lengths by which a map has to divide linear indices.

    These are rows of both an input and an output (a transpose has none, and is tiled). A map whose
    tensors all have one shape needs no division; reductions loop over rows instead.
    """
    equal = size_substitution(graph, {})
    tensors = [v for v in graph.values if v.shape]
    shapes = {tuple(substitute(e, equal) for e in v.shape) for v in tensors}
    if len(shapes) <= 1 or any(isinstance(v.attrs, ReduceAttrs) for v in tensors):
        return frozenset()
    outputs = [graph.value(o.value) for o in graph.outputs]
    read, written = (
        frozenset[str]().union(*(variables(substitute(v.shape[-1], equal)) for v in some))
        for some in ([v for v in values if v.shape] for values in (graph.inputs, outputs))
    )
    return frozenset(n for n in read & written if n.rpartition("_size")[1])


def power_of_two(number: int, limit: int) -> int:
    """Return the largest power of two, at most `limit`, that divides `number` (limit for 0)."""
    return limit if number == 0 else min(limit, number & -number)
