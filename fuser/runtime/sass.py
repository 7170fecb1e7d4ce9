"""Machine code of a cubin as text, through NVIDIA's ``nvdisasm``."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from importlib import import_module
from pathlib import Path

from fuser.core.errors import BackendError


def find_tool(name: str) -> str | None:
    """Return the path of a CUDA binary from its pip package, ``CUDA_HOME`` or ``PATH``."""
    return _from_packages(name) or shutil.which(name)


def disassemble(cubin: bytes) -> str:
    """Return the SASS of every function in `cubin`, source order, with branch labels.

    Raises
    ------
    BackendError
        If ``nvdisasm`` is missing or rejects the image.
    """
    tool = find_tool("nvdisasm")
    if tool is None:
        raise BackendError(
            "nvdisasm: not found in the Python environment, CUDA_HOME or PATH; "
            "install nvidia-cuda-nvdisasm to read SASS"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([tool, "-c", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(
            f"nvdisasm: exit status {done.returncode}: {done.stderr.strip()}; needed a cubin"
        )
    return done.stdout


def _from_packages(name: str) -> str | None:
    try:
        found = import_module("cuda.pathfinder").find_nvidia_binary_utility(name)
    except Exception:  # no finder, an old one, or one that does not know the tool
        return None
    return str(found) if found else None
