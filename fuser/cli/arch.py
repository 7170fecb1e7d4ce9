"""The option ``--arch`` of the commands that compile."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError

from fuser.api.listing import DEFAULT_ARCH
from fuser.core.errors import BackendError
from fuser.runtime.nvrtc import nvrtc_archs


def add_arch(part: ArgumentParser) -> None:
    """Add ``--arch`` to the arguments of a command."""
    part.add_argument(
        "--arch", default=DEFAULT_ARCH, type=architecture,
        help="compile for this architecture (%(default)s)",
    )  # fmt: skip


def architecture(text: str) -> str:
    """Return the value of ``--arch``; without NVRTC, what runs next says that it is missing."""
    try:
        known = nvrtc_archs()
    except BackendError:
        return text
    if text not in known:
        raise ArgumentTypeError(f"{text!r}; needed one of {', '.join(known)}")
    return text
