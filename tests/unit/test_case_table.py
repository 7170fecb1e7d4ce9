"""The table of cases in docs/testing.md names tests that exist, and leaves no ring case out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| (\d+) \|.*\| (.+) \|$", (ROOT / "docs/testing.md").read_text(), re.M)
NAMED = {name: case for case, tests in ROWS for name in re.findall(r"`(test_\w+)`", tests)}
DEFINED = {
    name: path.name
    for path in sorted((ROOT / "tests").rglob("*.py"))
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
}
RING_FILES = ("case_rings.py", "test_ring_cases.py")


def test_named_tests_exist() -> None:
    assert set(NAMED) <= set(DEFINED)
    for name, case in NAMED.items():
        if match := re.match(r"test_case_(\d+)_", name):
            assert match[1] == case, name


def test_every_test_of_a_ring_case_is_named() -> None:
    written = {name for name, file in DEFINED.items() if file in RING_FILES}
    assert written
    assert written <= set(NAMED)


def test_every_row_has_a_test() -> None:
    assert len(ROWS) == len({case for case, _ in ROWS}) == 23
    assert all("`test_" in tests for _, tests in ROWS)
