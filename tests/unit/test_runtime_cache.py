"""The cubin cache: what is in a key, one compilation per key, findings and limits."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import platformdirs
import pytest

from fuser.core.errors import CompileError, OptionError
from fuser.runtime import cache
from fuser.runtime.cache import CubinCache, cache_folder
from fuser.runtime.log import CompileLog, CompileWarning
from fuser.runtime.nvrtc import Cubin

pytestmark = pytest.mark.unit
LOG = CompileLog(40, 1024, 0, 0, 0, 1, ("(C7508) note",), ("warning: w",), "text\n")


class Compiler:
    def __init__(self, before=lambda: None):
        self.calls = []
        self.before = before

    def __call__(self, source, name, arch, **options):
        self.calls.append((source, name, arch, options))
        self.before()
        return Cubin(name, arch, b"\x7fELF\n" + source.encode(), "// ptx\n", LOG, 0.1)


@pytest.fixture(autouse=True)
def no_compiler_needed(monkeypatch):
    monkeypatch.setattr(cache, "nvrtc_build", lambda: "13.0 8")


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
    monkeypatch.setattr(cache, "nvrtc_build", lambda: "13.0 9")
    before = len(compiler.calls)
    get(cubins)
    assert len(compiler.calls) == before + 1


def test_parts_of_the_key_do_not_run_together():
    assert cache.cubin_key("b", "a", "", ()) != cache.cubin_key("", "ab", "", ())


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_findings_are_reported_from_the_cache_too(tmp_path, compiler):
    for cubins in (CubinCache(tmp_path, compiler), CubinCache(tmp_path, compiler)):
        with pytest.warns(CompileWarning, match=r"kernel k: \(C7508\) note"):
            cubins.get("s", "k")
    assert compiler.calls[0][3]["on_spill"] == "ignore"


def in_threads(count, call):
    """Start `count` threads at once; return what `call` returned or raised in each."""
    barrier = threading.Barrier(count)

    def one(_):
        barrier.wait()
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_sixteen_threads_compile_once(tmp_path, compiler):
    compiler.before = lambda: time.sleep(0.05)
    cubins = CubinCache(tmp_path, compiler)
    results = in_threads(16, lambda: get(cubins))
    assert len(compiler.calls) == 1
    assert all(cubin is results[0] for cubin in results)
    assert isinstance(results[0], Cubin)


def test_threads_do_not_wait_for_the_kernels_of_others(tmp_path):
    """Two kernels that are each compiled only once the other compilation has begun."""
    both = threading.Barrier(2, timeout=10)
    compiler = Compiler(before=both.wait)
    names = iter(["a", "b"])
    cubins = CubinCache(tmp_path, compiler)
    results = in_threads(2, lambda: get(cubins, next(names)))
    assert {cubin.image for cubin in results} == {b"\x7fELF\na", b"\x7fELF\nb"}


def test_a_failed_compilation_fails_for_each_thread_and_is_tried_again(tmp_path, compiler):
    def fail():
        raise CompileError("kernel k: no")

    broken = Compiler(before=fail)
    cubins = CubinCache(tmp_path, broken)
    assert {type(e) for e in in_threads(4, lambda: get(cubins))} == {CompileError}
    assert len(broken.calls) == 4
    broken.before = lambda: None
    assert get(cubins).image == b"\x7fELF\ns"


def test_caches_of_one_folder_write_one_entry(tmp_path, compiler):
    results = in_threads(8, lambda: get(CubinCache(tmp_path, compiler)).image)
    assert set(results) == {b"\x7fELF\ns"}
    assert only_file(tmp_path).is_file()


def test_an_entry_under_another_kernels_name_is_not_taken(tmp_path, compiler):
    get(CubinCache(tmp_path, compiler), "s")
    first = only_file(tmp_path)
    get(CubinCache(tmp_path, compiler), "t")
    (second,) = set(tmp_path.iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    assert get(CubinCache(tmp_path, compiler), "t").image == b"\x7fELF\nt"
    assert len(compiler.calls) == 3


def test_a_limit_of_nothing_compiles_in_every_process(tmp_path, compiler):
    for _ in range(2):
        cubins = CubinCache(tmp_path / "none", compiler, limit=0)
        assert get(cubins) is get(cubins)
    assert len(compiler.calls) == 2
    assert not (tmp_path / "none").exists()


def test_the_size_of_the_environment_counts(tmp_path, compiler, monkeypatch):
    monkeypatch.setenv("FUSER_CACHE_SIZE", "1500")
    cubins = CubinCache(tmp_path, compiler)
    for source in "abcdefgh":
        get(cubins, source)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert 0 < sum(sizes) <= 1500
    assert len(sizes) == 1500 // sizes[0] < 8
    monkeypatch.setenv("FUSER_CACHE_SIZE", "lots")
    with pytest.raises(OptionError, match="FUSER_CACHE_SIZE 'lots': is no size"):
        get(cubins, "i")


def test_where_the_folder_is(monkeypatch):
    monkeypatch.setenv("FUSER_CACHE_DIR", "/a/b")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert cache_folder() == Path("/a/b")
    assert CubinCache().store.folder == Path("/a/b/cubin")
    monkeypatch.delenv("FUSER_CACHE_DIR")
    assert cache_folder() == platformdirs.user_cache_path("fuser", appauthor=False)
    if sys.platform == "linux":
        assert cache_folder() == Path("/c/fuser")
        monkeypatch.delenv("XDG_CACHE_HOME")
        assert cache_folder() == Path.home() / ".cache" / "fuser"
