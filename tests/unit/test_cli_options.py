"""No option and no name on a command line is ignored without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_process import ROOT

from benchmarks.__main__ import main as benchmarks
from benchmarks.results import OURS, Results, Row, load
from fuser.cli.main import main as fuser

RING = """
from fuser import LoadStoreOpType
from fuser.cli.pipelines import ring_map
from fuser.schedule.circular import Pipelined

fd = ring_map(LoadStoreOpType.tma, 2, 1, Pipelined(war="mbarrier"))
"""
MODULES = sorted(
    path.stem for path in (ROOT / "benchmarks").glob("*.py")
    if '__name__ == "__main__"' in path.read_text()
)  # fmt: skip


@pytest.fixture
def ring(tmp_path) -> str:
    (tmp_path / "ring.py").write_text(RING)
    return str(tmp_path / "ring.py")


@pytest.fixture
def kept(tmp_path) -> str:
    rows = [Row("double 8x8", OURS, us=1.0), Row("softmax 8x8", OURS, us=1.0)]
    Results({"commit": "abc1234", "time": "2026-12-01"}, rows=rows).save(tmp_path / "r.json")
    return str(tmp_path / "r.json")


# ---- explain ---------------------------------------------------------------------------------


@pytest.mark.nvrtc
def test_a_page_and_a_timeline_are_both_written(ring, tmp_path, capsys):
    page, picture = tmp_path / "page.html", tmp_path / "t.svg"
    assert fuser(["explain", "--html", str(page), "--timeline", str(picture), ring]) == 0
    assert capsys.readouterr().out == f"wrote {picture}\nwrote {page}\n"
    assert page.exists()
    assert picture.exists()


@pytest.mark.parametrize("option", [("--html", "page.html"), ("--timeline", "t.svg")])
def test_stages_are_of_the_text(option, ring, capsys):
    assert fuser(["explain", "--stages", "nest", *option, ring]) == 2
    assert "--stages chooses of the text; needed neither" in capsys.readouterr().err
    assert not Path(option[1]).exists()


@pytest.mark.parametrize("stages", ["", " ", ",", " , "])
def test_no_stage_at_all_is_refused(stages, ring, capsys):
    assert fuser(["explain", "--stages", stages, ring]) == 2
    said = capsys.readouterr().err
    assert f"--stages: {stages!r} names no stage; needed some of fusion, " in said


# ---- benchmarks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [("--peers", "torch"), ("--peers", ""), ("--sizes", "8x8"), ("--no-sweep",),
     ("--repetitions", "31"), ("--commit", "abc")],
)  # fmt: skip
def test_options_of_a_run_are_refused_for_an_earlier_one(option, kept, capsys):
    with pytest.raises(SystemExit) as end:
        benchmarks(["--from", kept, *option])
    assert end.value.code == 2
    assert f"{option[0]} is about a run; of the results of --from" in capsys.readouterr().err


def test_an_earlier_run_is_written_to_another_file(kept, tmp_path, capsys):
    assert benchmarks(["--from", kept, "--json", str(tmp_path / "copy.json")]) == 0
    assert load(tmp_path / "copy.json") == load(Path(kept))


@pytest.mark.parametrize("option", [("--from", "r.json"), ("--json", "o.json"), ("--plot", "o")])
def test_a_list_is_only_a_list(option, capsys):
    with pytest.raises(SystemExit) as end:
        benchmarks(["--list", *option])
    assert end.value.code == 2
    assert "--list lists only; needed no --from" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_not_that_of_every_workload(name, kept, capsys):
    for arguments in ([name], ["--list", name], ["--from", kept, name], ["transpose", name]):
        with pytest.raises(SystemExit) as end:
            benchmarks(arguments)
        assert end.value.code == 2
        assert f"is called {name!r}; " in capsys.readouterr().err


def test_a_name_that_is_in_no_row_is_answered_with_those_that_are(kept, capsys):
    with pytest.raises(SystemExit):
        benchmarks(["--from", kept, "rmsnorm"])
    said = capsys.readouterr().err
    assert "called 'rmsnorm'; needed part of a name of double 8x8, softmax 8x8" in said


@pytest.mark.parametrize("module", MODULES)
def test_help_only_helps_and_an_unknown_option_does_nothing(module, tmp_path):
    readme = ROOT / "README.md"
    before = readme.stat().st_mtime_ns
    name = "benchmarks" if module == "__main__" else f"benchmarks.{module}"
    for option, status in (("--help", 0), ("--bogus", 2)):
        done = subprocess.run(
            [sys.executable, "-m", name, option], env=os.environ | {"PYTHONPATH": str(ROOT)},
            cwd=tmp_path, text=True, capture_output=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        assert f"usage: python -m {name} " in done.stdout + done.stderr
    assert readme.stat().st_mtime_ns == before
