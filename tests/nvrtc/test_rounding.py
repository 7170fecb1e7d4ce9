"""What the compiler may do to the CUDA texts of the op table: no contraction, no lost bits."""

from typing import Any

import numpy as np
import pytest

from fuser.api.definition import FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.core.dtypes import DataType
from fuser.ops import BY_NAME
from fuser.runtime.nvrtc import compile_cubin
from fuser.runtime.sass import disassemble

pytestmark = pytest.mark.nvrtc
D = DataType


def compiled(op: str, dtype: DataType) -> tuple[str, str]:
    """Return CUDA text and machine code of one op on vectors."""
    with FusionDefinition() as fd:
        operands = [fd.define_tensor(shape=[-1], dtype=dtype) for _ in range(BY_NAME[op].arity)]
        fd.add_output(fd.ops.pointwise(op, operands))
    inputs: list[Any] = [np.ones(1000, dtype.np) for _ in operands]
    (kernel,) = program_of(fd, bind(fd, inputs)).kernels
    source = emit(kernel)
    return source, disassemble(compile_cubin(source, kernel.name, "sm_90a").image)


@pytest.mark.parametrize("dtype", [D.Float, D.Double], ids=repr)
@pytest.mark.parametrize("op", ["lerp", "addcmul"])
def test_products_that_numpy_rounds_are_not_contracted(op: str, dtype: DataType) -> None:
    _, sass = compiled(op, dtype)
    assert ("FMUL" if dtype is D.Float else "DMUL") in sass
    assert "FFMA" not in sass
    assert "DFMA" not in sass


@pytest.mark.parametrize("dtype", [D.Float, D.Double], ids=repr)
def test_the_contraction_that_an_op_asks_for_is_there(dtype: DataType) -> None:
    _, sass = compiled("fma", dtype)
    assert ("FFMA" if dtype is D.Float else "DFMA") in sass


@pytest.mark.parametrize("dtype", [d for d in D if d.is_reduced_float], ids=repr)
def test_signbit_reads_the_bits_without_a_conversion(dtype: DataType) -> None:
    """Converting an fp8 or f16 NaN to f32 gives the NaN without a sign."""
    source, sass = compiled("signbit", dtype)
    assert "widen" not in source
    assert "F2F" not in sass  # F2F, F2FP: conversions between float types
    assert "HADD2.F32" not in sass  # how f16 is converted
