"""Bug reports on outputs: aliases of inputs, repeated outputs, overlapping memory."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.api.definition import FusionDefinition
from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError, InputError
from matrix.arrays import arrange, array, define
from matrix.compare import compare
from matrix.pointwise import Execute

D = DataType
Rng = np.random.Generator


@pytest.mark.parametrize("layout", ["contiguous", "strided", "misaligned"])
@pytest.mark.parametrize("shape", [(33, 40), (1, 7), (600, 3)], ids=str)
def test_case_20_every_read_precedes_the_write(
    execute: Execute, shape: tuple[int, int], layout: str, rng: Rng
) -> None:
    x = arrange(rng.integers(-9, 9, shape).astype(np.float32), layout)
    before = x.copy()
    with FusionDefinition() as fd:
        t = define(fd, x)
        spread = fd.ops.add(t, fd.ops.broadcast_in_dim(t[0], fd.ops.shape(t), [1]))
        fd.add_output(spread, t)
        fd.add_output(fd.ops.mul(spread, 2.0))
        fd.add_output(fd.ops.sum(t, [0]))
        fd.add_output(fd.ops.permute(t, [1, 0]))
    doubled, total, turned = execute(fd, [x])
    want = before + before[:1]
    compare("in place", x, want, D.Float)
    compare("doubled", doubled, 2 * want, D.Float)
    compare("sum of what was", total, before.sum(0), D.Float)
    compare("transpose of what was", turned, before.T, D.Float)


def test_case_20_an_alias_of_the_reversed_rows(execute: Execute, rng: Rng) -> None:
    """The write of a transpose would overtake the reads of its own input."""
    x = rng.normal(size=(64, 64)).astype(np.float32)
    before = x.copy()
    with FusionDefinition() as fd:
        t = define(fd, x)
        fd.add_output(fd.ops.permute(t, [1, 0]), t)
    assert execute(fd, [x]) == []
    compare("transposed in place", x, before.T, D.Float)


@pytest.mark.parametrize("first", [True, False])
def test_case_21_other_outputs_see_the_old_values(execute: Execute, first: bool, rng: Rng) -> None:
    x, y = (rng.normal(size=(37, 21)).astype(np.float32) for _ in range(2))
    before = x.copy()
    with FusionDefinition() as fd:
        a, b = define(fd, x), define(fd, y)
        if first:
            fd.add_output(fd.ops.relu(a), a)
        fd.add_output(fd.ops.add(a, b))
        if not first:
            fd.add_output(fd.ops.relu(a), a)
    (total,) = execute(fd, [x, y])
    compare("a + b", total, before.astype(np.float64) + y, D.Float)
    compare("relu in place", x, np.maximum(before, 0) + 0.0, D.Float)


def test_case_20_inputs_swap(execute: Execute, rng: Rng) -> None:
    x, y = (rng.normal(size=(5, 9)).astype(np.float32) for _ in range(2))
    old_x, old_y = x.copy(), y.copy()
    with FusionDefinition() as fd:
        a, b = define(fd, x), define(fd, y)
        fd.add_output(a, b)
        fd.add_output(b, a)
    assert execute(fd, [x, y]) == []
    compare("x", x, old_y, D.Float)
    compare("y", y, old_x, D.Float)


@pytest.mark.parametrize("static", [True, False])
def test_case_22_an_alias_needs_the_same_shape(execute: Execute, static: bool) -> None:
    x = np.zeros((4, 2), np.float32)

    def run() -> None:
        with FusionDefinition() as fd:
            t = define(fd, x, static=static)
            fd.add_output(fd.ops.permute(t, [1, 0]), t)
        execute(fd, [x])

    with pytest.raises(DefinitionError if static else InputError, match=r"alias|must agree"):
        run()


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("what", ["computed", "input", "reduced", "view"])
def test_case_24_one_tensor_as_several_outputs(
    execute: Execute, what: str, times: int, rng: Rng
) -> None:
    x = rng.normal(size=(13, 70)).astype(np.float32)
    with FusionDefinition() as fd:
        t = define(fd, x)
        y = {
            "computed": lambda: fd.ops.neg(t),
            "input": lambda: t,
            "reduced": lambda: fd.ops.max(t, [1]),
            "view": lambda: fd.ops.permute(t, [1, 0]),
        }[what]()
        for _ in range(times):
            fd.add_output(y)
        fd.add_output(fd.ops.mul(y, 2.0))
    *same, doubled = execute(fd, [x])
    want = {"computed": -x, "input": x, "reduced": x.max(1), "view": x.T}[what]
    assert len(same) == times
    for got in same:
        compare(what, got, want, D.Float)
    compare("doubled", doubled, 2 * want, D.Float)


def test_case_24_an_output_that_is_also_an_alias(execute: Execute, rng: Rng) -> None:
    x = rng.normal(size=50).astype(np.float32)
    want = -x
    with FusionDefinition() as fd:
        t = define(fd, x)
        y = fd.ops.neg(t)
        fd.add_output(y)
        fd.add_output(y, t)
        fd.add_output(t)
    returned, given = execute(fd, [x])
    compare("returned", returned, want, D.Float)
    compare("the input as it was", given, -want, D.Float)
    compare("in place", x, want, D.Float)


def test_case_25_two_outputs_cannot_alias_one_input() -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1])
        fd.add_output(fd.ops.neg(t), t)
        with pytest.raises(DefinitionError, match="one output per input"):
            fd.add_output(fd.ops.exp(t), t)


@pytest.mark.parametrize("dtype", [D.Float, D.Int8], ids=repr)
def test_case_64_one_array_passed_twice(execute: Execute, dtype: DataType, rng: Rng) -> None:
    x = array(dtype, (9, 33), "contiguous", rng)
    with FusionDefinition() as fd:
        a, b = define(fd, x), define(fd, x)
        fd.add_output(fd.ops.eq(a, b))
        fd.add_output(a)
    same, forwarded = execute(fd, [x, x])
    compare("x == x", same, x == x, D.Bool)
    compare("forwarded", forwarded, x, dtype)
    assert not np.shares_memory(forwarded, x)


def test_one_value_added_several_times(execute: Execute, rng: Rng) -> None:
    x = array(D.Float, (9, 33), "contiguous", rng)
    with FusionDefinition() as fd:
        y = fd.ops.neg(define(fd, x))
        for _ in range(3):
            fd.add_output(y)
    outputs = execute(fd, [x])
    assert len(outputs) == 3
    for k, out in enumerate(outputs):
        compare(f"output {k}", out, -x, D.Float)


@pytest.mark.parametrize("shift", [0, 1, 7])
def test_case_64_inputs_that_overlap_an_alias(execute: Execute, shift: int, rng: Rng) -> None:
    memory = rng.integers(-9, 9, 1000).astype(np.float32)
    n = len(memory) - shift
    before = memory.copy()
    with FusionDefinition() as fd:
        a, b = define(fd, memory[:n]), define(fd, memory[shift:])
        fd.add_output(fd.ops.add(a, b), b)
    execute(fd, [memory[:n], memory[shift:]])
    compare("x[:-1] + x[1:]", memory[shift:], before[:n] + before[shift:], D.Float)
    compare("before it", memory[:shift], before[:shift], D.Float)


def test_case_64_an_alias_whose_elements_share_memory(execute: Execute) -> None:
    x = np.lib.stride_tricks.as_strided(np.zeros(3, np.float32), (4, 3), (0, 4))
    y = np.arange(12, dtype=np.float32).reshape(4, 3)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.neg(define(fd, y)), define(fd, x))
    with pytest.raises(InputError, match=r"overlap|share|stride"):
        execute(fd, [y, x])
