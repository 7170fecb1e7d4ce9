"""Errors of the command line: each said once, by its object, without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_process import EXECUTED, ROOT

from benchmarks.__main__ import main as benchmarks
from fuser.cli.main import main as fuser

RING = """
import numpy as np
from fuser import LoadStoreOpType
from fuser.cli.pipelines import ring_map
from fuser.schedule.circular import Pipelined

fd = ring_map(LoadStoreOpType.tma, 2, 1, Pipelined(war="mbarrier"))
"""


def refusal(capsys, *arguments: str) -> str:
    """Return all that ``python -m benchmarks`` says of a line that is no use."""
    with pytest.raises(SystemExit) as end:
        benchmarks(list(arguments))
    assert end.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_a_picture_that_cannot_be_written_is_named_once(tmp_path, capsys):
    (tmp_path / "ring.py").write_text(RING)
    picture = str(tmp_path / "none" / "t.svg")
    assert fuser(["explain", "--timeline", picture, str(tmp_path / "ring.py")]) == 2
    assert capsys.readouterr().err == (
        f"error: {picture}: No such file or directory; a file that can be written is needed\n"
    )


@pytest.mark.parametrize("command", ["run", "explain", "sass"])
def test_only_what_is_missing_is_named(command, capsys):
    with pytest.raises(SystemExit) as end:
        fuser([command])
    assert end.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.partition("required: ")[2] in ("FILE.py", "FILE.py|FILE.cubin")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "No such file or directory"),
        ("", "is no JSON: Expecting value: line 1 column 1 (char 0)"),
        ('{"machine": {}}', "has no 'rows'"),
        ("[]", "holds something else: "),
        ('{"machine": {}, "rows": [{"speed": 1}]}', "holds something else: "),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_results_is_named_with_what_it_lacks(text, what, tmp_path, capsys):
    path = tmp_path / "r.json"
    if text is not None:
        path.write_text(text)
    said = refusal(capsys, "--from", str(path))
    assert said.startswith(f"python -m benchmarks: error: {path}: {what}")
    assert said.endswith("; needed a file that python -m benchmarks --json wrote\n")
    assert "Error:" not in said


@pytest.mark.parametrize("folder", [False, True])
def test_a_script_that_is_not_there_is_one_line(folder, tmp_path, capsys):
    path = tmp_path / "mine.py"
    if folder:
        path.mkdir()
    what = "is a folder" if folder else "no such file"
    assert refusal(capsys, str(path)) == (
        f"python -m benchmarks: error: {path}: {what}; a Python script is needed\n"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [("fuser", "demo"), ("fuser", "run", "mine.py"), ("fuser", "doctor"), ("fuser", "cache"),
     ("benchmarks", "--list")],
    ids=" ".join,
)  # fmt: skip
def test_a_full_disk_is_said_without_a_traceback(arguments, tmp_path):
    (tmp_path / "mine.py").write_text(EXECUTED)
    environment = {"PYTHONPATH": str(ROOT), "FUSER_CACHE_DIR": str(tmp_path / "cache")}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", *arguments], stdout=full, stderr=subprocess.PIPE, cwd=tmp_path,
            env=os.environ | environment, text=True, check=False, timeout=120,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "error: standard output: No space left on device; output that can be written to is needed\n"
    )
