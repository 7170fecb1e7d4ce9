"""NVRTC for real: options, logs, what is rejected and with which words, caches, SASS."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from fuser.core.errors import BackendError, CompileError
from fuser.runtime import sass
from fuser.runtime.cache import CubinCache
from fuser.runtime.log import CompileWarning
from fuser.runtime.nvrtc import REAL_ARCHS, compile_cubin, nvrtc_version, ptx_of

pytestmark = pytest.mark.nvrtc

ADD = """
extern "C" __global__ void __launch_bounds__(256) add(const float* x, float* y, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = x[i] + 1.0f;
}
"""
SHARED = """
extern "C" __global__ void __launch_bounds__(256) shared(const float* x, float* y) {
  __shared__ float s[300];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[255 - threadIdx.x];
}
"""
SPILL = """
extern "C" __global__ void __launch_bounds__(1024) spill(const float* x, float* y, int n) {
  float a[128];
  #pragma unroll
  for (int j = 0; j < 128; ++j) a[j] = x[j * n + threadIdx.x];
  __syncthreads();
  #pragma unroll
  for (int j = 0; j < 128; ++j) y[j * n + threadIdx.x] = a[127 - j] * a[(j * 7) % 128];
}
"""
LOCAL = """
extern "C" __global__ void local(const float* x, float* y, int n) {
  float a[256];
  #pragma unroll 1
  for (int j = 0; j < n; ++j) a[(j * 7) % 256] = x[j];
  #pragma unroll 1
  for (int j = 0; j < n; ++j) y[threadIdx.x] += a[(n + threadIdx.x * j) % 256];
}
"""
DROPPED = """
extern "C" __global__ void dropped(float* y) {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  y[threadIdx.x] = 1.0f;
}
"""
MATH = """
extern "C" __global__ void math(const float* x, double* y) {
  float v = x[threadIdx.x];
  v = tanhf(v) + erff(v) + expf(v) + __expf(v) + powf(v, 1.5f) + fmodf(v, 3.0f) + lgammaf(v);
  y[threadIdx.x] = v + erf((double)v) + rsqrt((double)v) + __shfl_xor_sync(~0u, v, 1);
}
"""


def quiet(source, name, **options):
    return compile_cubin(source, name, on_spill="ignore", **options)


@pytest.mark.parametrize("arch", REAL_ARCHS)
def test_every_architecture_gives_a_cubin(arch):
    cubin = compile_cubin(ADD, "add", arch)
    assert cubin.image.startswith(b"\x7fELF")
    assert f".target {arch}" in cubin.ptx
    assert 4 <= cubin.log.registers <= 32
    assert cubin.log.findings() == ()
    assert cubin.seconds > 0


def test_math_needs_no_headers():
    assert quiet(MATH, "math").log.registers > 0


def usage_by_cuobjdump(image, tmp_path):
    tool = sass.find_tool("cuobjdump")
    assert tool is not None
    path = tmp_path / "k.cubin"
    path.write_bytes(image)
    text = subprocess.run(
        [tool, "-res-usage", path], capture_output=True, text=True, check=True
    ).stdout
    return {key: int(value) for key, value in re.findall(r"(REG|STACK|SHARED):(\d+)", text)}


RESERVED_BYTES = 1024  # shared memory that the system takes of every block from sm_90 on


@pytest.mark.parametrize(
    ("name", "source"),
    [("add", ADD), ("shared", SHARED), ("spill", SPILL), ("local", LOCAL), ("math", MATH)],
)
def test_the_log_agrees_with_cuobjdump(name, source, tmp_path):
    cubin = quiet(source, name)
    usage = usage_by_cuobjdump(cubin.image, tmp_path)
    assert cubin.log.registers == usage["REG"]
    assert cubin.log.stack_bytes == usage["STACK"]
    reserved = RESERVED_BYTES if usage["SHARED"] else 0
    assert cubin.log.shared_bytes == usage["SHARED"] - reserved


def test_a_spill_is_reported_by_name():
    with pytest.warns(CompileWarning, match=r"kernel spill: \d+ bytes spill stores, \d+ bytes"):
        cubin = compile_cubin(SPILL, "spill")
    assert cubin.log.registers == 64
    assert cubin.log.spill_store_bytes > 0
    assert cubin.log.spill_load_bytes > 0
    sass_text = sass.disassemble(cubin.image)
    assert "STL" in sass_text
    assert "LDL" in sass_text
    with pytest.raises(CompileError, match=r"kernel spill: .* \(64 registers\); needs a kernel"):
        compile_cubin(SPILL, "spill", on_spill="raise")


def test_a_local_array_is_reported_by_name():
    with pytest.raises(CompileError, match="kernel local: 1024 bytes of local memory per thread"):
        compile_cubin(LOCAL, "local", on_spill="raise")


def test_a_ptxas_note_is_reported_by_name():
    with pytest.raises(CompileError, match=r"kernel dropped: \(C7508\).*'setmaxnreg' ignored"):
        compile_cubin(DROPPED, "dropped", on_spill="raise")


def test_what_is_clean_passes_the_strictest_policy():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile_cubin(ADD, "add", on_spill="raise")


@pytest.mark.parametrize(
    ("pragma", "number", "text"),
    [
        ("#pragma nounroll", 161, "unrecognized #pragma"),
        ("#pragma unrol 4", 161, "unrecognized #pragma"),
        ("#pragma unroll 4\n  int unrelated = 3;", 607, "must immediately precede"),
        ("#pragma unroll 4\n  ;", 609, "may not be used here"),
        ("#pragma unroll 4\n  if (n)", 20058, "must precede a loop"),
        ("#pragma unroll 2147483648", 20167, "does not fit in a integer"),
        ("#pragma unroll 0", 20168, "cannot be zero or negative"),
        ("#pragma unroll -4", 20168, "cannot be zero or negative"),
        ("#pragma unroll n", 20169, "must be an integral constant expression"),
        ("#pragma unroll 4 4", 20170, "extra characters in the unroll pragma"),
    ],
)
def test_a_pragma_that_would_be_ignored_is_an_error(pragma, number, text):
    source = LOCAL.replace("#pragma unroll 1", pragma, 1)
    with pytest.raises(CompileError, match="kernel local: NVRTC rejected") as caught:
        compile_cubin(source, "local")
    assert re.search(rf"error: .*{text}", str(caught.value)), number


def test_a_front_end_error_shows_the_numbered_source():
    source = ADD.replace("x[i] + 1.0f", "x[i] + missing")
    with pytest.raises(CompileError) as caught:
        compile_cubin(source, "add")
    text = str(caught.value)
    assert text.startswith("kernel add: NVRTC rejected its CUDA source; needed")
    assert 'add.cu(4): error: identifier "missing" is undefined' in text
    assert ">    4 |   if (i < n) y[i] = x[i] + missing;" in text
    assert "     3 |   int i = blockIdx.x * 256 + threadIdx.x;" in text


def test_a_ptxas_error_shows_the_numbered_ptx():
    source = DROPPED.replace("setmaxnreg.dec.sync.aligned.u32 40", "no.such.instruction")
    with pytest.raises(CompileError) as caught:
        compile_cubin(source, "dropped")
    text = str(caught.value)
    assert "Not a name of any known instruction: 'no'" in text
    assert re.search(r">\s+\d+ \| \s*no\.such\.instruction;", text)


def test_an_unknown_architecture():
    with pytest.raises(CompileError, match="invalid value for --gpu-architecture"):
        compile_cubin(ADD, "add", "sm_42")


def instructions(cubin):
    return re.findall(r"/\*[0-9a-f]{4}\*/\s+([^;]+);", sass.disassemble(cubin.image))


def test_line_info_does_not_change_the_code():
    plain, lines = quiet(ADD, "add"), quiet(ADD, "add", lineinfo=True)
    assert instructions(plain) == instructions(lines) != []
    assert len(lines.image) > len(plain.image)


def test_fmad_is_a_choice():
    source = ADD.replace("x[i] + 1.0f", "x[i] * x[i] + 3.0f")
    assert any("FFMA" in line for line in instructions(quiet(source, "add")))
    assert not any("FFMA" in line for line in instructions(quiet(source, "add", fmad=False)))


def test_debug_builds_do_not_complain_about_memory():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_cubin(SPILL, "spill", debug=True, on_spill="raise").image


def test_optimised_debug_builds_are_as_a_release():
    plain, both = quiet(ADD, "add"), quiet(ADD, "add", debug=True, optimised=True)
    assert instructions(plain) == instructions(both) != []
    assert instructions(plain) != instructions(quiet(ADD, "add", debug=True))
    assert len(both.image) > len(plain.image)
    with pytest.raises(CompileError, match=r"kernel spill: .* needs a kernel"):
        compile_cubin(SPILL, "spill", debug=True, optimised=True, on_spill="raise")


def test_ptx():
    text = ptx_of(ADD, "add")
    assert ".visible .entry add(" in text
    assert ptx_of(ADD, "add", "sm_80").count(".target sm_80") == 1


def test_a_missing_disassembler_says_what_to_install(monkeypatch):
    monkeypatch.setattr(sass, "find_tool", lambda name: None)
    with pytest.raises(BackendError, match="install nvidia-cuda-nvdisasm to read SASS"):
        sass.disassemble(b"")


def test_a_damaged_cubin_is_refused():
    with pytest.raises(BackendError, match=r"nvdisasm: exit status \d+: .*needed a cubin"):
        sass.disassemble(b"not an ELF file")


def test_a_cubin_survives_the_disk(tmp_path):
    first = CubinCache(tmp_path).get(SPILL, "spill", on_spill="ignore")
    with pytest.warns(CompileWarning, match="kernel spill"):
        second = CubinCache(tmp_path, compiler=None).get(SPILL, "spill")
    assert (second.image, second.ptx, second.log) == (first.image, first.ptx, first.log)
    assert second.seconds == 0


def test_kernels_compile_in_parallel_threads():
    sources = [ADD.replace("1.0f", f"{n}.0f") for n in range(8)]
    with ThreadPoolExecutor(4) as pool:
        images = [c.image for c in pool.map(lambda s: quiet(s, "add"), sources)]
    assert images == [quiet(source, "add").image for source in sources]
    assert len(set(images)) == len(images)


def test_nvrtc_is_recent_enough():
    assert nvrtc_version() >= (12, 8)  # the first to take --minimal


def test_without_nvrtc_the_error_says_what_to_install():
    program = """
import sys
sys.modules["cuda.bindings.nvrtc"] = None
from fuser.runtime.nvrtc import compile_cubin
try:
    compile_cubin("", "k")
except Exception as error:
    print(type(error).__name__, error)
"""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.startswith("BackendError NVRTC: ")
    assert "install cuda-python and nvidia-cuda-nvrtc" in done.stdout
