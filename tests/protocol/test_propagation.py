"""Whatever `transform_like` and `parallelize_like` reach is computed: all of it, by one thread."""

import numpy as np
import pytest
from manual_schedules import run_checked, tensor

from fuser import FusionDefinition, MemoryType, ParallelType
from fuser.core.errors import ScheduleError

pytestmark = pytest.mark.protocol
P = ParallelType

VIEWS = {
    "part": lambda fd, a: fd.ops.slice(a, [1, 2], [4, 100]),
    "rows": lambda fd, a: fd.ops.slice(a, [0, 0], [3, 100]),
    "all": lambda fd, a: fd.ops.slice(a, [0, 0], [5, 7]),
    "every-other": lambda fd, a: fd.ops.slice(a, [0, 0], [100, 100], [2, 1]),
    "crop": lambda fd, a: fd.ops.pad(a, [-1, -2, 0, -1]),
    "grow": lambda fd, a: fd.ops.pad(a, [1, 2, 0, 1]),
    "shift": lambda fd, a: fd.ops.pad(a, [-1, 1, 0, 0]),
    "row": lambda fd, a: fd.ops.squeeze(fd.ops.slice(a, [2, 0], [3, 100]), [0]),
    "permute": lambda fd, a: fd.ops.permute(a, [1, 0]),
    "reshape": lambda fd, a: fd.ops.reshape(a, [35]),
    "reshape-part": lambda fd, a: fd.ops.reshape(fd.ops.slice(a, [0, 0], [4, 100]), [2, 14]),
    "broadcast": lambda fd, a: fd.ops.broadcast_in_dim(a, [5, 3, 7], [0, 2]),
    "cat": lambda fd, a: fd.ops.cat([a, a], 0),
    "sum": lambda fd, a: fd.ops.sum(a, [1]),
    "windows": lambda fd, a: fd.ops.unfold(a, 1, 3),
    "windows-apart": lambda fd, a: fd.ops.unfold(a, 0, 2, 3),
    "sum-of-windows": lambda fd, a: fd.ops.sum(fd.ops.unfold(a, 1, 3), [2]),
    "sum-of-part": lambda fd, a: fd.ops.sum(fd.ops.slice(a, [0, 2], [100, 6]), [1]),
    "part-of-sum": lambda fd, a: fd.ops.slice(fd.ops.sum(a, [1]), [0], [3]),
}
KNOWN_EXTENTS = (
    "row", "reshape", "reshape-part", "broadcast", "part-of-sum", "sum-of-windows",
)  # fmt: skip
BINDINGS = {"loops": (None, None), "grid": (P.grid_x, P.grid_y), "block": (P.block_x, P.block_y)}


def viewed(view: str, shape: tuple[int, int]) -> tuple[FusionDefinition, object, object, object]:
    """Return a definition with an output and another one that reads a view of it, in loops."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=list(shape), contiguity=True)
        a = fd.ops.add(x, 1.0)
        b = fd.ops.mul(VIEWS[view](fd, a), 2.0)
        fd.add_output(b)
        fd.add_output(a)
    b.split(-1, 2)
    return fd, x, a, b


def check(fd: FusionDefinition, data: np.ndarray) -> None:
    fd.validate([data], manual=True, backend="interpret")
    expected = fd.execute([data], backend="interpret")
    for got, wanted in zip(run_checked(fd, [data], 1), expected, strict=True):
        np.testing.assert_allclose(got, wanted)


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("view", VIEWS)
def test_an_output_that_is_read_through_a_view(view, binding, rng):
    fd, _, _, b = viewed(view, (5, 7))
    outer, inner = BINDINGS[binding]
    if outer is not None:
        b.axis(0).parallelize(outer)
        b.axis(1).parallelize(inner)
    fd.sched.transform_like(b)
    fd.sched.parallelize_like(b)
    check(fd, rng.standard_normal((5, 7)).astype(np.float32))


@pytest.mark.parametrize("view", [v for v in VIEWS if v not in KNOWN_EXTENTS])
def test_unknown_sizes(view, rng):
    fd, _, _, b = viewed(view, (-1, -1))
    b.axis(0).parallelize(P.grid_x)
    fd.sched.transform_like(b)
    fd.sched.parallelize_like(b)
    check(fd, rng.integers(-9, 10, (5, 7)).astype(np.float32))  # the same sums in any order


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("replayed", [False, True])
def test_reductions_that_are_outputs(view, replayed, rng):
    """A view of a reduction that is an output as well."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[5, 7, 3], contiguity=True)
        a = fd.ops.sum(x, [2])
        b = fd.ops.mul(VIEWS[view](fd, a), 2.0)
        fd.add_output(b)
        fd.add_output(a)
    b.split(0, 2)
    b.axis(0).parallelize(P.block_x)
    fd.sched.bounded_transform_backward(b, propagate_parallel_type=replayed)
    check(fd, rng.standard_normal((5, 7, 3)).astype(np.float32))


@pytest.mark.parametrize("memory", [MemoryType.local, MemoryType.shared])
@pytest.mark.parametrize("view", VIEWS)
def test_a_tile_of_what_is_read_through_a_view(view, memory, rng):
    """Its other reader finds every element, or is told which there are."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[5, 7], contiguity=True)
        b = fd.ops.mul(VIEWS[view](fd, x), 2.0)
        d = fd.ops.add(x, 1.0)
        fd.add_output(b)
        fd.add_output(d)
    tile = x.cache_after()
    tile.set_memory_type(memory)
    fd.sched.transform_like(b, [tile])
    data = rng.standard_normal((5, 7)).astype(np.float32)
    try:
        check(fd, data)
    except ScheduleError as error:
        if "x_cache" not in str(error):
            raise


def test_a_tile_of_a_slice_is_of_its_size(rng):
    """What only the reference reads needs no other elements."""
    with FusionDefinition() as fd:
        x = tensor(fd, 1)
        y = fd.ops.add(fd.ops.slice(x, [2], [1000]), 1.0)
        fd.add_output(y)
    tile = x.cache_after()
    tile.set_memory_type(MemoryType.shared)
    y.split(0, 4)
    y.axis(1).parallelize(P.block_x)
    fd.sched.transform_like(y)
    fd.sched.parallelize_like(y)
    tile.inline_at(y, 1)
    assert [axis.extent for axis in tile.loop_axes] == [axis.extent for axis in y.loop_axes]
    check(fd, rng.standard_normal(11).astype(np.float32))


def test_what_a_second_reader_of_a_slice_misses():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[9], contiguity=True)
        fd.add_output(y := fd.ops.add(fd.ops.slice(x, [0], [4]), 1.0))
        fd.add_output(fd.ops.neg(x))
    tile = x.cache_after()
    tile.set_memory_type(MemoryType.shared)
    fd.sched.transform_like(y, [tile])
    with pytest.raises(ScheduleError, match="x_cache: only the elements that y reads are") as e:
        fd.manual_execute([np.ones(9, np.float32)], backend="interpret")
    assert "schedule it over its own dimensions" in str(e.value)


# ---- clusters ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["parallelize_like", "bounded_transform_backward"])
@pytest.mark.parametrize("kinds", [(P.cluster_x, P.block_x), (P.cluster_y, P.serial)])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_every_block_of_a_cluster_has_the_whole_reduction(how, kinds, op, rng):
    """Blocks of a cluster combine no results: the reduction's axis is not bound to them."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[384], contiguity=True)
        y = fd.ops.add(x, getattr(fd.ops, op)(x, [0], keepdim=True))
        fd.add_output(y)
    y.split(0, 128)
    for axis, kind in zip(y.loop_axes, kinds, strict=True):
        axis.parallelize(kind)
    if how == "parallelize_like":
        fd.sched.transform_like(y)
        fd.sched.parallelize_like(y)
    else:
        fd.sched.bounded_transform_backward(y, propagate_parallel_type=True)
    check(fd, rng.permutation(384).astype(np.float32))
