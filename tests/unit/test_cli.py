"""The command line in processes of its own: what it prints, and its exit status."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from cli_process import EXECUTED, ROOT, TINY, fuser

from fuser.cli.main import main
from fuser.runtime.log import compile_error
from fuser.runtime.nvrtc import REAL_ARCHS

VOID = {"meta", "input"}


@pytest.fixture
def script(tmp_path: Path):
    def write(text: str, name: str = "script.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


# ---- the parser ------------------------------------------------------------------------------


def test_help_lists_the_commands(tmp_path):
    done = fuser("--help", cwd=tmp_path)
    assert done.returncode == 0
    for command in ("demo", "run", "explain", "doctor", "FUSER_DUMP"):
        assert command in done.stdout


def test_version(tmp_path):
    done = fuser("--version", cwd=tmp_path)
    assert done.returncode == 0
    assert re.match(r"fuser (\d+\.\d+|\(not installed)", done.stdout)


@pytest.mark.parametrize("arguments", [(), ("bogus",), ("run",), ("explain", "--bogus", "x.py")])
def test_a_wrong_command_line_is_bad_input(arguments, tmp_path):
    done = fuser(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "usage: python -m fuser" in done.stderr


def test_doctor(tmp_path):
    done = fuser("doctor", cwd=tmp_path)
    assert done.returncode == 0
    assert "NVRTC" in done.stdout


# ---- run -------------------------------------------------------------------------------------


def test_run_tells_what_a_fusion_became(script, tmp_path):
    again = "print('from the script')\nfd.execute([np.ones((5, 8), np.float32)])\n"
    done = fuser("run", script(EXECUTED + again), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "from the script"
    assert any(line.startswith("script.py:6 ──") for line in lines)
    text = " ".join(done.stdout.split())
    assert "shapes x[3, 8] " in text
    assert re.search(r"fusion pointwise.* grid .* block .* i32 indices", text)
    assert re.search(r"ran on (interpreter|cuda:0 .*), first [\d.]+ (us|ms|s), best of 2", text)


def test_run_passes_arguments_and_search_path(script, tmp_path):
    script("NAME = 'beside'\n", "beside_it.py")
    text = EXECUTED + "import sys, beside_it\nprint(sys.argv[1:], beside_it.NAME, __name__)\n"
    (tmp_path / "elsewhere").mkdir()
    done = fuser("run", script(text), "--flag", "3", cwd=tmp_path / "elsewhere")
    assert done.returncode == 0, done.stderr
    assert "['--flag', '3'] beside __main__" in done.stdout


def test_a_definition_error_names_the_users_line(script, tmp_path):
    text = TINY.replace("exp(x)", "add(x, fd.define_tensor(shape=[-1, 4], contiguity=True))")
    done = fuser("run", script(text), cwd=tmp_path)
    assert done.returncode == 1
    first, source, message = done.stderr.splitlines()[:3]
    assert re.fullmatch(r"\S*script\.py:7", first)
    assert source.strip().startswith("y = fd.ops.add(x, ")
    assert message.startswith("DefinitionError: add: dimension 1 of ")
    assert "Traceback" not in done.stderr


def test_an_input_error_names_the_call(script, tmp_path):
    text = EXECUTED + "\n\ndef call():\n    fd.execute([np.ones((3, 9), np.float32)])\n\n\ncall()\n"
    done = fuser("run", script(text), cwd=tmp_path)
    assert done.returncode == 1
    assert re.match(r"\S*script\.py:13\n    fd\.execute\(", done.stderr)
    assert "InputError: input x: size of dimension 1 is 9; the definition says 8" in done.stderr
    assert "script.py:6" in done.stdout, "the fusion that ran before is summarised"


@pytest.mark.parametrize("how", [{"flag": ("-v",)}, {"environment": {"FUSER_TRACEBACK": "1"}}])
def test_our_traceback_on_request(how, script, tmp_path):
    text = EXECUTED + "fd.execute([])\n"
    flag, environment = how.get("flag", ()), how.get("environment", {})
    done = fuser("run", *flag, script(text), cwd=tmp_path, **environment)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "definition.py" in done.stderr


def test_other_errors_keep_the_users_frames_only(script, tmp_path):
    done = fuser("run", script("def f():\n    return 1 / 0\n\n\nf()\n"), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("File ") == done.stderr.count("script.py") == 2
    assert done.stderr.rstrip().endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize("command", ["run", "explain"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file; a Python script is needed"),
        ("x = = 1\n", "SyntaxError: invalid syntax"),
        ("print('nothing to fuse')\n", "fusion; needed"),
    ],
)
def test_a_useless_file_is_bad_input(command, text, said, script, tmp_path):
    path = tmp_path / "missing.py" if text is None else script(text)
    done = fuser(command, path, cwd=tmp_path)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert path.name in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_is_bad_input(tmp_path):
    done = fuser("run", tmp_path, cwd=tmp_path)
    assert done.returncode == 2
    assert "is a folder; a Python script is needed" in done.stderr


def test_the_scripts_exit_status_is_kept(script, tmp_path):
    assert fuser("run", script("raise SystemExit(7)\n"), cwd=tmp_path).returncode == 7


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_examples_run(path, tmp_path):
    done = fuser("run", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ran " in done.stdout


# ---- explain ---------------------------------------------------------------------------------

GOLDEN = """
script.py:6 ────────────────────────────────────────────────────────────────────
  shapes  x[1024, 8]
  ran     never

Fusion
  x: f32[x_size0, 8] = input(contiguity=[True, True])
  y: f32[x_size0, 8] = exp(x)
  return y
"""


def test_explain_prints_the_fusion_of_a_definition_that_never_runs(script, tmp_path):
    done = fuser("explain", script(TINY), "--stages", "fusion", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == GOLDEN


@pytest.mark.nvrtc
def test_explain_prints_every_stage_in_order(script, tmp_path):
    done = fuser("explain", script(EXECUTED), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    titles = ["Fusion", *(f"{t} of fusion" for t in ("Schedule", "Loop nest", "Kernel IR"))]
    titles += [f"{t} of fusion" for t in ("CUDA", "PTX", "SASS")]
    lines = done.stdout.splitlines()
    places = [next(n for n, line in enumerate(lines) if line.startswith(t)) for t in titles]
    assert places == sorted(places)
    assert "y: f32[x_size0, 8] in global memory" in done.stdout
    assert re.search(r"for \w+ in \[0, .*\)  # grid_x", done.stdout)
    assert re.search(r"^  kernel fusion  # i32 indices$", done.stdout, re.M)
    assert 'extern "C" __global__ void' in done.stdout
    assert ".visible .entry fusion(" in done.stdout
    assert re.search(r"/\*0000\*/ +\w+|nvdisasm: not found", done.stdout)
    assert "\x1b[" not in done.stdout, "a pipe gets no colours"


def test_explain_shows_the_rest_when_nvrtc_rejects_a_kernel(script, monkeypatch, capsys):
    def reject(source, name, arch, **_):
        raise compile_error(name, f"{name}.cu(1): error: no", source)

    monkeypatch.setattr("fuser.api.listing.CUBINS.get", reject)
    assert main(["explain", str(script(EXECUTED))]) == 1
    out, err = capsys.readouterr()
    assert "--arch sm_90a: kernel fusion: NVRTC rejected" in err
    assert "__global__" in out
    assert "// kernel fusion: NVRTC rejected" in out


BY_TMA = """
from fuser import LoadStoreOpType
from fuser.cli.pipelines import ring_map
from fuser.schedule.circular import WarpSpecialized

fd = ring_map(LoadStoreOpType.tma, 2, 1, WarpSpecialized())
"""


@pytest.mark.nvrtc
@pytest.mark.parametrize("command", ["explain", "sass"])
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89"])
def test_an_architecture_without_what_a_kernel_uses_is_said_in_one_line(
    command, arch, script, tmp_path
):
    done = fuser(command, "--arch", arch, script(BY_TMA), cwd=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: --arch {arch}: kernel fusion: uses ")
    assert "TMA, " in line
    assert line.endswith(f"which {arch} does not have; needed sm_90 or newer")
    assert "ptxas" not in done.stdout


@pytest.mark.nvrtc
@pytest.mark.parametrize("command", ["explain", "sass"])
@pytest.mark.parametrize("arch", ["sm_70", "foo", ""])
def test_an_architecture_that_nvrtc_does_not_know(command, arch, script, tmp_path):
    done = fuser(command, "--arch", arch, script(TINY), cwd=tmp_path)
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert f"argument --arch: '{arch}'; needed one of sm_75, " in said
    assert set(REAL_ARCHS) <= set(said.replace(",", "").split())
    assert "NVRTC" not in said


def test_explain_rejects_unknown_stages(script, tmp_path):
    done = fuser("explain", "--stages", "nest,asm", script(TINY), cwd=tmp_path)
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "--stages: 'asm' is no stage; needed some of fusion, schedule, nest, kir," in said


def test_explain_says_when_made_up_sizes_do_not_fit(script, tmp_path):
    text = TINY.replace("exp(x)", "reshape(x, [3, 5])")
    done = fuser("explain", script(text), cwd=tmp_path)
    assert done.returncode == 2
    assert "made-up sizes" in done.stderr


def test_script_arguments_follow_two_dashes(script, tmp_path):
    text = EXECUTED + "import sys\nprint(sys.argv[1:])\n"
    done = fuser("explain", script(text), "--stages", "fusion", "--", "--n", "3", cwd=tmp_path)
    assert "['--n', '3']" in done.stdout


SECOND = """
with FusionDefinition() as small:
    a = small.define_tensor(shape=[-1])
    small.add_output(small.ops.where(small.ops.lt(a, 1.0), a, 2.0))
"""


class Page(HTMLParser):
    """Checks nesting; collects ids, links, and what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" else []
        self.fetched += [given[k] for k in ("src", "href") if k in given and tag != "a"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.nvrtc
def test_the_page_is_whole_and_self_contained(script, tmp_path):
    body = "add(x, fd.ops.broadcast(fd.ops.sum(x, [1]), [False, True]))"
    text = EXECUTED.replace("exp(x)", body) + SECOND
    out = tmp_path / "page.html"
    done = fuser("explain", script(text), "--html", out, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"wrote {out}\n")
    page = Page()
    page.feed(out.read_text())
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert page.fetched == []
    assert "http" not in out.read_text()
    shown = "".join(page.text)
    for part in ("script.py:6", "script.py:12", "Loop nest", "__global__"):
        assert part in shown
    assert re.search(r"\.reg \.b64 +%rd<\d+>;", shown), "text is escaped, so it comes back whole"


def test_a_page_that_cannot_be_written(script, tmp_path):
    done = fuser("explain", script(TINY), "--html", tmp_path / "no" / "page.html", cwd=tmp_path)
    assert done.returncode == 2
    assert "a file that can be written is needed" in done.stderr
