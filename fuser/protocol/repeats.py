"""Whether loops repeat: how their bounds follow the count, and from which trip on they do the same.

Trip v of n trips shall be like trip v - s of n - s: then states may be shifted by s trips. That is
tested on samples of the indices, not assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from fuser.protocol.program import Act, Enter, Head, Instruction, LoopRange, Read, indices
from fuser.protocol.values import Compiled

FAR = (5, 64, 1000, 1 << 20)
"""Numbers of trips to come, and of steps, that stand for many."""


def moves_along(loop: LoopRange, level: int, period: int) -> bool:
    """Whether a loop starts as many trips later as the count is larger: one over the last trips."""
    return starts_at(loop, level, 3 * period) > 2 * period and _shifts(loop.start, level, period)


def is_foldable(loop: LoopRange, level: int, period: int) -> bool:
    """Whether trip i of n trips is like trip i - s of n - s: the loop ends as much earlier."""
    if _bound(loop.extent, 3 * period, level) <= 2 * period:
        return False  # bounded
    return _shifts(loop.extent, level, period)


def grows(loop: LoopRange, level: int, period: int) -> bool:
    """Whether a loop ends later and later as the count becomes larger, be it in rounds."""
    many = 64 * period
    return _bound(loop.extent, 2 * many, level) > _bound(loop.extent, many, level)


def starts_at(loop: LoopRange, level: int, n: int) -> int:
    """Return the first trip of a loop where there are `n` trips."""
    return _bound(loop.start, n, level)


def _shifts(e: Compiled, level: int, period: int) -> bool:
    """Whether a bound is less by s where there are s trips fewer, as long as it is that large."""
    return all(
        _bound(e, n - s, level) == end - s
        for n in range(3 * period + 1)
        for end in (_bound(e, n, level),)
        for s in range(min(end, n + 1))
    )


def _bound(e: Compiled, n: int, level: int) -> int:
    return e.at((0, 0), n, n) if not level else e.at((0, 0), 0, n)


def named_by(instruction: Instruction) -> Iterator[Compiled]:
    """Yield what names a barrier, a stage, a parity or a token."""
    if isinstance(instruction, Read):
        yield instruction.stage
    if not isinstance(instruction, Act):
        return
    yield from (stage for _, stage, _ in instruction.writes)
    if instruction.index is not None:
        yield instruction.index
    if instruction.kind == "wait" and instruction.number is not None:
        yield instruction.number
    if instruction.token is not None:
        yield instruction.token[1]


def decided_by(instruction: Instruction, level: int) -> Iterator[Compiled]:
    """Yield what an instruction depends on besides, but for bounds of the loops of a level."""
    if isinstance(instruction, Enter | Head) and instruction.slot == level:
        return
    named = {e.text for e in named_by(instruction)}
    yield from (e for e in indices(instruction) if e.text not in named)


@lru_cache(maxsize=1 << 14)  # agents, cases and mutants of a kernel have most in common
def repeats_since(e: Compiled, level: int, step: int, period: int, levels: int) -> int | None:
    """Return the first trip from which on a value is the same `step` trips later, of as many more.

    None where it goes on to change.
    """
    if not e.counts and "v[" not in e.text:
        return 0
    trips, ahead = range(4 * period + 1), (*range(1, period + 2), *FAR)
    others = range(min(period, 3) + 1) if levels > 1 else range(1)
    since = 0
    for here, more, other, count in product(trips, ahead, others, others):
        now, *later = (
            e.at(*_at(level, here, other, here + more, count, shift))
            for shift in (0, step, *(step * n for n in FAR))
        )
        if any(value != now for value in later):
            since = here + 1
    return since if since <= 2 * period else None


def _at(
    level: int, trip: int, other: int, count: int, others: int, shift: int
) -> tuple[tuple[int, ...], int, int]:
    """Return loop variables and trip counts, those of a level shifted."""
    trip, count = trip + shift, count + shift
    return ((trip, other), count, others) if not level else ((other, trip), others, count)
