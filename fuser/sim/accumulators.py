"""Registers that asynchronous matrix products change: what products see of them, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Accumulators:
    """State of a register array, one row per warp of the machine, one column per register.

    Attributes
    ----------
    shown
        Whether a fence has shown the registers, as they are, to products.
    flying
        Number of the group of the latest product that changes it and is not known to be complete;
        0: none.
    shape
        First register and columns of that product, as one number.
    """

    shown: NDArray[np.bool_]
    flying: Ints
    shape: Ints

    @classmethod
    def of(cls, warps: int, size: int) -> Accumulators:
        """Return the state of registers that no product has seen."""
        form = warps, size
        return cls(np.zeros(form, np.bool_), np.zeros(form, np.int64), np.zeros(form, np.int64))

    def adopt(self, other: Accumulators, warps: Ints) -> None:
        """Take over the rows of some warps."""
        for mine, theirs in ((self.shown, other.shown), (self.flying, other.flying),
                             (self.shape, other.shape)):  # fmt: skip
            mine[warps] = theirs[warps]

    def first_flying(self, warps: Ints, columns: Ints) -> tuple[int, int] | None:
        """Return a lane, by warps of lanes, and which of its `columns` a product changes."""
        flying = self.flying[warps[:, None], columns] > 0
        if not flying.any():
            return None
        lane, column = np.argwhere(flying)[0]
        return int(lane), int(columns[lane, column])

    def hide(self, warps: Ints, columns: Ints) -> None:
        """Note that lanes of `warps` have written registers."""
        self.shown[warps[:, None], columns] = False

    def show(self, warps: Ints, size: int) -> None:
        """Show the first `size` registers to products."""
        self.shown[warps, :size] = True

    def issue(self, warps: Ints, columns: slice, groups: Ints, shape: int) -> None:
        """Note products of `groups`, one number a warp."""
        self.flying[warps, columns] = groups[:, None]
        self.shape[warps, columns] = shape

    def settle(self, warps: Ints, size: int, complete: Ints) -> None:
        """Note that groups up to `complete`, one number a warp, change nothing any more."""
        flying = self.flying[warps, :size]
        self.flying[warps, :size] = np.where(flying <= complete[:, None], 0, flying)

    def hidden(self, warps: Ints, columns: slice) -> NDArray[np.bool_]:
        """Return which registers hold what products need not see."""
        return ~self.shown[warps, columns]

    def otherwise(self, warps: Ints, columns: slice, shape: int) -> Any:
        """Return which registers a product of another shape than `shape` changes."""
        return (self.flying[warps, columns] > 0) & (self.shape[warps, columns] != shape)
