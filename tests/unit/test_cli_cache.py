"""``python -m fuser cache``: what it lists, what it deletes, and what it says of bad sizes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from cli_process import TINY, fuser

from fuser.cli import show
from fuser.cli.cache import age
from fuser.cli.main import main
from fuser.core.errors import OptionError
from fuser.runtime import cache
from fuser.runtime.cache import CUBINS, CubinCache
from fuser.runtime.log import CompileLog
from fuser.runtime.nvrtc import Cubin


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Two entries, the second used 3 hours ago."""
    monkeypatch.setattr(cache, "nvrtc_build", lambda: "13.0")

    def compiler(source, name, arch, **options):
        return Cubin(name, arch, source.encode(), "", CompileLog(), 0.1)

    cubins = CubinCache(tmp_path / "cubin", compiler)
    cubins.get("x" * 2000, "softmax_0", "sm_90a")
    (first,) = (tmp_path / "cubin").iterdir()
    cubins.get("y" * 5000, "[red]scale", "sm_80")
    (second,) = set((tmp_path / "cubin").iterdir()) - {first}
    then = time.time() - 3 * 3600 - 60
    os.utime(second, (then, then))
    return tmp_path


def run(folder: Path, *arguments: str, **environment: str):
    return fuser("cache", *arguments, cwd=folder, FUSER_CACHE_DIR=str(folder), **environment)


def test_the_list(folder):
    done = run(folder, FUSER_CACHE_SIZE="3M", COLUMNS="100")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(word in lines[1] for word in ("kernel", "arch", "size", "last used"))
    rows = [line for line in lines if "ago" in line]
    assert [cell.strip() for cell in rows[1].split("│")[1:5]] == [
        "[red]scale", "sm_80", "5.1 KiB", "3 h ago",
    ]  # fmt: skip
    assert "softmax_0" in rows[0]
    assert len(rows) == 2
    sizes = sum(path.stat().st_size for path in (folder / "cubin").iterdir())
    assert lines[-1] == f"{folder / 'launch'}: 0 entries, 0 B of at most 3.0 MiB"
    assert lines[-2] == (f"{folder / 'cubin'}: 2 entries, {show.size(sizes)} of at most 3.0 MiB")


def test_a_damaged_entry_is_listed_as_such(folder):
    for path in (folder / "cubin").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    done = run(folder, "list")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("damaged, or of another version") == 2


def test_clearing(folder):
    (folder / "cubin" / ".new-1").write_bytes(b"x")
    (folder / "cubin" / "notes.txt").write_bytes(b"x")
    (folder / "launch").mkdir()
    (folder / "launch" / ("0" * 64)).write_bytes(b"x")
    done = run(folder, "clear")
    assert done.returncode == 0, done.stderr
    assert "deleted 3 files" in done.stdout
    assert "deleted 1 file, 1 B" in done.stdout
    assert [path.name for path in (folder / "cubin").iterdir()] == ["notes.txt"]
    again = run(folder, "clear")
    assert (again.returncode, "deleted 0 files, 0 B" in again.stdout) == (0, True)
    assert "0 entries, 0 B of at most 512.0 MiB" in run(folder).stdout


@pytest.mark.parametrize("what", ["list", "clear"])
def test_a_folder_that_cannot_be_listed(what, folder, monkeypatch, capsys):
    monkeypatch.setenv("FUSER_CACHE_DIR", str(folder))
    (folder / "launch").write_bytes(b"no folder")
    assert main(["cache", what]) == 1
    out, err = capsys.readouterr()
    assert err == f"error: cache: {folder / 'launch'}: cannot be listed: Not a directory\n"
    assert str(folder / "cubin") in out
    assert str(folder / "launch") not in out


def test_a_size_that_is_none(folder):
    done = run(folder, FUSER_CACHE_SIZE="much")
    assert done.returncode == 2
    assert "FUSER_CACHE_SIZE 'much': is no size" in done.stderr
    assert len([*(folder / "cubin").iterdir()]) == 2


@pytest.mark.nvrtc
@pytest.mark.parametrize("command", ["sass", "explain"])
def test_commands_that_compile_say_what_is_wrong_with_the_size(
    command, tmp_path, monkeypatch, capsys
):
    script = tmp_path / "script.py"
    script.write_text(TINY)
    monkeypatch.setenv("FUSER_CACHE_SIZE", "abc")
    monkeypatch.setattr(CUBINS, "_memory", {})
    assert main([command, str(script)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {command}: FUSER_CACHE_SIZE 'abc': is no size; needed bytes")
    with pytest.raises(OptionError):
        main([command, "-v", str(script)])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (0.5, "0 s"), (59, "59 s"), (60, "1 min"), (7199, "1 h"), (1e6, "11 d")],
)
def test_ages(seconds, text):
    assert age(seconds) == text
