"""Pictures of pipelines, for the commands: into files, and into the page of ``explain``."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rich.console import Console

from fuser.cli import show
from fuser.cli.recorder import Record
from fuser.cli.script import complain
from fuser.core.errors import FuserError
from fuser.protocol.verdict import Verdict
from fuser.timeline.counterexample import counterexample
from fuser.timeline.layout import draw
from fuser.timeline.record import record as record_kernel
from fuser.timeline.svg import to_svg
from fuser.timeline.timeline import Timeline
from fuser.timeline.write import check_suffix, write


def check(path: str | None) -> None:
    """Raise `OptionError` unless a picture can have this name, or none is wanted."""
    if path is not None:
        check_suffix(Path(path))


def write_timelines(path: Path, records: Sequence[Record], err: Console) -> int:
    """Write the timeline of every kernel with a circular buffer; return the exit status.

    Behind the first one, ``_2``, ``_3``... stand in front of the suffix.
    """
    kernels = [
        (kernel, record.sizes)
        for record in records
        if record.program is not None
        for kernel in record.program.kernels
        if kernel.rings
    ]
    if not kernels:
        return complain(err, str(path), "no kernel has a circular buffer; needed one to draw")
    for number, (kernel, sizes) in enumerate(kernels, 1):
        name = path if number == 1 else path.with_stem(f"{path.stem}_{number}")
        try:
            _write(name, record_kernel(kernel, sizes))
        except FuserError as error:
            return _refuse(name, error, err)
    return 0


def write_counterexample(path: Path, verdicts: Sequence[Verdict], err: Console) -> int:
    """Write how the first wrong pipeline goes wrong, if one does; return the exit status."""
    wrong = next((v for v in verdicts if v.fault is not None), None)
    if wrong is None:
        show.console().print(f"nothing is wrong: {path} is not written", soft_wrap=True)
        return 0
    try:
        _write(path, counterexample(wrong))
    except FuserError as error:
        return _refuse(path, error, err)
    return 0


def _refuse(path: Path, error: FuserError, err: Console) -> int:
    """Say why a picture is not there; an error of writing names the file itself."""
    return complain(err, str(path), str(error).removeprefix(f"{path}: "))


def _write(path: Path, timeline: Timeline) -> None:
    write(path, timeline)
    show.console().print(f"wrote {path}", markup=False, soft_wrap=True)


def inline(record: Record, number: int) -> dict[str, str]:
    """Return the timelines of a fusion's kernels as SVG elements, by kernel."""
    found: dict[str, str] = {}
    kernels = record.program.kernels if record.program is not None else ()
    for k, kernel in enumerate(kernels):
        if not kernel.rings:
            continue
        try:
            timeline = record_kernel(kernel, record.sizes)
        except FuserError as error:  # too large to make up its tensors
            found[kernel.name] = f"<p>{escape(str(error))}</p>"
            continue
        found[kernel.name] = to_svg(draw(timeline), f"fusion{number}kernel{k}")
    return found
