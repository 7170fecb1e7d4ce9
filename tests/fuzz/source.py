"""Where random choices come from: hypothesis, which shrinks them, or a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Source:
    """Choices made by one function ``below(n)``, which returns an integer of ``0..n-1``.

    Simple choices come first everywhere, so that hypothesis shrinks towards them.
    """

    def __init__(self, below: Callable[[int], int]) -> None:
        self.below = below

    @classmethod
    def seeded(cls, seed: int) -> Source:
        """Return choices that depend on `seed` alone."""
        return cls(Random(seed).randrange)

    @classmethod
    def drawn(cls, draw: Callable[..., Any]) -> Source:
        """Return choices that hypothesis makes."""
        return cls(lambda n: draw(st.integers(0, n - 1)) if n > 1 else 0)

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[T]) -> T:
        """Return one of `items`."""
        return items[self.below(len(items))]

    def chance(self, percent: int) -> bool:
        """Return True in `percent` of 100 cases."""
        return self.below(100) >= 100 - percent

    def some(self, items: Sequence[T], percent: int = 50) -> list[T]:
        """Return a subset in the given order."""
        return [item for item in items if self.chance(percent)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return a permutation."""
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in items]
