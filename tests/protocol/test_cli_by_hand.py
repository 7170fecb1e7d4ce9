"""A schedule set by hand that the script never runs is what the commands show and check."""

from __future__ import annotations

import re

import pytest

from fuser.cli.main import main

pytestmark = pytest.mark.protocol

BY_HAND = """
import numpy as np
from fuser import DataType, FusionDefinition, LoadStoreOpType
from fuser.cli.pipelines import ring_map
from fuser.schedule.circular import Pipelined

def ring():
    return ring_map(LoadStoreOpType.tma, 3, 2, Pipelined())

fd = ring()
"""
PLAIN = """
with FusionDefinition() as plain:
    x = plain.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float)
    plain.add_output(x + 1.0)
"""
IMPORTS = "from fuser import DataType, FusionDefinition\n"
SAID = "never: the schedule set by hand, for made-up sizes"


@pytest.fixture
def run(tmp_path, capsys):
    def run(text: str, command: str, *options: str) -> tuple[int, str, str]:
        file = tmp_path / "script.py"
        file.write_text(text)
        status = main([command, *options, str(file)])
        return status, *capsys.readouterr()

    return run


def test_explain_shows_it(run):
    status, out, _ = run(BY_HAND + PLAIN, "explain", "--stages", "schedule")
    assert status == 0
    first, second = re.split(r"script.py:1\d ", out)
    assert SAID in first
    assert "scheduled by hand" in first
    assert "loaded by tma" in first
    assert "schedule fusion: pointwise" in second
    assert SAID not in second


def test_its_timeline_is_drawn(run, tmp_path):
    status, _, err = run(BY_HAND, "explain", "--timeline", str(tmp_path / "t.svg"))
    assert (status, err) == (0, "")
    assert "x_cache" in (tmp_path / "t.svg").read_text()


@pytest.mark.nvrtc
def test_sass_counts_its_machine_code(run):
    status, out, _ = run(BY_HAND, "sass")
    assert status == 0
    assert SAID in out
    assert re.search(r"and [1-9] that wait for an mbarrier", out)


def test_check_proves_it_and_leaves_what_has_none(run):
    status, out, err = run(BY_HAND + PLAIN, "check")
    assert (status, err) == (0, "")
    assert out.count(SAID) == out.count("proved for all N") == 1
    assert out.count("  shapes ") == 1, "the other definition has no schedule set by hand"


def test_a_run_without_it_does_not_stand_for_it(run):
    automatic = BY_HAND + "fd.execute([np.ones(700, 'f4')], backend='interpret')\n"
    status, out, _ = run(automatic, "check")
    assert status == 0
    assert out.count("has no pipeline") == out.count("proved for all N") == out.count(SAID) == 1


@pytest.mark.parametrize("how", ["manual_execute([{}], backend='interpret')", "validate([{}], "
                                 "manual=True, backend='interpret')"])  # fmt: skip
def test_what_ran_by_hand_is_checked_once_as_it_ran(how, run):
    status, out, _ = run(BY_HAND + f"fd.{how.format('np.ones(700, np.float32)')}\n", "check")
    assert status == 0
    assert out.count("proved for all N") == 1
    assert SAID not in out


def test_one_that_has_no_kernel_is_said(run):
    status, out, err = run(BY_HAND.replace("Pipelined())", "Pipelined(), 2**20)"), "check")
    assert status == 2
    assert "for made-up sizes: the script runs it on none of its own" in err
    assert "proved" not in out


def test_check_names_the_definitions_without_one_when_there_is_nothing_else(run):
    status, out, err = run(IMPORTS + PLAIN, "check")
    assert (status, out) == (2, "")
    said = " ".join(err.split())
    assert re.search(r"no schedule is set by hand in what it only defines \(\S*script.py:4\)", said)
    assert "there is nothing to check; needed an execute()" in said
