"""Cubins kept by what they were compiled from: in memory, and in a folder across processes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fuser.runtime.log import CompileLog, OnSpill
from fuser.runtime.nvrtc import Cubin, compile_cubin, compile_options, nvrtc_build
from fuser.runtime.store import FORMAT, EntryStore, cache_folder, size_limit

LAUNCH_LIMIT = 32 * 2**20
"""Bytes of all entries of `launch_store`."""


def cubin_key(source: str, name: str, arch: str, options: tuple[str, ...]) -> str:
    """Return the hexadecimal key of a compilation, the build of NVRTC included."""
    parts = (str(FORMAT), nvrtc_build(), name, arch, *options, source)
    digest = hashlib.sha256()
    for part in parts:
        text = part.encode()
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()


def cubin_store(folder: Path | None = None, limit: int | None = None) -> EntryStore:
    """Return the store of cubins, by default where and as large as the environment says."""
    where = cache_folder() / "cubin" if folder is None else folder
    return EntryStore(where, size_limit() if limit is None else limit)


def launch_store() -> EntryStore:
    """Return the store of what launches need to know of fusions; a few KiB each."""
    return EntryStore(cache_folder() / "launch", min(size_limit(), LAUNCH_LIMIT))


class CubinCache:
    """Compiles a kernel once per machine and process.

    Parameters
    ----------
    folder
        Where files go; by default ``cubin`` in `cache_folder` at the time of each call.
    compiler
        What to call on a miss (tests count its calls).
    limit
        Bytes of all files together, 0 for no files; by default `size_limit` at each call.
    """

    def __init__(
        self,
        folder: Path | None = None,
        compiler: Callable[..., Cubin] = compile_cubin,
        limit: int | None = None,
    ) -> None:
        self._folder = folder
        self._compiler = compiler
        self._limit = limit
        self._memory: dict[str, Cubin] = {}
        self._building: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def store(self) -> EntryStore:
        """Files of this cache."""
        return cubin_store(self._folder, self._limit)

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

        `on_spill` applies to cached kernels too. Threads that miss at the same time wait for the
        first of them; processes each compile, and get equal results.
        """
        options = compile_options(arch, lineinfo=lineinfo, debug=debug, fmad=fmad)
        key = cubin_key(source, name, arch, options)

        def build() -> Cubin:
            return self._compiler(
                source, name, arch, lineinfo=lineinfo, debug=debug, fmad=fmad, on_spill="ignore"
            )

        cubin = self._memory.get(key) or self._once(key, build)
        cubin.log.enforce(name, "ignore" if debug else on_spill)
        return cubin

    def find(self, key: str, on_spill: OnSpill = "warn") -> Cubin | None:
        """Return the cubin kept under a key of `cubin_key`, or None."""
        cubin = self._memory.get(key)
        if cubin is None:
            payload = self.store.read(key)
            if payload is None:
                return None
            cubin = self._memory[key] = unpack(payload)
        cubin.log.enforce(cubin.name, on_spill)
        return cubin

    def _once(self, key: str, build: Callable[[], Cubin]) -> Cubin:
        """Read the file of `key`, or build and write it, in one thread while others wait."""
        with self._lock:
            turn = self._building.setdefault(key, threading.Lock())
        with turn:
            cubin = self._memory.get(key)
            if cubin is None:
                cubin = self._memory[key] = self._read_or_build(key, build)
        with self._lock:
            self._building.pop(key, None)
        return cubin

    def _read_or_build(self, key: str, build: Callable[[], Cubin]) -> Cubin:
        store = self.store
        payload = store.read(key)
        if payload is not None:
            return unpack(payload)
        cubin = build()
        store.write(key, pack(cubin))
        return cubin

    def forget(self) -> None:
        """Drop the entries in memory; files stay."""
        self._memory.clear()


def pack(cubin: Cubin) -> bytes:
    """Return a cubin, with all that a launch and a listing need, as the payload of an entry."""
    header: dict[str, Any] = {
        "name": cubin.name, "arch": cubin.arch, "log": asdict(cubin.log), "ptx": cubin.ptx,
    }  # fmt: skip
    return json.dumps(header).encode() + b"\n" + cubin.image


def unpack(payload: bytes) -> Cubin:
    """Return the cubin that `pack` was given; its `seconds` are 0."""
    header, _, image = payload.partition(b"\n")
    fields = json.loads(header)
    log = fields["log"] | {key: tuple(fields["log"][key]) for key in ("notes", "warnings")}
    return Cubin(fields["name"], fields["arch"], image, fields["ptx"], CompileLog(**log), 0.0)


CUBINS = CubinCache()
