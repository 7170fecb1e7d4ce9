"""Sizes of a kernel as functions of its trip counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd, lcm

from fuser.core.expr import BinOp, Const, Expr, Var, children, substitute, variables
from fuser.core.simplify import Facts, simplify
from fuser.kir.core import Kernel, SizeParam
from fuser.kir.stmts import For
from fuser.protocol.errors import Unsupported
from fuser.protocol.rings import Place, places

OTHER_SIZE = 64
"""Stands for sizes on which no number of trips depends."""


@dataclass(frozen=True, slots=True)
class TripSize:
    """A size that decides how often the loops of one level run: `tile` of it are one trip.

    Attributes
    ----------
    fewest
        1 where the size is never so small that no trip is left; else 0.
    """

    name: str
    level: int
    tile: int
    fewest: int = 0

    def of(self, trips: Expr, cut: int = 0) -> Expr:
        """Return the size that makes `trips` trips, the last one `cut` elements short."""
        return trips * self.tile - cut


def trip_sizes(kernel: Kernel, trip_loops: set[int]) -> tuple[TripSize, ...]:
    """Return the sizes that decide trip counts.

    Raises
    ------
    Unsupported
        One size decides on two levels, or two sizes on one where loops are nested.
    """
    least = {p.name: p.least for p in kernel.params if isinstance(p, SizeParam)}
    tiles: dict[tuple[str, int], int] = {}
    bounds: dict[tuple[str, int], list[Expr]] = {}
    for place, level in _loops(kernel, trip_loops):
        for e in _bounds(place):
            for name in variables(e) & least.keys():
                key, tile = (name, level), lcm(*_divisors(e, name))
                bounds.setdefault(key, []).append(e)
                tiles[key] = lcm(tiles.get(key, 1), tile // gcd(tile, _round(place)))
    levels = [level for _, level in tiles]
    several = len(set(levels)) < len(levels)
    if (several and any(levels)) or len({name for name, _ in tiles}) < len(tiles):
        text = ", ".join(f"{name} (level {level})" for name, level in tiles)
        raise Unsupported(
            f"the trip counts depend on {text}; needed one size a level where loops are nested"
        )
    return tuple(
        TripSize(name, level, tile, fewest_trips(name, least[name], tile, bounds[name, level]))
        for (name, level), tile in tiles.items()
    )


def fewest_trips(name: str, least: int, tile: int, bounds: list[Expr]) -> int:
    """Return 1 where the least value of a size already makes the trips of one whole tile."""
    if not least:
        return 0

    def at(e: Expr, value: int) -> Expr:
        return simplify(substitute(e, {name: Const(value)}), Facts())

    return int(least >= tile or all(at(e, least) == at(e, tile) for e in bounds))


def depth(kernel: Kernel, trip_loops: set[int]) -> int:
    """Return how deep trip loops are nested."""
    return max((level + 1 for _, level in _loops(kernel, trip_loops)), default=0)


def bind_sizes(
    kernel: Kernel, trips: tuple[TripSize, ...], counts: Mapping[str, Expr], cut: int = 0
) -> dict[str, Expr]:
    """Return every size of a kernel over the trip counts of those that decide on them."""
    bound: dict[str, Expr] = {
        p.name: Const(OTHER_SIZE) for p in kernel.params if isinstance(p, SizeParam)
    }
    innermost = max((t.level for t in trips), default=0)
    for size in trips:
        short = cut if size.level == innermost and size.tile > cut else 0
        bound[size.name] = size.of(counts[size.name], short)
    return bound


def _loops(kernel: Kernel, trip_loops: set[int]) -> Iterator[tuple[Place, int]]:
    for place in places(kernel.body):
        if id(place.stmt) in trip_loops:
            yield place, sum(id(loop) in trip_loops for loop in place.loops)


def _round(place: Place) -> int:
    """Return by what an unrolled loop divides its trips, besides what divides its size."""
    return place.stmt.unroll.factor if isinstance(place.stmt, For) else 1


def _bounds(place: Place) -> tuple[Expr, ...]:
    loop = place.stmt
    assert isinstance(loop, For)
    return place.expr(loop.start), place.expr(loop.extent)


def _divisors(e: Expr, name: str) -> Iterator[int]:
    """Yield constants by which a size is divided, in one division or several."""
    if isinstance(e, BinOp) and e.op == "/" and isinstance(e.rhs, Const):
        yield from (e.rhs.value * inner for inner in _divisors(e.lhs, name))
        return
    if e == Var(name):
        yield 1
    for child in children(e):
        yield from _divisors(child, name)
