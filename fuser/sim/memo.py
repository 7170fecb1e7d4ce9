"""What an agent has computed before: rings come back to the same indices again and again.

An index array or a mask is never changed, only replaced, so one that is met again stands for the
same numbers, and what follows from it is found by its identity. An array that is remembered is
frozen: to change it in place is an error of NumPy, and one that is not frozen is new.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from fuser.core.expr import Expr, variables

FEW_LANES = 256
"""Agents of more lanes remember nothing: their arrays are large, and what they compute changes."""
MOST = 1 << 12
"""Results of one agent; it forgets all of them when there are more."""


@dataclass(slots=True)
class Memo:
    """Results by what they are and by their inputs.

    A result is kept with its inputs, so that no other object gets their identity.
    """

    results: dict[Hashable, tuple[Any, ...]] = field(default_factory=dict[Hashable, Any])

    def find(self, what: Hashable, make: Callable[[], Any], inputs: tuple[Any, ...]) -> Any:
        """Return what `make()` computes from `inputs`."""
        key: list[Hashable] = [what]
        for value in inputs:
            if type(value) is int:
                key.append(value)
            elif is_frozen(value):
                key.append((id(value),))  # no number is equal to it
            else:
                return make()
        at = tuple(key)
        known = self.results.get(at)
        if known is None:
            if len(self.results) >= MOST:
                self.results.clear()
            known = self.results[at] = (frozen(make()), *inputs)
        return known[0]


@lru_cache(maxsize=1 << 16)
def inputs_of(e: Expr) -> tuple[str, ...]:
    """Return the variables of an index expression, in an order of their own."""
    return tuple(sorted(variables(e)))


def frozen(value: Any) -> Any:
    """Return `value`, which nobody may change any more if it is an array."""
    if type(value) is np.ndarray:
        value.setflags(write=False)
    return value


def is_frozen(value: Any) -> bool:
    """Whether `value` will not change: an array that is frozen, or no array."""
    return type(value) is not np.ndarray or not value.flags.writeable
