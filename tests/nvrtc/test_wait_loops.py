"""Loops that begin with a wait for an mbarrier: the wait's loop and the loop around it are two.

As many marks as loops are required of all kernels. These are those that had one mark too few, or a
loop too few, before a wait tried once outside of its loop.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from sass_loops import count_loops

from fuser import (
    DataType,
    FusionDefinition,
    LoadStoreOpType,
    ParallelType,
    Pipelined,
    WarpSpecialized,
)
from fuser.api.execute import bind, program_of
from fuser.cli import pipelines
from fuser.codegen.emit import emit
from fuser.codegen.env import template_dir
from fuser.kir.core import Kernel

pytestmark = pytest.mark.nvrtc

TMA, GROUP = LoadStoreOpType.tma, ParallelType.block_y
FIRST_TRY = re.compile(r"  if \(mbarrier_try_wait\w*\(\w+, \w+\)\) return;[^\n]*\n")
CALLS = {
    "mbarrier_wait": "mbarrier_wait(full + blockIdx.x, i & 1);",
    "mbarrier_wait_token": "mbarrier_wait_token(full + blockIdx.x, tokens[0]);",
    "mbarrier_wait_cluster": "mbarrier_wait_cluster(full + blockIdx.x, i & 1);",
}


def kernel_of(fd: FusionDefinition, *shapes: tuple[int, ...]) -> Kernel:
    inputs = [np.zeros(shape, DataType.Half.np) for shape in shapes]
    (kernel,) = program_of(fd, bind(fd, inputs, True), True).kernels
    return kernel


def in_groups(stages: int, turns: bool) -> Kernel:
    kind = WarpSpecialized(GROUP, None, 3, turns)
    fd = pipelines.ring_group_products(TMA, stages, None, kind, 2)
    return kernel_of(fd, (512, 128), (64, 128))


def pipelined(stages: int) -> Kernel:
    fd = pipelines.ring_products(TMA, stages, stages - 1, Pipelined(war="mbarrier"), groups=2)
    return kernel_of(fd, (128, 512), (64, 512))


KERNELS: dict[str, Callable[[], Kernel]] = {
    **{f"groups, S = {s}": lambda s=s: in_groups(s, False) for s in (2, 4)},
    "groups in turn, S = 2": lambda: in_groups(2, True),
    **{f"pipelined, S = {s}": lambda s=s: pipelined(s) for s in (2, 3)},
}


@pytest.mark.parametrize("name", KERNELS)
def test_products_of_two_warp_groups(name):
    kernel = KERNELS[name]()
    report, marks = count_loops(emit(kernel), kernel.name)
    assert report.spin_loops >= 2
    assert report.rolled_loops + report.spin_loops == marks


@pytest.mark.parametrize("name", ["groups, S = 2", "pipelined, S = 2"])
def test_without_the_first_try_a_mark_is_missing(name):
    """The control: the loop of trips and that of its first wait have one label."""
    kernel = KERNELS[name]()
    source, tries = FIRST_TRY.subn("", emit(kernel))
    report, marks = count_loops(source, kernel.name)
    assert tries == 1
    assert report.rolled_loops + report.spin_loops == marks + 1


@pytest.mark.parametrize("arch", ["sm_90a", "sm_120a"])
@pytest.mark.parametrize("wait", CALLS)
def test_every_wait_at_the_beginning_of_a_loop(wait, arch):
    """One wait and one loop, and one try that every trip makes."""
    prelude = template_dir() / "prelude"
    text = "".join((prelude / f"{n}.cuh").read_text() for n in ("types", "mbarrier", "cluster"))
    report, marks = count_loops(
        text + 'extern "C" __global__ void k(float* y, const u64* tokens, int n) {\n'
        "  __shared__ u64 full[4];\n"
        "  if (threadIdx.x == 0) mbarrier_init(full + blockIdx.x, 1);\n  __syncthreads();\n"
        f"#pragma unroll 1\n  for (int i = 0; i < n; ++i) {{\n    {CALLS[wait]}\n"
        "    y[threadIdx.x] += 1.f;\n  }\n}\n",
        "k",
        arch,
    )
    assert (report.rolled_loops, report.spin_loops, marks) == (1, 1, 2)
