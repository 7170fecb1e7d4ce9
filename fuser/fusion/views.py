"""Index maps: which element of an operand an element of a value is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fuser.core.expr import (
    ONE,
    TRUE,
    ZERO,
    Const,
    Expr,
    all_of,
    less,
    less_equal,
    product,
)
from fuser.fusion.attrs import (
    BroadcastAttrs,
    CatAttrs,
    ExpandAttrs,
    FullAttrs,
    Number,
    PadAttrs,
    PermuteAttrs,
    ReduceAttrs,
    ReshapeAttrs,
    SliceAttrs,
    SplitDimAttrs,
    SqueezeAttrs,
    UnfoldAttrs,
)
from fuser.fusion.graph import FusionGraph, Value
from fuser.fusion.shapes import canonical

Coords: TypeAlias = tuple[Expr, ...]

VIEW_OPS = frozenset(
    {
        "broadcast", "broadcast_in_dim", "expand", "squeeze", "permute", "slice", "pad", "cat",
        "reshape", "split_dim", "unfold",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Access:
    """Where element `coords` of a value comes from in one operand.

    Attributes
    ----------
    coords
        Coordinates in the operand; meaningful where `guard` holds.
    guard
        Index condition; ``TRUE`` when the operand supplies every element.
    fill
        The element where `guard` is false: a scalar of the fusion (pad), a number (split_dim), or
        ``None`` when another operand supplies it (cat).
    """

    coords: Coords
    guard: Expr = TRUE
    fill: Value | Number | None = None


def operand_access(graph: FusionGraph, value: Value, k: int, coords: Sequence[Expr]) -> Access:
    """Return where element `coords` of `value` is in operand `k`.

    Parameters
    ----------
    coords
        One expression per dimension of `value`; of a reduction, one per dimension of its operand
        (the reduced ones included), because a reduction has no index map of its own.
    """
    operands = graph.operands(value)
    operand = operands[k]
    c = tuple(coords)
    match value.attrs:
        case BroadcastAttrs(dims):
            return Access(_pinned(operand, tuple(c[d] for d in dims)))
        case SqueezeAttrs(dims):
            kept = iter(c)
            return Access(tuple(ZERO if d in dims else next(kept) for d in range(operand.rank)))
        case PermuteAttrs(dims):
            return Access(tuple(c[dims.index(d)] for d in range(operand.rank)))
        case SliceAttrs() | UnfoldAttrs():
            return Access(_selected(value.attrs, c))
        case PadAttrs(widths):
            return _pad(operands, k, widths, c)
        case CatAttrs(dim):
            return _cat(operands, k, dim, c)
        case ReshapeAttrs():
            return Access(reshape_coords(operand.shape, value.shape, c))
        case SplitDimAttrs() as attrs:
            return _split_dim(operand, value.shape[attrs.dim], attrs, c)
        case FullAttrs():
            return Access(())
        case ExpandAttrs() | ReduceAttrs() | _:
            return Access(_pinned(operand, c) if operand.shape else ())


def _pinned(operand: Value, coords: Coords) -> Coords:
    """Replace the coordinate by 0 in every broadcast dimension of the operand."""
    return tuple(
        ZERO if extent == ONE else i for extent, i in zip(operand.shape, coords, strict=True)
    )


def _selected(attrs: SliceAttrs | UnfoldAttrs, coords: Coords) -> Coords:
    match attrs:
        case SliceAttrs(starts, strides):
            steps = zip(starts, strides, coords, strict=True)
            return tuple(start + i * stride for start, stride, i in steps)
        case UnfoldAttrs(dim, step):
            return (*coords[:dim], coords[dim] * step + coords[-1], *coords[dim + 1 : -1])


def _pad(
    operands: Sequence[Value], k: int, widths: tuple[tuple[Expr, Expr], ...], coords: Coords
) -> Access:
    if k == 1:
        return Access(())
    inner: list[Expr] = []
    guards: list[Expr] = []
    for i, (before, after), extent in zip(coords, widths, operands[0].shape, strict=True):
        inner.append(i - before)
        if not _not_positive(before):
            guards.append(less_equal(before, i))
        if not _not_positive(after):
            guards.append(less(i, extent + before))
    return Access(tuple(inner), all_of(*guards), operands[1])


def _not_positive(width: Expr) -> bool:
    return isinstance(width, Const) and width.value <= 0


def _cat(operands: Sequence[Value], k: int, dim: int, coords: Coords) -> Access:
    offset: Expr = ZERO
    for before in operands[:k]:
        offset = offset + before.shape[dim]
    i = coords[dim]
    guards = [less_equal(offset, i)] if k > 0 else []
    if k < len(operands) - 1:
        guards.append(less(i, offset + operands[k].shape[dim]))
    return Access((*coords[:dim], i - offset, *coords[dim + 1 :]), all_of(*guards))


def _split_dim(operand: Value, parts: Expr, attrs: SplitDimAttrs, coords: Coords) -> Access:
    dim, factor, fill = attrs.dim, attrs.factor, attrs.fill
    extent = operand.shape[dim]
    index = coords[dim] * factor + coords[dim + 1]
    exact = parts * factor == extent  # parts may be more than are needed: some are empty
    guard = TRUE if exact else less(index, extent)
    return Access((*coords[:dim], index, *coords[dim + 2 :]), guard, None if exact else fill)


# ---- reshape -----------------------------------------------------------------------------------


def reshape_coords(old: tuple[Expr, ...], new: tuple[Expr, ...], coords: Coords) -> Coords:
    """Return the coordinates in shape `old` of element `coords` of shape `new`, row major.

    Dimensions are matched in groups of equal products, so that a dimension that stays is passed
    through and only the dimensions that are really merged or split meet in one linear index.
    """
    if ZERO in old or ZERO in new:
        return (ZERO,) * len(old)
    result: list[Expr] = [ZERO] * len(old)
    for old_dims, new_dims in reshape_groups(old, new):
        linear = _ravel(tuple(new[d] for d in new_dims), tuple(coords[d] for d in new_dims))
        parts = _unravel(tuple(old[d] for d in old_dims), linear)
        for d, part in zip(old_dims, parts, strict=True):
            result[d] = part
    return tuple(result)


def reshape_groups(
    old: tuple[Expr, ...], new: tuple[Expr, ...]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Partition the dimensions (extents of 1 left out) into the smallest groups of equal product.

    Extents that only the run-time sizes relate end up in one last group.
    """
    a = [d for d, extent in enumerate(old) if extent != ONE]
    b = [d for d, extent in enumerate(new) if extent != ONE]
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        p, q = min(i + 1, len(a)), min(j + 1, len(b))
        while True:
            left = canonical([old[d] for d in a[i:p]])
            right = canonical([new[d] for d in b[j:q]])
            if left == right or (p == len(a) and q == len(b)):
                break
            grow_left = q == len(b) or (left.divides(right) and p < len(a))
            grow_right = p == len(a) or (right.divides(left) and q < len(b))
            p += grow_left or not grow_right
            q += grow_right or not grow_left
        groups.append((tuple(a[i:p]), tuple(b[j:q])))
        i, j = p, q
    return groups


def _ravel(extents: tuple[Expr, ...], coords: Coords) -> Expr:
    linear: Expr = ZERO
    for extent, i in zip(extents, coords, strict=True):
        linear = linear * extent + i
    return linear


def _unravel(extents: tuple[Expr, ...], linear: Expr) -> Coords:
    parts: list[Expr] = []
    for d, extent in enumerate(extents):
        part = linear // product(extents[d + 1 :])
        parts.append(part if d == 0 else part % extent)
    return tuple(parts)
