"""``python -m fuser check`` says what was reached, and its exit status says whether all is well."""

from dataclasses import replace

import pytest

from fuser.cli.check_matrix import families, judge
from fuser.cli.harmless import TILE, TURN, Harmless
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
    result = judge((named("pipelined, parity, war barrier, bulk"), 2, 1))
    assert result.ok
    assert not result.faults
    assert not result.harmless
    assert result.mutants == result.caught > 20


def named(name):
    return next(f for f in families() if f.name == name)


def test_one_family_of_the_matrix_with_its_harmless_mutants(capsys):
    name = "stores out of tiles, specialised, bulk"
    assert main(["check", "--matrix", "--family", name]) == 0
    family, last = capsys.readouterr().out.splitlines()
    assert family.startswith(f"{name}: 3 of 3 proved for all N, mutants 76 of 76, ")
    harmless = "2 more are harmless (proved): said by the barrier of the tile, "
    assert harmless in family
    assert last == "configurations 3 ok, mutants 76 caught of 76, 2 harmless"


def test_which_families_there_are_must_be_known(capsys):
    assert main(["check", "--matrix", "--family", "of no name"]) == 2
    assert "no family of the matrix has 'of no name' in its name" in capsys.readouterr().err
    assert main(["check", "--family", "stores"]) == 2
    assert "--family chooses of the matrix; needed --matrix, too" in capsys.readouterr().err


def test_a_mutant_that_is_newly_harmless_is_a_fault():
    family = named("stores out of tiles, specialised, bulk")
    result = judge((replace(family, harmless=()), 2, 1))
    assert result.ok
    (fault,) = result.faults
    assert fault.startswith("S = 2, P = 1: convergence dropped, SyncWarp(all lanes have read")
    assert ": proved" in fault
    assert result.caught == result.mutants - 1


def test_the_list_of_harmless_mutants_is_held_to_what_they_are():
    family = named("stores out of tiles, specialised, bulk")
    wrong = Harmless("arrive dropped", "MbarrierArriveExpectTx(x_cache_full) in loop i0 of the "
                     "producer of x_cache", TILE)  # fmt: skip
    absent = Harmless("wait dropped", TURN, TILE)
    result = judge((replace(family, harmless=(*family.harmless, wrong, absent)), 2, 1))
    assert result.faults == (
        f"S = 2, P = 1: wait dropped, {TURN}: listed as harmless, and not made",
        f"S = 2, P = 1: {wrong.kind}, {wrong.where}: is wrong, and listed as harmless",
    )
    assert len(result.harmless) == 1
