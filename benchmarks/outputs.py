"""Where results are to be written: refused before a run, which takes minutes, rather than after."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from pathlib import Path


def output_file(text: str) -> Path:
    """Return the value of ``--json``; folders that are not there yet will be made."""
    path = Path(text)
    if path.is_dir():
        raise ArgumentTypeError(f"{text!r} is a folder; a file that can be written is needed")
    _check(path, "a file")
    return path


def output_folder(text: str) -> Path:
    """Return the value of ``--plot``."""
    path = Path(text)
    if os.path.lexists(path) and not path.is_dir():
        raise ArgumentTypeError(f"{text!r} is no folder; a folder that can be written is needed")
    _check(path, "a folder")
    return path


def _check(path: Path, what: str) -> None:
    """Refuse a path if it, or the nearest folder above it that is there, cannot be written."""
    there = next(p for p in (path, *path.absolute().parents) if os.path.lexists(p))
    is_place = there == path or there.is_dir()
    if not (is_place and os.access(there, os.W_OK)):
        raise ArgumentTypeError(
            f"{str(path)!r}: {there} {'cannot be written' if is_place else 'is no folder'}; {what} "
            "that can be written is needed"
        )
