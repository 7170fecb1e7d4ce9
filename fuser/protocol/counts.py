"""What is known of trip counts while they are chosen: exact, or at least so many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from fuser.protocol.errors import Undecided
from fuser.protocol.values import Compiled

Count: TypeAlias = tuple[int, bool]
"""A trip count: its least value, and whether it is that value."""

Known: TypeAlias = tuple[Count, int, tuple[Count, ...]]
"""The outer count; and the inner counts from one outer iteration on."""

UNUSED: Count = (0, True)


@dataclass(frozen=True, slots=True)
class Counting:
    """How trip counts may be chosen.

    Attributes
    ----------
    outer, inner
        What is known at first, of the inner count in every outer iteration.
    steps
        By how much each may grow: 1, or a whole period where only its residue is known.
    horizon
        A value is taken to be decided when it is the same for counts up to so much larger.
    """

    outer: Count = UNUSED
    inner: Count = UNUSED
    steps: tuple[int, int] = (1, 1)
    horizon: int = 64

    def initial(self) -> Known:
        """Return what is known before the kernel starts."""
        return self.outer, 0, ()

    def extended(self, known: Known, iteration: int) -> Known:
        """Return `known` with an entry for the inner count of an outer iteration."""
        outer, base, inner = known
        missing = iteration - base - len(inner) + 1
        return known if missing <= 0 else (outer, base, inner + (self.inner,) * missing)

    def decide(self, e: Compiled, v: tuple[int, ...], known: Known) -> Iterator[tuple[Known, int]]:
        """Yield the values that an index may have, with what each says of the counts."""
        if 1 in e.counts:
            known = self.extended(known, v[0])
        outer, base, inner = known
        mine = inner[v[0] - base] if 1 in e.counts else UNUSED
        tops = outer[0] + self.horizon, mine[0] + self.horizon
        open_ = [(outer, mine)]
        while open_:
            a, b = open_.pop()
            values = {
                e.at(v, n0, n1)
                for n0 in (self.samples(a, 0) if 0 in e.counts else (a[0],))
                for n1 in (self.samples(b, 1) if 1 in e.counts else (b[0],))
            }
            if len(values) == 1:
                yield self.replaced(known, v, e, a, b), values.pop()
                continue
            if a[0] > tops[0] or b[0] > tops[1]:
                raise Undecided(e.text)
            if 1 in e.counts and not b[1]:
                open_ += [(a, (b[0] + self.steps[1], False)), (a, (b[0], True))]
            else:
                open_ += [((a[0] + self.steps[0], False), b), ((a[0], True), b)]

    def samples(self, count: Count, level: int) -> tuple[int, ...]:
        """Return counts that stand for all that are possible."""
        least, exact = count
        if exact:
            return (least,)
        step = self.steps[level]
        return tuple(least + step * k for k in (0, 1, 2, 3, 5, self.horizon))

    def replaced(self, known: Known, v: tuple[int, ...], e: Compiled, a: Count, b: Count) -> Known:
        """Return `known` with refined counts."""
        _, base, inner = known
        if 1 in e.counts:
            at = v[0] - base
            inner = (*inner[:at], b, *inner[at + 1 :])
        return a, base, inner
