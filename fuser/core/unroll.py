"""The unroll directive, which lives on the loop it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Unroll:
    """How often a loop body is repeated in the code.

    Attributes
    ----------
    kind
        ``"auto"`` leaves the choice to the generator: full for short constant trips, else rolled.
    factor
        Copies, for ``"partial"``.
    """

    kind: Literal["auto", "full", "partial", "rolled"] = "auto"
    factor: int = 1
