"""CUDA of kernels whose values are called like things of the kernel compiles."""

from __future__ import annotations

import pytest
from named_sums import build, lowered

from fuser.codegen.emit import emit
from fuser.runtime.nvrtc import compile_cubin

pytestmark = pytest.mark.nvrtc


@pytest.mark.parametrize(
    ("case", "value", "name"),
    [
        ("outlined", "b", "fusion_i1_0"),
        ("outlined", "e", "fusion_i1_1"),
        ("outlined", "y", "fusion_i1_2"),
        ("outlined", "e", "i0_round"),
        ("grid sum", "b", "y_acc_partials"),
        ("ring by tma", "b", "x_cache_map"),
        ("roles by threads", "b", "scratch_f32"),
    ],
)
def test_compiles(case, value, name):
    kernel = lowered(case, build(case, **{value: name}))
    assert compile_cubin(emit(kernel), kernel.name, "sm_90a").image
