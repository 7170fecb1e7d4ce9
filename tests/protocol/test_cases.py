"""Bug reports of comparable compilers, as behaviours, on the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from matrix.case_aliases import *  # noqa: F403
from matrix.case_rings import *  # noqa: F403
from matrix.case_shapes import *  # noqa: F403
from matrix.case_values import *  # noqa: F403
from matrix.pointwise import Execute
from rings.interpret import run_by_hand

from fuser.api.definition import FusionDefinition
from fuser.api.pipeline import build_program
from fuser.api.shape_class import classify
from fuser.codegen.emit import emit
from fuser.core.dtypes import DataType
from fuser.core.expr import evaluate
from fuser.fusion.bind import bind_sizes
from fuser.kir.program import Program
from fuser.runtime.arrays import ArrayView

pytestmark = [pytest.mark.protocol, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


@pytest.fixture
def execute() -> Execute:
    def interpret(fd: FusionDefinition, inputs: Sequence[Any]) -> list[np.ndarray]:
        return fd.execute(inputs, backend="interpret")

    return interpret


@pytest.fixture
def by_hand() -> Execute:
    return run_by_hand


@pytest.fixture
def repeats() -> int:
    return 2


# -- case 37: more elements, or larger offsets, than 32 bits count; nothing so large is made -------

ROWS, COLUMNS = 70_000, 40_000
FAR = (1 << 30) + 8
D = DataType


def far_slice(fd: FusionDefinition, t: Any) -> None:
    fd.add_output(fd.ops.slice(t, [(1 << 31) + 5], [(1 << 31) + 1005]))


def broadcast(fd: FusionDefinition, t: Any) -> None:
    fd.add_output(fd.ops.broadcast_in_dim(t, [ROWS, COLUMNS], [1]))


def flattened(fd: FusionDefinition, t: Any) -> None:
    wide = fd.ops.broadcast_in_dim(t, [ROWS, COLUMNS], [1])
    fd.add_output(fd.ops.sum(fd.ops.reshape(wide, [-1])))


WIDE = {
    "output": (lambda fd, t: fd.add_output(fd.ops.neg(t)), (ROWS, COLUMNS), (0, 1)),
    "transposed": (lambda fd, t: fd.add_output(fd.ops.permute(t, [1, 0])), (ROWS, COLUMNS), (0, 1)),
    "rows far apart": (lambda fd, t: fd.add_output(fd.ops.neg(t)), (4, 100), (FAR, 1)),
    "columns far apart": (lambda fd, t: fd.add_output(fd.ops.neg(t)), (100, 4), (1, FAR)),
    "far slice": (far_slice, ((1 << 31) + 1005,), (1,)),
    "broadcast": (broadcast, (COLUMNS,), (1,)),
    "flattened": (flattened, (COLUMNS,), (1,)),
    "reduced": (lambda fd, t: fd.add_output(fd.ops.sum(t, [0])), (ROWS, COLUMNS), (0, 1)),
    "reduced to one": (lambda fd, t: fd.add_output(fd.ops.sum(t)), (ROWS, COLUMNS), (0, 1)),
}


def program_for(
    build: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DataType
) -> tuple[Program, dict[str, int]]:
    with FusionDefinition() as fd:
        build(fd, fd.define_tensor(shape=[-1] * len(shape), dtype=dtype))
    views = {
        fd.arguments[0].name: ArrayView(1 << 20, shape, strides, dtype, "cuda", 0, "dlpack", None)
    }
    sizes = bind_sizes(fd.fusion, views, {})
    cls, stride_values = classify(fd.fusion, views, sizes)
    env = {**sizes, **stride_values}
    return build_program(fd.fusion, cls, env), env


@pytest.mark.parametrize("dtype", [D.Int8, D.Double], ids=repr)
@pytest.mark.parametrize(("build", "shape", "strides"), WIDE.values(), ids=WIDE)
def test_case_37_wide_indices(
    build: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DataType
) -> None:
    program, env = program_for(build, shape, strides, dtype)
    assert {kernel.index for kernel in program.kernels} == {"i64"}
    for kernel in program.kernels:
        assert "typedef long long idx;" in emit(kernel)
        x, y, z = (int(evaluate(e, env)) for e in kernel.grid)
        assert 1 <= x < 2**31
        assert 1 <= y < 2**16
        assert 1 <= z < 2**16


@pytest.mark.parametrize("shape", [(2**31 - 2**21,), (2**15, 2**15), (2**10, 2**20)], ids=str)
def test_case_37_narrow_indices_do_not_wrap(shape: tuple[int, ...]) -> None:
    """The largest index that a thread of a 32-bit kernel forms stays below 2**31."""
    strides = (shape[1], 1) if len(shape) == 2 else (1,)
    build = WIDE["output"][0]
    program, env = program_for(build, shape, strides, D.Int8)
    for kernel in program.kernels:
        assert kernel.index == "i32"
        threads = 1
        for extent in (*kernel.grid, *kernel.block):
            threads *= int(evaluate(extent, env))
        assert threads * 16 < 2**31  # 16 elements a thread
