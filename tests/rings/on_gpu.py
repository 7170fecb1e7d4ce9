"""Cells on a GPU: a worker that takes cells by name on stdin, and a guard that survives hangs.

``echo CELL | python -m rings.on_gpu [by_thread] [no_wait]`` runs one by hand, with a change to the
kernel if one is named (see VARIANTS). Outputs are poisoned before every run, and sentinel bytes
behind every allocation are compared after it.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuser import DataType
from fuser.core.errors import FallbackWarning, LaunchError
from fuser.passes.ring import RingLowering
from fuser.runtime.driver import check as checked
from fuser.runtime.driver import driver
from fuser.runtime.log import CompileWarning
from fuser.runtime.memory import Scratch
from rings import matrix
from rings.cells import Cell, definition, require_equal

SENTINEL_BYTES = 256
REPEATS = 3
SILENCE_SECONDS = 60
"""How long a worker may work on one cell, compilation included."""
WORKER = (sys.executable, "-m", "rings.on_gpu")
VARIANTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "by_thread": ("readers", RingLowering.consumers),
    "no_wait": ("acquire", lambda ring, verb, scope: ()),
}
"""Changes to how rings are lowered: every reader says itself that it has read a stage, instead of
one lane for its warp; a stage is filled without the wait for its readers, which is a race."""


# ---- worker ------------------------------------------------------------------------------------


def poison_of(dtype: DataType) -> int:
    """Return a byte that no result consists of: NaN in floats, -128 in int8."""
    return 0x80 if dtype is DataType.Int8 else 0xFF


@contextmanager
def guarded_memory(poison: int) -> Iterator[None]:
    """Poison every allocation and fail if what lies behind it has changed at the end of a run."""
    allocate, leave = Scratch.allocate, Scratch.__exit__
    ends: dict[int, list[int]] = {}

    def guarded(self: Scratch, nbytes: int) -> int:
        if not nbytes:
            return 0
        pointer = allocate(self, nbytes + SENTINEL_BYTES)
        checked(
            driver().cuMemsetD8Async(pointer, poison, nbytes + SENTINEL_BYTES, self.stream),
            "poison",
        )
        ends.setdefault(id(self), []).append(pointer + nbytes)
        return pointer

    def compared(self: Scratch, *error: object) -> None:
        found = np.empty(SENTINEL_BYTES, np.uint8)
        changed = 0
        for end in ends.pop(id(self), []):
            if error[0] is None:
                checked(driver().cuMemcpyDtoH(found.ctypes.data, end, SENTINEL_BYTES), "sentinel")
                changed += int((found != poison).sum())
        leave(self, *error)
        assert not changed, f"{changed} bytes behind a tensor were written"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scratch, "allocate", guarded)
        patch.setattr(Scratch, "__exit__", compared)
        yield


def check(cell: Cell) -> None:
    """Raise unless every repetition on the GPU is exactly the reference."""
    fd, inputs = definition(cell), cell.inputs()
    expected = cell.reference(inputs)
    with guarded_memory(poison_of(cell.dtype)):
        for _ in range(REPEATS):
            (got,) = fd.manual_execute(inputs, backend="cuda")
            require_equal(cell, got, expected, "cuda")


def work(names: Sequence[str]) -> None:
    """Run cells by name, one line before and one after each; stop when the context is lost."""
    known = {str(cell): cell for cell in (*matrix.whole(), *matrix.covering())}
    warnings.simplefilter("ignore", CompileWarning)
    warnings.simplefilter("ignore", FallbackWarning)
    for name in names:
        print("begin", name, flush=True)
        try:
            check(known[name])
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            print("lost" if isinstance(error, LaunchError) else "bad", name, text, flush=True)
            if isinstance(error, LaunchError):
                return
        else:
            print("ok", name, flush=True)


# ---- guard -------------------------------------------------------------------------------------


def run_guarded(
    names: Sequence[str], worker: Sequence[str] = WORKER, silence: float = SILENCE_SECONDS
) -> dict[str, str]:
    """Run cells in worker processes; return what failed, by cell: a hang is reported as one.

    A worker that hangs or crashes is ended and another one goes on behind the cell it was at.
    """
    failures: dict[str, str] = {}
    left = list(names)
    while left:
        done, failed = _run_worker(left, worker, silence)
        failures |= failed
        left = left[done:]
    return failures


def _run_worker(
    names: Sequence[str], worker: Sequence[str], silence: float
) -> tuple[int, dict[str, str]]:
    """Return how many cells one worker dealt with, and those that failed."""
    failed: dict[str, str] = {}
    done = 0
    process = _start(worker)
    assert process.stdin is not None
    process.stdin.write("\n".join(names))
    process.stdin.close()
    lines = _lines_of(process)
    tail: list[str] = []
    while True:
        try:
            line = lines.get(timeout=silence)
        except queue.Empty:
            process.kill()
            failed[names[done]] = f"hung: no answer within {silence} s"
            return done + 1, failed
        if line is None:
            break
        state, _, rest = line.rstrip().partition(" ")
        name, _, text = rest.partition(" ")
        if state in ("ok", "bad", "lost") and done < len(names) and name == names[done]:
            done += 1
            if state != "ok":
                failed[name] = text
        elif state != "begin":
            tail.append(line.rstrip())
    if process.wait() and done < len(names):
        failed[names[done]] = f"exit status {process.returncode}: {' | '.join(tail[-5:])}"
        done += 1
    elif not done:
        raise RuntimeError(f"the worker did nothing: {' | '.join(tail[-5:])}")
    return done, failed


def _start(worker: Sequence[str]) -> subprocess.Popen[str]:
    tests = Path(__file__).parents[1]
    path = os.pathsep.join((str(tests.parent), str(tests)))
    return subprocess.Popen(
        worker,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def _lines_of(process: subprocess.Popen[str]) -> queue.Queue[str | None]:
    """Return a queue of the lines a process prints, ended by None."""
    lines: queue.Queue[str | None] = queue.Queue()
    out: Any = process.stdout

    def read() -> None:
        for line in out:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


if __name__ == "__main__":
    for change in sys.argv[1:]:
        setattr(RingLowering, *VARIANTS[change])
    work(sys.stdin.read().split())
