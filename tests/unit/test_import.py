"""What ``import fuser`` loads: what a definition is written with, not what it is compiled with."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fuser

pytestmark = pytest.mark.unit

LATER = frozenset(
    {
        "networkx", "jinja2", "markupsafe", "rich", "cuda", "platformdirs", "matplotlib",
        "numpy.polynomial",
        "fuser.cli", "fuser.codegen", "fuser.debug", "fuser.interp", "fuser.kir", "fuser.nest",
        "fuser.passes", "fuser.protocol", "fuser.runtime", "fuser.schedule.recipes", "fuser.sim",
        "fuser.timeline",
    }
)  # fmt: skip


def loaded_by(statement: str) -> set[str]:
    """Return the names of the modules that a fresh process has after `statement`."""
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_import_leaves_compiling_and_running_for_later():
    loaded = loaded_by("import fuser")
    assert "fuser.api.definition" in loaded
    assert sorted(LATER & loaded) == []


def test_every_public_name_is_there_after_the_import():
    """Nothing is put off that a user, `help` or a type checker looks up in the package."""
    missing = [name for name in fuser.__all__ if name not in vars(fuser)]
    assert missing == []
    assert sorted(LATER & loaded_by(f"from fuser import {', '.join(fuser.__all__)}")) == []


def test_the_names_that_must_not_be_loaded_exist():
    """A module that was renamed would otherwise drop out of the test above without a word."""
    everything = loaded_by(
        "import networkx, jinja2, rich, cuda, platformdirs, numpy.polynomial, fuser.cli.main\n"
        "import fuser.codegen.emit, fuser.interp.checked, fuser.protocol.verdict\n"
        "import fuser.debug.page, fuser.timeline.record, fuser.schedule.recipes.catalog"
    )
    assert sorted(LATER - everything - {"matplotlib"}) == []


def test_running_kernels_that_are_kept_takes_no_compiler():
    """`fuser.api.kept` finds them; schedules, passes, templates and simulator stay away."""
    loaded = loaded_by("import fuser.api.execute")
    assert "fuser.api.kept" in loaded
    compilers = (
        "jinja2", "fuser.schedule.recipes", "fuser.passes.lower", "fuser.kir.stmts", "fuser.sim",
        "fuser.api.pipeline", "fuser.codegen.emit",
    )  # fmt: skip
    assert [name for name in sorted(loaded) if name.startswith(compilers)] == []


def test_defining_a_fusion_takes_no_networkx():
    """It takes longer to import than this package; where the launch is kept none is needed."""
    loaded = loaded_by(
        "from fuser import DataType, FusionDefinition, fuse\n"
        "with FusionDefinition() as fd:\n"
        "    x = fd.define_tensor([-1, 1, -1], [True, None, True], DataType.BFloat16)\n"
        "    s = fd.define_scalar(DataType.Float)\n"
        "    row = fd.ops.sum(fd.ops.cast(x, DataType.Float) * s, [2], True)\n"
        "    fd.add_output(fd.ops.permute(fd.ops.exp(x - row), [2, 1, 0]))\n"
        "    fd.add_output(x + s)\n"
    )
    assert "fuser.api.definition" in loaded
    assert "networkx" not in loaded
