"""What directives make of the schedule: graph, loop domains, positions."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, MemoryType, ParallelType
from fuser.core.errors import ScheduleError
from fuser.schedule.kinds import LoadStoreOpType

pytestmark = pytest.mark.unit

P = ParallelType


def define(shape=(-1, -1), dtype=DataType.Float):
    """Return a row softmax without the exponential: ``y = x - max(x, 1)``."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=list(shape), contiguity=True, dtype=dtype)
        m = fd.ops.max(x, [1])
        y = fd.ops.sub(x, fd.ops.broadcast_in_dim(m, fd.ops.shape(x), [0]))
        fd.add_output(y)
    return fd, x, m, y


def loops(tensor):
    """Return the loop axes as text: extent, r for reductions, parallel type."""
    domain = tensor.fd.hand.entry(tensor.name).domain
    return [
        f"{'r' if d.reduction else ''}{d.extent!r}"
        + ("" if d.parallel is P.serial else f" {d.parallel.name}")
        for d in domain.loop
    ]


def entry(tensor):
    return tensor.fd.hand.entry(tensor.name)


# ---- graph -------------------------------------------------------------------------------------


def test_scheduling_leaves_the_fusion_alone():
    fd, x, m, y = define()
    before, text = fd.fusion.copy(), repr(fd).splitlines()
    x.cache_after()
    y.cache_before()
    m.split(1, 4)
    m.rfactor([1])
    assert fd.fusion == before
    assert repr(fd).splitlines()[: len(text)] == text
    fd.hand.graph.verify()


def test_cache_after_takes_all_uses():
    fd, x, _m, _y = define()
    cache = x.cache_after()
    graph = fd.hand.graph
    assert [(u.name, k) for u, k in graph.uses("x")] == [("x_cache", 0)]
    assert {u.op for u, _ in graph.uses(cache.name)} == {"max", "sub"}
    assert cache.dtype is x.dtype
    assert cache.value.shape == x.value.shape


def test_cache_before_of_an_output_keeps_the_output():
    fd, _, _, y = define()
    cache = y.cache_before()
    graph = fd.hand.graph
    assert [o.value for o in graph.outputs] == ["y"]
    assert graph.value("y").op == "set"
    assert graph.operand_names("y") == (cache.name,)
    assert graph.value(cache.name).op == "sub"
    assert entry(y).memory is MemoryType.global_
    assert entry(cache).memory is MemoryType.local


def test_cache_before_of_a_reduction_moves_its_loops():
    fd, _, m, _ = define()
    m.split(1, 32)
    m.axis(0).parallelize(P.grid_x)
    m.axis(2).parallelize(P.block_x)
    cache = m.cache_before()
    assert loops(cache) == ["x_size0 grid_x", "r(x_size1 + 31) / 32", "r32 block_x"]
    assert loops(m) == ["x_size0 grid_x"]
    assert fd.hand.graph.value("m").op == "set"


def test_caches_take_the_names_of_variables():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = fd.ops.neg(x)
        fd.add_output(y)
        loaded = x.cache_after()
        kept = y.cache_before(LoadStoreOpType.set)
        y.split(0, 4)
    assert (loaded.name, kept.name) == ("loaded", "kept")
    assert {"loaded", "kept", "x", "y"} <= {v.name for v in fd.hand.graph.values}
    assert loops(y) == ["(x_size0 + 3) / 4", "4"]
    assert "loaded" not in fd.fusion


def test_a_variable_cannot_take_the_name_of_a_cache():
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=[-1], contiguity=True)
        y = fd.ops.neg(t)
        fd.add_output(y)
        t.cache_after()
        t0_cache = y  # noqa: F841 -- two variables for one value, and the cache's name
    fd.hand.graph.verify()


def test_rfactor_keeps_loops_in_order():
    fd, _, m, _ = define()
    m.split(1, 4)
    m.split(1, 32)
    m.axis(0).parallelize(P.grid_x)
    m.axis(2).parallelize(P.block_x)
    part = m.rfactor([-1, 1])
    rest = "((x_size1 + 3) / 4 + 31) / 32"
    assert loops(part) == ["x_size0 grid_x", f"r{rest}", "32 block_x", "r4"]
    assert loops(m) == ["x_size0 grid_x", "r32 block_x"]
    assert part.value.dtype is DataType.Float
    fd.hand.graph.verify()


def test_rfactor_accumulates_wide():
    fd, _, m, _ = define(dtype=DataType.Half)
    m.split(1, 4)
    part = m.rfactor([1])
    assert part.value.dtype is DataType.Float
    assert m.value.dtype is DataType.Half
    views = [v for v in fd.hand.graph.values if v.op == "split_dim"]
    assert [v.attrs.fill for v in views] == [float("-inf")]
    assert views[0].dtype is DataType.Float


# ---- propagation -------------------------------------------------------------------------------


def test_transform_like_a_map_reaches_reductions_and_results():
    fd, x, m, y = define()
    cache, tail = x.cache_after(), y.cache_before()
    y.split(1, 128)
    y.axis(0).parallelize(P.grid_x)
    fd.sched.transform_like(y)
    assert loops(m) == ["x_size0", "r(x_size1 + 127) / 128", "r128"]
    assert loops(cache) == loops(tail) == ["x_size0", "(x_size1 + 127) / 128", "128"]


def test_transform_like_a_reduction_reaches_its_result():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        m = fd.ops.max(x, [1])
        y = fd.ops.mul(m, 2.0)
        fd.add_output(y)
    m.split(0, 8)
    m.split(2, 32)
    fd.sched.transform_like(m)
    assert loops(y) == ["(x_size0 + 7) / 8", "8"]


def test_merges_of_kept_and_reduced_stop_at_reductions():
    fd, x, m, y = define()
    cache = x.cache_after()
    y.merge(0, 1)
    fd.sched.transform_like(y)
    assert loops(cache) == ["x_size0 * x_size1"]
    assert loops(m) == ["x_size0", "rx_size1"]


def test_transposed_and_broadcast_producers_follow():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        b = fd.define_tensor(shape=[-1], contiguity=True)
        t = fd.ops.permute(x, [1, 0])
        y = fd.ops.add(t, fd.ops.broadcast_in_dim(b, fd.ops.shape(t), [1]))
        fd.add_output(y)
    x_c, b_c = x.cache_after(), b.cache_after()
    y.split(0, 4)
    fd.sched.transform_like(y)
    assert loops(x_c) == loops(b_c) == loops(y) == ["(x_size1 + 3) / 4", "4", "x_size0"]
    assert [repr(c) for c in entry(x_c).coords] == ["r1", "r0"]
    assert [repr(c) for c in entry(b_c).coords] == ["r1"]
    assert entry(x_c).root_of == "y"


def test_conditional_and_double_reads_stay_as_they_are():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = fd.ops.pad(x, [1, 1])
        z = fd.ops.add(fd.ops.slice(x, [0], [4]), fd.ops.slice(x, [1], [5]))
        fd.add_output(y)
        fd.add_output(z)
    x_c = x.cache_after()
    y.split(0, 4)
    z.split(0, 2)
    for ref in (y, z):
        fd.sched.transform_like(ref, [x_c])
        assert loops(x_c) == ["x_size0"]


def test_selected_tensors_only():
    fd, x, _, y = define()
    one, two = x.cache_after(), y.cache_before()
    y.split(1, 8)
    fd.sched.transform_like(y, [two])
    assert loops(one) == ["x_size0", "x_size1"]
    assert loops(two) == ["x_size0", "(x_size1 + 7) / 8", "8"]


def test_parallelize_like_a_prefix_and_some_kinds():
    fd, x, m, y = define()
    cache = x.cache_after()
    y.split(1, 128)
    fd.sched.transform_like(y)
    y.axis(0).parallelize(P.grid_x)
    y.axis(1).parallelize(P.unroll)
    y.axis(2).parallelize(P.block_x)
    fd.sched.parallelize_like(y, 1)
    assert loops(cache) == ["x_size0 grid_x", "(x_size1 + 127) / 128", "128"]
    fd.sched.parallelize_like(y, selected_parallel_types=[P.block_x])
    assert loops(m) == ["x_size0 grid_x", "r(x_size1 + 127) / 128", "r128 block_x"]


def test_bounded_backward_stops_at_its_bounds():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        a = fd.ops.exp(x)
        b = fd.ops.neg(a)
        y = fd.ops.add(b, 1.0)
        z = fd.ops.sin(y)
        fd.add_output(z)
    x_c, a_c, y_c = x.cache_after(), a.cache_after(), y.cache_after()
    z.split(0, 2)
    y.merge(0, 1)
    y.split(0, 4)
    y.axis(1).parallelize(P.block_x)
    fd.sched.bounded_transform_backward(y, -1, [a_c], propagate_parallel_type=True)
    assert loops(a_c) == ["(x_size0 * x_size1 + 3) / 4", "4 block_x"]
    assert loops(x_c) == ["x_size0", "x_size1"]
    assert loops(y_c) == ["x_size0", "x_size1"]
    fd.sched.bounded_transform_backward(z, 1)
    assert loops(x_c) == ["(x_size0 + 1) / 2", "2", "x_size1"]


# ---- positions ---------------------------------------------------------------------------------


def test_inline_most_stops_at_reductions_and_vectors():
    fd, x, m, y = define((-1, 512))
    cache, tail = x.cache_after(), y.cache_before()
    y.split(1, 4)
    fd.sched.transform_like(y)
    cache.axis(-1).parallelize(P.vectorize)
    y.axis(-1).parallelize(P.vectorize)
    fd.sched.inline_most()
    assert entry(m).position == 1
    assert entry(cache).position == 1
    assert entry(tail).position == 2


def test_inline_most_needs_equal_binding():
    fd, _x, _, y = define()
    tail = y.cache_before()
    fd.sched.inline_most()
    assert entry(tail).position == 2
    y.axis(1).parallelize(P.block_x)
    fd.sched.inline_most()
    assert entry(tail).position == 1
    y.axis(0).parallelize(P.grid_x)
    fd.sched.inline_most()
    assert entry(tail).position == 0
    fd.sched.parallelize_like(y)
    fd.sched.inline_most()
    assert entry(tail).position == 2


def test_inline_at_some_position_of_a_reference():
    fd, x, m, y = define()
    cache = x.cache_after()
    fd.sched.inline_at(y, 1)
    assert [entry(t).position for t in (cache, m)] == [1, 1]
    fd.sched.inline_at(y, 2, best_effort=True)
    assert [entry(t).position for t in (cache, m)] == [1, 1]


def test_a_refused_position_changes_nothing():
    _fd, _, m, y = define()
    m.inline_at(y, 1)
    with pytest.raises(Exception, match="at most 1 is possible"):
        m.inline_at(y, 2)
    assert entry(m).position == 1


def test_expressions_that_are_inlined_everywhere_have_no_memory():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        t = fd.ops.exp(x)
        y = fd.ops.add(t, 1.0)
        fd.add_output(y)
    t.inline_at(y)
    assert set(fd.hand.complete().without_inlined().tensors) == {"y"}
    x_ = np.arange(5, dtype=np.float32)
    fd.validate([x_], manual=True, backend="interpret")


def test_outputs_in_every_role():
    """An output that is used, a reduction that is used, an input, and one output twice."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.neg(x)
        s = fd.ops.sum(y, [1])
        z = fd.ops.sub(y, fd.ops.broadcast_in_dim(s, fd.ops.shape(x), [0]))
        for t in (y, s, z, x, z):
            fd.add_output(t)
    y.split(1, 3)
    z.axis(0).parallelize(P.grid_x)
    s.axis(0).parallelize(P.grid_x)
    s.inline_at(z, 1)
    data = np.arange(35, dtype=np.float32).reshape(5, 7)
    outputs = fd.validate([data], manual=True, backend="interpret")
    np.testing.assert_array_equal(outputs[3], data)
    np.testing.assert_array_equal(outputs[2], outputs[4])


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_empty_tensors(shape):
    fd, *_, y = define()
    y.split(1, 4)
    (out,) = fd.manual_execute([np.empty(shape, np.float32)], backend="interpret")
    assert out.shape == shape


def test_zero_dimensional():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[], contiguity=[])
        y = fd.ops.exp(x)
        fd.add_output(y)
    x.cache_after()
    fd.validate([np.float32(1.5).reshape(())], manual=True, backend="interpret")


def test_aliased_output():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = fd.ops.add(x, 1.0)
        fd.add_output(y, x)
    y.split(0, 32)
    y.axis(1).parallelize(P.block_x)
    data = np.arange(50, dtype=np.float32)
    assert fd.manual_execute([data], backend="interpret") == []
    np.testing.assert_array_equal(data, np.arange(50) + 1)


def test_sizes_that_must_agree_have_one_name():
    with FusionDefinition() as fd:
        a = fd.define_tensor(shape=[-1, -1], contiguity=True)
        b = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.add(fd.ops.exp(a), fd.ops.exp(b))
        fd.add_output(y)
    b_c = b.cache_after()
    y.merge(0, 1)
    fd.sched.transform_like(y)
    fd.sched.inline_most()
    assert loops(b_c) == loops(y)
    assert entry(b_c).position == 1


def test_scalars_reach_the_kernel():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        k = fd.define_scalar(DataType.Double)
        y = fd.ops.mul(x, k)
        fd.add_output(y)
    y.split(0, 8)
    y.axis(1).parallelize(P.block_x)
    fd.validate([np.arange(19, dtype=np.float32), 2.5], manual=True, backend="interpret")


def test_automatic_and_manual_programs_live_side_by_side():
    fd, _x, m, y = define()
    data = np.arange(30, dtype=np.float32).reshape(5, 6)
    m.axis(0).parallelize(P.block_x)
    y.axis(0).parallelize(P.block_x)
    m.inline_at(y, 1)
    by_hand = fd.manual_execute([data], backend="interpret")
    automatic = fd.execute([data], backend="interpret")
    np.testing.assert_array_equal(by_hand[0], automatic[0])


def test_refused_directives_leave_no_trace():
    """Not even the loops that a first directive gives to an expression."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        a = fd.ops.exp(x)
        y = fd.ops.sum(a, [0, 1])
        fd.add_output(y)
    y.reorder({0: 1})
    y.merge(0, 1)
    y.split(0, 4)
    size = len(fd.hand.graph)
    for refused in (
        lambda: a.split(7, 2),
        lambda: a.set_memory_type(MemoryType.global_),
        lambda: a.inline_at(y, 9),
        lambda: a.axis(0).parallelize(P.vectorize),
        lambda: y.rfactor([0]),
        lambda: fd.sched.transform_like(a, [x]),
    ):
        with pytest.raises(ScheduleError):
            refused()
    assert len(fd.hand.graph) == size
    assert set(fd.hand.tensors) == {"y"}
    fd.validate([np.arange(15, dtype=np.float32).reshape(3, 5)], manual=True, backend="interpret")


def test_looking_gives_no_loops():
    fd, x, m, y = define()
    e = x.cache_after()
    assert [axis.extent for axis in e.loop_axes] == ["x_size0", "x_size1"]
    assert m.schedule.position == 0
    fd.sched.transform_like(m)
    assert set(fd.hand.tensors) == {"x_cache", "y"}
    assert y.loop_axes[0].extent == "x_size0"
