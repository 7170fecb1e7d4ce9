"""Compilation of CUDA C++ text to a cubin with NVRTC: the only module that calls it.

Sources include nothing, so no CUDA toolkit is needed: the library may come from the pip package
``nvidia-cuda-nvrtc`` or from a toolkit, whichever ``cuda.bindings`` finds.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from fuser.core.errors import BackendError, CompileError
from fuser.runtime.log import CompileLog, OnSpill, compile_error, parse_log

REAL_ARCHS = ("sm_80", "sm_90a", "sm_100a", "sm_120a")

FIRST_SPECIFIC, FIRST_FAMILY = 90, 100
"""From which on there is an ``sm_NNa``, of one GPU's features, and an ``sm_NNf``, of a family's."""

# An ignored `#pragma unroll` costs a factor without a word, so what NVRTC would only warn about
# is an error: unknown pragma (161), pragma not followed by a loop (607, 609, 20058), bad factor
# (20167: too large, 20168: not positive, 20169: no constant, 20170: more behind it).
_DIAG_ERRORS = "--diag-error=161,607,609,20058,20167,20168,20169,20170"


@dataclass(frozen=True, slots=True)
class Cubin:
    """A compiled kernel.

    Attributes
    ----------
    name
        C name of the ``__global__`` function.
    image
        ELF file for `arch`, what ``cuModuleLoadData`` takes.
    ptx
        PTX text of the same compilation, when NVRTC gives it.
    seconds
        Wall-clock time of the compilation; 0 when the image comes from a cache.
    """

    name: str
    arch: str
    image: bytes
    ptx: str | None
    log: CompileLog
    seconds: float


def compile_options(
    arch: str,
    *,
    lineinfo: bool = False,
    debug: bool = False,
    optimised: bool = False,
    fmad: bool = True,
) -> tuple[str, ...]:
    """Return the NVRTC command line; it is also part of the cache key."""
    options = [
        f"--gpu-architecture={arch}",
        "--std=c++17",
        _DIAG_ERRORS,
        "--minimal",
        "--no-cache",  # a cached result comes without the log
        "--ptxas-options=--verbose",
        f"--fmad={'true' if fmad else 'false'}",
    ]
    if lineinfo:
        options.append("--generate-line-info")
    if debug:
        options.append("--device-debug")
        if optimised:
            options.append("--dopt=on")
    return tuple(options)


def compile_cubin(
    source: str,
    name: str,
    arch: str = "sm_90a",
    *,
    lineinfo: bool = False,
    debug: bool = False,
    optimised: bool = False,
    fmad: bool = True,
    on_spill: OnSpill = "warn",
) -> Cubin:
    """Compile the ``extern "C"`` kernel `name` of `source` to a cubin.

    Parameters
    ----------
    source
        CUDA C++ text without includes.
    arch
        Real architecture, e.g. one of `REAL_ARCHS`.
    lineinfo
        Keep source lines for profilers; the instructions stay the same.
    debug
        Compile for cuda-gdb, unoptimised; `on_spill` does not apply, everything is in memory then.
    optimised
        With `debug`, optimise all the same: the instructions are those of a release build, and what
        a debugger knows of variables is limited.
    fmad
        Let ``a * b + c`` round once.
    on_spill
        What to do about spills, local memory and ptxas notes.

    Raises
    ------
    CompileError
        If NVRTC or ptxas rejects the source (the text holds its log and the lines around the
        first error), or `on_spill` is ``"raise"`` and the log has a finding.
    BackendError
        If there is no NVRTC.
    """
    options = compile_options(arch, lineinfo=lineinfo, debug=debug, optimised=optimised, fmad=fmad)
    started = time.perf_counter()
    image, ptx, text = _compile(source, name, arch, options)
    seconds = time.perf_counter() - started
    log = parse_log(text, name)
    log.enforce(name, "ignore" if debug and not optimised else on_spill)
    return Cubin(name, arch, image, ptx, log, seconds)


def ptx_of(source: str, name: str, arch: str = "sm_90a", *, fmad: bool = True) -> str:
    """Return the PTX text that `compile_cubin` assembles."""
    ptx = compile_cubin(source, name, arch, fmad=fmad, on_spill="ignore").ptx
    if ptx is None:
        raise CompileError(f"kernel {name}: NVRTC gave no PTX for {arch}; needed a real one, sm_NN")
    return ptx


@cache
def nvrtc_version() -> tuple[int, int]:
    """Return (major, minor) of the NVRTC in use; raise `BackendError` when there is none."""
    nvrtc = _nvrtc()
    try:
        result, major, minor = nvrtc.nvrtcVersion()
    except (RuntimeError, OSError) as error:  # cuda.pathfinder found no library
        raise BackendError(
            f"NVRTC: no library found ({error}); install nvidia-cuda-nvrtc or a CUDA toolkit"
        ) from error
    if int(result):
        raise BackendError(f"NVRTC: nvrtcVersion failed with {result.name}; needed a working one")
    return int(major), int(minor)


@cache
def nvrtc_archs() -> tuple[str, ...]:
    """Return the real architectures that this NVRTC knows; raise `BackendError` without one."""
    nvrtc_version()
    names: list[str] = []
    for number in _checked("of none", _nvrtc().nvrtcGetSupportedArchs()):
        variants = ("", "a", "f") if number >= FIRST_FAMILY else ("", "a")
        names += [f"sm_{number}{v}" for v in (variants if number >= FIRST_SPECIFIC else ("",))]
    return tuple(names)


@cache
def nvrtc_build() -> str:
    """Return what tells this NVRTC from any other: its version, and size and time of its file.

    The version alone does not: patch releases share it, and differ in the code they make.
    """
    version = "{}.{}".format(*nvrtc_version())
    try:
        library = import_module("cuda.pathfinder").load_nvidia_dynamic_lib("nvrtc")
        stat = os.stat(library.abs_path)
    except (ImportError, AttributeError, RuntimeError, OSError, TypeError):
        return version
    return f"{version} {stat.st_size} {stat.st_mtime_ns}"


@cache
def _nvrtc() -> Any:
    try:
        return import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise BackendError(
            f"NVRTC: {error}; install cuda-python and nvidia-cuda-nvrtc to compile kernels"
        ) from error


def _compile(
    source: str, name: str, arch: str, options: tuple[str, ...]
) -> tuple[bytes, str | None, str]:
    """Return (cubin, PTX, log)."""
    nvrtc_version()
    nvrtc = _nvrtc()
    program = _checked(
        name, nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], [])
    )
    try:
        encoded = [option.encode() for option in options]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        log = _fetch(name, program, "ProgramLog").rstrip(b"\0 ").decode(errors="replace")
        ptx = _fetch(name, program, "PTX").rstrip(b"\0").decode() or None
        if int(result):
            raise compile_error(name, f"{result.name}\n{log}", source, ptx, arch)
        return _fetch(name, program, "CUBIN"), ptx, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _fetch(name: str, program: Any, what: str) -> bytes:
    nvrtc = _nvrtc()
    size = _checked(name, getattr(nvrtc, f"nvrtcGet{what}Size")(program))
    if not size:
        return b""
    buffer = bytearray(size)
    _checked(name, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return bytes(buffer)


def _checked(name: str, answer: tuple[Any, ...]) -> Any:
    result, *values = answer
    if int(result):
        raise CompileError(
            f"kernel {name}: NVRTC failed with {result.name}; needed a working NVRTC"
        )
    return values[0] if values else None
