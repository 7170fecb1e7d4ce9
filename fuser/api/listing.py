"""A kernel behind the kernel IR: its CUDA text, cubin, PTX and SASS, and why one is missing."""

from __future__ import annotations

from dataclasses import dataclass

from fuser.codegen.emit import emit
from fuser.core.errors import BackendError, CompileError
from fuser.kir.core import Kernel
from fuser.runtime.cache import CUBINS
from fuser.runtime.driver import device, device_available
from fuser.runtime.nvrtc import Cubin
from fuser.runtime.sass import disassemble

DEFAULT_ARCH = "sm_90a"


@dataclass(frozen=True, slots=True)
class Listing:
    """What a kernel becomes.

    Attributes
    ----------
    cubin
        None when it was not wanted, a tool is missing, or `failure` happened.
    ptx, sass
        The text, or a comment that says why there is none.
    failure
        NVRTC's rejection of the kernel: a bug of this package, or an architecture it does not know.
    """

    kernel: str
    cuda: str
    cubin: Cubin | None = None
    ptx: str = ""
    sass: str = ""
    failure: CompileError | None = None


def local_arch() -> str:
    """Return the architecture of GPU 0, `DEFAULT_ARCH` when there is none."""
    return device(0).arch if device_available() else DEFAULT_ARCH


def list_kernel(kernel: Kernel, arch: str, *, compiled: bool = True) -> Listing:
    """Print and, unless told not to, compile a kernel; never raises for a kernel that prints."""
    cuda = emit(kernel)
    if not compiled:
        return Listing(kernel.name, cuda)
    try:
        cubin = CUBINS.get(cuda, kernel.name, arch, on_spill="ignore")
    except BackendError as missing:
        return Listing(kernel.name, cuda, None, _comment(missing), _comment(missing))
    except CompileError as failure:
        return Listing(kernel.name, cuda, None, _comment(failure), _comment(failure), failure)
    try:
        sass = disassemble(cubin.image)
    except BackendError as missing:
        sass = _comment(missing)
    return Listing(kernel.name, cuda, cubin, cubin.ptx or "// NVRTC gave no PTX", sass)


def _comment(error: Exception) -> str:
    return "\n".join(f"// {line}".rstrip() for line in str(error).splitlines())
