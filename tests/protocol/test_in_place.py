"""Outputs that alias inputs of any layout: elements arrive, gaps stay, nothing is left to copy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from matrix.arrays import arrange, define
from matrix.case_shapes import Rng

from fuser.api.definition import FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.core.dtypes import DataType
from fuser.runtime.plan import roles_of

pytestmark = pytest.mark.protocol
Shape = tuple[int, ...]


def rows_apart(x: np.ndarray) -> np.ndarray:
    """The elements of `x`, every row followed by a gap of 3."""
    base = np.full((*x.shape[:-1], x.shape[-1] + 3), 7, x.dtype)
    base[..., :-3] = x
    return base[..., :-3]


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "strided": lambda x: arrange(x, "strided"),
    "transposed": lambda x: arrange(x, "transposed"),
    "rows apart": rows_apart,
    "every other": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "swapped": lambda x: np.ascontiguousarray(x.swapaxes(0, -2)).swapaxes(0, -2),
}
SHAPES: list[Shape] = [(33, 40), (1, 7), (600, 3), (5, 1, 16), (3, 4, 5), (4, 0)]


def gaps_of(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes that `x` is a view of, and a mask of those that are in no element."""
    base = x if x.base is None else np.asarray(x.base)
    memory, bits = base.ravel(order="K").view(np.uint8), x.view(f"u{x.itemsize}")
    kept = x.copy()
    bits[...] = 0
    zeros = memory.copy()
    bits[...] = np.iinfo(bits.dtype).max
    mask = memory == zeros
    x[...] = kept
    return memory, mask


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Int8], ids=repr)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_elements_arrive_and_gaps_stay(
    layout: str, shape: Shape, dtype: DataType, rng: Rng
) -> None:
    x = LAYOUTS[layout](rng.integers(-9, 9, shape).astype(dtype.np))
    with FusionDefinition() as fd:
        t = define(fd, x)
        fd.add_output(fd.ops.neg(t), t)
        fd.add_output(fd.ops.add(t, 1))
    memory, gaps = gaps_of(x)
    want, around = -x, memory.copy()
    added = x + np.ones((), x.dtype)
    (got,) = fd.execute([x], backend="interpret")
    assert np.array_equal(x, want)
    assert np.array_equal(got, added)
    assert np.array_equal(memory[gaps], around[gaps])


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_kernel_stores_into_what_the_driver_cannot_copy_to(
    layout: str, by_hand: bool, rng: Rng
) -> None:
    """The driver's copies know one row pitch; on a GPU the last kernel does the rest."""
    x = LAYOUTS[layout](rng.normal(size=(6, 8)).astype(np.float32))
    with FusionDefinition() as fd:
        t = define(fd, x)
        fd.add_output(fd.ops.mul(t, 2.0), t)
    program = program_of(fd, bind(fd, [x], by_hand), by_hand)
    roles = roles_of(program)
    assert roles.changed == {t.name}
    assert roles.returned == ()
    dense = x.flags.c_contiguous
    assert len(roles.copies) == int(dense)
    assert len(program.kernels) == 2 - int(dense)
    if not dense:
        assert f"const float* __restrict__ {t.name}," not in emit(program.kernels[-1])
        assert f"float* __restrict__ {t.name}," in emit(program.kernels[-1])


def test_a_value_added_twice_is_the_same_array_twice(rng):
    with FusionDefinition() as fd:
        y = fd.ops.neg(fd.define_tensor(shape=[-1], contiguity=[True]))
        fd.add_output(y)
        fd.add_output(y)
    first, second = fd.execute([rng.random(7, np.float32)], backend="interpret")
    assert np.shares_memory(first, second)
