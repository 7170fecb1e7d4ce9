"""Rings in registers: loaded from what lies where, over how many trips, inside of what."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from rings.cells import REGISTERS, TYPES, Cell, definition
from rings.choices import ENGINE, L, P, staged, tensor
from rings.interpret import exact
from rings.matrix import DTYPES, KINDS, SLOTS

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType
from fuser.api.execute import bind, program_of
from fuser.api.tensor import Tensor
from fuser.protocol.verdict import check
from fuser.schedule.circular import CircularBufferType, Pipelined, WarpSpecialized

pytestmark = [
    pytest.mark.protocol,
    pytest.mark.filterwarnings("ignore::fuser.core.errors.FallbackWarning"),
]

THREADS = 32
PART = 2 * THREADS
"""Elements that are loaded into registers in one trip."""
ROWS = 3
OUTER: dict[str, CircularBufferType] = {
    "parity-mbarrier": Pipelined(war="mbarrier"),
    "parity-barrier": Pipelined(war="barrier"),
    "token-mbarrier": Pipelined("token", "mbarrier"),
    "token-barrier": Pipelined("token", "barrier"),
    "ws": WarpSpecialized(),
}


def counts(stages: int) -> tuple[int, ...]:
    """Return the numbers of trips at which something changes, and a long one."""
    return tuple(dict.fromkeys((0, 1, stages - 1, stages, stages + 1, 3 * stages + 1, 23)))


SIZES = [
    (slots, ahead, trips, dtype, load, cut)
    for ((slots, ahead), trips), dtype, load, cut in zip(
        [(distance, n) for distance in SLOTS for n in counts(distance[0])],
        itertools.cycle(DTYPES),
        itertools.cycle(KINDS),
        itertools.cycle((0, 5, 5)),
        strict=False,
    )
]


def numbers(shape: tuple[int, ...], dtype: DataType) -> np.ndarray:
    """Return small integers that every operation here is exact for, in every dtype."""
    most = 3 if dtype is DataType.Float8_e4m3fn else 40
    rng = np.random.default_rng(shape)
    return rng.integers(-most, most + 1, shape).astype("f4").astype(dtype.np)


def parted(t: Tensor, axis: int) -> None:
    """Split `axis` into trips, elements of a thread, and threads."""
    t.split(axis, PART)
    t.split(axis + 1, THREADS)
    t.axis(axis + 2).parallelize(P.block_x)


def loaded(tile: Tensor, load: LoadStoreOpType, columns: int) -> None:
    """Bind the columns of a tile to what loads them."""
    if load in ENGINE:
        tile.split(1, columns)
        tile.axis(2).parallelize(P.tma)
        return
    tile.split(1, 4 * THREADS)
    tile.split(2, 4)
    tile.axis(2).parallelize(P.block_x)
    if load is L.cp_async:
        tile.axis(3).parallelize(P.vectorize)


def twice_and_one(fd: FusionDefinition, x: Tensor, dtype: DataType) -> Tensor:
    y = fd.ops.cast(x * 2.0 + 1.0, dtype=dtype)
    fd.add_output(y)
    return y


# ---- how many trips ----------------------------------------------------------------------------


@pytest.mark.parametrize(("slots", "ahead", "trips", "dtype", "load", "cut"), SIZES)
def test_from_a_tile_that_is_loaded_once(slots, ahead, trips, dtype, load, cut):
    """Known trips: a row a block, by every way to load it."""
    columns = max(0, trips * PART - cut)
    if columns * dtype.nbytes % 16 and load is not L.set:
        columns -= columns % 16  # a row begins where the engine can
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, columns], contiguity=[True, True], dtype=dtype)
        y = twice_and_one(fd, x, dtype)
    if columns:
        tile = staged(x, load)
        part = tile.cache_after()
        for t in (y, part):
            parted(t, 1)
        loaded(tile, load, trips * PART)
        for t in (y, part, tile):
            t.axis(0).parallelize(P.grid_x)
        part.inline_at(y, 2)
        tile.inline_at(part, 1)
        part.circular_buffer(slots, ahead)
    a = numbers((ROWS, columns), dtype)
    exact(f"{slots} {ahead} {trips} {cut}", fd, [a], a.astype("f8") * 2 + 1, seeds=int(columns > 0))


@pytest.mark.parametrize(("slots", "ahead"), SLOTS)
def test_from_global_memory(slots, ahead):
    """Unknown trips: one kernel for all sizes."""
    dtype = DTYPES[(slots + ahead) % len(DTYPES)]
    with FusionDefinition() as fd:
        x = tensor(fd, 1, dtype)
        y = twice_and_one(fd, x, dtype)
    part = x.cache_after()
    for t in (y, part):
        parted(t, 0)
    part.inline_at(y, 1)
    part.circular_buffer(slots, ahead)
    for trips, cut in itertools.product(counts(slots), (0, 1, PART - 1)):
        a = numbers((max(0, trips * PART - cut),), dtype)
        exact(f"{slots} {ahead} {trips} {cut}", fd, [a], a.astype("f8") * 2 + 1, int(trips > 0))


@pytest.mark.parametrize(("slots", "ahead"), SLOTS)
def test_loops_that_are_no_split(slots, ahead):
    """The loop of trips is a dimension: nothing but its extent says where it ends."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, PART], contiguity=[True, True])
        s = fd.ops.sum(x, [0])
        fd.add_output(s)
    part = x.cache_after()
    for t in (s, part):
        t.split(1, THREADS)
        t.axis(2).parallelize(P.block_x)
    s.reorder({0: 1})
    part.reorder({0: 1})
    part.inline_at(s, 2)
    part.circular_buffer(slots, ahead)
    for trips in counts(slots)[1:]:
        a = numbers((trips, PART), DataType.Float)
        exact(f"{slots} {ahead} {trips}", fd, [a], a.astype("f8").sum(0), seeds=1)


# ---- inside of what ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OUTER)
@pytest.mark.parametrize(("slots", "ahead"), [(1, 0), (2, 1), (3, 2), (4, 1)])
def test_inside_a_ring_over_what_is_global(kind, slots, ahead):
    """An inner ring of unknown trips: ``y[r, c] = 2 x[c] + z[r, c]``, tiles of x in a ring."""
    with FusionDefinition() as fd:
        x, z = tensor(fd, 1, DataType.Float), tensor(fd, 2, DataType.Float)
        wide = fd.ops.broadcast_in_dim(x * 2.0, fd.ops.shape(z), [1])
        y = wide + z
        fd.add_output(y)
    tile = staged(x, L.bulk)
    part = z.cache_after()
    for t in (y, part):
        t.split(1, PART)
        t.split(2, THREADS)
        t.reorder({1: 0, 0: 1})  # tile, row, element of a thread, thread
        t.axis(3).parallelize(P.block_x)
    tile.split(0, PART)
    tile.axis(1).parallelize(P.tma)
    part.inline_at(y, 2)
    tile.inline_at(y, 1)
    tile.circular_buffer(3, 2 if kind == "ws" else 1, OUTER[kind])
    part.circular_buffer(slots, ahead)
    for rows, columns in itertools.product((1, slots, 3 * slots + 1), (PART, 4 * PART - 7)):
        a, b = numbers((columns,), DataType.Float), numbers((rows, columns), DataType.Float)
        exact(f"{kind} {rows} {columns}", fd, [a, b], a.astype("f8") * 2 + b, seeds=1)


@pytest.mark.parametrize("kind", OUTER)
@pytest.mark.parametrize(("slots", "ahead"), [(0, 0), (2, 1), (3, 1)])
def test_from_what_threads_have_stored(kind, slots, ahead):
    """What is loaded ahead was exchanged between threads in the same trip of the outer ring."""
    with FusionDefinition() as fd:
        x = tensor(fd, 1, DataType.Float)
        doubled = x * 2.0
        y = doubled + 1.0
        fd.add_output(y)
    tile = staged(x, L.bulk)
    middle = doubled.cache_after()
    middle.set_memory_type(MemoryType.shared)
    part = middle.cache_after()
    for t in (y, part):
        t.split(0, 8 * PART)
        t.split(1, PART)
        t.split(2, 2)
        t.axis(2).parallelize(P.block_x)  # a thread has neighbours: two others stored them
    for t in (middle, tile):
        t.split(0, 8 * PART)
    middle.split(1, THREADS)
    middle.axis(2).parallelize(P.block_x)
    tile.axis(1).parallelize(P.tma)
    part.inline_at(y, 2)
    middle.inline_at(part, 1)
    tile.inline_at(middle, 1)
    tile.circular_buffer(2, 1, OUTER[kind])
    if slots:
        part.circular_buffer(slots, ahead)
    for n in (1, 8 * PART, 40 * PART + 3):
        a = numbers((n,), DataType.Float)
        exact(f"{kind} {slots} {n}", fd, [a], a.astype("f8") * 2 + 1)


@pytest.mark.parametrize("outer", [(2, 1), (3, 1)])
@pytest.mark.parametrize("inner", [(2, 0), (2, 1), (3, 2)])
def test_registers_inside_registers(outer, inner):
    """``y[r, c] = x[r] + z[r, c]``: x runs ahead over rows, z over the parts of a row."""
    with FusionDefinition() as fd:
        x, z = tensor(fd, 1, DataType.Float), tensor(fd, 2, DataType.Float)
        wide = fd.ops.broadcast_in_dim(x, fd.ops.shape(z), [0])
        y = wide + z
        fd.add_output(y)
    one, part = x.cache_after(), z.cache_after()
    for t in (y, part):
        parted(t, 1)
    one.inline_at(y, 1)
    part.inline_at(y, 2)
    one.circular_buffer(*outer)
    part.circular_buffer(*inner)
    for shape in ((1, 1), (2, 200), (7, 64), (10, 3 * PART)):
        a, b = numbers(shape[:1], DataType.Float), numbers(shape, DataType.Float)
        exact(f"{shape}", fd, [a, b], a.astype("f8")[:, None] + b, seeds=1)


@pytest.mark.parametrize("registers", [None, REGISTERS])
@pytest.mark.parametrize("axis", [1, 2])
def test_on_a_loop_of_a_specialised_ring(registers, axis):
    """Consumers load z over the trips of the ring of x, or over the persistent loop around it."""
    threads = 256 if registers else THREADS
    with FusionDefinition() as fd:
        x, z = tensor(fd, 2, DataType.Float), tensor(fd, axis, DataType.Float)
        y = x * 2.0 + (z if axis == 2 else fd.ops.broadcast_in_dim(z, fd.ops.shape(x), [0]))
        fd.add_output(y)
    tile, part = staged(x, L.tma), z.cache_after()
    for t in (y, part)[:axis]:
        t.split(1, threads)
        t.axis(2).parallelize(P.block_x)
    tile.split(1, threads)
    tile.axis(2).parallelize(P.tma)
    part.inline_at(y, axis)
    tile.inline_at(y, 2)
    part.circular_buffer(2)
    tile.circular_buffer(3, None, WarpSpecialized(num_registers=registers))
    for shape in ((1, 4), (3, threads), (6, 5 * threads + 4)):
        a, b = numbers(shape, DataType.Float), numbers(shape[:axis], DataType.Float)
        expected = a.astype("f8") * 2 + (b if axis == 2 else b[:, None])
        exact(f"{shape}", fd, [a, b], expected, seeds=1)


@pytest.mark.parametrize("slots", [0, 2, 3])
@pytest.mark.parametrize("stored", [False, True])
def test_inside_consumer_groups(slots, stored):
    """Each group loads its tiles into registers, from the ring or from what its threads stored."""
    with FusionDefinition() as fd:
        x = tensor(fd, 1, DataType.Float)
        doubled = x * 2.0
        y = doubled + 1.0
        fd.add_output(y)
    tile = staged(x, L.bulk)
    middle = doubled.cache_after() if stored else tile
    part = middle.cache_after()
    for t in dict.fromkeys((y, part, middle, tile)):
        t.split(0, 8 * PART)
        t.split(0, 2)
        t.axis(1).parallelize(P.block_y)  # round, group, element of a tile
    for t in (y, part):
        t.split(2, PART)
        t.split(3, 2)
        t.axis(3).parallelize(P.block_x)
    tile.axis(2).parallelize(P.tma)
    if stored:
        middle.set_memory_type(MemoryType.shared)
        middle.split(2, THREADS)
        middle.axis(3).parallelize(P.block_x)
    part.inline_at(y, 3)
    middle.inline_at(part, 2)
    if stored:
        tile.inline_at(middle, 2)
    if slots:
        part.circular_buffer(slots)
    tile.circular_buffer(4, None, WarpSpecialized(P.block_y, stage_slice_position=2))
    for n in (1, 8 * PART, 16 * PART, 43 * PART + 3):
        a = numbers((n,), DataType.Float)
        exact(f"{slots} {stored} {n}", fd, [a], a.astype("f8") * 2 + 1)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize(("slots", "ahead"), SLOTS)
def test_around_stores_of_the_copy_engine(slots, ahead, stages):
    """Trips that are loaded ahead into registers leave through tiles that the engine stores."""
    with FusionDefinition() as fd:
        x = tensor(fd, 1, DataType.Float)
        y = x * 2.0 + 1.0
        fd.add_output(y)
    out = y.cache_before(L.tma)
    out.set_memory_type(MemoryType.shared)
    part = x.cache_after()
    y.split(0, PART)
    y.axis(1).parallelize(P.tma)
    for t in (out, part):
        parted(t, 0)
    out.inline_at(y, 1)
    part.inline_at(out, 1)
    out.circular_buffer(stages)
    part.circular_buffer(slots, ahead)
    for n in (1, slots * PART, (3 * slots + 1) * PART - 4):
        a = numbers((n,), DataType.Float)
        exact(f"{slots} {stages} {n}", fd, [a], a.astype("f8") * 2 + 1, seeds=1)


# ---- the protocol ------------------------------------------------------------------------------


PROVED = [
    cell
    for kind, load in itertools.product(TYPES, KINDS)
    if (cell := Cell("nested", (load,), type=kind, tile=512, slots=2, ahead=1)).is_legal()
    and (kind != "ws-regs" or load in ENGINE)  # as "ws", and many times the states
]


@pytest.mark.parametrize("cell", PROVED, ids=str)
def test_rings_around_registers_are_proved(cell):
    """Loads into registers read a stage between its await and its release."""
    fd = definition(cell)
    (kernel,) = program_of(fd, bind(fd, cell.inputs(), True), True).kernels
    verdict = check(kernel)
    assert verdict.reach == "proved", verdict.note
