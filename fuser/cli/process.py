"""The process of a command: how it ends when its user ends it, or nobody takes what it prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from fuser.cli import INTERRUPTED


def exit_status(command: Callable[[], int]) -> int:
    """Run a command and return its exit status; Ctrl-C and a full disk leave no traceback."""
    try:
        status = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        if error.filename is not None:  # no write to a stream that is open
            raise
        _discard_output()
        if not isinstance(error, BrokenPipeError):  # whoever read it wants no more
            what = f"{error.strerror}; output that can be written to is needed"
            print(f"error: standard output: {what}", file=sys.stderr)
        return 1
    return status


def _discard_output() -> None:
    """Let what is still to be printed go nowhere: Python writes it when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
