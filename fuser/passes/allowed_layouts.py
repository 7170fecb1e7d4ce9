"""Which layouts of a tensor in global memory its definition allows."""

from __future__ import annotations

from collections.abc import Iterator

from fuser.core.expr import ONE, ZERO, Expr
from fuser.fusion.attrs import Attrs, InputAttrs
from fuser.fusion.shapes import stride_var
from fuser.passes.layout import Layout


def best_layouts(tensor: str, attrs: Attrs, layout: Layout) -> Iterator[Layout]:
    """Yield the layouts that suit the copy engine best and that the definition allows.

    For each order of the dimensions these are rows without gaps, and rows that begin at multiples
    of 16 elements where the definition does not promise that there are no gaps.

    Parameters
    ----------
    layout
        The tensor's layout in the shape class at hand.
    """
    for order in memory_orders(attrs, len(layout.shape)):
        for strides in _strides(tensor, attrs, layout.shape, order):
            yield Layout(layout.shape, strides, layout.mode)


def memory_orders(attrs: Attrs, rank: int) -> tuple[tuple[int, ...], ...]:
    """Return orders of the dimensions in memory, outermost first; the definition's own is first.

    Strides that no dimension promises may have any order; which dimension is the innermost one is
    all that matters to the copy engine.
    """
    if not isinstance(attrs, InputAttrs):
        return (tuple(range(rank)),)
    order = attrs.outer_to_inner
    if True in attrs.contiguity:
        return (order,)
    turned = ((*(d for d in order if d != inner), inner) for inner in reversed(order[:-1]))
    return (order, *turned)


def _strides(
    tensor: str, attrs: Attrs, shape: tuple[Expr, ...], order: tuple[int, ...]
) -> tuple[tuple[Expr, ...], ...]:
    """Return the strides without gaps, and those with all gaps that are allowed."""
    promised: tuple[bool | None, ...] = (True,) * len(shape)
    if isinstance(attrs, InputAttrs):
        promised = attrs.contiguity
    dense, padded = list[Expr]([ZERO] * len(shape)), list[Expr]([ZERO] * len(shape))
    steps: tuple[Expr, Expr] = (ONE, ONE)
    for d in reversed(order):
        if promised[d] is None or shape[d] == ONE:
            continue
        free = not promised[d] and steps[1] != ONE
        dense[d], padded[d] = steps[0], stride_var(tensor, d) if free else steps[1]
        steps = dense[d] * shape[d], padded[d] * shape[d]
    return tuple(dense), tuple(padded)
