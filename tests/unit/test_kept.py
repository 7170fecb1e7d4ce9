"""What launches take, kept on disk by the fusion: found by a later process, or made anew."""

from __future__ import annotations

import io
import pickle
from inspect import signature

import fake_cuda
import fake_gpu
import fake_torch
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.api import execute, kept
from fuser.api.pipeline import build_program
from fuser.core.dtypes import DataType as Row
from fuser.fusion import graph as fusion_graph
from fuser.runtime import cache
from fuser.runtime.cache import CUBINS, launch_store
from fuser.runtime.log import CompileLog
from fuser.runtime.nvrtc import Cubin

pytestmark = pytest.mark.unit


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A fake GPU and a fake NVRTC, with an empty cache folder."""
    monkeypatch.setenv("FUSER_CACHE_DIR", str(tmp_path))
    get = CUBINS.get
    with fake_gpu.installed(monkeypatch) as fake:
        monkeypatch.setenv("FUSER_CACHE_SIZE", "1M")
        monkeypatch.setattr(CUBINS, "get", get)
        monkeypatch.setattr(CUBINS, "_memory", {})
        monkeypatch.setattr(CUBINS, "_compiler", compiled)
        for module in (cache, kept):
            monkeypatch.setattr(module, "nvrtc_build", lambda: "fake 1")
        yield fake


def compiled(source, name, arch, **_):
    return Cubin(name, arch, source.encode(), None, CompileLog(), 0.0)


@pytest.fixture
def lowered(monkeypatch):
    """The definitions that were lowered."""
    seen, build = [], execute.build_observed
    monkeypatch.setattr(
        execute, "build_observed", lambda fd, *rest: seen.append(fd) or build(fd, *rest)
    )
    return seen


def later_process():
    CUBINS.forget()


def softmax(factor=1.0, dtype=DataType.Float, **options):
    with FusionDefinition(**options) as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        e = fd.ops.exp(x * factor - fd.ops.max(x, [1], True))
        fd.add_output(e / fd.ops.sum(e, [1], True))
        fd.add_output(fd.ops.sum(x, [0]))
    return fd


def expected(x):
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True), x.astype(float).sum(0)


def test_a_later_process_lowers_nothing(machine, lowered, rng, monkeypatch):
    """Several kernels, with temporaries between them, all from disk; networkx is not needed."""
    x = rng.normal(size=(33, 96)).astype(np.float32)
    for process in range(3):
        fd = softmax()
        for found, want in zip(fd.execute([x]), expected(x), strict=True):
            np.testing.assert_allclose(found, want, rtol=2e-5, atol=1e-5)
        assert len(lowered) == 1, process
        later_process()
        monkeypatch.setattr(fusion_graph, "_networkx", None)
    (entry,) = launch_store().entries()
    assert entry.nbytes < 20_000


def test_whatever_kernels_follow_from_is_in_the_key(machine, lowered, rng, monkeypatch):
    x = rng.normal(size=(33, 96)).astype(np.float32)
    same = (softmax, x)
    aside = fake_torch.aligned(x.shape, at=4)
    aside[...] = x
    changes = [
        (lambda: softmax(factor=2.0), x),
        (lambda: softmax(factor=np.nextafter(1.0, 2.0)), x),
        (lambda: softmax(dtype=DataType.Double), x.astype(float)),
        (lambda: softmax(default_unroll="rolled"), x),
        (lambda: softmax(exact_loops=True), x),
        (softmax, aside),  # another class at the same sizes
        (softmax, x[:31]),  # other sizes of the same class, at which recipes look
    ]
    for number, (make, array) in enumerate([same, *changes], 1):
        for _ in range(2):
            later_process()
            make().execute([array])
            assert len(lowered) == number
    surroundings = [
        (kept, "nvrtc_build", lambda: "fake 2"),
        (kept, "source_text_digest", lambda: "edited"),
        (fake_cuda.FakeDriver, "cuDeviceGetAttribute", lambda self, name, _: (0, 10)),
    ]
    for module, name, other in surroundings:
        later_process()
        with monkeypatch.context() as patch:
            patch.setattr(module, name, other)
            kept.device.cache_clear()
            softmax().execute([x])
        kept.device.cache_clear()
        number += 1
        assert len(lowered) == number, name


def test_whatever_a_build_is_told_is_in_the_key():
    told = {*signature(build_program).parameters} - {"name", "observers"}
    assert told == {"graph", "cls", "sizes", "loops"}
    assert len(signature(kept.key_of).parameters) == len(told)


def test_the_digest_reads_every_source_file(tmp_path, monkeypatch):
    """A changed, renamed or new file of the package or the templates changes it."""
    before = kept.source_text_digest()
    files = [*kept._files(kept.Path(kept.__file__).parents[1])]
    assert kept.__file__ in files
    assert len(files) > 200
    templates = kept.template_dir()
    assert any(path.endswith(".j2") for path in kept._files(templates))
    original = kept.Path.read_bytes
    for changed in (kept.__file__, next(kept._files(templates))):
        kept.source_text_digest.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(
                kept.Path, "read_bytes",
                lambda path, c=changed: original(path) + b" " * (str(path) == c),
            )  # fmt: skip
            assert kept.source_text_digest() != before
    kept.source_text_digest.cache_clear()
    assert kept.source_text_digest() == before


@pytest.mark.parametrize("damage", ["flipped", "cut", "no cubin", "cubin flipped"])
def test_what_is_damaged_is_made_anew(machine, lowered, rng, damage):
    x = rng.normal(size=(33, 96)).astype(np.float32)
    softmax().execute([x])
    store = cache.cubin_store() if "cubin" in damage else launch_store()
    path = store.entries()[0].path
    content = bytearray(path.read_bytes())
    if damage == "no cubin":
        path.unlink()
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content[:-9] if damage == "cut" else content)
    for number in (2, 2):
        later_process()
        np.testing.assert_allclose(softmax().execute([x])[0], expected(x)[0], rtol=2e-5)
        assert len(lowered) == number


def test_who_watches_sees_the_whole_compilation(machine, lowered, rng, monkeypatch, tmp_path):
    x = rng.normal(size=(33, 96)).astype(np.float32)
    softmax().execute([x])
    monkeypatch.setenv("FUSER_DUMP", "fusion")
    monkeypatch.chdir(tmp_path)
    softmax().execute([x])
    assert len(lowered) == 2


def test_entries_hold_records_and_nothing_else(machine):
    with pytest.raises(pickle.UnpicklingError, match=r"posix.system is none of the records"):
        kept._Unpickler(io.BytesIO(b"cposix\nsystem\n.")).load()


def test_equal_text_means_equal_items():
    items = [
        1, 1.0, True, "1", None, (1,), ((1,),), (1, 1), "1,1", Row.Float, Row.Double, -0.0, 0.0,
        float("inf"), ("a", "b"), ("a,b",), kept.Const(1), kept.Var("x"), kept.Var("y"),
    ]  # fmt: skip
    assert len({"".join(kept.spelled(item)) for item in items}) == len(items)
    with pytest.raises(kept._Unspellable):
        "".join(kept.spelled((1, np.float32(1))))
