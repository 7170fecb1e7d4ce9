"""The cache with real kernels: racing processes and threads, damage in every part of an entry."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cache_process
import pytest
from cache_process import Counting, Processes, churn, compile_fusion, digest, entry

from fuser.codegen.emit import emit
from fuser.runtime import nvrtc
from fuser.runtime.cache import CubinCache, cubin_key
from fuser.runtime.executor import CudaProgram
from fuser.runtime.nvrtc import compile_cubin, compile_options, nvrtc_build, nvrtc_version
from fuser.runtime.store import EntryStore, unseal

pytestmark = pytest.mark.nvrtc

SCALE = """extern "C" __global__ void scale(float* x) { x[threadIdx.x] *= 3.0f; }"""


@pytest.fixture(scope="module")
def images() -> list[bytes]:
    program = cache_process.lowered(cache_process.softmax_and_sum())
    found = [compile_cubin(emit(k), k.name, "sm_90a").image for k in program.kernels]
    assert len(found) > 1
    return found


@pytest.fixture(scope="module")
def four() -> Iterator[Processes]:
    processes = Processes(4)
    yield processes
    processes.pool.terminate()
    processes.pool.join()


def test_four_processes_race_on_an_empty_cache(tmp_path, images, four):
    """Everyone gets the right kernels, nothing else stays, and who comes later compiles none."""
    folder = tmp_path / "not" / "there"
    results = four(compile_fusion, folder)
    assert [r["images"] for r in results] == [images] * 4
    names = [path.name for path in folder.iterdir()]
    assert len(names) == len(images)
    assert all(re.fullmatch(r"[0-9a-f]{64}", name) for name in names)
    assert compile_fusion(0, folder) == {"calls": 0, "images": images}


def test_four_processes_evict_under_each_other(tmp_path, four):
    """Each finds some entries, never a wrong one, and the folder ends within its limit."""
    limit = 7000
    assert sum(len(entry(n)[1]) for n in range(12)) > limit
    results = four(churn, tmp_path, limit)
    assert [r["wrong"] for r in results] == [0] * 4
    assert all(r["found"] for r in results)
    EntryStore(tmp_path, limit).evict()
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert 0 < sum(sizes.values()) <= limit
    assert sizes.keys() <= {entry(n)[0] for n in range(12)}


def test_sixteen_threads_run_one_fusion_and_compile_it_once(tmp_path, images):
    fd, compiler = cache_process.softmax_and_sum(), Counting()
    cubins, start = CubinCache(tmp_path, compiler), threading.Barrier(16)

    def work(_: int) -> CudaProgram:
        start.wait()
        return CudaProgram(cache_process.lowered(fd), emit, "sm_90a", cache=cubins)

    with ThreadPoolExecutor(16) as pool:
        built = list(pool.map(work, range(16)))
    assert len(compiler.names) == len(set(compiler.names)) == len(images)
    assert len({id(one.program) for one in built}) == 1
    assert all([cubin.image for cubin in one.cubins] == images for one in built)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[str, bytes, bytes]:
    """Return the key, the content and the image of an entry."""
    folder = tmp_path_factory.mktemp("written")
    image = CubinCache(folder).get(SCALE, "scale").image
    (path,) = folder.iterdir()
    return path.name, path.read_bytes(), image


REGIONS = {
    "magic": lambda content, image: 2,
    "version": lambda content, image: 9,
    "length": lambda content, image: 13,
    "name": lambda content, image: content.index(b"scale"),
    "registers": lambda content, image: content.index(b'"registers"') + 13,
    "ptx": lambda content, image: content.index(b".visible"),
    "start of the image": lambda content, image: content.index(image),
    "code": lambda content, image: content.index(image) + len(image) // 2,
    "end of the image": lambda content, image: content.index(image) + len(image) - 1,
    "checksum": lambda content, image: len(content) - 1,
}


@pytest.mark.parametrize("cut", [False, True], ids=["flipped", "cut"])
@pytest.mark.parametrize("region", REGIONS)
def test_damage_is_compiled_again_and_mended(tmp_path, written, region, cut):
    key, content, image = written
    position = REGIONS[region](content, image)
    flipped = bytes([content[position] ^ 1])
    path = tmp_path / key
    path.write_bytes(content[:position] + (b"" if cut else flipped + content[position + 1 :]))
    compiler = Counting()
    assert CubinCache(tmp_path, compiler).get(SCALE, "scale").image == image
    assert compiler.names == ["scale"]
    assert unseal(key, path.read_bytes()) is not None
    assert CubinCache(tmp_path, compiler).get(SCALE, "scale").image == image
    assert compiler.names == ["scale"]


def test_the_whole_cubin_comes_back(tmp_path):
    fresh = CubinCache(tmp_path).get(SCALE, "scale", "sm_80")
    kept = CubinCache(tmp_path, Counting()).get(SCALE, "scale", "sm_80")
    assert (kept.name, kept.arch, kept.image) == ("scale", "sm_80", fresh.image)
    assert (kept.ptx, kept.log, kept.seconds) == (fresh.ptx, fresh.log, 0.0)
    assert kept.log.registers > 0


def test_another_build_of_the_same_nvrtc_version_is_another_key(tmp_path, monkeypatch):
    library = tmp_path / "libnvrtc.so"
    keys = set()
    for content, when in ((b"one", 5), (b"longer", 5), (b"longer", 6)):
        library.write_bytes(content)
        os.utime(library, (when, when))

        def load(name: str):
            assert name == "nvrtc"
            return type("Loaded", (), {"abs_path": str(library)})

        finder = type("Finder", (), {"load_nvidia_dynamic_lib": staticmethod(load)})
        monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: (13, 0))
        monkeypatch.setattr(nvrtc, "import_module", lambda name, finder=finder: finder)
        nvrtc_build.cache_clear()
        assert nvrtc_build().startswith("13.0 ")
        keys.add(cubin_key(SCALE, "scale", "sm_90a", compile_options("sm_90a")))
    nvrtc_build.cache_clear()
    assert len(keys) == 3


def test_the_build_is_that_of_the_library_in_use():
    version, size, when = nvrtc_build().split()
    assert version == "{}.{}".format(*nvrtc_version())
    assert int(size) > 10**6
    assert int(when) > 0


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
def test_a_full_disk_costs_one_warning_and_leaves_nothing(tmp_path, images):
    """The kernel itself cuts the write off, after 4000 bytes."""
    done = subprocess.run(
        [sys.executable, cache_process.__file__, tmp_path / "cache"],
        capture_output=True, text=True, check=False, timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    count, warning, checksum = done.stdout.splitlines()
    assert count == "1"
    assert warning.startswith(f"CacheWarning: cache {tmp_path / 'cache'}: cannot be written (File")
    assert checksum == digest(images)
    assert list(Path(tmp_path / "cache").iterdir()) == []
