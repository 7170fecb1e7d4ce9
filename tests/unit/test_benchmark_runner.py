"""The benchmarks' command line, workloads, files of results and table, where there is no GPU."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks import on_host, table, user_file
from benchmarks.__main__ import main
from benchmarks.operations import count_operations
from benchmarks.peers import LIBRARIES, choose
from benchmarks.readme import newest
from benchmarks.readme import table as readme_table
from benchmarks.results import OURS, Results, Row, load
from benchmarks.runner import Step, run_steps
from benchmarks.workloads import NOT_YET, WORKLOADS, Case, Size, cases, swept_cases
from fuser import DataType, FusionDefinition
from fuser.api.execute import bind

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def interpreted(case: Case, rng: np.random.Generator):
    return [on_host.random_array(rng, spec) for spec in case.inputs]


# ---- workloads -------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_workloads_are_right(workload, rng):
    """On sizes that fill neither the last vector nor the last block of a recipe."""
    size = workload.small if workload.manual else Size(133, 250)
    case = Case(workload, size)
    case.build().validate(
        interpreted(case, rng), backend="interpret", manual=workload.manual
    )  # raises where it differs from float64


def test_every_workload_of_the_peers_is_there_or_said_to_be_not_yet():
    names = [case.name for case in cases([])] + [name for name, _ in NOT_YET]
    assert len(set(names)) == len(names) == 33 + 5
    for families, sizes in (
        (("softmax", "rmsnorm", "layernorm"), ("32768x1024", "32768x4096", "16384x16384",
                                               "8192x65536")),
        (("rmsnorm backward", "residual+layernorm"), ("32768x4096", "16384x16384")),
        (("cross entropy",), ("16384x32000", "8192x128256")),
        (("bias+gelu", "silu(x)*y", "transpose"), ("16384x8192",)),
        (("matmul", "matmul+bias+gelu"), ("4096^3", "8192^3")),
    ):  # fmt: skip
        assert {f"{f} bf16 {s}" for f in families for s in sizes} <= set(names)
    assert "ring sum fp32 2^28, tma" in names, "rings are called what older results call them"


def test_what_is_not_yet_there_is_really_not():
    with FusionDefinition() as fd:
        missing = [hasattr(fd.ops, op) for op in ("matmul", "linear")]
    assert missing == [False, False]


def test_names_select_by_parts_and_the_picture_gets_the_same_workloads():
    assert cases(["softmax"])[0].name == "softmax bf16 32768x1024"
    assert [c.name for c in cases(["2^28, tma"])] == [
        "ring sum fp32 2^28, tma", "ring map fp32 2^28, tma",
    ]  # fmt: skip
    assert {case.workload.name for case in swept_cases([])} == {"silu(x)*y bf16", "sum rows fp32"}
    assert swept_cases(["softmax"]) == []
    (case,) = cases(["rmsnorm bf16"], (Size(5, 7),))
    assert (case.name, case.inputs[0].shape) == ("rmsnorm bf16 5x7", (5, 7))


def test_operations_are_counted_on_the_definition():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
        row = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.Float)
        y = fd.ops.exp(fd.ops.add(x, fd.ops.broadcast_in_dim(row, fd.ops.shape(x), [1])))
        fd.add_output(fd.ops.cast(fd.ops.div(fd.ops.sum(y, [1]), 2.0), DataType.BFloat16))
    sizes = bind(fd, [np.ones((3, 8), DataType.BFloat16.np), np.ones(8, np.float32)]).env
    assert count_operations(fd, sizes) == 3 * 8 * 3 + 3  # add, exp, sum; a division a row


# ---- peers -----------------------------------------------------------------------------------


def test_peers_that_are_not_installed_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "quack", None)
    monkeypatch.setattr("benchmarks.peers.find_spec", lambda name: name == "liger_kernel" or None)
    peers, missing = choose(["quack", "liger"])
    assert [peer.name for peer in peers] == ["liger"]
    assert missing == ["quack: not installed (pip install quack-kernels)"]


def test_an_unknown_peer_is_refused():
    with pytest.raises(ValueError, match="--peers: triton; needed some of torch, compile, quack"):
        choose(["torch", "triton"])


def test_peers_name_workloads_that_exist():
    known = {workload.torch for workload in WORKLOADS}
    assert all(functions.keys() <= known for functions in LIBRARIES.values())


# ---- results ---------------------------------------------------------------------------------


def some_results() -> Results:
    ours = Row("double 8x8", OURS, "double", 1e-3, 100.0, 99.0, 101.0, 2, 400_000, 4000.0,
               ceiling="plain_map", host_us=9.5, cold_ms=80.0, warm_ms=12.0)  # fmt: skip
    peer = Row("double 8x8", "torch eager", "double", 2e-3, 150.0, 149.0, 151.0, 0, 400_000, 2666.7,
               ceiling="plain_map", host_us=5.0)  # fmt: skip
    results = Results(
        {"commit": "abc1234", "gpu": "Fake H200", "driver": "13.0", "nvrtc": "13.0",
         "torch": "2.11", "time": "2026-12-01T00:00:00Z"},
        ceilings={"plain_map": 4200.0}, rows=[ours, peer],
        not_yet={"matmul bf16 4096^3": "no matmul", "matmul bf16 8192^3": "no matmul"},
        left_out=["quack: not installed"],
    )  # fmt: skip
    return run_steps([], results, Console(file=io.StringIO()))


def test_results_survive_their_file(tmp_path):
    results = some_results()
    results.save(tmp_path / "new" / "r.json")
    assert load(tmp_path / "new" / "r.json") == results
    assert "interpreter_ms" not in (tmp_path / "new" / "r.json").read_text()


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda p: p.stem)
def test_every_kept_file_of_results_is_read_and_shown(path):
    results = load(path)
    assert results.rows[0].bytes == pytest.approx(2 * 16384 * 8192 * 2, rel=1e-3)
    assert results.ceilings["plain_map"] > 4000
    assert table.text(results).count("\n") > len(results.rows)


def file_with(row: str) -> str:
    return f'{{"machine": {{}}, "rows": [{row}]}}'


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"machine": {}}', '{"machine": 1, "rows": []}', file_with("1"),
        file_with('{"workload": "x"}'), file_with('{"workload": 1, "implementation": "fuser"}'),
        file_with('{"workload": "x", "implementation": "fuser", "speed": 1}'),
        file_with('{"workload": "x", "implementation": "fuser", "us": "1"}'),
        file_with('{"workload": "x", "implementation": "fuser"}') + "}",
    ],
)  # fmt: skip
def test_a_file_of_something_else_is_refused(text, tmp_path, capsys):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(SystemExit) as end:
        main(["--from", str(tmp_path / "r.json")])
    assert end.value.code == 2
    assert "needed a file that python -m benchmarks --json wrote" in capsys.readouterr().err


def test_the_table_has_ratios_to_the_best_peer_and_to_the_ceiling():
    lines = table.text(some_results()).splitlines()
    assert lines[0].split("  ")[0] == "workload"
    ours, peer = (line.split() for line in lines[1:3])
    assert ours == ["double", "8x8", "fuser", "100.0", "4000", "0.952", "1.500", "9.5", "80",
                    "12", "1.0e-03", "2"]  # fmt: skip
    assert peer[2:6] == ["torch", "eager", "150.0", "2667"]
    assert "2 repetitions discarded and repeated, because the host was late" in lines
    assert "not yet: matmul bf16 8192^3: no matmul" in lines
    assert "left out: quack: not installed" in lines


def test_readme_reads_a_file_of_this_runner(tmp_path):
    some_results().save(tmp_path / "r.json")
    text = readme_table(json.loads((tmp_path / "r.json").read_text()))
    assert "| double 8x8 | 4000 | 2667 (torch eager) | 1.50x | 0.952 |" in text
    assert text.endswith("Not yet: matmul bf16.")


def test_readme_leaves_runs_without_a_gpu_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.readme.RESULTS", tmp_path)
    some_results().save(tmp_path / "gpu.json")
    host = Results({"time": "2027-01-01T00:00:00Z"}, rows=[Row("double 8x8", OURS, cold_ms=1.0)])
    host.save(tmp_path / "host.json")
    assert newest() == tmp_path / "gpu.json"


# ---- steps and command line ------------------------------------------------------------------


def test_an_interrupted_run_keeps_what_it_found():
    def add(results):
        results.rows.append(Row("double 8x8", OURS, GBps=2100.0, ceiling="plain_map"))

    def interrupt(results):
        raise KeyboardInterrupt

    steps = [Step("first", 1.0, add), Step("second", 1.0, interrupt), Step("third", 1.0, add)]
    console = Console(file=io.StringIO())
    results = run_steps(steps, Results({}, ceilings={"plain_map": 4200.0}), console)
    assert [row.of_ceiling for row in results.rows] == [0.5]
    assert results.left_out == ["interrupted before: second, third"]
    assert results.interrupted


def test_the_exit_status_of_an_interrupted_run_is_130_and_its_results_are_kept(
    tmp_path, monkeypatch, capsys
):
    results = some_results()
    results.interrupted = True
    monkeypatch.setattr("benchmarks.__main__.run", lambda _: results)
    kept = tmp_path / "r.json"
    assert main(["--json", str(kept)]) == 130
    assert "double 8x8" in capsys.readouterr().out
    assert load(kept) == results
    assert main(["--from", str(kept)]) == 0, "drawing it again is not interrupted"


def test_a_step_that_fails_is_a_failure_and_the_others_go_on():
    def add(results):
        results.rows.append(Row("double 8x8", OURS))

    def fail(results):
        raise MemoryError("no room")

    steps = [Step("first", 1.0, fail), Step("second", 1.0, add)]
    results = run_steps(steps, Results({}), Console(file=io.StringIO()))
    assert results.failures == ["first: MemoryError: no room"]
    assert len(results.rows) == 1
    assert "FAILED: first: MemoryError: no room" in table.text(results).splitlines()


def test_a_terminal_is_shown_the_time_that_is_left():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    run_steps([Step("first of all", 1.0, lambda _: None)], Results({}), console)
    assert "first of all" in out.getvalue()
    assert "left" in out.getvalue()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "no workload is called 'nonsense'; --list prints their names"),
        (["--peers", "triton"], "--peers: triton; needed some of torch, compile, quack, liger"),
        (["--sizes", "4096"], "needed ROWSxCOLUMNS, as in 4096x4096,32x1024"),
        (["--repetitions", "5"], "needed a number of at least 30"),
        (["nonsense", "--list"], "no workload is called 'nonsense'; --list prints their names"),
        (["mine.py", "--sizes", "8x8"], "mine.py runs at sizes of its own; needed no --sizes, or"),
        (["--from", "r.json", "--sizes", "8x8"], "--sizes is about a run; of the results of --fr"),
        (["missing.py"], "missing.py: no such file; a Python script is needed"),
    ],
)
def test_a_bad_command_line_says_what_is_needed(arguments, said, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "path", "said"),
    [
        ("--json", "there", "is a folder; a file that can be written is needed"),
        ("--json", "file/r.json", "is no folder; a file that can be written is needed"),
        ("--plot", "file", "is no folder; a folder that can be written is needed"),
        ("--plot", "file/of/all", "is no folder; a folder that can be written is needed"),
    ],
)
def test_where_nothing_can_be_written_is_refused_before_the_run(
    option, path, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("benchmarks.__main__.run", None)
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as end:
        main(["transpose", option, str(tmp_path / path)])
    assert end.value.code == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"argument {option}: " in line
    assert said in line


def test_a_file_that_cannot_be_written_after_all_is_said(tmp_path, monkeypatch, capsys):
    results = some_results()
    monkeypatch.setattr("benchmarks.__main__.run", lambda _: results)
    out = tmp_path / "new" / "r.json"
    assert main(["--json", str(out)]) == 0
    assert load(out) == results

    def full(self, text):
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(SystemExit) as end:
        main(["--json", str(out)])
    assert end.value.code == 2
    captured = capsys.readouterr()
    assert "No space left on device" in captured.err
    assert "double 8x8" in captured.out


def test_the_list_has_workloads_what_is_not_yet_and_peers(capsys):
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split("ceiling")[0].strip() == "softmax bf16 32768x1024" for line in lines)
    assert any(line.startswith("silu(a@b^T)*(a@c^T)") and "not yet" in line for line in lines)
    assert any(line.split()[:2] == ["peer", "quack"] for line in lines)


def test_the_list_of_some_workloads(capsys):
    assert main(["--list", "softmax", "transpose"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = {line.split()[0] for line in lines if not line.startswith("peer ")}
    assert names == {"softmax", "transpose"}


def test_names_choose_of_an_earlier_run(tmp_path, capsys):
    results = some_results()
    results.rows.append(Row("softmax 8x8", OURS, us=1.0))
    results.sweeps.append(Row("double 4x4", OURS, us=1.0))
    results.save(tmp_path / "r.json")
    kept, out = str(tmp_path / "r.json"), tmp_path / "some.json"
    assert main(["--from", kept, "double", "--json", str(out)]) == 0
    some = load(out)
    assert [row.workload for row in (*some.rows, *some.sweeps)] == [
        "double 8x8", "double 8x8", "double 4x4",
    ]  # fmt: skip
    assert not some.not_yet
    assert "softmax" not in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        main(["--from", kept, "double", "nonsense"])
    assert end.value.code == 2
    assert "no workload of these results is called 'nonsense'" in capsys.readouterr().err


FILE = """
import numpy as np
from fuser import DataType, FusionDefinition

with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[-1, 8], contiguity=[True, True], dtype=DataType.Float)
    fd.add_output(fd.ops.sum(x, [1]))
    fd.add_output(fd.ops.exp(x), x)
for rows in (3, 4, 3):
    fd.execute([np.ones((rows, 8), np.float32)])
fd.compile()(np.ones((5, 8), np.float32))
"""


@pytest.fixture
def calls(tmp_path) -> list[user_file.Call]:
    (tmp_path / "mine.py").write_text(FILE)
    return user_file.calls_of(str(tmp_path / "mine.py"))


def test_a_users_file_gives_each_fusion_and_shape_once_with_inputs_of_before(calls):
    assert [call.name for call in calls] == [f"mine.py:6 {n}x8" for n in (3, 4, 5)]
    assert (calls[0].inputs[0] == 1).all(), "the file's own run has written over the array"


def test_a_users_fusion_is_checked_element_by_element(calls):
    check = user_file.checker(calls[0])
    assert check((np.full(3, 8, np.float32),)) == 0.0


@pytest.mark.nvrtc
def test_without_a_gpu_compiling_and_the_interpreter_are_timed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fuser.runtime.driver.device_available", lambda: False)
    (tmp_path / "mine.py").write_text(FILE)
    out = tmp_path / "r.json"
    assert main([str(tmp_path / "mine.py"), "sum rows", "--json", str(out)]) == 0
    results = load(out)
    names = [row.workload for row in results.rows]
    assert names == ["sum rows fp32 16384x8192", *(f"mine.py:6 {n}x8" for n in (3, 4, 5))]
    for row in results.rows:
        assert row.us is None
        assert row.cold_ms > row.warm_ms > 0
        assert row.interpreter_ms > 0
    assert not results.timed
    assert results.left_out == [on_host.LEFT_OUT]
    assert str(tmp_path) not in out.read_text(), "results name no folder of the machine"
    printed = capsys.readouterr().out
    assert "left out: no CUDA device: device time, host cost" in printed
    assert "GB/s" not in printed
