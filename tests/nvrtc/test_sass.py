"""Loops and loads in the machine code of kernels whose numbers are known."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import numpy as np
import pytest
import sass_loops
from cli_process import EXECUTED, TINY, fuser
from manual_schedules import CASES, program
from rings.cells import TYPES, Cell, definition
from rings.matrix import BASES, MULTICAST, STORES
from sass_loops import require_marked_loops

from fuser import DataType, FusionDefinition
from fuser import LoadStoreOpType as L
from fuser.api.execute import bind, program_of
from fuser.core.errors import CompileError
from fuser.runtime.nvrtc import Cubin, compile_cubin, nvrtc_archs
from fuser.sass import nounroll_pragmas, read_cubin

pytestmark = pytest.mark.nvrtc

Int, Float = DataType.Int, DataType.Float

KERNEL = """
extern "C" __global__ void k(const float* x, const float* w, float* y, int n) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float a = 0.f;
  {body}
  y[i] = a;
}}
"""
FUNCTION = """
__device__ __noinline__ float taps(const float* x) {
  float a = 0.f;
  #pragma unroll 1
  for (int t = 0; t < 4; ++t) a += x[t];
  return a;
}
"""


def taps(pragma: str) -> str:
    return KERNEL.format(body=f"{pragma}\nfor (int t = 0; t < 4; ++t) a += w[t] * x[i + t];")


def nest(outer: str, inner: str, trips: str, stride: int) -> str:
    return KERNEL.format(
        body=f"{outer}\nfor (int k = 0; k < {trips}; ++k) {{\n{inner}\n"
        f"for (int t = 0; t < 4; ++t) a += x[i + {stride} * k + t];\n}}"
    )


ROLLED, FULL, BY_4 = "#pragma unroll 1", "#pragma unroll", "#pragma unroll 4"
KERNELS = {
    # name: source, loops and loads in an optimised build, in one for the debugger
    "taps_default": (taps(""), (0, 8), (1, 2)),
    "taps_rolled": (taps(ROLLED), (1, 2), (1, 2)),
    "rolled_k_unrolled_inner": (nest(ROLLED, FULL, "8", 4), (1, 4), (2, 1)),
    "rolled_inside_full_unroll": (nest(FULL, ROLLED, "4", 64), (4, 4), (2, 1)),
    "rolled_inside_partial_unroll": (nest(BY_4, ROLLED, "n", 64), (7, 5), (2, 1)),
    "rolled_in_device_fn": (FUNCTION + KERNEL.format(body="a = taps(x + i);"), (1, 1), (1, 1)),
}
ALL = os.environ.get("FUSER_SASS") == "all"
"""By default for sm_90a only, and some kernels; `test_unroll_table.py` compiles for all."""
ARCHS = ("sm_80", "sm_90a", "sm_120a")
BUILDS = {"release": {}, "lineinfo": {"lineinfo": True}, "debug": {"debug": True}}


@pytest.mark.parametrize(
    ("arch", "build"),
    [(arch, build) for arch in ARCHS for build in BUILDS]
    if ALL
    else [("sm_90a", "release"), ("sm_90a", "debug")],
)
@pytest.mark.parametrize("name", KERNELS)
def test_loops_and_loads(name, build, arch):
    """``taps_default`` has no directive and is the control: ptxas unrolls it."""
    source, optimised, debug = KERNELS[name]
    cubin = compile_cubin(source, "k", arch, **BUILDS[build])
    report = read_cubin(cubin.image)
    assert (report.rolled_loops, report.loads) == (debug if build == "debug" else optimised)
    assert (report.irreducible_edges, report.spin_loops) == (0, 0)
    assert len(report.sections) == 1 + (name == "rolled_in_device_fn" and build == "debug")
    if build != "debug":
        assert marks(cubin) == report.rolled_loops


def marks(cubin: Cubin) -> int:
    assert cubin.ptx is not None
    return nounroll_pragmas(cubin.ptx)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
@pytest.mark.parametrize("debug", [False, True])
def test_a_loop_in_a_switch(arch, debug):
    """It is reached through an indirect branch: the loop around the switch and the one inside."""
    cases = "".join(f"case {c}: a = a * {c}.5f + x[i + {c} * k]; break;\n" for c in range(1, 8))
    body = (
        f"{ROLLED}\nfor (int k = 0; k < n; ++k) switch (__float_as_int(w[k])) {{\n{cases}"
        f"case 0:\n{ROLLED}\nfor (int t = 0; t < n; ++t) a += x[t]; break;\n}}"
    )
    report = read_cubin(compile_cubin(KERNEL.format(body=body), "k", arch, debug=debug).image)
    assert report.rolled_loops == 2


@pytest.mark.parametrize("n", [32, 64])
def test_an_array_with_a_rolled_index_is_in_local_memory(n):
    body = f"float r[{n}];\n{FULL}\nfor (int t = 0; t < {n}; ++t) r[t] = x[i + t];\n"
    body += f"{{}}\nfor (int t = 0; t < {n}; ++t) a += r[t] * w[t];"
    for pragma, local in ((FULL, False), (ROLLED, True)):
        source = KERNEL.format(body=body.format(pragma))
        report = read_cubin(compile_cubin(source, "k", on_spill="ignore").image)
        assert (report.local_loads > 0, report.local_stores > 0) == (local, local)


# ---- kernels of this package -------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES if ALL else CASES[::3], ids=lambda case: case.name)
def test_manual_schedules(case, rng):
    for kernel in program(case.build(), case.inputs(rng, -1)).kernels:
        require_marked_loops(case.name, kernel)


@pytest.mark.parametrize("op", ["pow", "gcd", "softmax", "sum", "transpose"])
def test_automatic_schedules(op):
    """Recipes, and functions of the prelude that have loops."""
    integer = op in ("pow", "gcd")
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=Int if integer else Float)
        made = {
            "pow": lambda: fd.ops.pow(x, x),
            "gcd": lambda: fd.ops.gcd(x, x),
            "softmax": lambda: fd.ops.softmax(x, 1),
            "sum": lambda: fd.ops.sum(x, [0]),
            "transpose": lambda: fd.ops.permute(x, [1, 0]),
        }[op]()
        fd.add_output(made)
    inputs = [np.ones((100, 300), np.int64 if integer else np.float32)]
    for kernel in program_of(fd, bind(fd, inputs)).kernels:
        report = require_marked_loops(op, kernel)
        assert report.rolled_loops >= 1 or not integer


def test_loops_without_a_mark_are_found(rng, monkeypatch):
    """The control: by itself the compiler leaves loops that it does not mark."""
    (case,) = (case for case in CASES if case.name == "softmax")
    (kernel,) = program(case.build(), case.inputs(rng, -1)).kernels
    printed = sass_loops.emit
    monkeypatch.setattr(
        sass_loops, "emit", lambda k: printed(k).replace("#pragma unroll 1\n", "\n")
    )
    with pytest.raises(AssertionError, match=r"softmax: \d+ rolled loops and 0 waits, \d+ marks"):
        require_marked_loops(case.name, kernel)


def sample() -> list[Cell]:
    """Every family with one kind of ring, every kind with one family; by default every fifth."""
    others = (
        Cell("nested", (L.tma,), slots=2, ahead=1), Cell("nested", (L.cp_async,), slots=3, ahead=2),
        Cell("registers", (L.set,)),
    )  # fmt: skip
    kinds = ((b, b.type) for b in (*BASES, *STORES, MULTICAST, *others))
    ways = ((base, kind) for base in (BASES[0], BASES[4], BASES[9], BASES[10]) for kind in TYPES)
    roles = ((base, "ws-regs") for base in (*STORES, MULTICAST, BASES[6], BASES[8]))
    groups = ((base, kind) for base in BASES if base.of.slice for kind in TYPES)
    cells = (
        replace(base, type=kind, edge="whole", stages=4, prefetch=3, tile=tile)
        for base, kind in (*kinds, *ways, *roles, *groups)
        for tile in ((1024,) if kind == "ws-regs" else (256,))
    )
    legal = [cell for cell in dict.fromkeys(cells) if cell.is_legal()]
    return legal if ALL else legal[::5]


@pytest.mark.parametrize("cell", sample(), ids=str)
def test_rings(cell):
    fd = definition(cell)
    (kernel,) = program_of(fd, bind(fd, [*cell.inputs()], True), True).kernels
    report = require_marked_loops(cell, kernel)
    if cell.family not in ("registers", "store_alone"):
        assert report.spin_loops >= 1, "a ring waits for its barriers"


# ---- the command -------------------------------------------------------------------------------


def test_the_command_prints_a_cubin(tmp_path):
    path = tmp_path / "nest.cubin"
    path.write_bytes(compile_cubin(KERNELS["rolled_inside_partial_unroll"][0], "k").image)
    done = fuser("sass", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "loops         7, and 0 that wait for an mbarrier" in done.stdout
    assert "global        5 loads, 1 store, 0 async copies" in done.stdout
    assert "local         0 loads, 0 stores" in done.stdout
    assert sum("rolled" in line for line in done.stdout.splitlines()) == 7


def test_the_command_compiles_what_a_script_defines(tmp_path):
    script = tmp_path / "script.py"
    for text in (TINY, EXECUTED):
        script.write_text(text)
        for arch in ("sm_90a", "sm_80"):
            done = fuser("sass", "--arch", arch, script, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert "script.py:6 ──" in done.stdout
            assert f"fusion  {arch}, " in done.stdout
            assert re.search(r"\d+ loops? marked nounroll in PTX", done.stdout)
            assert " that wait for an mbarrier" in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("gone.cubin", None, "No such file or directory; a cubin is needed"),
        ("bad.cubin", "not an ELF file", "nvdisasm: exit status"),
        ("gone.py", None, "no such file; a Python script is needed"),
        ("empty.py", "x = 1\n", "defines no fusion; needed a FusionDefinition"),
    ],
)
def test_a_useless_file_is_bad_input(name, content, said, tmp_path):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    done = fuser("sass", path, cwd=tmp_path)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert name in done.stderr
    assert "Traceback" not in done.stderr


def test_known_architectures_are_those_that_compile():
    known = nvrtc_archs()
    for arch in (f"sm_{number}{v}" for number in (80, 90, 100) for v in ("", "a", "f")):
        try:
            compile_cubin('extern "C" __global__ void k() {}', "k", arch)
        except CompileError:
            assert arch not in known
        else:
            assert arch in known
