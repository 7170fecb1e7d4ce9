"""The unroll directive, which lives on the loop it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

DefaultUnroll: TypeAlias = Literal["auto", "rolled"]
"""What becomes of loops that nobody gave a directive: full for short constant trips, or rolled."""
MOST_PRODUCTS = 128


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """What a definition says of all its loops.

    Attributes
    ----------
    default
        What becomes of loops without a directive.
    exact
        The compiler makes no second version of a loop around a partially unrolled one: how many
        rounds that has is hidden from it.
    """

    default: DefaultUnroll = "auto"
    exact: bool = False


DEFAULT_LOOPS = LoopOptions()


@dataclass(frozen=True, slots=True)
class Unroll:
    """How often a loop body is repeated in the code.

    Attributes
    ----------
    kind
        ``"auto"`` leaves the choice to the generator: full for short constant trips, else rolled.
    factor
        Copies, for ``"partial"``; of the rolled loops made of it, trips in a round.
    origin
        The user's axis that it was asked for, as errors name it; empty: the generator's own choice.
        What the user asks for is expanded by the generator, the rest by the compiler.
    most_products
        Matrix instructions that all copies of a body may have: the compiler takes a second for 128
        of them, and eight for 256.
    """

    kind: Literal["auto", "full", "partial", "rolled"] = "auto"
    factor: int = 1
    origin: str = ""
    most_products: int = MOST_PRODUCTS

    @property
    def directive(self) -> str:
        """What a user writes to ask for it."""
        match self.kind:
            case "partial":
                return f"unroll({self.factor})"
            case "full":
                return "unroll()"
            case "rolled":
                return "rolled()"
            case "auto":
                return "no directive"
