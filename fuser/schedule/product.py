"""Axes of a matrix product as the tensor cores share it out among the threads of a warp group."""

from __future__ import annotations

from fuser.core.dtypes import DataType
from fuser.core.errors import ScheduleError
from fuser.core.expr import Const
from fuser.core.simplify import Facts, prove_equal
from fuser.fusion.graph import Value
from fuser.schedule.domain import IterDomain, LoopDomain, Split
from fuser.schedule.kinds import ParallelType

WIDTHS = range(8, 257, 8)
ROWS, DEPTH = 64, 16
WARP_ROWS, HALF_ROWS, PIECE = 16, 8, 8
PAIR = 2


def product_domain(value: Value, domain: LoopDomain, m: int, n: int, k: int) -> LoopDomain:
    """Return `domain` with axes `m`, `n` and `k` as one instruction ``m64nNk16`` has them.

    rewrite::

        .., m (64), n (N), k (16)
        ->
        .., thread (128, block_x), n / 8, row half, column pair, k      (the last four: mma)

    Thread ``32 w + l`` has rows ``16 w + l / 4 + 8 half`` and columns ``8 (n / 8) + 2 (l % 4) +
    pair`` (PTX ISA, wgmma, register fragments of D). Its registers are in loop order.
    """
    where = [domain.position(axis, "wgmma") for axis in (m, n, k)]
    if len(set(where)) < len(where):
        raise ScheduleError(f"wgmma: axes {m}, {n} and {k}; three different ones are needed")
    if value.op != "sum":
        raise ScheduleError(f"wgmma: it is a {value.op}; a sum of products is needed")
    if value.dtype is not DataType.Float:
        raise ScheduleError(
            f"wgmma: it is {value.dtype.short}; tensor cores sum in f32: needed a sum of operands "
            "cast to Float, and a cast of that"
        )
    rows, columns, deep = (domain.loop[at] for at in where)
    for axis, given, name in ((rows, m, "m"), (columns, n, "n"), (deep, k, "k")):
        _check(axis, given, name)
        _check_whole(domain, axis, given, name)
    if not any(axis.reduction and axis is not deep for axis in domain.loop):
        raise ScheduleError(
            f"wgmma: axis {k} is all that is summed over; needed a loop of instructions outside: "
            f"split the axis by {DEPTH}"
        )
    ids = [rows.id, columns.id, deep.id]
    return _bound(_moved(domain, ids), len(domain.loop) - len(ids))


def _check(axis: IterDomain, at: int, name: str) -> None:
    extents = {"m": (ROWS,), "n": tuple(WIDTHS), "k": (DEPTH,)}[name]
    words = f"a multiple of 8, at most {WIDTHS[-1]}" if name == "n" else str(extents[0])
    if not isinstance(axis.extent, Const) or axis.extent.value not in extents:
        raise ScheduleError(
            f"wgmma: axis {at} as {name} has extent {axis.extent!r}; needed {words}: split it"
        )
    if axis.reduction != (name == "k"):
        what, needed = ("summed over", "kept") if axis.reduction else ("kept", "summed over")
        raise ScheduleError(f"wgmma: axis {at} as {name} is {what}; one that is {needed} is needed")
    if axis.parallel is not ParallelType.serial or axis.directives:
        found = axis.directives or f"bound to {axis.parallel.name}"
        raise ScheduleError(f"wgmma: axis {at} as {name} is {found}; a plain axis is needed")


def _check_whole(domain: LoopDomain, axis: IterDomain, at: int, name: str) -> None:
    """Raise `ScheduleError` if tiles that the axis is split from do not consist of whole products.

    A dimension may leave a remainder, where the copy engine fills in zeros; behind the end of a
    tile is the next one.
    """
    tiles = {step.inner for step in domain.transforms if isinstance(step, Split)}
    below = {axis.id}
    for step in reversed(domain.transforms):
        if not isinstance(step, Split) or below.isdisjoint({step.outer, step.inner}):
            continue
        below.add(step.axis)
        tile, whole = domain.extents[step.axis], domain.extents[step.outer] * step.factor
        if step.axis in tiles and not prove_equal(whole, tile, Facts()):
            raise ScheduleError(
                f"wgmma: axis {at} as {name} is of a split by {step.factor!r} of {tile!r}, which "
                "leaves a remainder; needed a tile of whole products"
            )


def _moved(domain: LoopDomain, ids: list[int]) -> LoopDomain:
    """Return a domain with the axes `ids` innermost, in that order."""
    rank = len(domain.loop)
    at = {d.id: j for j, d in enumerate(domain.loop)}
    return domain.reorder({at[i]: rank - len(ids) + place for place, i in enumerate(ids)})


def _bound(domain: LoopDomain, m: int) -> LoopDomain:
    """Return a domain whose axes `m`, `m` + 1 and `m` + 2 are rows, columns and depth, shared out.

    The order of axes behind each step is given beside it.
    """
    domain = domain.split(m, Const(WARP_ROWS))  # warp, 16, n, k
    domain = domain.split(m + 1, Const(HALF_ROWS))  # warp, half, 8, n, k
    domain = domain.split(m + 3, Const(PIECE))  # warp, half, 8, n8, piece, k
    domain = domain.split(m + 4, Const(PAIR))  # warp, half, 8, n8, 4, pair, k
    domain = domain.reorder({m + 2: m + 1, m + 4: m + 2})  # warp, 8, 4, half, n8, pair, k
    domain = domain.merge(m, m + 1)
    domain = domain.merge(m, m + 1)  # thread, half, n8, pair, k
    domain = domain.reorder({m + 2: m + 1})  # thread, n8, half, pair, k
    domain = domain.bind(m, ParallelType.block_x)
    for axis in range(m + 1, m + 5):
        domain = domain.bind(axis, ParallelType.mma)
    return domain
