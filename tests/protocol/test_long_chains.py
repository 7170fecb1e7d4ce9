"""Fusions longer than Python's recursion limit, and what building them costs."""

from __future__ import annotations

import cProfile
import pstats
import sys
from typing import Any

import numpy as np
import pytest

from fuser.api.definition import FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.core.dtypes import DataType
from fuser.fusion.reference import evaluate

pytestmark = pytest.mark.protocol
D = DataType


def chain(length: int) -> FusionDefinition:
    """Pairs of ops that undo each other over two inputs."""
    with FusionDefinition() as fd:
        y, other = (fd.define_tensor(shape=[-1, -1], dtype=D.Int32) for _ in range(2))
        for i in range(length // 4):
            y = fd.ops.sub(fd.ops.neg(fd.ops.neg(fd.ops.add(y, other))), other)
            if i == length // 8:
                y = fd.ops.cast(fd.ops.cast(y, D.Int), D.Int32)
        fd.add_output(y)
    return fd


def views(length: int) -> FusionDefinition:
    """Permutations and broadcasts; every one changes the coordinates."""
    with FusionDefinition() as fd:
        y: Any = fd.define_tensor(shape=[-1, -1], dtype=D.Int32)
        for _ in range(length // 4):
            y = fd.ops.permute(y, [1, 0])
            y = fd.ops.squeeze(fd.ops.broadcast(y, [False, True, False]), [1])
            y = fd.ops.permute(y, [1, 0])
        fd.add_output(y)
    return fd


def doubling(length: int) -> FusionDefinition:
    """Every value is used twice by the next: 2**length paths, each value computed once."""
    with FusionDefinition() as fd:
        y: Any = fd.define_tensor(shape=[-1, -1], dtype=D.Int32)
        for _ in range(length):
            y = fd.ops.sub(fd.ops.add(y, y), y)
        fd.add_output(y)
    return fd


@pytest.mark.parametrize("make", [chain, views, doubling], ids=lambda f: f.__name__)
def test_three_thousand_ops(make: Any, rng: np.random.Generator) -> None:
    limit = sys.getrecursionlimit()
    fd = make(3000)
    inputs = [rng.integers(-9, 9, (7, 33)).astype(np.int32) for _ in fd.arguments]
    (got,) = fd.execute(inputs, backend="interpret")
    assert np.array_equal(got, inputs[0])
    names = [a.name for a in fd.arguments]
    values = evaluate(fd.fusion, dict(zip(names, inputs, strict=True)))
    assert np.array_equal(values[fd.fusion.outputs[0].value], inputs[0])
    (kernel,) = program_of(fd, bind(fd, inputs)).kernels
    assert len(emit(kernel).splitlines()) > (10 if make is views else 3000)
    assert sys.getrecursionlimit() == limit


def calls(fd: FusionDefinition) -> int:
    """Function calls made while a program is built and printed: time that no machine changes."""
    inputs = [np.zeros((7, 33), np.int32) for _ in fd.arguments]
    call = bind(fd, inputs)
    with cProfile.Profile() as profile:
        for kernel in program_of(fd, call).kernels:
            emit(kernel)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize("make", [chain, views, doubling], ids=lambda f: f.__name__)
def test_the_cost_of_a_chain_is_linear(make: Any) -> None:
    short, long = calls(make(400)), calls(make(1600))
    assert long < 4.5 * short


def test_reductions_of_long_chains(rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, (7, 33)).astype(np.int32)
    with FusionDefinition() as fd:
        y: Any = fd.define_tensor(shape=[-1, -1], dtype=D.Int32)
        for _ in range(1500):
            y = fd.ops.neg(y)
        fd.add_output(fd.ops.sum(y, [1]))
        total = fd.ops.sum(y, [0])
        for _ in range(1500):
            total = fd.ops.neg(total)
        fd.add_output(total)
    rows, columns = fd.execute([x], backend="interpret")
    assert np.array_equal(rows, x.sum(1))
    assert np.array_equal(columns, x.sum(0))
