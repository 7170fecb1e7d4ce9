"""Random directives: whatever is accepted computes exactly what the unscheduled kernel does.

Inputs are small integers, so that sums are exact in any order.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from manual_schedules import run_checked

from fuser import FusionDefinition, MemoryType, ParallelType
from fuser.core.errors import ScheduleError

pytestmark = pytest.mark.protocol

P = ParallelType
KINDS = (P.grid_x, P.grid_y, P.grid_z, P.block_x, P.block_y, P.unroll, P.serial)
SHAPES = ((1, 1), (5, 13), (12, 20), (3, 33))


def scaled(fd, x):
    y = fd.ops.relu(fd.ops.add(x, 1.0))
    return [y, fd.ops.mul(y, 2.0)], [1]


def permuted(fd, x):
    y = fd.ops.neg(x)
    return [y, fd.ops.add(fd.ops.permute(y, [1, 0]), 3.0)], [1]


def row_sum(fd, x):
    s = fd.ops.sum(fd.ops.add(x, 1.0), [1])
    return [s], [0]


def column_max(fd, x):
    m = fd.ops.max(x, [0])
    return [m, fd.ops.add(m, 1.0)], [1]


def total(fd, x):
    return [fd.ops.sum(x, [0, 1])], [0]


def centred(fd, x):
    s = fd.ops.sum(x, [1])
    d = fd.ops.sub(x, fd.ops.broadcast_in_dim(s, fd.ops.shape(x), [0]))
    return [s, d, fd.ops.max(d, [1])], [1, 2]


def padded(fd, x):
    y = fd.ops.pad(x, [1, 2, 0, 1])
    return [y, fd.ops.mul(y, y)], [1]


FUSIONS = (scaled, permuted, row_sum, column_max, total, centred, padded)

axis = st.integers(-1, 4)
tensor = st.integers(0, 7)
directive = st.one_of(
    st.tuples(st.just("split"), tensor, axis, st.sampled_from((2, 3, 4, 8, 32)), st.booleans()),
    st.tuples(st.just("merge"), tensor, st.integers(0, 3)),
    st.tuples(st.just("reorder"), tensor, axis, axis),
    st.tuples(st.just("swizzle"), tensor, axis, axis),
    st.tuples(st.just("bind"), tensor, axis, st.sampled_from(KINDS)),
    st.tuples(st.just("bind"), tensor, axis, st.sampled_from(KINDS)),
    st.tuples(st.just("cache_after"), tensor),
    st.tuples(st.just("cache_before"), tensor),
    st.tuples(st.just("shared"), tensor),
    st.tuples(st.just("allocation"), tensor, st.permutations(range(3))),
    st.tuples(st.just("inline_at"), tensor, tensor, st.integers(0, 4)),
    st.tuples(st.just("rfactor"), tensor, axis),
    st.tuples(st.just("transform_like"), tensor),
    st.tuples(st.just("parallelize_like"), tensor, st.integers(-1, 3)),
    st.tuples(st.just("inline_most")),
)


def apply(fd, tensors, step):  # noqa: C901, PLR0912 -- one row a directive
    """Apply one random directive; a refusal is fine, a crash is not."""
    kind, *rest = step
    t = tensors[rest[0] % len(tensors)] if rest else None
    match kind, rest:
        case "split", [_, at, factor, inner]:
            t.split(at, factor, inner)
        case "merge", [_, at]:
            t.merge(at)
        case "reorder", [_, old, new]:
            t.reorder({old: new})
        case "swizzle", [_, a, b]:
            t.swizzle(a, b)
        case "bind", [_, at, how]:
            t.axis(at).parallelize(how)
        case "cache_after", _:
            tensors.append(t.cache_after())
        case "cache_before", _:
            tensors.append(t.cache_before())
        case "shared", _:
            t.set_memory_type(MemoryType.shared)
        case "allocation", [_, order]:
            t.set_allocation_domain(order)
        case "inline_at", [_, other, position]:
            t.inline_at(tensors[other % len(tensors)], position)
        case "rfactor", [_, at]:
            tensors.append(t.rfactor([at]))
        case "transform_like", _:
            fd.sched.transform_like(t)
        case "parallelize_like", [_, position]:
            fd.sched.parallelize_like(t, position)
        case _:
            fd.sched.inline_most()


def define(fusion, shape):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=list(shape), contiguity=True)
        tensors, outputs = fusion(fd, x)
        for i in outputs:
            fd.add_output(tensors[i])
    return fd, [x, *tensors]


@settings(max_examples=250)
@given(
    st.sampled_from(FUSIONS), st.sampled_from(SHAPES), st.booleans(),
    st.lists(directive, min_size=1, max_size=12), st.booleans(),
)  # fmt: skip
def test_accepted_schedules_are_right(fusion, shape, static, steps, inline):
    fd, tensors = define(fusion, shape if static else (-1, -1))
    applied = 0
    for step in [*steps, *([("inline_most",)] if inline else [])]:
        try:
            apply(fd, tensors, step)
            applied += 1
        except ScheduleError:
            pass
    assume(applied)
    x = np.random.default_rng(len(steps)).integers(-4, 5, shape).astype(np.float32)
    try:
        got = fd.manual_execute([x], backend="interpret")
    except ScheduleError as error:
        event(str(error).partition("; ")[2][:60])
        assume(False)
    event("accepted")
    plain, _ = define(fusion, shape if static else (-1, -1))
    for a, b in zip(got, plain.manual_execute([x], backend="interpret"), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(got, plain.execute([x], backend="interpret"), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(got, run_checked(fd, [x], seed=len(steps)), strict=True):
        np.testing.assert_array_equal(a, b)
