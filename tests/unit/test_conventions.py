"""Conventions no other checker knows: module names, sizes of files and functions, this machine."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base"}
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60


def package_files() -> list[Path]:
    return sorted((ROOT / "fuser").rglob("*.py"))


def python_files() -> list[Path]:
    folders = ("fuser", "tests", "benchmarks", "examples")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_package_is_seen():
    assert ROOT / "fuser/core/expr.py" in package_files()


def test_no_module_has_a_name_that_says_nothing():
    bad = [relative(p) for p in python_files() if FORBIDDEN_NAMES & {p.stem, p.parent.name}]
    assert not bad


def test_files_are_short():
    lengths = {relative(p): len(p.read_text().splitlines()) for p in python_files()}
    assert {name: n for name, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_functions_are_short():
    bad = {
        f"{relative(path)}:{f.lineno} {f.name}": length
        for path in package_files()
        for f in functions(path)
        if (length := (f.end_lineno or f.lineno) - f.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert bad == {}


def test_every_module_says_what_it_owns():
    bad = [relative(p) for p in package_files() if not ast.get_docstring(ast.parse(p.read_text()))]
    assert not bad


def test_kernels_is_not_a_package():
    assert not list((ROOT / "kernels").rglob("*.py"))


def test_no_file_names_a_machine():
    """Committed text holds no absolute path of the machine it was written on."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout: there is no list of committed files")
    path = re.compile(r"(?<![\w.<])/(?:home|root|work|Users|tmp)/[\w.]")
    bad = []
    for name in filter(None, listing.stdout.split("\0")):
        file = ROOT / name
        if not file.is_file() or file == Path(__file__).resolve() or file.suffix == ".png":
            continue
        bad += [
            f"{name}:{number}"
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
            if path.search(line)
        ]
    assert not bad
