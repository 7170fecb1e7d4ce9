"""The log reader on logs as NVRTC prints them, and the words of its findings."""

from __future__ import annotations

import warnings

import pytest

from fuser.core.errors import CompileError
from fuser.runtime.log import (
    CompileLog,
    CompileWarning,
    compile_error,
    numbered_excerpt,
    parse_log,
)

pytestmark = pytest.mark.unit

TWO_KERNELS = """\
both.cu(3): warning #177-D: variable "unused" was declared but never referenced
  extern "C" __global__ void call(float* y){ int unused; y[threadIdx.x]=g(y[0],y); }
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'spill' for 'sm_90a'
ptxas info    : Function properties for spill
ptxas         .     1728 bytes stack frame, 2004 bytes spill stores, 2180 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 1728 bytes cumulative stack size
ptxas info    : Compile time = 113.730 ms
ptxas info    : Compiling entry function 'clean' for 'sm_90a'
ptxas info    : Function properties for clean
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 28 registers, used 2 barriers, 1024 bytes smem
ptxas info    : Compile time = 6.033 ms
"""
CALLS = """\
ptxas info    : Compiling entry function 'call' for 'sm_90a'
ptxas info    : Function properties for call
ptxas         .     16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 256 bytes cumulative stack size
ptxas info    : Function properties for _Z1gfPKf
ptxas         .     240 bytes stack frame, 40 bytes spill stores, 80 bytes spill loads
"""
NOTE = (
    "ptxas info    : (C7517) wgmma.wait_group is injected in around line 41 by compiler "
    "to allow use of registers defined by GMMA in function 'ser'\n"
)


def test_kernels_of_one_source_are_told_apart():
    spill, clean = parse_log(TWO_KERNELS, "spill"), parse_log(TWO_KERNELS, "clean")
    assert (spill.registers, spill.spill_store_bytes, spill.spill_load_bytes) == (64, 2004, 2180)
    assert (spill.stack_bytes, spill.shared_bytes, spill.barriers) == (1728, 0, 1)
    assert (clean.registers, clean.shared_bytes, clean.barriers) == (28, 1024, 2)
    assert (clean.stack_bytes, clean.findings()) == (0, ())
    assert len(spill.warnings) == 1
    assert "#177-D" in spill.warnings[0]


def test_a_name_that_is_not_listed_takes_the_worst_of_all():
    log = parse_log(TWO_KERNELS, "k")
    assert (log.registers, log.shared_bytes, log.spill_store_bytes) == (64, 1024, 2004)


def test_called_functions_count():
    log = parse_log(CALLS, "call")
    assert (log.spill_store_bytes, log.spill_load_bytes, log.stack_bytes) == (44, 88, 256)


def test_notes_lose_their_prefix():
    log = parse_log(NOTE, "ser")
    assert len(log.notes) == 1
    assert log.notes[0].startswith("(C7517) wgmma.wait_group is injected")
    assert log.findings() == log.notes


def test_an_empty_log():
    assert parse_log("", "k") == CompileLog()


def test_the_policy():
    log = parse_log(TWO_KERNELS, "spill")
    text = "kernel spill: 2004 bytes spill stores, 2180 bytes spill loads per thread"
    with pytest.warns(CompileWarning, match=text):
        log.enforce("spill")
    with pytest.raises(CompileError, match=text):
        log.enforce("spill", "raise")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log.enforce("spill", "ignore")
        parse_log(TWO_KERNELS, "clean").enforce("clean", "warn")


def test_local_memory_without_spills():
    finding = CompileLog(stack_bytes=80).findings()
    assert finding == ("80 bytes of local memory per thread",)


def test_excerpts_stay_inside_the_text():
    source = "\n".join(f"line {n}" for n in range(1, 8))
    assert numbered_excerpt(source, 1, 1) == ">    1 | line 1\n     2 | line 2"
    assert numbered_excerpt(source, 7, 1) == "     6 | line 6\n>    7 | line 7"
    assert numbered_excerpt(source, 99, 1) == ""


def test_an_error_without_a_line_has_no_excerpt():
    error = compile_error("k", "nvrtc: error: out of memory\n", "void f();")
    assert str(error).splitlines() == [
        "kernel k: NVRTC rejected its CUDA source; needed source that compiles",
        "nvrtc: error: out of memory",
    ]


PTXAS = "ptxas application ptx input, line 7; error   : "
FEATURE = PTXAS + "Feature '{}' requires .target sm_{} or higher\n"
MODIFIER = PTXAS + "Modifier '{}' requires .target sm_{} or higher\n"
ABSENT = PTXAS + "Instruction '{}' not supported on .target 'sm_80'\n"
CLUSTERS = "k.cu(9): error: __cluster_dims__ is not supported for this GPU architecture\n"
COUNT = "mbarrier.arrive with count argument"
ADVICE = PTXAS + f".noComplete modifier required for instruction '{COUNT}'\n"
FATAL = "ptxas fatal   : Ptx assembly aborted due to errors\n"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (FEATURE.format("cp.async.bulk.tensor", 90) + FEATURE.format("cp.async.bulk", 90) + FATAL,
         "TMA, which sm_80 does not have; needed sm_90 or newer"),
        (MODIFIER.format(".mbarrier_init", 90) + FEATURE.format("mbarrier.try_wait.parity", 90)
         + FEATURE.format("(null)", 90),
         "mbarrier.try_wait, which sm_80 does not have; needed sm_90 or newer"),
        (FEATURE.format(f"{COUNT} and without '.noComplete' modifier", 90) + ADVICE,
         "mbarrier.arrive, which sm_80 does not have; needed sm_90 or newer"),
        (FEATURE.format("mbarrier.init", 80) + FEATURE.format("clusterlaunchcontrol", 100),
         "mbarrier.init, clusterlaunchcontrol, which sm_80 does not have; needed sm_100 or newer"),
        (MODIFIER.format(".read", 90), ".read, which sm_80 does not have; needed sm_90 or newer"),
        (CLUSTERS, "clusters, which sm_80 does not have; needed sm_90 or newer"),
        (FEATURE.format("cp.async.bulk", 90) + ABSENT.format("setmaxnreg.dec"),
         "TMA, setmaxnreg.dec, which sm_80 does not have; needed an architecture that has it, "
         "such as sm_90a"),
    ],
)  # fmt: skip
def test_what_an_architecture_does_not_have_is_one_line(log, said):
    assert str(compile_error("k", log, "", "", "sm_80")) == f"kernel k: uses {said}"


@pytest.mark.parametrize(
    "other", [PTXAS + "Not a name of any known instruction: 'no'", "k.cu(1): error: no such name"]
)
def test_another_error_beside_it_is_shown_with_the_whole_log(other):
    text = str(compile_error("k", FEATURE.format("cp.async.bulk", 90) + other, "", "", "sm_80"))
    assert text.startswith("kernel k: NVRTC rejected its CUDA source")
    assert other in text


def test_serialised_products_call_for_unrolled_steps():
    note = "(C7519) Potential Performance Loss: wgmma.mma_async instructions are serialized"
    with pytest.warns(CompileWarning, match=r"serialized \(58 registers\); needs products that"):
        CompileLog(registers=58, notes=(note,)).enforce("k")
    spilled = CompileLog(registers=58, notes=(note,), stack_bytes=8)
    with pytest.warns(CompileWarning, match="needs a kernel that stays in registers"):
        spilled.enforce("k")
