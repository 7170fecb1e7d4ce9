"""``python -m fuser check`` says what was reached, and its exit status says whether all is well."""

import pytest

from fuser.cli.check_matrix import families, judge, run_matrix
from fuser.cli.main import main

pytestmark = pytest.mark.protocol

SCRIPT = """
import numpy as np
from fuser import DataType, FusionDefinition, LoadStoreOpType
from fuser.cli.pipelines import ring_map
from fuser.schedule.circular import Pipelined

fd = ring_map(LoadStoreOpType.bulk, 2, 1, Pipelined())
fd.manual_execute([np.ones(700, "f4")], backend="interpret")
with FusionDefinition() as plain:
    x = plain.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float)
    plain.add_output(x + 1.0)
plain.execute([np.ones(100, "f4")], backend="interpret")
"""


def test_a_script_gets_a_verdict_per_kernel(tmp_path, capsys):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    assert main(["check", str(file)]) == 0
    out = capsys.readouterr().out
    assert "proved for all N, in " in out
    assert "rings: x_cache (2 stages)" in out
    assert "has no pipeline" in out


def test_bad_input_has_status_2(tmp_path, capsys):
    assert main(["check"]) == 2
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    assert main(["check", str(empty)]) == 2
    assert "runs no fusion" in capsys.readouterr().err


def test_the_matrix_has_every_form_of_issue_and_counts_honestly(capsys):
    names = [family.name for family in families()]
    assert len(set(names)) == len(names)
    for word in ("parity", "token", "war mbarrier", "war barrier", "cp_async", "rows", "carried"):
        assert any(word in name for name in names)
    family = next(f for f in families() if f.name == "pipelined, parity, war barrier, bulk")
    result = judge((family, 2, 1))
    assert result.ok
    assert result.mutants == result.caught > 20
    assert run_matrix(lambda f: f.name == "warp-specialised, bulk and tma") == 0
    assert "configurations 3 ok, mutants " in capsys.readouterr().out
