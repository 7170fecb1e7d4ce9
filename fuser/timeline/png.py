"""PNG image of a drawing, by matplotlib."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any, assert_never

from fuser.core.errors import BackendError
from fuser.timeline.drawing import Drawing, Line, Rect, Text

POINTS = 0.72
"""Points of a pixel, at 100 pixels an inch."""
SHARPNESS = 2
"""Pixels of the image along one pixel of the drawing."""


def to_png(drawing: Drawing) -> bytes:
    """Draw it.

    Raises
    ------
    BackendError
        There is no matplotlib.
    """
    try:
        figures: Any = import_module("matplotlib.figure")
        patches: Any = import_module("matplotlib.patches")
        lines: Any = import_module("matplotlib.lines")
    except ImportError:
        raise BackendError(
            "a .png needs matplotlib: pip install 'fuser-cuda[bench]'; an .svg needs nothing"
        ) from None
    figure = figures.Figure((drawing.width / 100, drawing.height / 100), 100, facecolor="white")

    def add(artist: Any) -> None:
        artist.set_zorder(len(figure.get_children()))  # later shapes on top
        figure.add_artist(artist)

    def at(x: float, y: float) -> tuple[float, float]:
        return x / drawing.width, 1 - y / drawing.height

    for shape in drawing.shapes:
        match shape:
            case Rect(x, y, width, height, fill, stroke, hatch):
                place = at(x, y + height)
                extent = width / drawing.width, height / drawing.height
                line = 0.72 if stroke else 0
                edge = stroke or "none"
                add(patches.Rectangle(place, *extent, facecolor=fill, edgecolor=edge, lw=line))
                if hatch:
                    add(
                        patches.Rectangle(
                            place, *extent, fill=False, edgecolor=hatch, lw=0, hatch="////"
                        )
                    )
            case Text(x, y, text, size, colour, anchor, bold):
                written = figure.text(
                    *at(x, y), text, fontsize=size * POINTS, color=colour, parse_math=False,
                    ha={"start": "left", "middle": "center", "end": "right"}[anchor],
                    va="center_baseline", weight="bold" if bold else "normal",
                )  # fmt: skip
                written.set_zorder(len(figure.get_children()))
            case Line(x0, y0, x1, y1, colour, width, dashed):
                (xa, ya), (xb, yb) = at(x0, y0), at(x1, y1)
                style = "--" if dashed else "-"
                add(lines.Line2D([xa, xb], [ya, yb], color=colour, lw=width * POINTS, ls=style))
            case _:
                assert_never(shape)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=100 * SHARPNESS, metadata={"Software": None})
    return image.getvalue()
