"""Timelines to files: SVG written by us, PNG by matplotlib."""

from __future__ import annotations

from pathlib import Path

from fuser.core.errors import OptionError
from fuser.timeline.layout import draw
from fuser.timeline.png import to_png
from fuser.timeline.svg import to_svg
from fuser.timeline.timeline import Timeline

SUFFIXES = (".svg", ".png")


def write(path: Path, timeline: Timeline) -> None:
    """Write a picture; the suffix of `path` says of which kind.

    Raises
    ------
    OptionError
        The suffix is none of `SUFFIXES`, or the file cannot be written.
    BackendError
        A PNG without matplotlib.
    """
    check_suffix(path)
    drawing = draw(timeline)
    image = to_png(drawing) if path.suffix == ".png" else to_svg(drawing).encode()
    try:
        path.write_bytes(image)
    except OSError as error:
        raise OptionError(
            f"{path}: {error.strerror}; a file that can be written is needed"
        ) from None


def check_suffix(path: Path) -> None:
    """Raise `OptionError` unless a picture can be written to a file of this name."""
    if path.suffix not in SUFFIXES:
        raise OptionError(f"{path}: needed a name that ends in {' or '.join(SUFFIXES)}")
