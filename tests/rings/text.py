"""A scheduled definition as text: its nest after every pass, and its CUDA."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuser import FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.api.manual import build_manual
from fuser.codegen.emit import emit
from fuser.nest.nodes import LoopNest
from fuser.nest.printing import to_text


def function_of(fd: FusionDefinition, inputs: Sequence[np.ndarray]) -> str:
    """Return the kernel function, without the prelude that has tests of its own."""
    (kernel,) = program_of(fd, bind(fd, inputs, True), True).kernels
    return _function(emit(kernel))


def listing(fd: FusionDefinition, inputs: Sequence[np.ndarray], name: str) -> str:
    """Return the nests that the passes made and the kernel function."""
    call = bind(fd, inputs, True)
    nests: list[str] = []

    def observe(stage: str, ir: object) -> None:
        if isinstance(ir, LoopNest):
            nests.append(f"after {stage}, {to_text(ir)}")

    program = build_manual(fd.fusion, fd.hand, call.cls, call.env, name, (observe,))
    (kernel,) = program.kernels
    return "\n\n".join([*nests, _function(emit(kernel))])


def _function(source: str) -> str:
    return source[source.index('extern "C"') :]
