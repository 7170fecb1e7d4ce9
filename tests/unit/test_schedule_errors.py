"""Every misuse of a directive: what the error says, and that it points at the user's line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.core.errors import DefinitionError, ScheduleError

pytestmark = pytest.mark.unit

P = ParallelType


class Fusion:
    """``z = relu(y)``, ``y = x + 1``, ``s = sum(z, 1)``; outputs z and s."""

    def __init__(self, shape=(-1, -1)):
        with FusionDefinition() as self.fd:
            x = self.fd.define_tensor(shape=list(shape), contiguity=True)
            y = self.fd.ops.add(x, 1.0)
            z = self.fd.ops.relu(y)
            s = self.fd.ops.sum(z, [1])
            self.fd.add_output(z)
            self.fd.add_output(s)
        self.x, self.y, self.z, self.s = x, y, z, s

    def run(self, shape=(8, 12)):
        return self.fd.manual_execute([np.ones(shape, np.float32)], backend="interpret")


def refused(text, call, *args, **kwargs):
    """Check the text of a refusal and that it names this file."""
    with pytest.raises(ScheduleError, match=re.escape(text)) as caught:
        call(*args, **kwargs)
    assert caught.value.location is not None, str(caught.value)
    assert Path(caught.value.location.file).name == Path(__file__).name
    assert str(caught.value).startswith(f"{caught.value.location}: ")


@pytest.fixture
def f():
    return Fusion()


# ---- axes --------------------------------------------------------------------------------------


def test_axis_out_of_range(f):
    refused("z: split: axis 2; the loop domain has 2 axes", f.z.split, 2, 4)
    refused("z: merge: axis 2; the loop domain has 2 axes", f.z.merge, 1)
    refused("z: axis: axis -3; the loop domain has 2 axes", f.z.axis, -3)
    refused("z: reorder: axis 5; the loop domain has 2 axes", f.z.reorder, {0: 5})


NO_AXES = ("0", 0.0, None, [0], True, np.array([0, 1]))


@pytest.mark.parametrize("axis", NO_AXES, ids=repr)
def test_an_axis_that_is_no_int(f, axis):
    for call, what in (
        (lambda: f.z.axis(axis), "axis: axis"),
        (lambda: f.z.split(axis, 4), "split: axis"),
        (lambda: f.z.merge(axis), "merge: axis"),
        (lambda: f.z.reorder({0: axis}), "reorder: axis"),
        (lambda: f.z.swizzle(axis, 1), "swizzle: axis"),
        (lambda: f.s.rfactor([axis]), "rfactor: axis"),
        (lambda: f.y.inline_at(f.z, axis), "inline_at: position"),
    ):
        refused(f"{what} {axis!r}; an int is needed", call)
    refused(f"z: position {axis!r}; an int is needed", f.fd.sched.inline_at, f.z, axis)
    if axis is not None:
        refused(f"z: merge: axis {axis!r}; an int is needed", f.z.merge, 0, axis)


def test_axes_may_be_of_any_int_kind():
    f = Fusion((8, 12))
    f.z.split(np.int64(1), np.int64(4))
    f.z.merge(np.int32(-2), np.uint8(2))
    f.z.reorder({np.int64(0): np.int64(0)})
    f.y.inline_at(f.z, np.int64(1))
    np.testing.assert_array_equal(f.run()[1], np.full(8, 24.0))


def test_arguments_of_the_wrong_kind(f):
    a_list = "a list of axes is needed"
    refused("z: split: inner_split 'no'; True or False is needed", f.z.split, 0, 4, "no")
    refused("z: reorder: got [1, 0]; a dict {old axis: new axis} is needed", f.z.reorder, [1, 0])
    refused(f"s: rfactor: got 1; {a_list}", f.s.rfactor, 1)
    refused(f"y: set_allocation_domain: got '10'; {a_list}", f.y.set_allocation_domain, "10")


@pytest.mark.parametrize("given", ["z", None, 3, [1]], ids=repr)
def test_what_is_no_tensor(f, given):
    text, sched = f"got {given!r}; a tensor is needed", f.fd.sched
    refused(f"y: inline_at: {text}", f.y.inline_at, given, 1)
    refused(f"inline_at: {text}", sched.inline_at, given)
    refused(f"transform_like: {text}", sched.transform_like, f.z, [given])
    refused(f"warp_specialize: {text}", sched.warp_specialize, given, 2)


def test_one_tensor_where_a_list_is_needed(f):
    refused("inline_most: got ", f.fd.sched.inline_most, f.y)
    refused("; a list of tensors is needed", f.fd.sched.parallelize_like, f.z, -1, f.y)


@pytest.mark.parametrize("factor", [0, -3])
def test_factor_too_small(f, factor):
    refused(f"z: split: factor {factor}; at least 1 is needed", f.z.split, 0, factor)


@pytest.mark.parametrize("factor", [2.0, True, "4"])
def test_factor_is_no_int(f, factor):
    refused(f"z: split: axis 0 by {factor!r}; an int is needed", f.z.split, 0, factor)


def test_merge_of_one_axis(f):
    refused("z: merge: axes 1 and -1 are one axis; two are needed", f.z.merge, 1, -1)


def test_merge_of_bound_axes(f):
    f.z.axis(1).parallelize(P.block_x)
    refused("z: merge: axis 1 is bound to block_x; transform axes before parallelizing them",
            f.z.merge, 0, 1)  # fmt: skip
    refused("z: split: axis 1 is bound to block_x", f.z.split, 1, 4)


def test_merge_of_kept_and_reduced(f):
    refused("s: merge: axis 0 is not a reduction and axis 1 is; both must be of one kind",
            f.s.merge, 0, 1)  # fmt: skip


def test_reorder_onto_one_place(f):
    refused("z: reorder: {0: 1, 1: 1}; every axis may appear once on each side",
            f.z.reorder, {0: 1, 1: 1})  # fmt: skip


def test_swizzle(f):
    refused("z: swizzle: axes 0 and 0; two different axes that are kept", f.z.swizzle, 0, 0)
    refused("z: swizzle: axis 1 has extent x_size1; a power of 2 is needed", f.z.swizzle, 0, 1)
    f.z.split(1, 12)
    refused("z: swizzle: axis 2 has extent 12; a power of 2 is needed", f.z.swizzle, 0, 2)
    refused("s: swizzle: axes 0 and 1; two different axes that are kept", f.s.swizzle, 0, 1)


def test_axis_that_is_none_any_more(f):
    outer, inner = f.z.axis(0), f.z.axis(-1)
    text = "was split, merged or left out after it was asked for; needed"
    f.z.split(0, 4)
    refused(f"z: parallelize: axis 0 {text} axis(0) or axis(1) instead",
            outer.parallelize, P.grid_x)  # fmt: skip
    f.z.reorder({0: 2})
    refused(f"z: unroll: axis 0 {text} axis(0) or axis(2) instead", outer.unroll)
    f.z.merge(0, 1)
    refused(f"z: rolled: axis 0 {text} axis(0) or axis(1) instead", outer.rolled)
    refused(f"z: outlined: axis 1 {text} axis(0) instead", inner.outlined)
    f = Fusion((8, 8))
    inner = f.z.axis(1)
    f.z.swizzle(0, 1)
    refused(f"z: rolled: axis 1 {text} axis(1) instead", inner.rolled)


def test_axis_that_was_left_out():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = fd.define_tensor(shape=[-1, 8], contiguity=True)
        z = fd.ops.mul(y, fd.ops.broadcast(x, [False, True]))
        fd.add_output(z)
        tile = x.cache_after()
        fd.sched.transform_like(z, [tile])
    axis = tile.axis(1)
    tile.once(1)
    refused("tile: rolled: axis 1 was split, merged or left out after it was asked for; needed "
            "axis(0) instead", axis.rolled)  # fmt: skip


# ---- binding -----------------------------------------------------------------------------------


def test_one_hardware_axis_twice(f):
    f.z.axis(0).parallelize(P.block_x)
    refused("z: parallelize: axis 1 to block_x, which axis 0 is bound to already",
            f.z.axis(1).parallelize, P.block_x)  # fmt: skip


@pytest.mark.parametrize("kind", [P.mma])
def test_kinds_of_later(f, kind):
    refused(f"z: parallelize: axis 0 to {kind.name}; grid, cluster, block",
            f.z.axis(0).parallelize, kind)  # fmt: skip


def test_vector_extents(f):
    refused("z: parallelize: axis 1 to vectorize has extent x_size1; a constant is needed",
            f.z.axis(1).parallelize, P.vectorize)  # fmt: skip
    f.z.split(1, 3)
    refused("z: parallelize: axis 2 to vectorize is 3 x f32, 12 bytes; 2, 4, 8 or 16 bytes",
            f.z.axis(2).parallelize, P.vectorize)  # fmt: skip
    f.z.split(0, 4)
    refused("z: parallelize: axis 1 to vectorize is not the innermost of 4; reorder it there",
            f.z.axis(1).parallelize, P.vectorize)  # fmt: skip


def vector_copy(shape=(-1, -1), dtype=DataType.Float):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=list(shape), contiguity=False, dtype=dtype)
        y = fd.ops.neg(x)
        fd.add_output(y)
    x_c = x.cache_after()
    y.split(1, 4)
    fd.sched.transform_like(y)
    x_c.axis(2).parallelize(P.vectorize)
    x_c.inline_at(y, 2)
    return fd


def test_vector_of_unaligned_rows():
    fd = vector_copy()
    refused("x_cache: vectorize of axis 2, 4 x f32: index i0 * x_size1 + i1 * 4 of x is no "
            "multiple of 4 for every size; one access of 16 bytes is needed",
            fd.manual_execute, [np.ones((3, 6), np.float32)], backend="interpret")  # fmt: skip


def test_vector_of_strided_elements():
    fd = vector_copy()
    x = np.ones((8, 4), np.float32).T
    refused("x_cache: vectorize of axis 2, 4 x f32: neighbours are not at equal distances in x",
            fd.manual_execute, [x], backend="interpret")  # fmt: skip


def test_vector_of_unaligned_memory():
    fd = vector_copy()
    memory = np.ones(4 * 8 + 1, np.float32)
    x = memory[1:].reshape(4, 8) if memory.ctypes.data % 16 == 0 else memory[:-1].reshape(4, 8)
    refused("x_cache: vectorize of axis 2, 4 x f32: x is aligned to 4 bytes; one access of 16",
            fd.manual_execute, [x], backend="interpret")  # fmt: skip


def test_vector_under_a_condition():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[16], contiguity=True)
        y = fd.ops.pad(x, [8, 0])
        fd.add_output(y)
    y.split(0, 4)
    y.axis(1).parallelize(P.vectorize)
    fd.validate([np.ones(16, np.float32)], manual=True, backend="interpret")
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[16], contiguity=True)
        y = fd.ops.permute(fd.ops.reshape(x, [4, 4]), [1, 0])
        fd.add_output(y)
    y.axis(1).parallelize(P.vectorize)
    refused("y: vectorize of axis 1, 4 x f32: neighbours are 4 apart in x",
            fd.manual_execute, [np.ones(16, np.float32)], backend="interpret")  # fmt: skip


def test_too_many_threads():
    f = Fusion((64, 64))
    f.z.axis(0).parallelize(P.block_x)
    f.z.axis(1).parallelize(P.block_y)
    refused("z_out: blocks have 64 x 64 x 1 threads (axes of z_out); at most 1024 are possible",
            f.run, (64, 64))  # fmt: skip


# ---- memory ------------------------------------------------------------------------------------


def test_memory_types(f):
    refused("z: set_memory_type: shared; an output lives in global memory, cache_before it",
            f.z.set_memory_type, MemoryType.shared)  # fmt: skip
    refused("y: set_memory_type: global; what is no output cannot live in global memory, local",
            f.y.set_memory_type, MemoryType.global_)  # fmt: skip
    refused("y: set_memory_type: tensor memory; this architecture has none",
            f.y.set_memory_type, MemoryType.tensor)  # fmt: skip
    refused("s: set_memory_type: shared; a reduction accumulates in registers",
            f.s.set_memory_type, MemoryType.shared)  # fmt: skip


def test_allocation_domain(f):
    refused("y: set_allocation_domain: [0]; each of the 2 axes once is needed",
            f.y.set_allocation_domain, [0])  # fmt: skip
    refused("z: set_allocation_domain: it is an output; those are row major",
            f.z.set_allocation_domain, [1, 0])  # fmt: skip
    f.y.set_allocation_domain([1, 0])
    refused("y: split: its allocation domain is set; transform axes before set_allocation_domain",
            f.y.split, 0, 4)  # fmt: skip


def test_symbolic_registers(f):
    f.y.split(1, 4)
    refused("y: lives in local memory and axis 0 has extent x_size0; a constant extent is needed",
            f.run)  # fmt: skip


def test_local_read_across_threads():
    f = Fusion((8, 12))
    f.y.axis(1).parallelize(P.block_x)
    f.z.axis(0).parallelize(P.block_x)
    refused("reads the element of y that thread i2 of axis 1 (block_x) computes, but runs in "
            "thread tx; inline y further left or keep it in shared memory", f.run)  # fmt: skip


# ---- new tensors -------------------------------------------------------------------------------


def test_caches(f):
    refused("s: cache_after: nothing reads it; use cache_before for an output", f.s.cache_after)
    refused("x: is an input; needed a computed tensor", f.x.cache_before)
    refused("x: cache_after: load_matrix copies are not generated; set is needed",
            f.x.cache_after, LoadStoreOpType.load_matrix)  # fmt: skip
    refused("z: cache_before: cp_async copies are not generated; set is needed",
            f.z.cache_before, LoadStoreOpType.cp_async)  # fmt: skip
    for kind in (LoadStoreOpType.tma, LoadStoreOpType.bulk):
        refused(f"y: cache_before: {kind.name} copies store outputs, and it is none; set is needed",
                f.y.cache_before, kind)  # fmt: skip


def test_rfactor(f):
    refused("z: rfactor: it is a relu; a reduction is needed", f.z.rfactor, [0])
    refused("s: rfactor: axis 0 is kept; reduction axes are needed", f.s.rfactor, [0])
    refused("s: rfactor: axes [1] of 1 reduction axes; at least one must be given and one be left",
            f.s.rfactor, [1])  # fmt: skip
    refused("s: rfactor: axes [] of 1 reduction axes", f.s.rfactor, [])


def test_rfactor_of_distant_axes():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1, -1], contiguity=True)
        s = fd.ops.sum(x, [0, 2])
        fd.add_output(s)
    s.merge(0, 2)
    s.split(0, 4)
    refused("s: rfactor: it merges reduction axes that are not neighbours in its operand",
            s.rfactor, [0])  # fmt: skip


# ---- positions ---------------------------------------------------------------------------------


def test_positions_out_of_range(f):
    refused("y: inline_at: position 3; the loop domain has 2 axes", f.y.inline_at, f.z, 3)
    refused("z: position 7; the loop domain has 2 axes", f.fd.sched.inline_at, f.z, 7)
    refused("z: inline_at: it is an output; cache_before it", f.z.inline_at, f.s, 1)


def test_inlining_into_a_stranger(f):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        a, b = fd.ops.neg(x), fd.ops.exp(x)
        y = fd.ops.add(fd.ops.relu(a), 1.0)
        fd.add_output(y)
        fd.add_output(b)
    refused("a: inline_at: b does not read it; one of y is needed", a.inline_at, b, 1)


def test_inlining_into_an_expression():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        a = fd.ops.neg(x)
        b = fd.ops.relu(a)
        fd.add_output(fd.ops.add(b, 1.0))
    refused("a: inline_at: b owns no loops; needed an output, a reduction, a cache or",
            a.inline_at, b, 1)  # fmt: skip


def test_mismatched_extents(f):
    f.z.split(0, 4)
    refused("y: computed inside axis 0 of z_out, which has extent (x_size0 + 3) / 4, but its own "
            "axis 0 has extent x_size0; both must be equal",
            f.y.inline_at, f.z, 1)  # fmt: skip


def test_mismatched_binding(f):
    f.z.axis(0).parallelize(P.grid_x)
    refused("y: computed inside axis 0 of z_out, which is grid_x, but its own axis 0 is serial; "
            "both must be bound alike",
            f.y.inline_at, f.z, 1)  # fmt: skip


def test_inside_its_own_reduction():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        m = fd.ops.sum(x, [1])
        y = fd.ops.sub(x, fd.ops.broadcast_in_dim(m, fd.ops.shape(x), [0]))
        fd.add_output(y)
    refused("m: inlined at position 2, inside its own reduction axis 1; at most 1 is possible",
            m.inline_at, y, 2)  # fmt: skip


def test_loops_that_need_each_other():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        e = fd.ops.exp(x)
        m = fd.ops.sum(e, [1])
        y = fd.ops.sub(e, fd.ops.broadcast_in_dim(m, fd.ops.shape(x), [0]))
        fd.add_output(y)
    refused("their loops need each other's results", e.inline_at, y, 2)


# ---- the grid ----------------------------------------------------------------------------------


def grid_softmax(bind_consumer):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        m = fd.ops.max(x, [1])
        y = fd.ops.sub(x, fd.ops.broadcast_in_dim(m, fd.ops.shape(x), [0]))
        fd.add_output(y)
    m.axis(0).parallelize(P.grid_x)
    m.axis(1).parallelize(P.grid_y)
    y.axis(0).parallelize(P.grid_x)
    if bind_consumer:
        y.axis(1).parallelize(P.grid_y)
    m.inline_at(y, 1)
    return fd


def test_a_barrier_of_the_grid():
    fd = grid_softmax(True)
    refused("y: reads m, which is reduced over grid_y, and its axis 1 is bound to grid_y; that "
            "needs a barrier of the whole grid, which one kernel does not have",
            fd.manual_execute, [np.ones((3, 5), np.float32)], backend="interpret")  # fmt: skip
    grid_softmax(False).validate([np.ones((3, 5), np.float32)], manual=True, backend="interpret")


def test_a_grid_reduction_in_a_loop(f):
    f.s.axis(1).parallelize(P.grid_x)
    refused("s_acc: is reduced over grid_x in every iteration of its axis 0, of extent x_size0; "
            "bind all kept axes to blocks and threads",
            f.run)  # fmt: skip


def test_two_grid_reductions_meet():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        a, b = fd.ops.sum(x), fd.ops.max(x)
        y = fd.ops.add(a, b)
        fd.add_output(y)
    a.axis(0).parallelize(P.grid_x)
    b.axis(0).parallelize(P.grid_x)
    refused("y: reads a and b, both reduced over the grid; the results may be in different blocks",
            fd.manual_execute, [np.ones(5, np.float32)], backend="interpret")  # fmt: skip


# ---- tensors and time --------------------------------------------------------------------------


def test_inputs_and_scalars_own_no_loops(f):
    refused("x: is an input; needed a computed tensor, such as its cache", f.x.split, 0, 4)
    refused("x: is an input", f.fd.sched.transform_like, f.x)


def test_bounds_that_are_no_producers(f):
    refused("z: bounded_transform_backward: s in `to`; producers of it are needed",
            f.fd.sched.bounded_transform_backward, f.z, -1, [f.s])  # fmt: skip


def test_tensor_of_another_fusion(f):
    other = Fusion()
    refused("inline_at: z belongs to another FusionDefinition; needed one of this",
            f.y.inline_at, other.z, 1)  # fmt: skip
    refused("transform_like: y belongs to another FusionDefinition",
            f.fd.sched.transform_like, f.z, [other.y])  # fmt: skip
    refused("transform_like: z belongs to another", f.fd.sched.transform_like, other.z)


def test_scheduling_after_execution():
    f = Fusion((8, 12))
    f.run()
    refused("split: the schedule has been executed; directives come before the first "
            "manual_execute", f.z.split, 0, 4)  # fmt: skip
    refused("inline_most: the schedule has been executed", f.fd.sched.inline_most)


def test_defining_after_scheduling():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = fd.ops.neg(x)
        fd.add_output(y)
        y.split(0, 4)
        with pytest.raises(DefinitionError, match="exp: the fusion is being scheduled; define it"):
            fd.ops.exp(y)
        with pytest.raises(DefinitionError, match="add_output: the fusion is being scheduled"):
            fd.add_output(x)


def test_kinds_are_members_of_their_enumeration(f):
    refused("parallelize: got 'block_x'; a ParallelType", f.z.axis(0).parallelize, "block_x")
    cache = f.x.cache_after()
    refused("set_memory_type: got 'shared'; a MemoryType", cache.set_memory_type, "shared")
    refused("parallelize: got None; a ParallelType is needed", cache.axis(0).parallelize, None)
