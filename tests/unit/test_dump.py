"""FUSER_DUMP: which files, in which order, what happens without it; printers of every stage."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from named_sums import build, lowered
from stmt_examples import EXAMPLES

from fuser import FusionDefinition, LoadStoreOpType, fuse, ops
from fuser.api import listen
from fuser.codegen.emit import emit
from fuser.core.errors import OptionError
from fuser.core.expr import Const, Var
from fuser.core.simplify import Facts
from fuser.core.unroll import Unroll
from fuser.debug import kernel_text, schedule_text
from fuser.debug.highlight import tokens
from fuser.debug.stages import STAGES, Snapshot, kernel_of, parse_stages, readable, snapshot
from fuser.debug.trace import changed_lines
from fuser.kir.core import GRID_1, Kernel
from fuser.kir.stmts import For, If
from fuser.schedule.circular import Pipelined, WarpSpecialized
from fuser.schedule.kinds import MemoryType, ParallelType
from fuser.schedule.schedule import Schedule, default_schedule


def definition() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 8], contiguity=True)
        total = fd.ops.sum(fd.ops.exp(x), [1])
        fd.add_output(total)
    return fd


ARRAY = np.ones((3, 8), np.float32)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(listen, "_compilations", itertools.count())
    monkeypatch.setenv("FUSER_DUMP_DIR", str(tmp_path / "dump"))
    monkeypatch.setenv("FUSER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "dump"


def dumped(folder) -> dict[str, list[str]]:
    return {f.name: sorted(p.name for p in f.iterdir()) for f in sorted(folder.iterdir())}


def test_a_folder_that_cannot_be_made_is_named(folder, monkeypatch):
    folder.write_text("a file is in the way")
    monkeypatch.setenv("FUSER_DUMP", "cuda")
    with pytest.raises(OptionError, match=r"FUSER_DUMP_DIR: .*dump.*; a folder that can be made"):
        definition().execute([ARRAY], backend="interpret")


def test_nothing_is_written_unasked(folder, monkeypatch):
    monkeypatch.delenv("FUSER_DUMP", raising=False)
    definition().execute([ARRAY], backend="interpret")
    monkeypatch.setenv("FUSER_DUMP", "")
    definition().execute([ARRAY], backend="interpret")
    assert not folder.exists()


def test_files_are_numbered_in_the_order_of_the_stages(folder, monkeypatch):
    monkeypatch.setenv("FUSER_DUMP", "fusion,schedule, nest,kir,cuda")
    definition().execute([ARRAY], backend="interpret")
    ((name, files),) = dumped(folder).items()
    assert re.fullmatch(r"000_definition_test_dump_\d+", name)
    assert [f[:3] for f in files] == [f"{n:02d}_" for n in range(len(files))]
    stage = re.compile(r"\d\d_(?:fusion_)?(fusion|schedule|nest|kir|cuda)(?:_[\w-]+)?\.\w+")
    order = [STAGES.index(stage.fullmatch(f)[1]) for f in files]
    assert order == sorted(order)
    assert files[0] == "00_fusion.txt"
    assert "_nest.txt" in files[2]
    assert files[-1].endswith("_cuda.cu")
    here = folder / name
    assert "total: f32[x_size0] = sum(" in (here / files[0]).read_text()
    assert "__global__" in (here / files[-1]).read_text()


def test_every_shape_class_has_a_folder_and_a_repeated_call_none(folder, monkeypatch):
    monkeypatch.setenv("FUSER_DUMP", "fusion")
    fd = definition()
    for array in (ARRAY, ARRAY, ARRAY[:0]):
        fd.execute([array], backend="interpret")
    assert [name[:4] for name in dumped(folder)] == ["000_", "001_"]


def test_a_traced_function_names_its_folder(folder, monkeypatch):
    monkeypatch.setenv("FUSER_DUMP", "fusion")

    @fuse
    def twice(x):
        return ops.add(x, x)

    twice(ARRAY)
    assert next(iter(dumped(folder))).startswith("000_twice_test_dump_")


def test_stale_files_go_and_foreign_files_stay(folder, monkeypatch):
    monkeypatch.setenv("FUSER_DUMP", "fusion,nest")
    definition().execute([ARRAY], backend="interpret")
    (name,) = dumped(folder)
    (folder / name / "notes.txt").write_text("mine")
    monkeypatch.setenv("FUSER_DUMP", "nest")
    monkeypatch.setattr(listen, "_compilations", itertools.count())
    definition().execute([ARRAY], backend="interpret")
    assert dumped(folder) == {name: ["00_fusion_nest.txt", "notes.txt"]}


@pytest.mark.nvrtc
def test_machine_code(folder, monkeypatch):
    monkeypatch.setenv("FUSER_DUMP", "ptx,sass")
    definition().execute([ARRAY], backend="interpret")
    ((name, files),) = dumped(folder).items()
    assert files == ["00_fusion_ptx.ptx", "01_fusion_sass.sass"]
    assert ".visible .entry fusion(" in (folder / name / files[0]).read_text()


@pytest.mark.nvrtc
def test_a_kernel_that_nvrtc_rejects_still_runs_on_the_interpreter(folder, monkeypatch):
    monkeypatch.setenv("FUSER_DUMP", "ptx")
    monkeypatch.setattr("fuser.api.listing.DEFAULT_ARCH", "sm_1")
    monkeypatch.setattr("fuser.api.listing.device_available", lambda: False)
    (total,) = definition().execute([ARRAY], backend="interpret")
    np.testing.assert_allclose(total, 8 * np.exp(1), rtol=1e-6)
    ((name, (file,)),) = dumped(folder).items()
    assert "// kernel fusion: NVRTC rejected" in (folder / name / file).read_text()


def test_an_unknown_stage_is_named_with_the_valid_ones(folder, monkeypatch):
    monkeypatch.setenv("FUSER_DUMP", "nest,asm")
    wanted = (
        "FUSER_DUMP: 'asm' is no stage; needed some of fusion, schedule, nest, kir, cuda, ptx, "
        "sass, or all"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(wanted)}$"):
        definition().execute([ARRAY], backend="interpret")
    assert not folder.exists()


def test_stage_lists():
    assert parse_stages("all", "--stages") == frozenset(STAGES)
    assert parse_stages(" cuda,,nest ", "--stages") == {"cuda", "nest"}
    assert parse_stages("", "--stages") == frozenset()


# ---- listeners -------------------------------------------------------------------------------


class Diary:
    def __init__(self) -> None:
        self.said: list[str] = []

    def building(self, fd, sizes):
        assert sizes["x_size0"] == 3
        self.said.append("building")
        return lambda step, ir: self.said.append(step)

    def built(self, fd, program, seconds):
        assert seconds > 0
        self.said.append(f"built {program.name}")

    def called(self, fd, inputs, manual):
        assert (inputs[0] is ARRAY, manual) == (True, False)
        self.said.append("called")

    def ran(self, fd, program, gpu, seconds):
        assert seconds > 0
        self.said.append(f"ran on {gpu}")


def test_a_listener_hears_compilations_once_and_every_run():
    diary, fd = Diary(), definition()
    with listen.listening(diary):
        fd.execute([ARRAY], backend="interpret")
        fd.execute([ARRAY], backend="interpret")
    fd.execute([ARRAY], backend="interpret")
    assert [*dict.fromkeys(diary.said)][:4] == ["building", "fusion", "schedule", "nest"]
    assert diary.said.count("building") == 1
    assert diary.said[-5:] == ["built fusion", *["called", "ran on None"] * 2]
    assert listen.LISTENERS == []


# ---- printers --------------------------------------------------------------------------------


def kernel(body) -> Kernel:
    return Kernel("k", (), (), GRID_1, (Const(32), Const(1), Const(1)), "i32", body)


@pytest.mark.parametrize("stmt", EXAMPLES, ids=lambda s: type(s).__name__)
def test_every_statement_prints_what_it_holds(stmt):
    text = kernel_text.to_text(kernel((stmt,)))
    (line, *_) = text.splitlines()[3:]
    assert line.split()[0] == type(stmt).__name__
    for field, value in ((f, getattr(stmt, f)) for f in type(stmt).__slots__):
        if isinstance(value, str) and value:
            assert (f"{field}={value}" in line) or field in ("name", "hint") or value in line


def test_nested_bodies_are_indented_and_defaults_left_out():
    first, second = EXAMPLES[0], EXAMPLES[1]
    loop = For("i", Const(4), (If(Var("c"), (first,), (second,)),), Unroll("partial", 2))
    lines = kernel_text.to_text(kernel((loop,))).splitlines()[3:]
    assert [line[: len(line) - len(line.lstrip())] for line in lines] == [
        "  ", "    ", "      ", "    ", "      ",
    ]  # fmt: skip
    assert lines[0] == "  For var=i, extent=4, unroll=partial:2"
    assert lines[1].strip() == "If cond=c"
    assert lines[3].strip() == "orelse:"


def test_schedule_text_names_every_axis():
    graph = definition().fusion
    total = graph.value("total")
    ts = default_schedule(graph, total, MemoryType.shared)
    domain = ts.domain.split(1, Const(4)).bind(2, ParallelType.block_x)
    ts.domain, ts.position = domain, 1
    text = schedule_text.to_text("k", graph, Schedule({"total": ts}, notes=("why",)), Facts())
    (exp,) = (v.name for v in graph.values if v.op == "exp")
    assert text.splitlines() == [
        "schedule k: manual",
        "  # why",
        "total: f32[x_size0] in shared memory",
        "  root  i0 x_size0 | r1 8",
        "  split r1 by 4 -> r2, r3",
        "  loop  i0 x_size0 | r2 2 | r3 4 block_x",
        "  computed at position 1 of its consumers' loops",
        f"inlined: {exp}",
    ]


@pytest.mark.parametrize(
    ("kind", "ahead"), [(Pipelined("token", "mbarrier"), 1), (WarpSpecialized(), 3)]
)
def test_schedule_text_says_how_a_ring_is_filled(kind, ahead):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    tile = x.cache_after(LoadStoreOpType.tma)
    tile.set_memory_type(MemoryType.shared)
    tile.split(0, 64)
    y.split(0, 64)
    tile.inline_at(y, 1)
    tile.circular_buffer(4, 1, kind)
    lines = schedule_text.tensor_lines(tile.schedule, Facts())
    assert f"circular buffer  4 stages, {ahead} trips ahead, {kind.words}" in lines


LINES = [
    ("cuda", "  const float y = cast<float>(x_v[v0]) + 1.5e-3f;  // why < this"),
    ("cuda", "#pragma unroll 4"),
    ("ptx", "@%p1 bra        $L__BB0_5;"),
    ("ptx", "\t.reg .b32 \t%r<84>;"),
    ("sass", "        /*0140*/              @!P0 LDG.E.CONSTANT R2, desc[UR6][R2.64] ;"),
    ("nest", "  for bx in [0, (x_size0 + 3) / 4)  # grid_x"),
    ("kir", "    Define t1: dtype=f32, value=expf(x[bx * 8])"),
    ("schedule", "  loop  i0 x_size0 grid_x | r2 2 | r3 4 block_x"),
    ("fusion", "y: bf16[x_size0, 8] = sum(x, dims=[1])"),
]


@pytest.mark.parametrize(("stage", "line"), LINES)
def test_tokens_joined_are_the_line(stage, line):
    found = list(tokens(line, stage))
    assert "".join(text for _, text in found) == line
    assert any(kind for kind, _ in found)


def test_tokens_know_their_stage():
    assert ("comment", "// why < this") in tokens(LINES[0][1], "cuda")
    assert ("type", "float") in tokens(LINES[0][1], "cuda")
    assert ("number", "1.5e-3f") in tokens(LINES[0][1], "cuda")
    assert ("register", "%p1") in tokens(LINES[2][1], "ptx")
    assert ("keyword", "Define") in tokens(LINES[6][1], "kir")
    assert ("call", "sum") in tokens(LINES[8][1], "fusion")


def test_changed_lines_are_the_new_ones():
    assert changed_lines("a\nb\nc", "a\nB\nc\nd") == {1, 3}
    assert changed_lines("a\nb", "a\nb") == frozenset()
    assert changed_lines("a\nb", "a") == frozenset()


def test_snapshots_are_of_stages_only():
    assert snapshot("x", object()) is None
    taken = snapshot("fusion", definition().fusion)
    assert taken is not None
    assert readable(taken) == taken.text


def test_the_kernel_of_a_source_has_no_prelude():
    assert kernel_of('typedef int idx;\nextern "C" void k() {}') == 'extern "C" void k() {}'


def test_functions_of_outlined_loops_are_shown_with_the_kernel():
    function = "__device__ __noinline__ void k_i0_0() {}"
    prelude = "__device__ __forceinline__ void sync() {}\n"
    source = f'{prelude}{function}\n\nextern "C" void k() {{}}'
    assert kernel_of(source) == source.removeprefix(prelude)
    ptx = ".version 9.0\n\n.func  k_i0_0(\n)\n{\n}\n.visible .entry k(\n)\n{\n}"
    assert readable(Snapshot("ptx", "ptx", "k", ptx)).startswith(".func  k_i0_0(")
    alone = ".version 9.0\n\n.visible .entry k(\n)\n{\n}"
    assert readable(Snapshot("ptx", "ptx", "k", alone)).startswith(".visible .entry")
    kernel = lowered("outlined", build("outlined"))
    assert kernel_of(emit(kernel)).startswith("__device__ __noinline__ float fusion_i1_0(")
