"""Agents: threads that step together, their variables, and which of them are active."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fuser.sim.accumulators import Accumulators
from fuser.sim.memo import FEW_LANES, Memo, frozen

Array: TypeAlias = NDArray[Any]
Index: TypeAlias = "int | NDArray[np.int64]"
Mask: TypeAlias = "NDArray[np.bool_] | None"
"""Active lanes; ``None`` means all of them."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Yielded by a statement that cannot proceed until `ready` returns true."""

    ready: Callable[[], bool]
    why: str | Callable[[], str]

    def reason(self) -> str:
        """Return what it waits for, as things stand now."""
        return self.why if isinstance(self.why, str) else self.why()


STEP = Wait(lambda: True, "its turn")
"""Yielded at statement boundaries so that a scheduler may run somebody else."""


@dataclass(slots=True)
class Registers:
    """A per-thread array: `data` of shape (lanes, size); `written` likewise when tracked.

    Attributes
    ----------
    accumulators
        What matrix products do to them, in an array that some change.
    """

    data: Array
    written: NDArray[np.bool_] | None = None
    accumulators: Accumulators | None = None

    def take(self, lanes: NDArray[np.bool_]) -> Registers:
        """Return copies of what some lanes hold."""
        written = None if self.written is None else self.written[lanes]
        return Registers(self.data[lanes], written, self.accumulators)


@dataclass(slots=True)
class Agent:
    """Threads that step together: all of a chunk of blocks, or one warp.

    Attributes
    ----------
    tid
        Linear thread index inside its block, one per lane.
    slot
        Which block of the machine each lane belongs to.
    env
        Index variables: Python ints where uniform, int64 arrays of shape (lanes,) elsewhere, to
        be replaced and never changed.
    values
        Named scalars: NumPy scalars where uniform, arrays of shape (lanes,) elsewhere.
    mask
        Lanes that execute the current statement.
    at
        The statement being executed, for error texts.
    everyone
        A mask of all lanes.
    memo
        What it has computed before, if it has few lanes.
    """

    name: str
    tid: NDArray[np.int64]
    slot: NDArray[np.int64]
    env: dict[str, Any]
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    registers: dict[str, Registers] = field(default_factory=dict[str, Registers])
    mask: Mask = None
    at: object = None
    everyone: NDArray[np.bool_] = field(init=False)
    memo: Memo | None = field(init=False)

    def __post_init__(self) -> None:
        self.everyone = frozen(np.ones(self.lanes, np.bool_))
        for value in self.env.values():
            frozen(value)
        self.memo = Memo() if self.lanes <= FEW_LANES else None

    @property
    def lanes(self) -> int:
        """Number of threads."""
        return self.tid.size

    def active(self) -> NDArray[np.bool_]:
        """Return the mask as an array, to be read only."""
        return self.everyone if self.mask is None else self.mask

    def spread(self, value: Any) -> Array:
        """Return `value` with one element per lane, to be read only."""
        array: Array = np.asarray(value)
        if array.shape == (self.tid.size,):
            return array
        if array.ndim == 0 and self.memo is not None:
            return array.repeat(self.tid.size)  # of few lanes, several times faster
        return np.broadcast_to(array, (self.lanes,))

    def narrow(self, mask: Mask, condition: Any) -> Mask:
        """Return the lanes of `mask` where `condition` holds; ``None`` when that is all."""
        if isinstance(condition, int | np.bool_ | np.integer):
            return mask if condition else np.zeros(self.lanes, np.bool_)
        narrowed: Mask = self.remember(
            "narrow", lambda: _narrowed(mask, condition), mask, condition
        )
        return narrowed

    def remember(self, what: Hashable, make: Callable[[], Any], *inputs: Any) -> Any:
        """Return what `make()` computes from ints, masks and index arrays, if possible from memory.

        What is returned is to be read only.
        """
        if self.memo is None:
            return make()
        return self.memo.find(what, make, inputs)


def _narrowed(mask: Mask, condition: Any) -> Mask:
    holds = np.asarray(condition, np.bool_)
    if mask is not None:
        return mask & holds
    return None if bool(holds.all()) else holds


def any_lane(mask: Mask) -> bool:
    """Whether some lane is active."""
    return mask is None or bool(mask.any())


def choose(mask: NDArray[np.bool_], a: Any, b: Any) -> Array:
    """Return `a` where `mask` holds and `b` elsewhere; both have the same dtype."""
    chosen: Array = np.asarray(np.where(mask, a, b))  # pyright: ignore[reportUnknownArgumentType]
    return chosen


def merge(mask: Mask, new: Any, old: Any) -> Any:
    """Return `new` in active lanes and `old` elsewhere."""
    if mask is None:
        return new
    return choose(mask, new, old)


def uniform(value: Any, mask: Mask) -> Any:
    """Return an int when all active lanes agree on `value`, else `value` unchanged."""
    if isinstance(value, int):
        return value
    array: Array = np.asarray(value)
    if array.ndim == 0:
        return int(array)
    active = array if mask is None else array[mask]
    if active.size and active[0] == active[-1] and bool((active == active[0]).all()):
        return int(active[0])
    return array
