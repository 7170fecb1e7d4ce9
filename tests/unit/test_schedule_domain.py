"""Loop domains: backward and forward are inverse; replay and kept parts keep that."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser.core.errors import ScheduleError
from fuser.core.expr import Const, evaluate
from fuser.core.simplify import Facts
from fuser.schedule.domain import LoopDomain
from fuser.schedule.kinds import ParallelType
from fuser.schedule.replay import kept_part, replay

pytestmark = pytest.mark.unit

step = st.one_of(
    st.tuples(st.just("split"), st.integers(0, 4), st.integers(1, 5), st.booleans()),
    st.tuples(st.just("merge"), st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.just("swizzle"), st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.just("reorder"), st.integers(0, 4), st.integers(0, 4)),
)
extents = st.lists(st.integers(1, 6), min_size=1, max_size=3)


def transformed(domain, steps):
    for kind, *args in steps:
        try:
            match kind, args:
                case "split", [axis, factor, inner]:
                    domain = domain.split(axis, Const(factor), inner)
                case "merge", [a, b]:
                    domain = domain.merge(a, b)
                case "swizzle", [a, b]:
                    domain = domain.swizzle(a, b)
                case _:
                    domain = domain.reorder({args[0]: args[1]})
        except ScheduleError:
            pass
    return domain


def numbers(exprs):
    return tuple(int(evaluate(e, {})) for e in exprs)


def iterations(domain):
    ranges = (range(int(evaluate(d.extent, {}))) for d in domain.loop)
    return itertools.product(*ranges)


def covered(domain):
    """Return root coordinates of every iteration whose guard holds."""
    found = []
    for point in iterations(domain):
        root, guard = domain.backward(tuple(Const(i) for i in point), Facts())
        if int(evaluate(guard, {})):
            found.append(numbers(root))
            assert numbers(domain.forward(root)) == point
    return found


@settings(max_examples=300)
@given(extents, st.lists(step, max_size=6))
def test_every_element_once_and_forward_inverts_backward(shape, steps):
    domain = transformed(LoopDomain.of([Const(n) for n in shape]), steps)
    assert sorted(covered(domain)) == sorted(itertools.product(*(range(n) for n in shape)))


@settings(max_examples=200)
@given(extents, st.lists(step, max_size=6), st.data())
def test_replay_makes_the_same_loops(shape, steps, data):
    source = transformed(LoopDomain.of([Const(n) for n in shape]), steps)
    fresh = LoopDomain.of([Const(n) for n in shape]).root
    axes = data.draw(st.integers(0, len(source.loop)))
    same = replay(source, fresh, {d.id: d.id for d in fresh})
    assert same is not None
    assert [d.extent for d in same.loop] == [d.extent for d in source.loop]
    assert covered(same) == covered(source)
    part = replay(source, fresh, {d.id: d.id for d in fresh}, axes=axes)
    assert part is not None
    assert [d.extent for d in part.loop[:axes]] == [d.extent for d in source.loop[:axes]]
    assert sorted(covered(part)) == sorted(covered(source))


@settings(max_examples=200)
@given(extents, st.integers(0, 2), st.lists(step, max_size=6))
def test_the_kept_part_covers_the_result(shape, reduced, steps):
    reduced %= len(shape)
    domain = transformed(LoopDomain.of([Const(n) for n in shape], (reduced,)), steps)
    kept = kept_part(domain)
    ranges = (range(n) for d, n in enumerate(shape) if d != reduced)
    assert sorted(covered(kept)) == sorted(itertools.product(*ranges))
    assert [d.extent for d in kept.loop] == [d.extent for d in domain.loop if not d.reduction]


def test_replay_onto_a_reduction_refuses_mixed_merges():
    source = LoopDomain.of([Const(4), Const(5)]).merge(0, 1)
    root = LoopDomain.of([Const(4), Const(5)], (1,)).root
    assert replay(source, root, {0: 0, 1: 1}) is None


def test_bound_replay_copies_parallel_types():
    source = LoopDomain.of([Const(8)]).split(0, Const(4)).bind(0, ParallelType.grid_x)
    root = LoopDomain.of([Const(8)]).root
    bound, free = replay(source, root, {0: 0}, bound=True), replay(source, root, {0: 0})
    assert bound is not None
    assert free is not None
    assert [d.parallel.name for d in bound.loop] == ["grid_x", "serial"]
    assert [d.parallel.name for d in free.loop] == ["serial", "serial"]


def test_renaming_sizes_reaches_every_extent():
    domain = LoopDomain.of([Const(8), Const(3)]).split(0, Const(2)).merge(1, 2)
    doubled = domain.map_exprs(lambda e: e * 2)
    assert [d.extent for d in doubled.loop] == [Const(8), Const(12)]
    assert doubled.transforms[0].factor == Const(4)
    assert doubled.transforms[1].inner_extent == Const(6)
