"""The folder of cached entries: damage, whole writes, what goes first, folders that refuse."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuser.core.errors import CacheWarning, OptionError
from fuser.runtime import store as module
from fuser.runtime.store import (
    DEFAULT_LIMIT,
    EntryStore,
    cache_folder,
    seal,
    size_limit,
    unseal,
)

pytestmark = pytest.mark.unit
PAYLOAD = bytes(range(256)) * 3 + b"\n"
FOREIGN = ("readme.txt", "0" * 63, "0" * 65, "G" * 64)


def key_of(number: int) -> str:
    return hashlib.sha256(bytes([number])).hexdigest()


KEY = key_of(0)


@pytest.fixture
def store(tmp_path) -> EntryStore:
    return EntryStore(tmp_path / "store", DEFAULT_LIMIT)


def fill(store: EntryStore, count: int, nbytes: int) -> None:
    """Write entries of `nbytes` each, number 0 used the longest ago."""
    overhead = len(seal(KEY, b""))
    for number in range(count):
        store.write(key_of(number), bytes(nbytes - overhead))
        when = 10**9 * (1000 + number)
        os.utime(store.folder / key_of(number), ns=(when, when))


def numbers(store: EntryStore) -> list[int]:
    known = {key_of(n): n for n in range(256)}
    return [known[entry.key] for entry in store.entries()]


# ---- damage --------------------------------------------------------------------------------------


def test_what_is_written_is_read(store):
    assert store.read(KEY) is None
    store.write(KEY, PAYLOAD)
    store.write(key_of(1), b"")
    assert (store.read(KEY), store.read(key_of(1))) == (PAYLOAD, b"")
    store.write(KEY, b"other")
    assert store.read(KEY) == b"other"


def test_every_single_bit_counts(store):
    """Magic, version, length, payload and checksum: no byte of an entry is outside the check."""
    content = seal(KEY, PAYLOAD)
    assert unseal(KEY, content) == PAYLOAD
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        assert unseal(KEY, bytes(damaged)) is None, position


def test_every_cut_and_every_addition_counts():
    content = seal(KEY, PAYLOAD)
    for length in range(len(content)):
        assert unseal(KEY, content[:length]) is None, length
        assert unseal(KEY, content[length + 1 :]) is None, length
    assert unseal(KEY, content + b"\0") is None
    assert unseal(KEY, content + content) is None


def test_an_entry_belongs_to_its_key():
    assert unseal(key_of(1), seal(KEY, PAYLOAD)) is None


def test_another_format_version_is_no_entry(store, monkeypatch):
    """With a right checksum of its own: the version is looked at, not only protected."""
    store.write(KEY, PAYLOAD)
    monkeypatch.setattr(module, "FORMAT", module.FORMAT + 1)
    assert store.read(KEY) is None
    store.write(KEY, PAYLOAD)
    assert store.read(KEY) == PAYLOAD


@pytest.mark.parametrize("attribute", ["_MAGIC", "_HEAD"])
def test_a_file_of_another_program_is_no_entry(monkeypatch, attribute):
    content = seal(KEY, PAYLOAD)
    if attribute == "_MAGIC":
        monkeypatch.setattr(module, "_MAGIC", b"othercch")
    else:  # a length that does not fit, under a checksum that does
        monkeypatch.setattr(module, "_HEAD", module.struct.Struct("<8sI4xI"))
    assert unseal(KEY, content) is None


def test_damage_on_disk_is_a_miss_and_is_written_over(store):
    store.write(KEY, PAYLOAD)
    path = store.folder / KEY
    path.write_bytes(path.read_bytes()[:-40])
    assert store.read(KEY) is None
    store.write(KEY, PAYLOAD)
    assert store.read(KEY) == PAYLOAD


# ---- size and order ------------------------------------------------------------------------------


def test_the_longest_unused_go_first_and_no_more_than_needed(tmp_path):
    store = EntryStore(tmp_path, 400)
    fill(store, 4, 100)
    assert numbers(store) == [0, 1, 2, 3]
    assert store.read(key_of(0)) is not None  # now the most recently used
    store.write(key_of(4), bytes(100 - len(seal(KEY, b""))))
    assert numbers(store)[:2] == [2, 3]
    assert sorted(numbers(store)) == [0, 2, 3, 4]
    store.write(key_of(5), bytes(150 - len(seal(KEY, b""))))
    assert sorted(numbers(store)) == [0, 4, 5]


def test_an_entry_that_fills_the_store_takes_it_all(tmp_path):
    store = EntryStore(tmp_path, 400)
    fill(store, 4, 100)
    store.write(key_of(9), bytes(400 - len(seal(KEY, b""))))
    assert numbers(store) == [9]
    store.write(key_of(8), bytes(401 - len(seal(KEY, b""))))
    assert numbers(store) == [9]  # too large to keep: nothing goes for it


def test_a_reader_that_has_an_entry_open_reads_it_whole(store):
    """Eviction takes the name away, never the bytes under a reader."""
    store.write(KEY, PAYLOAD)
    with (store.folder / KEY).open("rb") as file:
        head = file.read(10)
        EntryStore(store.folder, 1).evict()
        assert store.entries() == []
        assert unseal(KEY, head + file.read()) == PAYLOAD
    assert store.read(KEY) is None


def test_threads_read_while_others_write_and_evict(tmp_path):
    """Every read is the right payload or a miss, under a limit that keeps half of the entries."""
    payloads = {key_of(n): bytes([n]) * 500 for n in range(8)}
    store = EntryStore(tmp_path, 4 * (500 + len(seal(KEY, b""))))
    wrong: list[str] = []
    found = [0] * 16

    def work(thread: int) -> None:
        for step in range(60):
            key = key_of((thread * 7 + step * 3) % 8)
            payload = store.read(key)
            if payload is None:
                store.write(key, payloads[key])
            elif payload == payloads[key]:
                found[thread] += 1
            else:
                wrong.append(key)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sum(found) > 0
    store.evict()
    assert 0 < sum(entry.nbytes for entry in store.entries()) <= store.limit
    assert {path.name for path in tmp_path.iterdir()} <= payloads.keys()


def test_abandoned_writes_are_deleted_and_files_of_others_are_not(store):
    store.write(KEY, PAYLOAD)
    for name in (*FOREIGN, ".new-old", ".new-now"):
        (store.folder / name).write_bytes(PAYLOAD)
        if name != ".new-now":
            os.utime(store.folder / name, (0, 0))
    store.write(key_of(1), PAYLOAD)
    assert {p.name for p in store.folder.iterdir()} == {*FOREIGN, ".new-now", KEY, key_of(1)}
    assert {entry.key for entry in store.clear()} == {".new-now", KEY, key_of(1)}
    assert {p.name for p in store.folder.iterdir()} == set(FOREIGN)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0), ("12345", 12345), ("1K", 2**10), (" 3 m ", 3 * 2**20), ("2GiB", 2**31),
        ("1TB", 2**40), ("", DEFAULT_LIMIT),
    ],
)  # fmt: skip
def test_sizes_in_the_environment(monkeypatch, text, nbytes):
    monkeypatch.setenv("FUSER_CACHE_SIZE", text)
    assert size_limit() == nbytes


@pytest.mark.parametrize("text", ["x", "-1", "1.5G", "1P", "G", "1 000", "0x10", "B"])
def test_what_is_no_size(monkeypatch, text):
    monkeypatch.setenv("FUSER_CACHE_SIZE", text)
    with pytest.raises(OptionError, match="is no size; needed bytes"):
        size_limit()


# ---- refusals ------------------------------------------------------------------------------------


def write_twice(store: EntryStore) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store.write(KEY, PAYLOAD)
        EntryStore(store.folder, store.limit).write(key_of(1), PAYLOAD)
    return caught


def test_a_folder_that_cannot_be_made_gets_one_warning(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    store = EntryStore(blocked / "cubin", DEFAULT_LIMIT)
    (warning,) = write_twice(store)
    assert warning.category is CacheWarning
    assert str(store.folder) in str(warning.message)
    assert "cannot be written (Not a directory)" in str(warning.message)
    assert (store.read(KEY), store.entries(), store.clear()) == (None, [], [])


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A folder that this process, for root knows no refusal, owns but does not rule."""
    folder = Path(tempfile.mkdtemp(prefix="fuser-test-"))
    yield folder
    if os.geteuid() != os.getuid():
        os.seteuid(os.getuid())
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="no POSIX permissions")
def test_a_read_only_folder_is_read(as_nobody):
    store = EntryStore(as_nobody, DEFAULT_LIMIT)
    store.write(KEY, PAYLOAD)
    (as_nobody / KEY).chmod(0o444)
    as_nobody.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)
    (warning,) = write_twice(store)
    assert "cannot be written (Permission denied)" in str(warning.message)
    assert store.read(KEY) == PAYLOAD
    assert store.read(key_of(1)) is None
    assert store.clear() == []


def test_a_full_disk_leaves_no_part_of_a_file(store, monkeypatch):
    def full(handle, mode):
        os.write(handle, PAYLOAD[:100])
        os.close(handle)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store.write(key_of(2), PAYLOAD)
    monkeypatch.setattr(module.os, "fdopen", full)
    (warning,) = write_twice(store)
    assert "No space left on device" in str(warning.message)
    assert numbers(store) == [2]
    assert [p.name for p in store.folder.iterdir()] == [key_of(2)]
    assert store.read(key_of(2)) == PAYLOAD


def test_a_refused_rename_leaves_nothing(store, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(module.os, "replace", refuse)
    assert len(write_twice(store)) == 1
    assert list(store.folder.iterdir()) == []


def test_a_folder_that_refused_is_not_asked_again(store, monkeypatch):
    tried = []

    def refuse(source, target):
        tried.append(source)
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(module.os, "replace", refuse)
    assert len(write_twice(store)) == 1
    assert len(tried) == 1


def test_threads_that_are_refused_at_once_warn_once(store, monkeypatch):
    all_refused = threading.Barrier(4, timeout=10)

    def refuse(source, target):
        all_refused.wait()
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(module.os, "replace", refuse)
    threads = [threading.Thread(target=store.write, args=(key_of(n), PAYLOAD)) for n in range(4)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [w.category for w in caught] == [CacheWarning]


def test_reading_makes_an_entry_the_last_to_go(store):
    store.write(KEY, PAYLOAD)
    os.utime(store.folder / KEY, (1, 1))
    store.read(KEY)
    (entry,) = store.entries()
    assert abs(time.time() - entry.used) < 60


def test_there_is_a_folder_without_platformdirs(monkeypatch, tmp_path):
    """A checkout may be run where not every dependency is installed, as on GPU images."""
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    monkeypatch.delenv("FUSER_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "fuser"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "fuser"
