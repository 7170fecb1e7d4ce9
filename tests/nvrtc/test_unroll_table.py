"""The table of unroll directives in machine code, whole, and its exit status."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import unroll_table
from benchmarks.unroll_table import ARCHS, BUILDS, ROWS, kernel_of, table

pytestmark = pytest.mark.nvrtc


@pytest.fixture(scope="module")
def kernels():
    return tuple(kernel_of(row) for row in ROWS)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("build", BUILDS)
def test_loops_and_loads_are_what_the_schedules_say(arch, build, kernels):
    found = table(kernels, arch, build)
    assert found.is_ok, [*map(str, found.lines), f"{found.marks} marks, {found.loops} loops"]


def test_a_difference_is_an_exit_status(kernels, monkeypatch, capsys):
    wrong = replace(ROWS[1], expected=(0, 8))
    monkeypatch.setattr(unroll_table, "ROWS", (ROWS[0], wrong, *ROWS[2:]))
    monkeypatch.setattr(unroll_table, "ARCHS", ("sm_90a",))
    monkeypatch.setattr(unroll_table, "BUILDS", {"release": {}})
    monkeypatch.setattr("sys.argv", ["unroll_table"])
    assert unroll_table.main() == 1
    out = capsys.readouterr().out.splitlines()
    assert out[2].split() == ["sm_90a", "release", "taps_rolled", "1", "2", "0/8", "DIFFERS"]
    assert out[-1] == "5 of 6 ok"
