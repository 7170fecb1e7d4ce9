"""The table of unroll directives in machine code, whole, and its exit status."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import unroll_table
from benchmarks.unroll_table import ARCHS, BUILDS, ROWS, kernel_of, table

pytestmark = pytest.mark.nvrtc

FRAMES = {
    "rolled_k_unrolled_inner": 8, "rolled_inside_full_unroll": 4, "rolled_inside_partial_unroll": 9,
}  # fmt: skip
"""How many times a window has taps."""


@pytest.fixture(scope="module")
def kernels():
    return tuple(kernel_of(row) for row in ROWS)


@pytest.mark.parametrize("arch", ARCHS)
def test_loops_and_loads_are_what_the_schedules_say(arch, kernels):
    """In all builds, and those that are optimised have the same instructions."""
    release = table(kernels, arch, "release")
    for build in BUILDS:
        found = table(kernels, arch, build) if build != "release" else release
        assert found.is_ok(release), found.text(release)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_kernels_are_filters(row, rng):
    fd, inputs = row.build()
    inputs[0] = rng.standard_normal(inputs[0].shape).astype(np.float32)
    (y,) = fd.manual_execute(inputs, backend="interpret")
    x, weights, *_ = inputs
    frames = FRAMES.get(row.name, 1)
    assert len(y) == unroll_table.OUTPUTS
    taps = np.zeros((frames, (len(x) - len(y) + 1) // frames))
    taps[:, : unroll_table.TAPS] = weights
    expected = np.correlate(x.astype(np.float64), taps.ravel(), "valid")
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-4)


# ---- what the command says ---------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch, capsys):
    """Return the exit status and the words of each line, of two kernels in one build."""

    def run(rows=ROWS[:2], archs=("sm_90a",), builds=("release",)):
        monkeypatch.setattr(unroll_table, "ROWS", rows)
        monkeypatch.setattr(unroll_table, "ARCHS", archs)
        monkeypatch.setattr(unroll_table, "BUILDS", {b: BUILDS[b] for b in builds})
        monkeypatch.setattr("sys.argv", ["unroll_table"])
        status = unroll_table.main()
        return status, [line.split() for line in capsys.readouterr().out.splitlines()]

    return run


def test_all_that_is_as_it_should_be(run):
    status, lines = run(builds=("release", "-G -dopt=on"))
    assert status == 0
    assert lines[1:4] == [
        ["sm_90a", "release", "taps_default", "0", "8", "0/8", "ok"],
        ["sm_90a", "release", "taps_rolled", "1", "2", "1/2", "ok"],
        ["sm_90a", "release", "marks", "in", "PTX", "1", "1", "ok"],
    ]
    *where, found, wanted, verdict = lines[-2]
    assert where == ["sm_90a", "-G", "-dopt=on", "instructions,", "as", "of", "release"]
    assert (found, verdict) == (wanted, "ok")
    assert lines[-1] == ["2", "of", "2", "builds", "ok"]


@pytest.mark.parametrize("wrong", [(0, 8), (1, 8), (0, 2)])
def test_a_wrong_count_is_an_exit_status(wrong, run):
    status, lines = run((ROWS[0], replace(ROWS[1], expected=wrong)))
    assert status == 1
    text = "/".join(map(str, wrong))
    assert lines[2] == ["sm_90a", "release", "taps_rolled", "1", "2", text, "DIFFERS"]
    assert lines[-1] == ["0", "of", "1", "builds", "ok"]


def test_code_in_other_sections_is_an_exit_status(run):
    status, lines = run((replace(ROWS[0], sections=2),), builds=("release", "debug"))
    assert status == 1
    assert [line[-5:] for line in lines if "DIFFERS:" in line] == [
        ["DIFFERS:", "1", "sections", "of", "code"]
    ]


def test_a_lost_mark_is_an_exit_status(run, monkeypatch):
    monkeypatch.setattr(unroll_table, "nounroll_pragmas", lambda ptx: 0)
    status, lines = run()
    assert status == 1
    assert lines[3] == ["sm_90a", "release", "marks", "in", "PTX", "0", "1", "DIFFERS"]


def test_other_instructions_are_an_exit_status(run, monkeypatch):
    """As many loops and loads as in the release, but not optimised."""
    monkeypatch.setitem(BUILDS, "lineinfo", {"fmad": False})
    status, lines = run(builds=("release", "lineinfo"))
    assert status == 1
    assert lines[-2][2:7] == ["instructions,", "as", "of", "release", lines[-2][6]]
    assert lines[-2][-1] == "DIFFERS"
    assert lines[-1] == ["1", "of", "2", "builds", "ok"]


def test_an_architecture_that_the_compiler_does_not_know(run):
    status, (line,) = run(archs=("sm_90a", "sm_70"))
    assert status == 1
    assert line[2:] == "does not know sm_70; a newer one is needed".split()
