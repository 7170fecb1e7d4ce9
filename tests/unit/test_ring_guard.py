"""The guard around GPU workers: hangs, crashes and lost contexts cost their cell and no other."""

from __future__ import annotations

import sys

import pytest
from rings.on_gpu import run_guarded

pytestmark = pytest.mark.unit

WORKER = """
import os, sys, time
for name in sys.stdin.read().split():
    print("begin", name, flush=True)
    if name == "hangs":
        time.sleep(60)
    if name == "crashes":
        print("Segmentation fault", flush=True)
        os._exit(139)
    if name == "loses":
        print("lost", name, "LaunchError: gone", flush=True)
        break
    print("bad differs 3 elements" if name == "differs" else f"ok {name}", flush=True)
"""


def guarded(*names: str) -> dict[str, str]:
    return run_guarded(names, (sys.executable, "-c", WORKER), silence=1.5)


def test_every_cell_is_accounted_for() -> None:
    assert guarded("a", "b") == {}
    assert guarded("a", "differs", "hangs", "b", "crashes", "loses", "c") == {
        "differs": "3 elements",
        "hangs": "hung: no answer within 1.5 s",
        "crashes": "exit status 139: Segmentation fault",
        "loses": "LaunchError: gone",
    }


def test_a_worker_that_does_nothing_is_no_success() -> None:
    with pytest.raises(RuntimeError, match="the worker did nothing: no such module"):
        run_guarded(["a"], (sys.executable, "-c", "print('no such module')"), silence=1.5)
