"""Two levels of trips as one: loops that are nested, where nothing depends on how they are.

``for i < A: for j < B: trip(i, j)`` is ``for t < A * B: trip(0, t)`` where every barrier, stage and
parity is of ``i * B + j`` alone, as in a persistent loop whose stages go on from tile to tile. Any
number of trips t is made by some A and B, so a proof for all of them is one for all A and B.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from fuser.protocol.model import LEVELS, Analysis, agents_of, counted
from fuser.protocol.program import (
    Converge,
    Counted,
    Enter,
    Head,
    LoopRange,
    Program,
    indices,
)
from fuser.protocol.rings import places
from fuser.protocol.values import Compiled

FAR = (64, 1000)
"""Trips that stand for many."""
COUNTS = (3, 101, 103)
"""Trip counts by level at which bounds of loops are compared."""


def joined(analysis: Analysis) -> Analysis | None:
    """Return the pipeline with its two outermost levels joined; None where they must be told apart.

    The outermost loops make one trip then, and those inside of them all trips.
    """
    sizes = {s.level: s for s in analysis.sizes}
    if not 2 <= analysis.levels <= len(LEVELS) or len(analysis.sizes) != analysis.levels:
        return None
    if len(sizes) < analysis.levels:
        return None
    agents = agents_of(analysis, *counted(analysis, 0))
    if not all(_is_nested(program) for program in agents):
        return None
    every = {e.text: e for program in agents for e in _deciding(program)}
    if not all(_is_joint(e, analysis) for e in every.values()):
        return None
    fewest = min(sizes[0].fewest, sizes[1].fewest)
    within = [replace(sizes[1], level=0, fewest=fewest)]
    within += [replace(sizes[level], level=level - 1) for level in range(2, analysis.levels)]
    return Analysis(
        analysis.kernel, analysis.rings, analysis.trip_loops - _outermost(analysis), tuple(within),
        analysis.levels - 1, (*analysis.once, sizes[0]),
    )  # fmt: skip


def _outermost(analysis: Analysis) -> set[int]:
    """Return the ids of the loops over trips that are inside of no other."""
    return {
        id(place.stmt)
        for place in places(analysis.kernel.body)
        if id(place.stmt) in analysis.trip_loops
        and not any(id(loop) in analysis.trip_loops for loop in place.loops)
    }


def _is_nested(program: Program) -> bool:
    """Whether each outermost loop consists of one loop, and both make all trips."""
    outer = [loop for loop in program.loops if loop.level == 0]
    inner = [loop for loop in program.loops if loop.level == 1]
    if len(outer) != len(inner) or not all(_makes_all(loop) for loop in (*outer, *inner)):
        return False
    for around, loop in zip(_in_order(outer), _in_order(inner), strict=True):
        if not around.enter < loop.enter < loop.exit < around.exit:
            return False
        before = program.code[around.enter + 2 : loop.enter]
        behind = program.code[loop.exit : around.exit - 1]
        if not all(isinstance(i, Counted | Converge) for i in (*before, *behind)):
            return False
    return True


def _in_order(loops: list[LoopRange]) -> list[LoopRange]:
    return sorted(loops, key=lambda loop: loop.enter)


def _makes_all(loop: LoopRange) -> bool:
    """Whether a loop makes all trips of its level, one at a time."""
    counts = [[*range(4), many] for many in COUNTS]
    return loop.step == 1 and all(
        loop.start.at((0,) * loop.level, *n) == 0
        and loop.extent.at((0,) * loop.level, *n) == n[loop.level]
        for n in product(*counts)
    )


def _deciding(program: Program) -> Iterator[Compiled]:
    """Yield what decides what is done, but for the bounds of the loops that are joined."""
    for instruction in program.code:
        if not (isinstance(instruction, Enter | Head) and instruction.slot < 2):
            yield from indices(instruction)


def _is_joint(e: Compiled, analysis: Analysis) -> bool:
    """Whether a value is of the trips made so far, and of their number in all, alone."""
    if not e.counts and "v[" not in e.text:
        return True
    span = range(analysis.period + 2)
    for outer, many, deeper in product(span, (*span[1:], *FAR), (0, 1, 3)):
        for inner in {0, 1 % many, many // 2, many - 1}:
            for more in (1, 3):
                now = e.at((outer, inner, deeper), outer + more, many, deeper + 1)
                trip = 0, outer * many + inner, deeper
                if now != e.at(trip, 1, (outer + more) * many, deeper + 1):
                    return False
    return True
