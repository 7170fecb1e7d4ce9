"""The cubin cache: one compilation per key, damaged files rebuilt, folders that refuse."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fuser.runtime import cache
from fuser.runtime.cache import CubinCache, cache_folder, read_entry, write_entry
from fuser.runtime.log import CompileLog, CompileWarning
from fuser.runtime.nvrtc import Cubin

pytestmark = pytest.mark.unit
LOG = CompileLog(40, 1024, 0, 0, 0, 1, ("(C7508) note",), ("warning: w",), "text\n")


class Compiler:
    def __init__(self):
        self.calls = []

    def __call__(self, source, name, arch, **options):
        self.calls.append((source, name, arch, options))
        return Cubin(name, arch, b"\x7fELF\n" + source.encode(), "// ptx\n", LOG, 0.1)


@pytest.fixture(autouse=True)
def no_compiler_needed(monkeypatch):
    monkeypatch.setattr(cache, "nvrtc_version", lambda: (13, 0))


@pytest.fixture
def compiler():
    return Compiler()


def get(cubins, source="s", name="k", **options):
    return cubins.get(source, name, on_spill="ignore", **options)


def test_memory_then_disk(tmp_path, compiler):
    cubins = CubinCache(tmp_path, compiler)
    first = get(cubins)
    assert get(cubins) is first
    assert len(compiler.calls) == 1
    again = get(CubinCache(tmp_path, compiler))
    assert len(compiler.calls) == 1
    assert (again.image, again.ptx, again.log) == (first.image, first.ptx, first.log)
    cubins.forget()
    assert get(cubins) is not first
    assert len(compiler.calls) == 1


def test_everything_that_matters_is_in_the_key(tmp_path, compiler, monkeypatch):
    cubins = CubinCache(tmp_path, compiler)
    for change in (
        {},
        {"source": "t"},
        {"name": "l"},
        {"arch": "sm_80"},
        {"lineinfo": True},
        {"debug": True},
        {"fmad": False},
    ):
        before = len(compiler.calls)
        get(cubins, **change)
        get(cubins, **change)
        assert len(compiler.calls) == before + 1
    monkeypatch.setattr(cache, "nvrtc_version", lambda: (13, 1))
    before = len(compiler.calls)
    get(cubins)
    assert len(compiler.calls) == before + 1


def test_parts_of_the_key_do_not_run_together():
    assert cache.cubin_key("b", "a", "", ()) != cache.cubin_key("", "ab", "", ())


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize("where", [0, 31, 32, 60, -1])
def test_a_flipped_bit_is_noticed_and_rebuilt(tmp_path, compiler, where):
    good = get(CubinCache(tmp_path, compiler))
    path = only_file(tmp_path)
    content = bytearray(path.read_bytes())
    content[where] ^= 1
    path.write_bytes(content)
    assert get(CubinCache(tmp_path, compiler)).image == good.image
    assert len(compiler.calls) == 2
    get(CubinCache(tmp_path, compiler))
    assert len(compiler.calls) == 2  # the file was replaced


@pytest.mark.parametrize("length", [0, 10, 32, 33, 100])
def test_a_truncated_file_is_noticed(tmp_path, compiler, length):
    get(CubinCache(tmp_path, compiler))
    path = only_file(tmp_path)
    path.write_bytes(path.read_bytes()[:length])
    assert read_entry(path, "k", "sm_90a") is None


def test_no_temporary_file_is_left(tmp_path, compiler):
    get(CubinCache(tmp_path, compiler))
    assert not only_file(tmp_path).name.startswith(".new-")


def test_a_folder_that_cannot_be_made_costs_only_the_file(tmp_path, compiler):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cubins = CubinCache(blocked / "cubin", compiler)
    assert get(cubins).image
    assert get(cubins).image
    assert len(compiler.calls) == 1


def test_a_failed_rename_leaves_nothing(tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(cache.os, "replace", refuse)
    write_entry(tmp_path / "key", Compiler()("s", "k", "sm_90a"))
    assert list(tmp_path.iterdir()) == []


def test_findings_are_reported_from_the_cache_too(tmp_path, compiler):
    for cubins in (CubinCache(tmp_path, compiler), CubinCache(tmp_path, compiler)):
        with pytest.warns(CompileWarning, match=r"kernel k: \(C7508\) note"):
            cubins.get("s", "k")
    assert compiler.calls[0][3]["on_spill"] == "ignore"


def test_many_threads_write_one_entry(tmp_path, compiler):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(get(CubinCache(tmp_path, compiler)).image))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 1
    assert len(results) == 8
    assert only_file(tmp_path).is_file()


def test_where_the_folder_is(monkeypatch):
    monkeypatch.setenv("FUSER_CACHE_DIR", "/a/b")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert cache_folder() == Path("/a/b")
    assert CubinCache().folder == Path("/a/b/cubin")
    monkeypatch.delenv("FUSER_CACHE_DIR")
    assert cache_folder() == Path("/c/fuser")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "fuser"
