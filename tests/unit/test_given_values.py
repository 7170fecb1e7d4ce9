"""Dtypes and numbers that are none: the call and the value are named, at the user's line."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.api.ops import Ops, operation_names
from fuser.core.errors import DefinitionError

pytestmark = pytest.mark.unit

D = DataType
NO_DTYPES = ["float", "f32", np.float32, np.dtype("f4"), float, 1, 0, D, [D.Float]]
NO_NUMBERS = ["float", "3", b"1", np.float32, float, [1], (1,), {}, 1j, np.complex64(1)]
REDUCTIONS = ("sum", "prod", "max", "min", "mean")


def calls(fd):
    """Every call with a parameter `dtype`, by name."""
    x = fd.define_tensor([-1, 4])
    return {
        "cast": lambda dtype: fd.ops.cast(x, dtype),
        "full": lambda dtype: fd.ops.full([2], 1.0, dtype),
        "iota": lambda dtype: fd.ops.iota(2, dtype=dtype),
        "define_tensor": lambda dtype: fd.define_tensor([2], dtype=dtype),
        "define_scalar": lambda dtype: fd.define_scalar(dtype=dtype),
        "define_scalar of a constant": lambda dtype: fd.define_scalar(1.0, dtype),
    } | {
        op: lambda dtype, op=op: getattr(fd.ops, op)(x, [1], dtype=dtype) for op in REDUCTIONS
    }  # fmt: skip


def refused(text, call, *args):
    with pytest.raises(DefinitionError) as caught:
        call(*args)
    assert text in str(caught.value)
    assert caught.value.location is not None


def test_every_operation_with_a_dtype_is_among_the_calls():
    taking = {
        name
        for name in operation_names()
        if "dtype" in inspect.signature(getattr(Ops, name)).parameters
    }
    assert taking == set(calls(FusionDefinition())) - {
        "define_tensor", "define_scalar", "define_scalar of a constant",
    }  # fmt: skip


@pytest.mark.parametrize("dtype", NO_DTYPES, ids=repr)
def test_what_is_no_dtype(dtype):
    fd = FusionDefinition()
    for name, call in calls(fd).items():
        text = f"{name.partition(' ')[0]}: dtype is {dtype!r}; a DataType is needed"
        refused(text, call, dtype)


def test_none_is_no_dtype_where_there_is_no_default():
    for name in ("cast", "full", "iota", "define_tensor"):
        text = f"{name}: dtype is None; a DataType is needed"
        refused(text, calls(FusionDefinition())[name], None)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize("dtype", [None, D.Float, D.Int])
def test_what_is_no_constant(value, dtype):
    text = f"define_scalar: value is {value!r}, a {type(value).__name__}; a bool, an int or a float"
    refused(text, FusionDefinition().define_scalar, value, dtype)


@pytest.mark.parametrize("value", [True, 3, 2.5, np.float32(2.5), np.int8(3), np.bool_(True)])
def test_numbers_of_python_and_numpy_are_constants(value):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], dtype=D.Float)
        fd.add_output(x * fd.ops.cast(fd.define_scalar(value), D.Float))
    (y,) = fd.execute([np.ones(3, np.float32)])
    assert y.tolist() == [float(value)] * 3
