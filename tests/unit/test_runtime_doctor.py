"""doctor on a whole, a broken and a faked machine."""

from __future__ import annotations

import io

import pytest
from fake_cuda import installed
from rich.console import Console

from fuser.cli import doctor as module
from fuser.core.errors import BackendError

pytestmark = pytest.mark.unit


def report(**options) -> str:
    console = Console(file=io.StringIO(), width=160, **options)
    assert module.doctor(console) == 0
    return console.file.getvalue()


def test_a_machine_with_gpus(monkeypatch, tmp_path):
    monkeypatch.setenv("FUSER_CACHE_DIR", str(tmp_path))
    (tmp_path / "cubin").mkdir()
    (tmp_path / "cubin" / "key").write_bytes(bytes(2**20))
    with installed(monkeypatch):
        text = report()
    assert "cuda:1 Fake H200, compute capability 9.0, 132 SMs, 128.0 GiB, 64 MiB L2, 227" in text
    assert "supports CUDA 13.1" in text
    assert "1 files, 1.0 MiB" in text


def test_a_machine_without_one(monkeypatch):
    with installed(monkeypatch) as fake:
        fake.failing["cuInit"] = 100
        text = report()
    assert "no GPU: kernels run on the interpreter" in text
    assert "BackendError: CUDA driver: cuInit gave 100" in text


def test_what_is_missing_and_what_it_costs(monkeypatch):
    monkeypatch.setattr(module, "_version", lambda name: None)
    text = report()
    for name, cost in (module.REQUIRED | module.OPTIONAL).items():
        assert name in text
        assert f"missing: {cost}" in text


def test_nothing_escapes(monkeypatch):
    def broken(*_):
        raise BackendError("everything [bold]is[/bold] broken")

    for name in ("nvrtc_version", "find_tool", "driver_version", "device_count", "cache_folder"):
        monkeypatch.setattr(module, name, broken)
    text = report()
    assert text.count("BackendError: everything [bold]is[/bold] broken") == 4
    assert "no GPU" in text
