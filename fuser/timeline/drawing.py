"""A drawing of a few shapes: what the writers of pictures need to know, and no more.

Lengths are in pixels of a picture drawn at its own size; y grows downwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

GLYPH = 0.58
"""Width of a letter of a sans-serif font, in font sizes; the average, on the safe side."""


@dataclass(frozen=True, slots=True)
class Rect:
    """A box with a `fill` colour.

    Attributes
    ----------
    hatch
        Colour of diagonal lines over it; empty: none.
    hint
        What is said while the pointer is on it, where there is one.
    """

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str = ""
    hatch: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text; `y` is its middle."""

    x: float
    y: float
    text: str
    size: float = 11
    colour: str = "#1f2328"
    anchor: Literal["start", "middle", "end"] = "start"
    bold: bool = False

    @property
    def width(self) -> float:
        """About how wide it is."""
        return text_width(self.text, self.size)


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line."""

    x0: float
    y0: float
    x1: float
    y1: float
    colour: str
    width: float = 1
    dashed: bool = False


Shape: TypeAlias = Rect | Text | Line


@dataclass(slots=True)
class Drawing:
    """Shapes, later ones on top, on a white ground."""

    title: str
    width: float
    height: float
    shapes: list[Shape] = field(default_factory=list[Shape])


def text_width(text: str, size: float) -> float:
    """Return about how wide a text is."""
    return GLYPH * size * len(text)
