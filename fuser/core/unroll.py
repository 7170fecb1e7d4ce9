"""The unroll directive, which lives on the loop it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Reason: TypeAlias = Literal["user", "required", "heuristic"]
DefaultUnroll: TypeAlias = Literal["auto", "rolled"]
"""What becomes of loops that nobody gave a directive: full for short constant trips, or rolled."""
LoopPart: TypeAlias = Literal["prologue", "main", "epilogue", "producer", "consumer"]
"""A loop that is made of a ring's loop of trips: three of a pipelined one, two of a
warp-specialised one.
"""
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
    registers
        Array in registers of which the loop's variable chooses elements: registers have no
        addresses, so that nothing but ``"full"`` leaves it there.
    parts
        Other directives of loops that are made of it when it is a ring's loop of trips.
    """

    kind: Literal["auto", "full", "partial", "rolled"] = "auto"
    factor: int = 1
    origin: str = ""
    most_products: int = MOST_PRODUCTS
    registers: str = ""
    parts: tuple[tuple[LoopPart, Unroll], ...] = ()

    @property
    def reason(self) -> Reason:
        """Who chose: the user, nobody, as nothing else is possible, or the generator."""
        if self.origin:
            return "user"
        return "required" if self.registers and self.kind == "full" else "heuristic"

    @property
    def is_given(self) -> bool:
        """Whether there is a directive at all."""
        return self.kind != "auto" or bool(self.parts)

    @property
    def directive(self) -> str:
        """What a user writes to ask for it."""
        words = [self.written()] if self.kind != "auto" else []
        words += [unroll.written(part) for part, unroll in self.parts]
        return " and ".join(words) or "no directive"

    def written(self, part: LoopPart | None = None) -> str:
        """Return the directive itself, of a part of a ring's loop or of all."""
        factor = [str(self.factor)] if self.kind == "partial" else []
        arguments = ", ".join(factor if part is None else [*factor, f"loop={part!r}"])
        return f"{'rolled' if self.kind == 'rolled' else 'unroll'}({arguments})"

    def asked_by(self, origin: str) -> Unroll:
        """Return it as the directive of a user's axis."""
        parts = tuple((part, replace(unroll, origin=origin)) for part, unroll in self.parts)
        return replace(self, origin=origin, parts=parts)

    def for_part(self, part: LoopPart | None) -> Unroll | None:
        """Return what was asked of a part, or of all that have no directive of their own."""
        if part is not None:
            return dict(self.parts).get(part)
        return None if self.kind == "auto" else replace(self, parts=())

    def with_part(self, part: LoopPart | None, unroll: Unroll) -> Unroll:
        """Return it with a directive more: of a part, or of all that have none of their own."""
        if part is None:
            return replace(unroll, parts=self.parts)
        return replace(self, parts=(*(p for p in self.parts if p[0] != part), (part, unroll)))

    def of(self, part: LoopPart) -> Unroll:
        """Return the directive of a loop that is made of a ring's loop of trips."""
        return self.for_part(part) or self.for_part(None) or Unroll()
