"""A kernel behind the kernel IR: its CUDA text, cubin, PTX and SASS, and why one is missing."""

from __future__ import annotations

from dataclasses import dataclass

from fuser.codegen.emit import emit
from fuser.core.errors import BackendError
from fuser.kir.core import Kernel
from fuser.runtime.cache import CUBINS
from fuser.runtime.driver import device, device_available
from fuser.runtime.nvrtc import Cubin
from fuser.runtime.sass import disassemble

DEFAULT_ARCH = "sm_90a"


@dataclass(frozen=True, slots=True)
class Listing:
    """What `kernel` becomes; `cubin`, `ptx` and `sass` are the reason (a text) when missing."""

    kernel: str
    cuda: str
    cubin: Cubin | None
    ptx: str
    sass: str


def local_arch() -> str:
    """Return the architecture of GPU 0, `DEFAULT_ARCH` when there is none."""
    return device(0).arch if device_available() else DEFAULT_ARCH


def list_kernel(kernel: Kernel, arch: str, *, compiled: bool = True) -> Listing:
    """Print and, unless told not to, compile a kernel. A missing tool becomes a comment.

    Raises
    ------
    CompileError
        NVRTC rejects the kernel.
    """
    cuda = emit(kernel)
    if not compiled:
        return Listing(kernel.name, cuda, None, "", "")
    try:
        cubin = CUBINS.get(cuda, kernel.name, arch, on_spill="ignore")
    except BackendError as missing:
        return Listing(kernel.name, cuda, None, f"// {missing}", f"// {missing}")
    try:
        sass = disassemble(cubin.image)
    except BackendError as missing:
        sass = f"// {missing}"
    return Listing(kernel.name, cuda, cubin, cubin.ptx or "// NVRTC gave no PTX", sass)
