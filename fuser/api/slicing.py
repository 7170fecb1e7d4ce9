"""What ``start:end`` selects of one dimension: NumPy's rules for negative and large indices.

An index that lies a known distance before the end needs no comparison, and a length that was cut
before is cut once by the sum: the extents of chained slices stay as short as those of one.
"""

from __future__ import annotations

from fuser.api.extents import difference, is_nonnegative
from fuser.core.expr import ZERO, BinOp, Const, Expr, less, maximum, minimum, select


def slice_range(start: Expr, end: Expr, extent: Expr) -> tuple[Expr, Expr]:
    """Return ``(first index, number of indices)`` of ``start:end`` in ``0..extent``."""
    # a start beyond the end needs no clipping: it selects nothing
    first = start if is_nonnegative(start) else _clipped(start, extent)
    last = _clipped(end, extent)
    if first == ZERO:
        return first, last
    start_tail, end_tail = _tail(start, extent), _tail(end, extent)
    if start_tail is not None and end_tail is not None:  # x[-5:-2] has three elements at most
        return first, minimum(last, Const(max(start_tail - max(end_tail, 0), 0)))
    return first, _at_least_zero(difference(last, first))


def _clipped(index: Expr, extent: Expr) -> Expr:
    """Move a Python slice index into ``0..extent``."""
    tail = _tail(index, extent)
    if tail is not None:
        return _at_least_zero(difference(extent, Const(tail))) if tail > 0 else extent
    from_start = minimum(index, extent)
    if is_nonnegative(index):
        return from_start
    from_end = _at_least_zero(difference(extent + index, ZERO))
    return select(less(index, ZERO), from_end, from_start)


def _tail(index: Expr, extent: Expr) -> int | None:
    """Return how many elements `index` leaves behind it, as far as there are any, or None.

    A literal ``-k`` leaves ``k``, and so does ``extent - k`` for ``k`` up to 2: where that is
    negative, the index counts from the end and comes out before the first element. Three before
    the end of two elements is -1, which is the second one.
    """
    if isinstance(extent, Const):
        return None
    if isinstance(index, Const):
        return -index.value if index.value < 0 else None
    match difference(extent, index):
        case Const(tail) if tail <= 2:
            return tail
        case _:
            return None


def _at_least_zero(e: Expr) -> Expr:
    """Return ``max(e, 0)``; of a length that was cut before, ``max(max(a, 0) - k, 0)``, one cut."""
    match e:
        case BinOp("-", BinOp("max", cut, Const(0)), Const(more)) if more >= 0:
            return _at_least_zero(difference(cut, Const(more)))
        case _:
            return e if is_nonnegative(e) else maximum(e, ZERO)
