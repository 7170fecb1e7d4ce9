"""Cubins kept by what they were compiled from: in memory, and in a folder across processes.

A file holds the SHA-256 of the rest, so a damaged or truncated one is recognised and rebuilt; it
is written under a temporary name and renamed, so readers never see half a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fuser.runtime.log import CompileLog, OnSpill
from fuser.runtime.nvrtc import Cubin, compile_cubin, compile_options, nvrtc_version

_FORMAT = 1  # raised whenever the layout of a file or of its key changes
_DIGEST_BYTES = 32


def cache_folder() -> Path:
    """Return the folder of cached files: FUSER_CACHE_DIR, else fuser under the user's cache."""
    if chosen := os.environ.get("FUSER_CACHE_DIR"):
        return Path(chosen)
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "fuser"


def cubin_key(source: str, name: str, arch: str, options: tuple[str, ...]) -> str:
    """Return the hexadecimal key of a compilation, NVRTC's version included."""
    parts = (str(_FORMAT), str(nvrtc_version()), name, arch, *options, source)
    digest = hashlib.sha256()
    for part in parts:
        text = part.encode()
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()


class CubinCache:
    """Compiles a kernel once per machine and process.

    Parameters
    ----------
    folder
        Where files go; by default `cache_folder` at the time of each call.
    compiler
        What to call on a miss (tests count its calls).
    """

    def __init__(
        self, folder: Path | None = None, compiler: Callable[..., Cubin] = compile_cubin
    ) -> None:
        self._folder = folder
        self._compiler = compiler
        self._memory: dict[str, Cubin] = {}
        self._lock = threading.Lock()

    @property
    def folder(self) -> Path:
        """Folder of this cache's files."""
        return self._folder or cache_folder() / "cubin"

    def get(
        self,
        source: str,
        name: str,
        arch: str = "sm_90a",
        *,
        lineinfo: bool = False,
        debug: bool = False,
        fmad: bool = True,
        on_spill: OnSpill = "warn",
    ) -> Cubin:
        """Return the cubin of `compile_cubin` with the same arguments, compiling at most once.

        `on_spill` applies to cached kernels too. Two threads that miss at the same time may both
        compile; they get equal results.
        """
        options = compile_options(arch, lineinfo=lineinfo, debug=debug, fmad=fmad)
        key = cubin_key(source, name, arch, options)
        with self._lock:
            cubin = self._memory.get(key)
        cubin = cubin or read_entry(self.folder / key, name, arch)
        if cubin is None:
            cubin = self._compiler(
                source, name, arch, lineinfo=lineinfo, debug=debug, fmad=fmad, on_spill="ignore"
            )
            write_entry(self.folder / key, cubin)
        with self._lock:
            self._memory[key] = cubin
        cubin.log.enforce(name, "ignore" if debug else on_spill)
        return cubin

    def forget(self) -> None:
        """Drop the entries in memory; files stay."""
        with self._lock:
            self._memory.clear()


def write_entry(path: Path, cubin: Cubin) -> None:
    """Store `cubin` at `path`; a folder that cannot be written costs the entry, not the run."""
    header: dict[str, Any] = {"log": asdict(cubin.log), "ptx": cubin.ptx}
    payload = json.dumps(header).encode() + b"\n" + cubin.image
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise


def read_entry(path: Path, name: str, arch: str) -> Cubin | None:
    """Return the cubin stored at `path`; None if there is none or it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        return None
    header, _, image = payload.partition(b"\n")
    fields = json.loads(header)
    log = fields["log"] | {key: tuple(fields["log"][key]) for key in ("notes", "warnings")}
    return Cubin(name, arch, image, fields["ptx"], CompileLog(**log), seconds=0.0)


CUBINS = CubinCache()
