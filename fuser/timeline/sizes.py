"""Sizes with which a kernel makes few trips, so that a picture has room for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fuser.core.expr import Expr, evaluate, variables
from fuser.kir.core import Kernel, SizeParam, walk_stmts
from fuser.kir.stmts import For, Roles
from fuser.protocol.rings import find_rings, find_trip_loops, places

ONE_LOOP, MOST_TRIPS = 12, 20
"""Trips of a ring that has one loop: at least so many, two rounds of its stages, at most so many.
Consumer groups share them."""
TWO_LOOPS = (3, 5)
"""Trips of the outer and of the inner loop where two count."""


def few_trips(kernel: Kernel, sizes: Mapping[str, int]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return `sizes` with those cut that make a kernel's trips many, and which were cut.

    A size is cut to the largest with which the loops that follow it make no more trips than
    wanted: whole tiles.
    """
    cut, said = dict(sizes), list[str]()
    extents = list(_extents(kernel, cut))
    names = {p.name for p in kernel.params if isinstance(p, SizeParam)}
    nested = any(level and variables(extent) for level, extent in extents)
    wanted = TWO_LOOPS if nested else (_one_loop(kernel),)
    for name in sorted(names & cut.keys()):
        mine = [(wanted[min(n, len(wanted) - 1)], e) for n, e in extents if name in variables(e)]
        largest = _largest(name, cut, mine) if mine else cut[name]
        if 0 < largest < cut[name]:
            said.append(f"{name} = {largest} instead of {cut[name]}")
            cut[name] = largest
    return cut, tuple(said)


def _one_loop(kernel: Kernel) -> int:
    stages = max((ring.stages for ring in kernel.rings), default=1)
    roles = [r for s in walk_stmts(kernel.body) if isinstance(s, Roles) for r in s.roles]
    groups = max((role.groups for role in roles), default=1)
    return min(MOST_TRIPS, max(ONE_LOOP, 2 * stages + 2)) // groups


def _extents(kernel: Kernel, sizes: Mapping[str, int]) -> Iterator[tuple[int, Expr]]:
    """Yield depth and extent of the loops that count trips, over sizes alone."""
    loops = find_trip_loops(kernel, find_rings(kernel))
    for place in places(kernel.body):
        if isinstance(place.stmt, For) and id(place.stmt) in loops:
            extent = place.expr(place.stmt.extent)
            if variables(extent) <= sizes.keys():
                yield sum(id(outer) in loops for outer in place.loops), extent


def _largest(name: str, sizes: Mapping[str, int], extents: list[tuple[int, Expr]]) -> int:
    """Return the largest size with which no loop makes more trips than wanted; 0: there is none."""
    low, high = 0, sizes[name]
    while low < high:
        middle = (low + high + 1) // 2
        env = {**sizes, name: middle}
        if all(evaluate(e, env) <= most for most, e in extents):
            low = middle
        else:
            high = middle - 1
    return low
