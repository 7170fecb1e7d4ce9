"""What a random fusion may do next: one function per kind of operation.

Each takes the draft and one of its tensors and returns the result, or None where it does not apply.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fuser import DataType
from fuser.api.tensor import Tensor
from fuser.core.errors import DefinitionError
from fuser.core.expr import Const
from fuser.ops import POINTWISE, Operand, result_type
from tests.fuzz.draft import DTYPES, SIZES, Draft

Operation = Callable[[Draft, Tensor], Any]

# erfcinv and lgamma have poles in the middle of every sample; the op table has tests of its own
EXCLUDED = ("erfcinv", "lgamma", "nextafter", "mod")
ROWS = {
    arity: tuple(s for s in POINTWISE if s.arity == arity and s.name not in EXCLUDED)
    for arity in (1, 2, 3, 4)
}


def unary(d: Draft, a: Tensor) -> Any:
    rows = [s for s in ROWS[1] if _accepted(s, (a,))]
    return getattr(d.fd.ops, d.source.pick(rows).name)(a)


def binary(d: Draft, a: Tensor) -> Any:
    b = d.scalar() if d.source.chance(30) else d.partner(a)
    operands = (b, a) if d.source.chance(20) else (a, b)
    return _pointwise(d, 2, operands)


def ternary(d: Draft, a: Tensor) -> Any:
    operands = [d.scalar() if d.source.chance(30) else d.partner(a) for _ in range(2)]
    if d.source.chance(30):
        return _pointwise(d, 4, (a, *operands, d.scalar()))
    return _pointwise(d, 3, (a, *operands))


def where(d: Draft, a: Tensor) -> Any:
    condition = d.partner(a, DataType.Bool)
    if d.source.chance(30):
        return d.fd.ops.where(condition, a, d.scalar())
    b = d.partner(a)
    return d.fd.ops.where(condition, a, b) if d.broadcasts(condition, b) else None


def cast(d: Draft, a: Tensor) -> Any:
    return d.fd.ops.cast(a, d.source.pick(DTYPES))


def _accepted(spec: Any, operands: tuple[Any, ...]) -> bool:
    try:
        kinds = [
            Operand(o.dtype) if isinstance(o, Tensor)
            else Operand(DataType.Float if isinstance(o, float) else DataType.Int, True)
            for o in operands
        ]  # fmt: skip
        result_type(spec, kinds)
    except DefinitionError:
        return False
    return True


def _pointwise(d: Draft, arity: int, operands: tuple[Any, ...]) -> Any:
    tensors = [o for o in operands if isinstance(o, Tensor)]
    if not all(d.broadcasts(x, y) for x in tensors for y in tensors):
        return None
    rows = list(ROWS[arity])
    while rows:
        spec = rows.pop(d.source.below(len(rows)))
        if spec.name == "where":
            continue
        try:
            return getattr(d.fd.ops, spec.name)(*operands)
        except DefinitionError as error:
            if "has no meaning" not in str(error):
                raise
    return None


# ---- views -------------------------------------------------------------------------------------


def broadcast_in_dim(d: Draft, a: Tensor) -> Any:
    """Stretch to a new shape with more dimensions, or to the shape of another tensor."""
    source, known = d.source, d.shape(a)
    extents: list[Any] = [
        source.integer(2, 5) if e == Const(1) and source.chance(50)
        else (n if isinstance(e, Const) else a.size(i))
        for i, (e, n) in enumerate(zip(a.value.shape, known, strict=True))
    ]  # fmt: skip
    dims = list(range(a.ndim))
    for _ in range(source.integer(0, 2)):
        at = source.integer(0, len(extents))
        extents.insert(at, source.pick((2, 1, 3, 4)))
        dims = [i + (i >= at) for i in dims]
    sizes = [n if isinstance(n, int) else 0 for n in extents]
    for i, n in zip(dims, known, strict=True):
        sizes[i] = max(sizes[i], n)
    return d.fd.ops.broadcast_in_dim(a, extents, dims) if d.fits(sizes) else None


def broadcast_to_partner(d: Draft, a: Tensor) -> Any:
    """Broadcast a new input of lower rank to the shape of `a` and combine both."""
    dims = d.source.some(range(a.ndim))
    sizes = tuple(d.shape(a)[i] for i in dims)
    row = d.input_like(sizes, d.source.pick(DTYPES))
    full = d.fd.ops.broadcast_in_dim(row, d.fd.ops.shape(a), dims)
    return _pointwise(d, 2, (a, full))


def broadcast(d: Draft, a: Tensor) -> Any:
    flags = [False] * a.ndim
    for _ in range(d.source.integer(1, 2)):
        flags.insert(d.source.integer(0, len(flags)), True)
    return d.fd.ops.broadcast(a, flags) if len(flags) <= 5 else None


def expand(d: Draft, a: Tensor) -> Any:
    ones = [i for i, e in enumerate(a.value.shape) if e == Const(1)]
    if not ones:
        return None
    target: list[Any] = [-1] * a.ndim
    sizes = list(d.shape(a))
    for i in d.source.some(ones, 80):
        sizes[i] = d.source.integer(2, 7)
        target[i] = d.extent(sizes[i])
    return d.fd.ops.expand(a, target) if d.fits(sizes) else None


def squeeze(d: Draft, a: Tensor) -> Any:
    ones = [i for i, e in enumerate(a.value.shape) if e == Const(1)]
    return d.fd.ops.squeeze(a, d.source.some(ones, 70)) if ones else None


def permute(d: Draft, a: Tensor) -> Any:
    return d.fd.ops.permute(a, d.source.shuffled(range(a.ndim))[::-1])


def merge_dims(d: Draft, a: Tensor) -> Any:
    """Reshape neighbouring dimensions into one."""
    if a.ndim < 2:
        return d.fd.ops.reshape(a, [1] * d.source.integer(0, 2)) if a.ndim == 0 else None
    shape = list(a.shape)
    at = d.source.integer(0, a.ndim - 2)
    if d.source.chance(30) and math.prod(d.shape(a)):
        return d.fd.ops.reshape(a, [*shape[:at], -1, *shape[at + 2 :]])
    return d.fd.ops.reshape(a, [*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]])


def split_dim(d: Draft, a: Tensor) -> Any:
    """Reshape one dimension into two."""
    choices = [
        (i, f) for i, n in enumerate(d.shape(a)) for f in (2, 3, 4, 8, 16, 13, 1, 5, 11)
        if n and n % f == 0
    ]  # fmt: skip
    if not choices or not math.prod(d.shape(a)):
        return None
    i, factor = d.source.pick(choices)
    inner = [-1, factor] if d.source.chance(60) else [factor, -1]
    return d.fd.ops.reshape(a, [*a.shape[:i], *inner, *a.shape[i + 1 :]])


def reshape(d: Draft, a: Tensor) -> Any:
    """Reshape to constants that cut across all dimensions."""
    numel = math.prod(d.shape(a))
    shape: list[int] = []
    for _ in range(d.source.integer(0, 2)):
        factors = [f for f in range(1, 65) if numel % f == 0]
        shape.append(d.source.pick(factors))
        numel //= shape[-1]
    return d.fd.ops.reshape(a, [*shape, numel])


def slice_(d: Draft, a: Tensor) -> Any:
    source = d.source
    starts: list[Any] = []
    ends: list[Any] = []
    strides: list[int] = []
    for n in d.shape(a):
        whole = source.chance(40)
        start = 0 if whole else source.integer(0, max(n - 1, 0))
        end = n if whole else source.integer(start, n + 2)
        start -= n if n and source.chance(10) else 0
        end = end - n - 1 if end < n and source.chance(10) else end
        starts.append(d.extent(start))
        ends.append(d.extent(end))
        strides.append(1 if source.chance(60) else source.integer(1, 4))
    return d.fd.ops.slice(a, starts, ends, strides)


def getitem(d: Draft, a: Tensor) -> Any:
    index: list[Any] = []
    for n in d.shape(a):
        kind = d.source.integer(0, 3)
        if kind == 1 and n:
            index.append(d.source.integer(-n, n - 1))
        elif kind == 2:
            index.append(slice(d.source.integer(-3, 3), None, d.source.integer(1, 2)))
        else:
            index.append(slice(None))
        if d.source.chance(10):
            index.append(None)
    return a[tuple(index)]


def unfold(d: Draft, a: Tensor) -> Any:
    source, shape = d.source, d.shape(a)
    choices = [i for i, n in enumerate(shape) if n]
    if not choices:
        return None
    dim = source.pick(choices)
    size, step = source.integer(1, min(shape[dim], 6)), source.integer(1, 4)
    windows = (shape[dim] - size) // step + 1
    if not d.fits([*shape[:dim], windows, *shape[dim + 1 :], size]):
        return None
    return d.fd.ops.unfold(a, dim, d.extent(size), d.extent(step))


def pad(d: Draft, a: Tensor) -> Any:
    source = d.source
    widths: list[Any] = []
    sizes = list(d.shape(a))
    for i in reversed(range(source.integer(0, a.ndim), a.ndim)):
        before, after = source.integer(-2, 3), source.integer(-2, 3)
        if sizes[i] + before + after < 0:
            before, after = max(before, 0), max(after, 0)
        sizes[i] += before + after
        widths += [d.extent(before), d.extent(after)]
    if not d.fits(sizes):
        return None
    return d.fd.ops.pad(a, widths, d.scalar() if source.chance(60) else None)


def cat(d: Draft, a: Tensor) -> Any:
    if not a.ndim:
        return None
    dim = d.source.below(a.ndim)
    shape = d.shape(a)

    def joins(b: Tensor) -> bool:
        rest = zip(d.shape(b), shape, strict=True)
        return (
            b.dtype is a.dtype
            and b.ndim == a.ndim
            and all(n == m for i, (n, m) in enumerate(rest) if i != dim)
        )

    known = [t for t in d.tensors if t.ndim == a.ndim and joins(t)]
    parts = [a]
    for _ in range(d.source.integer(1, 2)):
        if d.source.chance(50):
            parts.insert(d.source.below(len(parts) + 1), d.source.pick(known))
        else:
            sizes = (*shape[:dim], d.source.pick(SIZES), *shape[dim + 1 :])
            if not d.fits(sizes):
                return None
            parts.append(d.input_like(sizes, a.dtype))
    total = (*shape[:dim], sum(d.shape(p)[dim] for p in parts), *shape[dim + 1 :])
    return d.fd.ops.cat(parts, dim) if d.fits(total) else None


# ---- others ------------------------------------------------------------------------------------


def full(d: Draft, a: Tensor) -> Any:
    shape: list[Any] = [d.extent(d.source.integer(1, 9)) for _ in range(d.source.integer(0, 3))]
    if d.source.chance(60):
        shape = list(a.shape)
    return d.fd.ops.full(shape, d.scalar(), d.source.pick(DTYPES))


def iota(d: Draft, a: Tensor) -> Any:
    dtype = d.source.pick([t for t in DTYPES if t is not DataType.Bool])
    start, step = d.source.integer(-3, 3), d.source.integer(-2, 3)
    length = a.shape[0] if a.ndim and d.source.chance(50) else d.source.integer(0, 40)
    return d.fd.ops.iota(length, start, step, dtype)


def reduction(d: Draft, a: Tensor) -> Any:
    source = d.source
    ops = d.fd.ops
    reduce = source.pick((ops.sum, ops.max, ops.min, ops.prod))
    return reduce(a, _dims(d, a), keepdim=source.chance(40))


def sum_as(d: Draft, a: Tensor) -> Any:
    dtype = d.source.pick((DataType.Float, DataType.Double, DataType.Int, DataType.Half))
    return d.fd.ops.sum(a, _dims(d, a), keepdim=d.source.chance(40), dtype=dtype)


def statistics(d: Draft, a: Tensor) -> Any:
    ops, keep = d.fd.ops, d.source.chance(50)
    match d.source.integer(0, 3):
        case 0:
            return ops.mean(a, _dims(d, a), keepdim=keep)
        case 1:
            return ops.var(a, _dims(d, a), d.source.integer(0, 1), keep)
        case 2:
            variance, mean = ops.var_mean(a, _dims(d, a), keepdim=keep)
            d.tensors.append(mean)
            return variance
        case _:
            return ops.softmax(a, d.source.below(a.ndim)) if a.ndim and a.dtype.is_float else None


def _dims(d: Draft, a: Tensor) -> list[int] | None:
    return None if d.source.chance(15) else d.source.some(range(a.ndim), 60)


OPERATIONS: tuple[tuple[Operation, int], ...] = (
    (unary, 16), (binary, 20), (ternary, 5), (where, 5), (cast, 10), (broadcast_in_dim, 5),
    (broadcast_to_partner, 5), (broadcast, 3), (expand, 3), (squeeze, 3), (permute, 6),
    (merge_dims, 4), (split_dim, 4), (reshape, 2), (slice_, 6), (unfold, 3), (getitem, 3), (pad, 5),
    (cat, 5), (full, 2), (iota, 2), (reduction, 8), (sum_as, 2), (statistics, 4),
)  # fmt: skip
