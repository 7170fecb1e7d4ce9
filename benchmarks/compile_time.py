"""``python -m benchmarks.compile_time``: from a definition to a cubin, how long and whose time.

Needs no GPU. A fusion of ten ops on bf16 matrices is defined, scheduled, lowered, printed and
compiled for sm_90a, nothing cached; each time with another constant, so that it is another fusion.
The first one of a process is shown apart, and so are the imports that ``import fuser`` leaves for
it.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

import ml_dtypes
import numpy as np

from fuser import DataType, FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.runtime.nvrtc import compile_cubin

REPEATS = 20
ROWS, COLUMNS = 64, 256
LATER = {
    "other packages": ("networkx", "jinja2", "cuda.bindings.driver", "cuda.bindings.nvrtc"),
    "passes of fuser": ("fuser.api.pipeline", "fuser.api.manual"),
}
"""Imported by the first fusion, not by ``import fuser``."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Milliseconds of one compilation."""

    define: float
    lower: float
    emit: float
    nvrtc: float

    @property
    def python(self) -> float:
        """All but NVRTC."""
        return self.define + self.lower + self.emit

    def __str__(self) -> str:
        parts = (self.define, self.lower, self.emit, self.python, self.nvrtc)
        return "".join(f"{part:10.1f}" for part in (*parts, self.python + self.nvrtc))


def ten_ops(constant: float) -> FusionDefinition:
    """Return residual + bias, a gated activation and a scale: ten ops on (rows, columns) bf16."""
    with FusionDefinition() as fd:
        x, r = (
            fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16)
            for _ in range(2)
        )
        bias = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.BFloat16)
        biased = fd.ops.add(x, fd.ops.broadcast_in_dim(bias, fd.ops.shape(x), [1]))
        summed = fd.ops.add(biased, r)
        gate = fd.ops.sigmoid(fd.ops.mul(summed, constant))
        gated = fd.ops.mul(fd.ops.tanh(summed), gate)
        shifted = fd.ops.maximum(fd.ops.sub(gated, r), 0.0)
        fd.add_output(fd.ops.cast(shifted, DataType.BFloat16))
    return fd


def compile_once(constant: float) -> Stages:
    """Compile the fusion with this constant and time the stages."""
    rng = np.random.default_rng(0)
    x, r = (rng.standard_normal((ROWS, COLUMNS)).astype(ml_dtypes.bfloat16) for _ in range(2))
    clock = [time.perf_counter()]

    def lap() -> None:
        clock.append(time.perf_counter())

    fd = ten_ops(constant)
    lap()
    program = program_of(fd, bind(fd, [x, r, x[0]]))
    lap()
    sources = [(emit(kernel), kernel.name) for kernel in program.kernels]
    lap()
    for source, name in sources:
        compile_cubin(source, name, "sm_90a")
    lap()
    return Stages(*(1e3 * (b - a) for a, b in itertools.pairwise(clock)))


def main(argv: Sequence[str] | None = None) -> None:
    """Print the imports, a line for the first fusion and the medians of those after it."""
    parser = argparse.ArgumentParser("python -m benchmarks.compile_time", description=__doc__)
    parser.parse_args(argv)
    for what, modules in LATER.items():
        start = time.perf_counter()
        for module in modules:
            import_module(module)
        print(f"imports of the first fusion, {what}: {1e3 * (time.perf_counter() - start):.1f} ms")
    print(f"{'ms':<12}" + "".join(f"{n:>10}" for n in "define lower emit python nvrtc all".split()))
    print(f"{'first':<12}{compile_once(1.0)}")
    runs = [compile_once(1.0 + n / 7) for n in range(1, REPEATS + 1)]
    columns = zip(*((r.define, r.lower, r.emit, r.nvrtc) for r in runs), strict=True)
    print(f"{'median':<12}{Stages(*map(statistics.median, columns))}")


if __name__ == "__main__":
    main()
