"""Bug reports on copies that run ahead: addresses, strides, tiles and sizes that TMA cannot take.

`by_hand(fd, inputs)` runs the schedule of a definition. What may hang has a file of its own,
`tests/protocol/test_ring_cases.py`, and cells of `tests/rings` on a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.api.definition import FusionDefinition
from fuser.api.tensor import Tensor
from fuser.core.dtypes import DataType
from fuser.ops.convert import convert
from fuser.schedule.circular import CircularBufferType, Pipelined, WarpSpecialized
from fuser.schedule.kinds import LoadStoreOpType, MemoryType, ParallelType
from matrix.arrays import array, poisoned
from matrix.compare import compare
from matrix.pointwise import Execute

D, L, P = DataType, LoadStoreOpType, ParallelType
Rng = np.random.Generator
THREADS = 32
MAX_BOX = 256
PIPELINED, SPECIALISED = Pipelined(war="mbarrier"), WarpSpecialized()
RINGS = [
    pytest.param(L.tma, PIPELINED, id="tma"),
    pytest.param(L.tma, SPECIALISED, id="tma-roles"),
    pytest.param(L.bulk, PIPELINED, id="bulk"),
    pytest.param(L.bulk, SPECIALISED, id="bulk-roles"),
    pytest.param(L.cp_async, PIPELINED, id="cp_async"),
    pytest.param(L.set, Pipelined("token", "barrier"), id="set"),
]
DTYPES = [D.Float, D.BFloat16, D.Int8]
QUIET = pytest.mark.filterwarnings("ignore::fuser.core.errors.FallbackWarning")


def stream(
    x: Tensor,
    y: Tensor,
    load: LoadStoreOpType,
    kind: CircularBufferType,
    tile: int,
) -> None:
    """Compute `y` from tiles of `x`: rows over blocks, tiles of the last dimension in trips."""
    cache = x.cache_after(load)
    cache.set_memory_type(MemoryType.shared)
    last = len(y.loop_axes) - 1
    for t in (y, cache):
        t.split(last, tile)
        if last:
            t.axis(0).parallelize(P.grid_x)
    y.split(last + 1, THREADS)
    y.axis(last + 2).parallelize(P.block_x)
    if load in (L.cp_async, L.set):
        cache.split(last + 1, THREADS)
        cache.axis(last + 2).parallelize(P.block_x)
    else:
        if load is L.tma and tile > MAX_BOX:
            cache.split(last + 1, MAX_BOX)
        cache.axis(-1).parallelize(P.tma)
    cache.inline_at(y, last + 1)
    cache.circular_buffer(3, type=kind)


def increment(rank: int, dtype: DataType, load: Any, kind: Any, tile: int) -> FusionDefinition:
    """``y = x + 1`` by a ring of three stages."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1] * rank, dtype=dtype)
        y = fd.ops.cast(fd.ops.add(x, 1), dtype=dtype)
        fd.add_output(y)
    stream(x, y, load, kind, tile)
    return fd


def one_more(x: np.ndarray, dtype: DataType) -> np.ndarray:
    return convert(x.astype(np.float64) + 1, dtype)


def numbers(shape: tuple[int, ...], dtype: DataType, rng: Rng) -> np.ndarray:
    """Small integers, exact in every dtype, that begin at a multiple of 64 bytes."""
    count = int(np.prod(shape))
    memory = np.empty(count + 64, dtype.np)
    first = -memory.ctypes.data % 64 // dtype.nbytes
    x = memory[first : first + count].reshape(shape)
    x[...] = convert(rng.integers(-9, 9, shape).astype(np.float64), dtype)
    return x


@QUIET
@pytest.mark.parametrize(("load", "kind"), RINGS)
@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_case_27_alignment_of_tiles_is_checked_per_call(
    by_hand: Execute, dtype: DataType, load: Any, kind: Any, rng: Rng
) -> None:
    memory = numbers((1100,), dtype, rng)
    fd = increment(1, dtype, load, kind, 128)
    for start in (0, 1, 0, 2, 3, 5, 8, 0):
        x = memory[start : start + 1024]
        compare(f"x[{start}:]", by_hand(fd, [x])[0], one_more(x, dtype), dtype)


@QUIET
@pytest.mark.parametrize(("load", "kind"), RINGS)
def test_case_29_tiles_of_odd_row_strides(by_hand: Execute, load: Any, kind: Any, rng: Rng) -> None:
    fd = increment(2, D.BFloat16, load, kind, 64)
    for stride in (512, 511, 513, 504, 512):
        x = poisoned((5, stride), D.BFloat16.np)[:, :500]
        x[...] = numbers(x.shape, D.BFloat16, rng)
        compare(f"stride {stride}", by_hand(fd, [x])[0], one_more(x, D.BFloat16), D.BFloat16)


@QUIET
@pytest.mark.parametrize(("load", "kind"), RINGS)
@pytest.mark.parametrize("columns", [15, 16, 466])
def test_case_30_tiles_written_inside_a_wider_buffer(
    by_hand: Execute, columns: int, load: Any, kind: Any, rng: Rng
) -> None:
    wide = array(D.Int8, (7, 600), "contiguous", rng)
    before = wide.copy()
    x = numbers((7, columns), D.Int8, rng)
    with FusionDefinition() as fd:
        target = fd.define_tensor(shape=[-1, -1], dtype=D.Int8)
        source = fd.define_tensor(shape=[-1, -1], dtype=D.Int8)
        y = fd.ops.add(source, 1)
        fd.add_output(y, target)
    stream(source, y, load, kind, 128)
    assert by_hand(fd, [wide[:, :columns], x]) == []
    compare("written", wide[:, :columns], one_more(x, D.Int8), D.Int8)
    compare("beside", wide[:, columns:], before[:, columns:], D.Int8)


@QUIET
@pytest.mark.parametrize(("load", "kind"), RINGS)
def test_case_32_tiles_of_slices_that_start_off_alignment(
    by_hand: Execute, load: Any, kind: Any, rng: Rng
) -> None:
    matrix = numbers((5, 192), D.Int32, rng)
    fd = increment(2, D.Int32, load, kind, 64)
    for start in (0, 1, 2, 3, 4):
        x = matrix[:, start : start + 160]
        compare(f"x[:, {start}:]", by_hand(fd, [x])[0], one_more(x, D.Int32), D.Int32)


@pytest.mark.parametrize("start", [1, 3, 4])
def test_case_32_tiles_of_a_slice_in_the_fusion(by_hand: Execute, start: int, rng: Rng) -> None:
    """A slice lies in no memory of its own: threads copy its tiles."""
    x = numbers((900,), D.Int32, rng)
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1], contiguity=True, dtype=D.Int32)
        s = fd.ops.slice(t, [start], [start + 800])
        y = fd.ops.add(s, 1)
        fd.add_output(y)
    stream(s, y, L.set, PIPELINED, 64)
    compare("slice", by_hand(fd, [x])[0], one_more(x[start : start + 800], D.Int32), D.Int32)


@pytest.mark.parametrize("kind", [PIPELINED, SPECIALISED], ids=["pipelined", "roles"])
@pytest.mark.parametrize("tile", [512, 1024])
@pytest.mark.parametrize("length", [512, 1000, 2500, 3072])
def test_case_33_tiles_of_several_boxes(
    by_hand: Execute, length: int, tile: int, kind: Any, rng: Rng
) -> None:
    fd = increment(1, D.Float, L.tma, kind, tile)
    x = numbers((length,), D.Float, rng)
    compare("boxes", by_hand(fd, [x])[0], one_more(x, D.Float), D.Float)


@QUIET
@pytest.mark.parametrize(("load", "kind"), RINGS)
def test_case_39_rows_of_1000_bytes(by_hand: Execute, load: Any, kind: Any, rng: Rng) -> None:
    fd = increment(2, D.Float, load, kind, 64)
    for columns in (250, 252, 249):
        x = numbers((6, columns), D.Float, rng)
        compare(f"{columns} columns", by_hand(fd, [x])[0], one_more(x, D.Float), D.Float)


@QUIET
@pytest.mark.parametrize(("load", "kind"), RINGS)
@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_case_61_lengths_around_a_tile_of_a_ring(
    by_hand: Execute, dtype: DataType, load: Any, kind: Any, rng: Rng
) -> None:
    fd = increment(1, dtype, load, kind, 64)
    for k in (1, 2, 4):
        for n in (64 * k - 1, 64 * k, 64 * k + 1):
            x = numbers((n,), dtype, rng)
            compare(f"{n} elements", by_hand(fd, [x])[0], one_more(x, dtype), dtype)
