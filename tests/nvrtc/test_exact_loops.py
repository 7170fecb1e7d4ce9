"""``exact_loops``: machine code without second versions of loops around partially unrolled ones."""

from __future__ import annotations

import numpy as np
import pytest
from rings import interpret
from sass_loops import count_loops
from unroll_cases import THREADS, TILE

from fuser import (
    FusionDefinition,
    LoadStoreOpType,
    MemoryType,
    ParallelType,
    Pipelined,
    WarpSpecialized,
)
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.core.errors import DefinitionError
from fuser.kir.core import Kernel, walk_stmts
from fuser.kir.stmts import Let
from fuser.protocol.verdict import check

pytestmark = pytest.mark.nvrtc


def sums(exact: bool, inner: int | None = 4, columns: int = -1) -> FusionDefinition:
    """Sums over planes: rolled loops over rows, in each one over columns."""
    with FusionDefinition(exact_loops=exact) as fd:
        x = fd.define_tensor(shape=[-1, -1, columns], contiguity=True)
        y = fd.ops.sum(x, [1, 2])
        fd.add_output(y)
        y.axis(0).parallelize(ParallelType.grid_x)
        y.axis(1).rolled()
        y.axis(2).rolled() if inner is None else y.axis(2).unroll(inner)
    return fd


def kernel(fd: FusionDefinition, *shape: int) -> Kernel:
    inputs = [np.ones(shape, np.float32)]
    (made,) = program_of(fd, bind(fd, inputs, True), True).kernels
    return made


@pytest.mark.parametrize(
    ("exact", "arch", "loops", "loads"),
    [
        (False, "sm_90a", 5, 6), (False, "sm_120a", 7, 10),
        (True, "sm_80", 3, 5), (True, "sm_90a", 3, 5), (True, "sm_120a", 3, 5),
    ],
)  # fmt: skip
def test_loops_and_loads(exact, arch, loops, loads):
    """One loop around a main loop of four loads and a remainder of one; or versions of it."""
    made = kernel(sums(exact), 3, 5, 9)
    report, marks = count_loops(emit(made), made.name, arch)
    assert (report.rolled_loops, report.loads, marks) == (loops, loads, loops)


def test_the_text():
    source = emit(kernel(sums(True), 3, 5, 9))
    assert "const idx i1_rounds = opaque(x_size2 / 4);\n" in source
    assert "for (idx i1_round = 0; i1_round < i1_rounds; ++i1_round) {" in source
    assert "for (idx i1 = x_size2 / 4 * 4; i1 < x_size2; ++i1) {" in source
    assert "opaque" not in emit(kernel(sums(False), 3, 5, 9))


@pytest.mark.parametrize(
    ("inner", "columns"), [(None, -1), (4, 9)], ids=["no main loop", "constant rounds"]
)
def test_nothing_to_hide(inner, columns):
    assert "opaque" not in emit(kernel(sums(True, inner, columns), 3, 5, 9))


def test_a_loop_inside_of_no_other_has_no_version():
    with FusionDefinition(exact_loops=True) as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
        y.axis(0).parallelize(ParallelType.grid_x)
        y.axis(1).unroll(4)
    assert "opaque" not in emit(kernel(fd, 3, 9))


@pytest.mark.parametrize("columns", [0, 1, 3, 4, 5, 11])
def test_numbers_are_those_of_the_reference(columns, rng):
    inputs = [rng.standard_normal((3, 4, columns)).astype(np.float32)]
    sums(True).validate(inputs, manual=True, backend="interpret")


def ring_in_rounds(kind: Pipelined | WarpSpecialized, exact: bool = True) -> FusionDefinition:
    """A ring whose trips are taken in rounds of three, for one row after the other."""
    with FusionDefinition(exact_loops=exact) as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
        tile = x.cache_after(LoadStoreOpType.tma)
        tile.set_memory_type(MemoryType.shared)
        y.split(1, TILE)
        fd.sched.transform_like(y, [tile])
        y.split(2, THREADS)
        tile.axis(2).parallelize(ParallelType.tma)
        y.axis(3).parallelize(ParallelType.block_x)
        tile.inline_at(y, 2)
        tile.circular_buffer(3, type=kind)
        y.axis(1).unroll(3)
    return fd


@pytest.mark.parametrize(
    "kind", [Pipelined(war="mbarrier"), WarpSpecialized()], ids=["pipelined", "roles"]
)
def test_rings_inside_of_loops(kind):
    """In checked mode, by the proof as without, and in machine code with a mark for each loop."""
    fd = ring_in_rounds(kind)
    x = np.random.default_rng(5).integers(-40, 41, (2, 5 * TILE - 4)).astype("f4")
    interpret.exact(kind, fd, [x], x.sum(1, dtype="f4"), seeds=1)
    made = kernel(fd, *x.shape)
    assert any(isinstance(s, Let) and s.opaque for s in walk_stmts(made.body))
    hidden, seen = (
        check(k, most=100) for k in (made, kernel(ring_in_rounds(kind, False), *x.shape))
    )
    assert (hidden.reach, hidden.states) == (seen.reach, seen.states)
    assert hidden.reach != "wrong"
    report, marks = count_loops(emit(made), made.name)
    assert report.rolled_loops + report.spin_loops == marks


def test_the_option_must_be_a_bool():
    with pytest.raises(DefinitionError, match="exact_loops: got 1; needed True or False"):
        FusionDefinition(exact_loops=1)


def test_repr_has_the_option():
    assert "with FusionDefinition(exact_loops=True) as fd:" in repr(sums(True))
