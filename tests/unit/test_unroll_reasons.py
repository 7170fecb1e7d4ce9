"""Why loops have the directive that they have: the user, registers that are chosen, or neither."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unroll_cases import kernel

from fuser import DataType, FusionDefinition, LoadStoreOpType, ParallelType
from fuser.core.expr import Const, Var
from fuser.core.unroll import Unroll
from fuser.debug import kernel_text
from fuser.kir.core import walk_stmts
from fuser.kir.scalar import Literal
from fuser.kir.stmts import DeclareRegisters, For, Store
from fuser.passes.unroll import ResolveUnroll

pytestmark = pytest.mark.unit

FLOAT = DataType.Float


def reasons(made):
    """Return directive and reason of each loop, by its variable."""
    loops = [s for s in walk_stmts(made.body) if isinstance(s, For)]
    return {s.var: (s.unroll.kind, s.unroll.reason, s.unroll.registers) for s in loops}


def sums(default="auto"):
    """32 sums of a thread: loops over them choose registers; one over columns does not."""
    with FusionDefinition(default_unroll=default) as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
    y.split(0, 32)
    y.reorder({1: 2})
    y.axis(0).parallelize(ParallelType.grid_x)
    y.axis(1).rolled()
    return fd


@pytest.mark.parametrize("default", ["auto", "rolled"])
def test_loops_that_choose_registers_are_required_to_be_full(default):
    made = kernel(sums(default), 70, 40)
    found = reasons(made)
    assert found.pop("i0") == ("rolled", "user", "")
    assert set(found.values()) == {("full", "required", "y_acc")}
    text = kernel_text.to_text(made)
    assert "For var=i0, extent=x_size1, unroll=rolled (y_acc: axis 1)\n" in text
    assert "For var=i1, extent=32, unroll=full (required by registers y_acc)\n" in text


def test_what_the_generator_chooses_is_its_own():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 4], contiguity=True)
        y = fd.ops.exp(x)
        fd.add_output(y)
        y.axis(0).parallelize(ParallelType.grid_x)
    made = kernel(fd, 3, 4)
    assert set(reasons(made).values()) == {("full", "heuristic", "")}
    assert "unroll=full\n" in kernel_text.to_text(made)


def test_slots_of_a_ring_in_registers_are_required():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x * 2.0
        fd.add_output(y)
    tile = x.cache_after(LoadStoreOpType.set)
    y.split(0, 64)
    fd.sched.transform_like(y, [tile])
    y.axis(1).parallelize(ParallelType.block_x)
    tile.axis(1).parallelize(ParallelType.block_x)
    tile.inline_at(y, 1)
    tile.circular_buffer(2)
    found = reasons(kernel(fd, 1000))
    slots = {name: reason for name, reason in found.items() if name.endswith("_slot")}
    assert slots
    assert set(slots.values()) == {("full", "required", "x_cache")}


@pytest.mark.parametrize(("trips", "kind"), [(1024, "full"), (1025, "rolled"), (None, "rolled")])
def test_where_registers_cannot_stay_it_is_said(trips, kind):
    """At most 1024 copies are made."""
    extent = Var("n") if trips is None else Const(trips)
    store = Store("r", Var("i"), Literal(0.0, FLOAT))
    made = kernel(sums(), 70, 40)
    body = (DeclareRegisters("r", FLOAT, trips or 4), For("i", extent, (store,)))
    made = ResolveUnroll("auto")(replace(made, body=body))
    assert reasons(made)["i"] == (kind, "required" if kind == "full" else "heuristic", "r")
    said = "required by registers r" if kind == "full" else "moves r to local memory"
    assert f"unroll={kind} ({said})" in kernel_text.to_text(made)


def test_the_users_directive_is_the_users():
    assert Unroll("full", origin="y: axis 1", registers="r").reason == "user"
    assert Unroll("full", registers="r").reason == "required"
    assert Unroll("full").reason == "heuristic"
