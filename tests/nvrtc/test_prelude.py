"""The device prelude and the CUDA texts of the op table under NVRTC, and the SASS they become."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from sass_loops import count_loops

from fuser.core.dtypes import DataType
from fuser.ops import POINTWISE, REDUCTIONS, Operand, OpSpec, accepted_dtypes, result_type

nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")

pytestmark = pytest.mark.nvrtc

PRELUDE = Path(__file__).resolve().parents[2] / "kernels" / "templates" / "prelude"
OWNED = ("types", "convert", "integer", "math", "vector")
SOURCE = "\n".join((PRELUDE / f"{name}.cuh").read_text() for name in OWNED)
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a", "sm_120a")


def compile_cubin(source: str, architecture: str = "sm_90a") -> bytes:
    """Compile to a cubin; fail with the log on an error and on any warning."""
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"test.cu", 0, [], [])
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    text = log.decode().strip("\0 \n")
    assert int(status) == 0, text
    assert not text, text
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    cubin = b" " * size
    nvrtc.nvrtcGetCUBIN(program, cubin)
    return bytes(cubin)


def nvdisasm() -> str:
    wheel = Path(sysconfig.get_path("purelib")) / "nvidia"
    found = next(iter(sorted(wheel.glob("**/nvdisasm"))), None) or shutil.which("nvdisasm")
    if found is None:
        pytest.skip("nvdisasm is not installed")
    return str(found)


def sass(source: str, folder: Path) -> list[str]:
    """Instructions of the only kernel in `source`, without the padding after its last branch."""
    path = folder / "kernel.cubin"
    path.write_bytes(compile_cubin(source))
    listing = subprocess.run([nvdisasm(), "-c", path], capture_output=True, text=True, check=True)
    lines = re.findall(r"/\*[0-9a-f]{4}\*/\s+(.*?);", listing.stdout)
    return [line.strip() for line in lines if not re.match(r"\s*(NOP|BRA)", line)]


def map_kernel(source: str, target: str, count: int, expression: str) -> str:
    """A kernel applying `expression` of x to `count` consecutive elements per thread."""
    return (
        SOURCE
        + f"""
extern "C" __global__ void k(const {source}* __restrict__ p, {target}* __restrict__ o) {{
  int i = threadIdx.x * {count};
  vec<{source}, {count}> a = load_vec<{source}, {count}>(p + i);
  vec<{target}, {count}> b;
#pragma unroll
  for (int j = 0; j < {count}; ++j) {{ auto x = a[j]; b[j] = {expression}; }}
  store_vec<{target}, {count}>(o + i, b);
}}
"""
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_conversion_compiles(architecture: str) -> None:
    kernels: list[str] = [SOURCE]
    for source in DataType:
        params = ", ".join(f"{t.cuda}* o_{t.short}" for t in DataType)
        body = " ".join(f"o_{t.short}[i] = cast<{t.cuda}>(x[i]);" for t in DataType)
        kernels.append(
            f'extern "C" __global__ void k_{source.short}(const {source.cuda}* x, {params}) '
            f"{{ int i = threadIdx.x; {body} }}"
        )
    compile_cubin("\n".join(kernels), architecture)


def apply_row(spec: OpSpec, dtype: DataType) -> tuple[str, str]:
    """Output parameter and statement of one row on operands of `dtype`, cast as the rules say."""
    compute, result = result_type(spec, [Operand(dtype)] * spec.arity)
    casts = [f"cast<{d.cuda}>(x{i}[i])" for i, d in enumerate(spec.operand_dtypes(compute))]
    text = spec.cuda(compute).format(*casts)
    return f"{result.cuda}* o_{spec.name}", f"o_{spec.name}[i] = {text};"


def every_row(dtype: DataType) -> str:
    """A kernel of all rows that take operands of `dtype`."""
    rows = [apply_row(s, dtype) for s in POINTWISE if dtype in accepted_dtypes(s)]
    assert len(rows) > 40
    params = [f"const {dtype.cuda}* x{i}" for i in range(4)] + [p for p, _ in rows]
    body = "\n  ".join(statement for _, statement in rows)
    return (
        f'{SOURCE}\nextern "C" __global__ void k({", ".join(params)}) '
        f"{{\n  int i = threadIdx.x;\n  {body}\n}}"
    )


@pytest.mark.parametrize("dtype", list(DataType), ids=repr)
def test_every_row_compiles(dtype: DataType) -> None:
    compile_cubin(every_row(dtype))


@pytest.mark.parametrize("dtype", [DataType.Int, DataType.Float, DataType.Double], ids=repr)
def test_loops_of_functions_have_marks(dtype: DataType) -> None:
    """Also those of CUDA's own functions: a loop of sin and cos bears a directive."""
    report, marks = count_loops(every_row(dtype), "k")
    assert report.rolled_loops == marks > 1


@pytest.mark.parametrize("dtype", list(DataType), ids=repr)
def test_every_reduction_text_compiles(dtype: DataType) -> None:
    lines = []
    for spec in REDUCTIONS:
        t = spec.accumulate(dtype)
        combined = spec.cuda(t).format("q[1]", "q[2]")
        lines.append(f"{{ {t.cuda}* q = ({t.cuda}*)p; *q = {combined}; }}")
    compile_cubin(SOURCE + 'extern "C" __global__ void k(void* p) {' + "\n".join(lines) + "}")


@pytest.mark.parametrize(
    ("dtype", "count", "width"),
    [
        ("bf16", 8, ".128"), ("bf16", 4, ".64"), ("bf16", 2, ""), ("bf16", 1, ".U16"),
        ("float", 4, ".128"), ("double", 2, ".128"), ("i64", 2, ".128"), ("u8", 16, ".128"),
        ("u8", 1, ".U8"), ("bool", 4, ""), ("f8e4m3", 16, ".128"), ("f8e5m2", 8, ".64"),
    ],
)  # fmt: skip
def test_vectors_move_in_one_access(dtype: str, count: int, width: str, tmp_path: Path) -> None:
    code = sass(map_kernel(dtype, dtype, count, "x"), tmp_path)
    accesses = [line.split()[0] for line in code if re.match(r"(LDG|LDL|STG|STL)", line)]
    assert accesses == [f"LDG.E{width}.CONSTANT", f"STG.E{width}"]


@pytest.mark.parametrize("target", ["bf16", "f16"])
def test_scalar_casts_are_packed_in_pairs(target: str, tmp_path: Path) -> None:
    code = sass(map_kernel("float", target, 4, f"cast<{target}>(x * 3.0f)"), tmp_path)
    assert sum("F2FP" in line and "PACK_AB" in line for line in code) == 2


@pytest.mark.parametrize(
    ("function", "slots"),
    [("gelu_tanh", 12), ("gelu", 22), ("silu", 16), ("sigmoid", 15), ("relu", 5)],
)
def test_activations_fit_a_memory_bound_map(function: str, slots: int, tmp_path: Path) -> None:
    """Instructions per bf16 element, loads, stores and conversions included; the budget is 28."""
    code = sass(map_kernel("bf16", "bf16", 8, f"cast<bf16>({function}(cast<float>(x)))"), tmp_path)
    assert len(code) <= slots * 8
    assert not any(line.startswith(("CALL", "DADD", "DMUL", "DFMA")) for line in code)


@pytest.mark.parametrize(("name", "mnemonic"), [("max_nan", "FMNMX.NAN"), ("min_nan", "FMNMX.NAN")])
def test_extrema_are_one_instruction(name: str, mnemonic: str, tmp_path: Path) -> None:
    code = sass(map_kernel("float", "float", 4, f"{name}(x, 2.0f)"), tmp_path)
    assert sum(line.startswith(mnemonic) for line in code) == 4
    assert not any("SETP" in line for line in code)


@pytest.mark.parametrize("name", ["iadd", "isub", "imul"])
def test_wrapping_arithmetic_stays_in_32_bits(name: str, tmp_path: Path) -> None:
    code = sass(map_kernel("i32", "i32", 1, f"{name}(x, x + 3)"), tmp_path)
    assert len(code) <= 13  # one more than a copy; 64-bit arithmetic would take three


def test_prelude_needs_no_header() -> None:
    assert "#include" not in SOURCE
