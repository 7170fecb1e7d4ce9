"""Kernels of real fusions compile for every architecture, without spills or notes."""

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.runtime.nvrtc import REAL_ARCHS, compile_cubin
from fuser.runtime.sass import disassemble

pytestmark = pytest.mark.nvrtc


def bias_gelu(fd):
    x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16)
    bias = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.BFloat16)
    b = fd.ops.broadcast_in_dim(bias, fd.ops.shape(x), [1])
    fd.add_output(fd.ops.cast(fd.ops.gelu(x + b, approximate="tanh"), DataType.BFloat16))
    return [(256, 1024), (1024,)]


def transpose(fd):
    x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16)
    fd.add_output(fd.ops.permute(x, [1, 0]))
    return [(256, 512)]


def softmax(fd):
    x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16)
    fd.add_output(fd.ops.cast(fd.ops.softmax(x, 1), DataType.BFloat16))
    return [(64, 1024)]


def total(fd):
    x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16)
    fd.add_output(fd.ops.sum(x))
    return [(512, 1024)]


def fp8(fd):
    x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float8_e4m3fn)
    fd.add_output(fd.ops.cast(x * 2.0, DataType.Float8_e5m2))
    return [(64, 64)]


FUSIONS = (bias_gelu, transpose, softmax, total, fp8)


def kernels(define):
    with FusionDefinition() as fd:
        shapes = define(fd)
    dtype = ml_dtypes.float8_e4m3fn if define is fp8 else ml_dtypes.bfloat16
    inputs = [np.ones(shape, dtype) for shape in shapes]
    return program_of(fd, bind(fd, inputs)).kernels


@pytest.mark.parametrize("arch", REAL_ARCHS)
@pytest.mark.parametrize("define", FUSIONS, ids=lambda f: f.__name__)
def test_compiles_without_findings(define, arch):
    for kernel in kernels(define):
        cubin = compile_cubin(emit(kernel), kernel.name, arch, on_spill="raise")
        assert cubin.log.registers > 0
        assert not cubin.log.notes


def accesses(sass, mnemonic):
    return [line.split()[1] for line in sass.splitlines() if f" {mnemonic}" in line]


@pytest.mark.parametrize(("define", "loads", "stores"), [(bias_gelu, 2, 1), (transpose, 4, 5)])
def test_global_accesses_are_16_bytes_wide(define, loads, stores):
    """Every load and store of these fusions is LDG.128 or STG.128, as many as the schedule says.

    The fifth store of the transpose is that of tiles at the edge, whose loop is not unrolled.
    """
    (kernel,) = kernels(define)
    sass = disassemble(compile_cubin(emit(kernel), kernel.name, "sm_90a").image)
    wide = [line for line in sass.splitlines() if "LDG" in line or "STG" in line]
    assert wide
    assert all(".128" in line for line in wide), wide
    assert sum("LDG" in line for line in wide) == loads
    assert sum("STG" in line for line in wide) == stores
