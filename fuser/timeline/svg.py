"""SVG text of a drawing; the same drawing always becomes the same text."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import assert_never

from fuser.timeline.drawing import Drawing, Line, Rect, Shape, Text

FONT = "system-ui, 'DejaVu Sans', sans-serif"


def to_svg(drawing: Drawing, prefix: str = "") -> str:
    """Print a drawing.

    Parameters
    ----------
    prefix
        Begins the ids, which must differ between pictures of one page.
    """
    width, height = number(drawing.width), number(drawing.height)
    hatches = dict.fromkeys(s.hatch for s in drawing.shapes if isinstance(s, Rect) and s.hatch)
    ids = {colour: f"{prefix}hatch{i}" for i, colour in enumerate(hatches)}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="{FONT}">',
        f"<title>{escape(drawing.title)}</title>",
        "<defs>",
        *(_pattern(name, colour) for colour, name in ids.items()),
        "</defs>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for shape in drawing.shapes:
        lines += _shape(shape, ids)
    return "\n".join([*lines, "</svg>\n"])


def number(value: float) -> str:
    """Print a length with two digits at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _pattern(name: str, colour: str) -> str:
    return (
        f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6" stroke="{colour}" '
        f'stroke-width="2"/></pattern>'
    )


def _shape(shape: Shape, ids: dict[str, str]) -> Iterator[str]:
    match shape:
        case Rect(hatch=hatch):
            yield _rect(shape, shape.fill, "" if hatch else shape.hint)
            if hatch:
                yield _rect(shape, f"url(#{ids[hatch]})", shape.hint)
        case Text(x, y, text, size, colour, anchor, bold):
            weight = ' font-weight="600"' if bold else ""
            yield (
                f'<text x="{number(x)}" y="{number(y + 0.35 * size)}" font-size="{number(size)}" '
                f'fill="{colour}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'
            )
        case Line(x0, y0, x1, y1, colour, width, dashed):
            dash = ' stroke-dasharray="4 3"' if dashed else ""
            yield (
                f'<line x1="{number(x0)}" y1="{number(y0)}" x2="{number(x1)}" y2="{number(y1)}" '
                f'stroke="{colour}" stroke-width="{number(width)}"{dash}/>'
            )
        case _:
            assert_never(shape)


def _rect(r: Rect, fill: str, hint: str) -> str:
    place = f'x="{number(r.x)}" y="{number(r.y)}"'
    extent = f'width="{number(r.width)}" height="{number(r.height)}"'
    stroke = f' stroke="{r.stroke}"' if r.stroke else ""
    head = f'<rect {place} {extent} fill="{fill}"{stroke}'
    return f"{head}><title>{escape(hint)}</title></rect>" if hint else f"{head}/>"
