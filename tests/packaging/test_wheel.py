"""The built wheel: what it holds, and that it runs where no checkout is."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", out, ROOT, cwd=out)
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_installs_one_package_and_takes_no_other_name(wheel: Path, names: set[str]):
    top = {name.split("/")[0] for name in names}
    (info,) = (name for name in top if name.endswith(".dist-info"))
    assert top == {"fuser", info}
    assert f"{info}/entry_points.txt" not in names, "no console script may be installed"


def test_wheel_holds_every_module_and_template(names: set[str]):
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "fuser").rglob("*.py")}
    folder = ROOT / "kernels/templates"
    templates = {
        f"fuser/_templates/{p.relative_to(folder).as_posix()}"
        for p in folder.rglob("*")
        if p.is_file()
    }
    assert templates
    assert names >= modules | templates
    assert "fuser/py.typed" in names


def test_wheel_carries_its_licence(names: set[str]):
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_demo_runs_from_the_wheel_in_an_empty_environment(wheel: Path, tmp_path: Path):
    home, elsewhere = tmp_path / "venv", tmp_path / "elsewhere"
    elsewhere.mkdir()
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=elsewhere)
    where = run(python, "-I", "-c", "import fuser; print(fuser.__file__)", cwd=elsewhere)
    assert Path(where.strip()).is_relative_to(home)
    assert "fuser" in run(python, "-I", "-m", "fuser", "demo", cwd=elsewhere)
