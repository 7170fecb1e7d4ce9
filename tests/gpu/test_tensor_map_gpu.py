"""Tensor maps on hardware: the driver's verdict against our rules, and copies against NumPy.

The first half is the proof of the checker: the driver must take every map that keeps the rules and
refuse every map that breaks one.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from tensor_map_cases import (
    BREAKS,
    SWIZZLES,
    as_param,
    copyable,
    legal,
    read_box,
)

from fuser.core.dtypes import DataType
from fuser.core.errors import LaunchError
from fuser.core.expr import ONE, Const
from fuser.kir.core import GRID_1, Kernel, SizeParam, TensorParam
from fuser.kir.program import Buffer, OutputBinding, Program
from fuser.kir.tensor_map import MAP_BYTES, Encoding, violations
from fuser.runtime.arrays import view_of
from fuser.runtime.driver import on_device
from fuser.runtime.executor import CudaProgram
from fuser.runtime.tensor_map import encode, encode_unchecked

pytestmark = pytest.mark.gpu


def driver_takes(encoding: Encoding) -> bool:
    """Return whether the driver encodes it; negative numbers are passed as C would."""
    with on_device(0):
        try:
            return len(encode_unchecked(encoding)) == MAP_BYTES
        except LaunchError:
            return False


@pytest.mark.parametrize("seed", range(10))
def test_the_driver_takes_every_map_that_keeps_the_rules(seed):
    rng = np.random.default_rng(seed)
    for _ in range(200):
        encoding = legal(rng)
        assert violations(encoding) == []
        assert driver_takes(encoding), encoding


@pytest.mark.parametrize("rule", BREAKS)
def test_the_driver_refuses_every_map_that_breaks_a_rule(rule, rng):
    breaking, text = BREAKS[rule]
    for _ in range(100):
        encoding = breaking(rng, legal(rng))
        (found,) = violations(encoding)
        assert text in found
        assert not driver_takes(encoding), encoding


@pytest.mark.parametrize("dtype", list(DataType), ids=lambda d: d.short)
def test_every_dtype_has_an_encoding(dtype):
    inner = 16 // dtype.nbytes
    assert driver_takes(Encoding(dtype, 2**20, (64, 4), (1024,), (inner, 4), (1, 1), "none"))


EDGES = {
    "zero stride": {"strides_bytes": (0,)},
    "rows that overlap": {"strides_bytes": (16,)},
    "inner element stride 0": {"element_strides": (0, 1)},
    "inner element stride 9": {"element_strides": (9, 1)},
    "inner element stride 8": {"element_strides": (8, 1)},
    "narrower than the swizzle": {"swizzle": "128B", "box": (4, 8)},
    "largest extents": {"dims": (2**32, 2**32), "strides_bytes": (2**40 - 16,)},
    "box larger than the tensor": {"dims": (1, 1), "box": (256, 256)},
}


@pytest.mark.parametrize("edge", EDGES)
def test_the_driver_agrees_on_what_the_manual_leaves_open(edge):
    plain = Encoding(DataType.Float, 2**20, (64, 64), (256,), (32, 8), (1, 1), "none")
    encoding = replace(plain, **EDGES[edge])
    assert driver_takes(encoding) == (violations(encoding) == [])


def test_an_encoding_is_the_drivers_and_is_kept():
    encoding = Encoding(DataType.Half, 2**20, (64, 64), (128,), (64, 8), (1, 1), "128B")
    with on_device(0):
        first = encode(as_param(encoding), {}, encoding.address)
        assert first == encode_unchecked(encoding)
        assert encode(as_param(encoding), {}, encoding.address) is first
        assert encode(as_param(encoding), {}, encoding.address + 16) != first


# -- copies ---------------------------------------------------------------------------------------

POISON = 0xA5
MAX_RANK = 5
COPY = """
typedef unsigned char u8; typedef unsigned int u32; typedef unsigned long long u64;
struct alignas(64) CUtensorMap {{ u64 opaque[16]; }};

__device__ u32 shared_address(const void* p) {{
  u64 address;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(p));
  return (u32)address;
}}

// Poisons {nbytes} bytes of shared memory, loads one box over them and writes them out.
extern "C" __global__ void copy_box(const void* x, const __grid_constant__ CUtensorMap map, u8* y,
                                    int c0, int c1, int c2, int c3, int c4) {{
  __shared__ alignas(1024) u8 box[{nbytes}];
  __shared__ alignas(8) u64 barrier;
  const u32 at = shared_address(&barrier);
  for (int i = threadIdx.x; i < {nbytes}; i += 128) box[i] = {poison};
  if (threadIdx.x == 0) {{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }}
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at),
                 "r"({expected}) : "memory");
    asm volatile(
        "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {{{operands}}}], [%2];" ::"r"(shared_address(box)), "l"(&map), "r"(at){coords}
        : "memory");
  }}
  u32 done = 0;
  while (!done)
    asm volatile(
        "{{\\n.reg .pred p;\\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\\n"
        "selp.u32 %0, 1, 0, p;\\n}}" : "=r"(done) : "r"(at) : "memory");
  for (int i = threadIdx.x; i < {nbytes}; i += 128) y[i] = box[i];
}}
"""


def copy_source(rank, expected, nbytes):
    """Return the kernel for maps of `rank` whose boxes complete `expected` bytes."""
    return COPY.format(
        rank=rank,
        expected=expected,
        nbytes=nbytes,
        poison=POISON,
        operands=", ".join(f"%{3 + d}" for d in range(rank)),
        coords="".join(f', "r"(c{d})' for d in range(rank)),
    )


def run_copy(copy, flat):
    """Return shared memory after the copy, 256 bytes more than the box."""
    param, nbytes = copy.param, copy.param.box_bytes + 256
    coords = tuple(f"c{d}" for d in range(MAX_RANK))
    kernel = Kernel(
        name="copy_box",
        params=(
            TensorParam("x", param.dtype, "in", Const(copy.numel)),
            param,
            TensorParam("y", DataType.UInt8, "out", Const(nbytes)),
            *(SizeParam(c) for c in coords),
        ),
        shared=(),
        grid=GRID_1,
        block=(Const(128), ONE, ONE),
        index="i32",
        body=(),
    )
    y = Buffer("y", DataType.UInt8, (Const(nbytes),), (ONE,), Const(nbytes))
    program = Program("copy", ("x",), (y,), (kernel,), (OutputBinding("y"),))
    source = copy_source(param.rank, param.box_bytes, nbytes)
    env = dict.fromkeys(coords, 0) | dict(zip(coords, copy.coords, strict=False))
    made = CudaProgram(program, lambda _: source).run(env, {"x": view_of(flat)}, {})
    return np.asarray(made["y"][0])


CASES = list(itertools.product(range(1, MAX_RANK + 1), SWIZZLES))


@pytest.mark.parametrize("dtype", list(DataType), ids=lambda d: d.short)
@pytest.mark.parametrize(("rank", "swizzle"), CASES, ids=lambda c: str(c))
def test_a_box_is_read_as_numpy_reads_it(rank, swizzle, dtype, rng):
    """Inside, overhanging, wholly outside; every byte counted, nothing written beyond the box.

    A wrong count of bytes is a hang, which the time limit of the run catches.
    """
    for _ in range(2):
        copy = copyable(rng, rank, dtype, swizzle)
        raw = rng.integers(1, 2 if dtype is DataType.Bool else 127, copy.numel * dtype.nbytes)
        flat = raw.astype(np.uint8).view(dtype.np)[: copy.numel]
        got = run_copy(copy, flat)
        expected = read_box(copy, flat)
        assert got[: expected.size].tobytes() == expected.tobytes(), copy
        assert np.all(got[expected.size :] == POISON), copy
