"""Outputs that no L2 cache holds are stored as evict-first; others are left to their readers."""

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.runtime.nvrtc import compile_cubin
from fuser.runtime.sass import disassemble
from fuser.schedule.recipes.pointwise import STREAM_BYTES

pytestmark = pytest.mark.nvrtc


@pytest.mark.parametrize(
    ("numel", "stores"), [(STREAM_BYTES // 4, "STG.E.128"), (STREAM_BYTES, "STG.E.EF.128")]
)
def test_only_large_outputs_are_streamed(numel, stores):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=[True])
        fd.add_output(x * 2.0)
    call = bind(fd, [np.empty(numel, np.float32)])
    (kernel,) = program_of(fd, call).kernels
    text = disassemble(compile_cubin(emit(kernel), kernel.name, "sm_90a").image)
    wide = [word for word in text.split() if word.startswith("STG") and word.endswith(".128")]
    assert wide == [stores]
