"""``python -m fuser check`` says what was reached, and its exit status says whether all is well."""

import re
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console
from role_fusions import kernel_of

from fuser.cli import pipelines
from fuser.cli.check_matrix import families, judge
from fuser.cli.harmless import TILE, TURN, Harmless
from fuser.cli.main import main
from fuser.cli.progress import Progress
from fuser.protocol.explore import ASK_STATES
from fuser.protocol.model import analyse
from fuser.protocol.verdict import check, prove
from fuser.schedule.circular import WarpSpecialized
from fuser.schedule.kinds import LoadStoreOpType, ParallelType

pytestmark = pytest.mark.protocol

BLOCK_Y = ParallelType.block_y

SCRIPT = """
import numpy as np
from fuser import DataType, FusionDefinition, LoadStoreOpType
from fuser.cli.pipelines import ring_map
from fuser.schedule.circular import Pipelined

fd = ring_map(LoadStoreOpType.bulk, 2, 1, Pipelined(war="mbarrier"))
fd.manual_execute([np.ones(700, "f4")], backend="interpret")
again = ring_map(LoadStoreOpType.bulk, 2, 1, Pipelined(war="mbarrier"))
again.manual_execute([np.ones(900, "f4")], backend="interpret")
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


def test_a_limit_says_what_was_decided_and_what_was_not(tmp_path, capsys):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    assert main(["check", "--limit", "1e-9", str(file)]) == 1
    out, err = capsys.readouterr()
    assert "not decided: stopped after 1 state; nothing was wrong so far" in out
    assert "not proved: time was up before all states of the proof were explored" in out
    assert "has no pipeline" in out
    assert "--limit 1e-09 is over: 1 of 3 kernels decided, not " in out
    left = re.findall(r"fusion of \S+\.py:\d+ on x\[(\d+)\]", out.splitlines()[-1])
    assert left == ["700", "900"]
    assert "checking" not in err  # no terminal
    assert main(["check", "--limit", "1000", str(file)]) == 0
    assert "proved for all N" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
def test_a_limit_is_a_number_of_seconds(value, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["check", "--limit", value, "script.py"])
    assert stopped.value.code == 2
    assert f"'{value}'; needed a number of seconds above 0" in capsys.readouterr().err
    assert main(["check", "--matrix", "--limit", "1"]) == 2
    assert "--limit is about FILE.py" in capsys.readouterr().err


def kernel_of_stores(stages):
    return named("stores out of tiles, specialised, bulk").kernel(stages, stages - 1)


def test_an_exploration_asks_before_it_begins_and_every_few_states():
    asked = []
    verdict = check(kernel_of_stores(8), go_on=lambda states: asked.append(states) is None)
    assert (verdict.reach, verdict.one_run) == ("proved", True)
    assert asked[0] == 1
    assert len(asked) >= verdict.states // ASK_STATES
    assert asked == sorted(asked)
    stopped = check(kernel_of_stores(8), go_on=lambda states: states < asked[2])
    assert (stopped.reach, stopped.states, stopped.ok) == ("stopped", asked[2], False)


def test_an_exploration_of_all_interleavings_asks_as_well():
    asked = []
    analysis = analyse(kernel_of_stores(3))
    outcome, _ = prove(analysis, go_on=lambda n: asked.append(n) is None, one_run=False)
    assert (outcome.complete, outcome.one_run) == (True, False)
    assert len(asked) >= outcome.states // ASK_STATES > 2
    stopped, _ = prove(analysis, go_on=lambda states: states < asked[2], one_run=False)
    assert (stopped.stopped, stopped.states) == (True, asked[2])


def test_what_was_explored_before_time_was_up_is_said():
    """A ring of any number of trips in each round of a group: explored, not proved."""
    fd = pipelines.ring_groups(LoadStoreOpType.tma, 2, 1, WarpSpecialized(BLOCK_Y, None, 3), -1)
    kernel = kernel_of(fd, [np.zeros((64, 64), "f4")])
    begun = check(kernel, go_on=lambda states: states < 500)
    assert begun.reach == "stopped"
    assert 0 < sum(begun.trips) < 6
    assert "unknown number of trips in each round" in begun.note


def test_the_progress_line_is_for_terminals():
    clock = iter(range(0, 1000, 10))
    out = Console(force_terminal=True, width=100, record=True, file=StringIO())
    progress = Progress(out, 25, lambda: next(clock))
    with progress.about("fusion"):
        assert progress(300)
        shown = str(progress.status.status)
        assert progress(600)
        assert not progress(900)
    assert shown == "checking fusion: 300 states, 10 of 25 s"
    assert "checking" in out.file.getvalue()
    dumb = Console(force_terminal=False, file=StringIO())
    quiet = Progress(dumb)
    with quiet.about("fusion"):
        assert quiet(300)
    assert dumb.file.getvalue() == ""


def test_bad_input_has_status_2(tmp_path, capsys):
    for arguments in ((), ("--matrix", "script.py")):
        assert main(["check", *arguments]) == 2
        assert "needs FILE.py or --matrix, and not both" in capsys.readouterr().err
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    assert main(["check", str(empty)]) == 2
    assert "runs no fusion" in capsys.readouterr().err


def test_the_matrix_has_every_form_of_issue_and_counts_honestly(capsys):
    names = [family.name for family in families()]
    assert len(set(names)) == len(names)
    for word in ("parity", "token", "war mbarrier", "war barrier", "cp_async", "rows", "carried",
                 "multicast"):  # fmt: skip
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
    family, spared, last = capsys.readouterr().out.splitlines()
    assert family.startswith(f"{name}: 8 of 8 proved for all N, mutants 76 of 76, ")
    harmless = "2 more are harmless (proved): said by the barrier of the tile, "
    assert harmless in family
    assert spared == "harmless 2 mutants, each of them proved"
    assert last == "configurations 8 ok, mutants 76 caught of 76"


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
