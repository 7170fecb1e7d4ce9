"""What a result depends on: commit, GPU, driver, versions, time."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "torch": "torch", "triton": "triton", "numpy": "numpy", "cuda-bindings": "cuda-bindings",
    "quack": "quack-kernels", "liger": "liger-kernel",
}  # fmt: skip


def machine(commit: str | None) -> dict[str, str]:
    """Return the provenance of a run; a checkout with changes is a commit with ``+``."""
    from fuser.core.errors import BackendError
    from fuser.runtime.driver import device, device_available, driver_version
    from fuser.runtime.nvrtc import nvrtc_version

    found = {"commit": commit or _commit()}
    if device_available():
        found["gpu"] = device(0).name
        found["driver"] = ".".join(map(str, driver_version()))
        found |= _driver_release()
    try:
        found["nvrtc"] = ".".join(map(str, nvrtc_version()))
    except BackendError:
        found["nvrtc"] = "none"
    found |= {name: version for name, version in _versions().items() if version}
    found["python"] = platform.python_version()
    found["platform"] = f"{platform.system()} {platform.machine()}"
    found["command"] = " ".join(["python -m benchmarks", *map(_shown, sys.argv[1:])])
    found["time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return found


def _commit() -> str:
    commit = _output("git", "rev-parse", "--short", "HEAD")
    changed = commit and _output("git", "status", "--porcelain", "--untracked-files=no")
    return f"{commit}{'+' if changed else ''}" if commit else "unknown"


def _driver_release() -> dict[str, str]:
    """Return the driver's own version; `driver` is the CUDA version it supports."""
    text = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0")
    return {"driver release": text.splitlines()[0]} if text else {}


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name, distribution in PACKAGES.items():
        try:
            found[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            found[name] = None
    if found["torch"]:
        import torch

        found["torch"] = torch.__version__  # with the CUDA version it was built for
    return found


def _output(*command: str) -> str:
    """Return what a program prints, or nothing when it is not there or fails."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _shown(argument: str) -> str:
    """Return an argument without the folders of this machine."""
    return Path(argument).name if Path(argument).is_absolute() else argument
