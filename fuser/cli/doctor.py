"""``python -m fuser doctor``: what this installation can do, and what a missing part costs."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fuser.runtime.driver import Device, device, device_count, driver_version
from fuser.runtime.nvrtc import nvrtc_version
from fuser.runtime.sass import find_tool
from fuser.runtime.store import cache_folder, size_limit

# distribution -> what is lost without it
REQUIRED = {
    "numpy": "nothing runs",
    "ml_dtypes": "nothing runs (bf16 and fp8 element types)",
    "networkx": "nothing runs (the fusion graph)",
    "jinja2": "no CUDA text, so no GPU",
    "cuda-python": "no compilation and no launches; fusions run on the interpreter",
    "nvidia-cuda-nvrtc": "no compilation, unless a CUDA toolkit is installed",
    "platformdirs": "cached kernels in ~/.cache/fuser, unless FUSER_CACHE_DIR is set",
}
OPTIONAL = {
    "torch": "no torch tensors as inputs",
    "cupy": "no cupy arrays as inputs",
    "jax": "no jax arrays as inputs",
    "numba": "no numba device arrays as inputs",
    "nvidia-cuda-nvdisasm": "no SASS listings, unless nvdisasm is on PATH",
    "nvidia-cuda-cuobjdump": "no resource cross-check in the tests",
}
_OTHER_NAMES = {
    "cuda-python": ("cuda-bindings",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x"),
    "nvidia-cuda-nvrtc": ("nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12"),
}


def doctor(console: Console | None = None) -> int:
    """Print the state of this installation; return 0 whatever it finds, and never raise."""
    out = console if console is not None else Console()
    table = Table(title="fuser doctor", show_header=False, title_justify="left")
    table.add_column("part", no_wrap=True)
    table.add_column("state", overflow="fold")
    table.add_row("Python", f"{platform.python_version()} ({platform.platform()})")
    for group in (REQUIRED, OPTIONAL):
        table.add_section()
        for name, cost in group.items():
            color = "red" if group is REQUIRED else "yellow"
            table.add_row(name, _version(name) or f"[{color}]missing[/]: {cost}")
    table.add_section()
    for part, state in _MACHINE.items():
        table.add_row(part, _guarded(state))
    out.print(table)
    return 0


def _version(distribution: str) -> str | None:
    for name in (distribution, *_OTHER_NAMES.get(distribution, ())):
        try:
            return metadata.version(name)
        except Exception:  # not installed, or its metadata is damaged
            continue
    return None


def _guarded(state: Callable[[], str]) -> str:
    """Return what `state` says; what it raises is the answer otherwise."""
    try:
        return escape(state())
    except Exception as error:
        text = " ".join(str(error).split())
        return f"[yellow]{type(error).__name__}[/]: {escape(text)}"


def _nvrtc() -> str:
    return ".".join(map(str, nvrtc_version()))


def _nvdisasm() -> str:
    return find_tool("nvdisasm") or "not found: no SASS listings"


def _driver() -> str:
    return "supports CUDA {}.{}".format(*driver_version())


def _gpus() -> str:
    try:
        count = device_count()
    except Exception:  # no driver, or none that works: the row above says which
        count = 0
    if not count:
        return "no GPU: kernels run on the interpreter"
    return "\n".join(_describe(device(ordinal)) for ordinal in range(count))


def _describe(gpu: Device) -> str:
    major, minor = gpu.capability
    return (
        f"cuda:{gpu.ordinal} {gpu.name}, compute capability {major}.{minor}, {gpu.sm_count} SMs, "
        f"{gpu.memory_bytes / 2**30:.1f} GiB, {gpu.l2_bytes / 2**20:.0f} MiB L2, "
        f"{gpu.shared_bytes // 1024} KiB shared memory per block"
    )


def _cache() -> str:
    folder = cache_folder()
    sizes = [path.stat().st_size for path in _files(folder)]
    total = f"{sum(sizes) / 2**20:.1f} MiB of at most {size_limit() / 2**20:g} MiB"
    return f"{folder}: {len(sizes)} files, {total}"


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []


_MACHINE: dict[str, Callable[[], str]] = {
    "NVRTC": _nvrtc,
    "nvdisasm": _nvdisasm,
    "driver": _driver,
    "GPU": _gpus,
    "cache": _cache,
}
