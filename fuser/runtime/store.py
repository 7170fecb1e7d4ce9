"""A folder of checked entries: written whole or not at all, the least recently used go first.

An entry is one file named by its key, 64 hexadecimal digits::

    magic | format version | payload bytes | payload | SHA-256 of the key and all of that

so that one that is damaged, cut, of another version or under another key's name is no entry. It
appears by a rename, hence whole; a reader has it open, or never finds it, when it is evicted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import struct
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuser.core.errors import CacheWarning, OptionError

FORMAT = 2
"""Raised whenever the layout of a file, of its payload or of its key changes."""

DEFAULT_LIMIT = 512 * 2**20
"""Bytes of all entries, unless ``FUSER_CACHE_SIZE`` says otherwise."""

_MAGIC = b"fusercch"
_HEAD = struct.Struct("<8sIQ")
_DIGEST_BYTES = 32
_KEY = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = ".new-"
_ABANDONED_SECONDS = 3600.0  # no write takes that long: its process is gone
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

_REFUSING: set[Path] = set()  # folders that refused a write of this process
_LOCK = threading.Lock()


def cache_folder() -> Path:
    """Return the folder of cached files: ``FUSER_CACHE_DIR``, else the user's cache folder."""
    if chosen := os.environ.get("FUSER_CACHE_DIR"):
        return Path(chosen)
    try:
        import platformdirs
    except ModuleNotFoundError:  # run from a checkout without its dependencies
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fuser"
    return platformdirs.user_cache_path("fuser", appauthor=False)


def size_limit() -> int:
    """Return the bytes that entries may take: ``FUSER_CACHE_SIZE``, else `DEFAULT_LIMIT`.

    Raises
    ------
    OptionError
        The variable is no number of bytes, with K, M, G or T behind it or not.
    """
    text = os.environ.get("FUSER_CACHE_SIZE", "").strip()
    if not text:
        return DEFAULT_LIMIT
    match = re.fullmatch(r"(\d+)\s*([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None:
        raise OptionError(
            f"FUSER_CACHE_SIZE {text!r}: is no size; needed bytes, or a number and K, M, G or T "
            "(powers of 1024); 0 keeps nothing on disk"
        )
    return int(match[1]) * _UNITS[match[2].upper()]


def seal(key: str, payload: bytes) -> bytes:
    """Return the content of the entry of `key`."""
    content = _HEAD.pack(_MAGIC, FORMAT, len(payload)) + payload
    return content + _digest(key, content)


def unseal(key: str, content: bytes) -> bytes | None:
    """Return the payload of the entry of `key`; None if `content` is not what was written."""
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if len(body) < _HEAD.size or _digest(key, body) != digest:
        return None
    magic, version, length = _HEAD.unpack_from(body)
    payload = body[_HEAD.size :]
    return payload if (magic, version, length) == (_MAGIC, FORMAT, len(payload)) else None


def _digest(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + content).digest()


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a store.

    Attributes
    ----------
    used
        When it was last read or written, in seconds since the epoch.
    """

    key: str
    path: Path
    nbytes: int
    used: float


@dataclass(frozen=True, slots=True)
class EntryStore:
    """The entries in one folder; any number of threads and processes may use it at once.

    Attributes
    ----------
    limit
        Bytes of all entries together; 0 neither reads nor writes.
    """

    folder: Path
    limit: int

    def read(self, key: str) -> bytes | None:
        """Return the payload kept under `key`, now the most recently used; None without one."""
        if not self.limit:
            return None
        path = self.folder / key
        try:
            payload = unseal(key, path.read_bytes())
        except OSError:
            return None
        if payload is not None:
            with contextlib.suppress(OSError):  # evicted meanwhile, or a read-only folder
                os.utime(path)
        return payload

    def write(self, key: str, payload: bytes) -> None:
        """Keep `payload` under `key` and evict what is too much.

        A folder that cannot be written, or is on a full disk, gets one warning and from then on
        nothing more from this process.
        """
        content = seal(key, payload)
        if len(content) > self.limit or self.folder in _REFUSING:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write_whole(self.folder / key, content)
        except OSError as error:
            self._refuse(error)
            return
        self.evict()

    def _refuse(self, error: OSError) -> None:
        with _LOCK:
            known = self.folder in _REFUSING
            _REFUSING.add(self.folder)
        if not known:
            warnings.warn(
                f"cache {self.folder}: cannot be written ({error.strerror or error}); kernels are "
                "compiled again in every process. FUSER_CACHE_DIR chooses another folder",
                CacheWarning,
                stacklevel=2,
            )

    def entries(self) -> list[Entry]:
        """Return the entries, the least recently used first."""
        files = self._files(lambda name: _KEY.fullmatch(name) is not None)
        return sorted(files, key=lambda entry: (entry.used, entry.key))

    def evict(self) -> None:
        """Delete the least recently used entries until the rest fits, and abandoned writes."""
        entries = self.entries()
        excess = sum(entry.nbytes for entry in entries) - self.limit
        for entry in entries:
            if excess <= 0:
                break
            _delete(entry.path)
            excess -= entry.nbytes
        for entry in self._temporaries():
            if time.time() - entry.used > _ABANDONED_SECONDS:
                _delete(entry.path)

    def clear(self) -> list[Entry]:
        """Delete every entry, and what processes left that died while writing; return them."""
        return [e for e in (*self.entries(), *self._temporaries()) if _delete(e.path)]

    def obstacle(self) -> str | None:
        """Return why the folder, which is there, cannot be listed; its entries are not found."""
        try:
            os.scandir(self.folder).close()
        except FileNotFoundError:
            return None
        except OSError as error:
            return error.strerror or str(error)
        return None

    def _temporaries(self) -> list[Entry]:
        return self._files(lambda name: name.startswith(_TEMPORARY))

    def _files(self, wanted: Callable[[str], bool]) -> list[Entry]:
        found: list[Entry] = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as listing:
            for item in listing:
                if wanted(item.name):
                    with contextlib.suppress(OSError):  # deleted by another process
                        stat = item.stat()
                        path = self.folder / item.name
                        found.append(Entry(item.name, path, stat.st_size, stat.st_mtime))
        return found


def _write_whole(path: Path, content: bytes) -> None:
    """Make `path` hold `content`, without a moment at which it holds a part of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_TEMPORARY)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        _delete(Path(temporary))
        raise


def _delete(path: Path) -> bool:
    """Delete a file; whether it was this call that did."""
    try:
        path.unlink()
    except OSError:  # another process was first, or the folder is read-only
        return False
    return True
