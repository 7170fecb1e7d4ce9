"""Runs the command line as its users do: a process of its own, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

TINY = """\
import numpy as np

from fuser import FusionDefinition

with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[-1, 8], contiguity=True)
    y = fd.ops.exp(x)
    fd.add_output(y)
"""
EXECUTED = TINY + "fd.execute([np.ones((3, 8), np.float32)])\n"


def fuser(*arguments: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess:
    """Run ``python -m fuser`` with 80 columns; nothing of the caller's options reaches it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FUSER_")}
    cache = {"FUSER_CACHE_DIR": os.environ.get("FUSER_CACHE_DIR", str(cwd / "cache"))}
    return subprocess.run(
        [sys.executable, "-m", "fuser", *map(str, arguments)],
        cwd=cwd,
        env=kept | cache | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
