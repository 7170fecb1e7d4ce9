"""Unroll directives: what they make of loops, and every misuse of them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.core.errors import DefinitionError, ScheduleError
from fuser.core.expr import Const
from fuser.core.unroll import Unroll
from fuser.kir.core import GRID_1, Kernel, walk_stmts
from fuser.kir.scalar import Literal
from fuser.kir.stmts import Assign, DeclareScalar, For, MbarrierArrive, Scoped, WarpReduce
from fuser.passes import unroll_copies
from fuser.passes.outline import OutlineLoops

pytestmark = pytest.mark.unit

P = ParallelType
F32 = DataType.Float


class Sums:
    """``y = sum(exp(x), 1)`` in loops [N blocks, n trips, 12]."""

    def __init__(self, shape=(-1, -1), default_unroll="auto"):
        with FusionDefinition(default_unroll=default_unroll) as self.fd:
            x = self.fd.define_tensor(shape=list(shape), contiguity=True)
            y = self.fd.ops.sum(self.fd.ops.exp(x), [1])
            self.fd.add_output(y)
            y.split(1, 12)
            y.axis(0).parallelize(P.grid_x)
        self.x, self.y = x, y

    def kernel(self, columns=40):
        inputs = [np.ones((2, columns), np.float32)]
        (kernel,) = program_of(self.fd, bind(self.fd, inputs, True), True).kernels
        return kernel

    def loops(self, columns=40):
        """Return each loop as ``depth var trips directive``, outer before inner."""
        return [line for line in _loops(self.kernel(columns).body, 0)]


def _loops(body, depth):
    for stmt in body:
        if isinstance(stmt, For):
            trips = stmt.trip()
            yield f"{depth} {stmt.var} {'n' if trips is None else trips} {stmt.unroll.kind}"
        for nested in stmt.bodies():
            yield from _loops(nested, depth + isinstance(stmt, For))


def accumulations(kernel):
    return sum(type(s).__name__ == "Assign" for s in walk_stmts(kernel.body))


def refused(text, call, *args, **kwargs):
    with pytest.raises(ScheduleError, match=re.escape(text)) as caught:
        call(*args, **kwargs)
    assert caught.value.location is not None, str(caught.value)
    assert Path(caught.value.location.file).name == Path(__file__).name


# ---- what becomes of loops ---------------------------------------------------------------------


def test_without_directives_short_loops_are_unrolled():
    whole = ["1 i1 12 full", "1 i1 12 rolled"]  # unswitched: the last has guards
    assert Sums().loops() == ["0 i0 n rolled", *whole]


def test_the_default_of_a_kernel_is_rolled():
    assert Sums(default_unroll="rolled").loops() == ["0 i0 n rolled", "1 i1 12 rolled"]


def test_rolled():
    f = Sums()
    f.y.axis(2).rolled()
    assert f.loops() == ["0 i0 n rolled", "1 i1 12 rolled"]


def test_full():
    f = Sums(default_unroll="rolled")
    f.y.axis(2).unroll()
    kernel = f.kernel()
    assert f.loops() == ["0 i0 n rolled"]
    assert accumulations(kernel) == 2 * 12, "with guards, and without"
    assert sum(isinstance(s, Scoped) for s in walk_stmts(kernel.body)) == 12 + 1, (
        "the first guard holds"
    )


@pytest.mark.parametrize(
    ("factor", "loops", "copies"),
    [
        (5, ["1 i1_round 2 rolled", "1 i1 2 rolled"], 5 + 1),
        (4, ["1 i1_round 3 rolled"], 4),
        (11, [], 12),
        (12, [], 12),
    ],
)
def test_partial_of_a_constant_extent(factor, loops, copies):
    """One round, or one trip left over, is no loop; nothing left over is nothing."""
    f = Sums((-1, 120))
    f.y.axis(1).rolled()
    f.y.axis(2).unroll(factor)
    assert f.loops(120) == ["0 i0 10 rolled", *loops]
    assert accumulations(f.kernel(120)) == copies


@pytest.mark.parametrize("factor", [2, 3, 7])
def test_partial_of_a_runtime_extent(factor):
    """Main loop and remainder stay rolled; of two copies the remainder is a branch."""
    f = Sums()
    f.y.axis(1).unroll(factor)
    f.y.axis(2).rolled()
    rest = [] if factor == 2 else ["0 i0 n rolled"]
    inner = "1 i1 12 rolled"
    last = ["0 i1 12 rolled"] if factor == 2 else [inner]
    assert f.loops() == ["0 i0_round n rolled", *[inner] * factor, *rest, *last]


def test_innermost_first():
    """Directives of inner loops are in every copy of the outer one."""
    f = Sums((-1, 120))
    f.y.axis(1).unroll()
    f.y.axis(2).unroll(4)
    assert f.loops(120) == ["0 i1_round 3 rolled"] * 10
    assert accumulations(f.kernel(120)) == 10 * 4


def test_directives_remember_their_axis():
    f = Sums()
    f.y.axis(1).unroll(3)
    loops = [s for s in walk_stmts(f.kernel().body) if isinstance(s, For)]
    assert {s.unroll.origin for s in loops if s.var.startswith("i0")} == {"y_acc: axis 1"}
    assert all(s.unroll.kind in ("full", "rolled") for s in loops)


def test_one_trip_is_no_loop():
    """A rolled axis of extent 1 is allowed; there is nothing to roll."""
    f = Sums((-1, 12))
    f.y.axis(1).rolled()
    f.y.axis(2).rolled()
    assert f.loops(12) == ["0 i1 12 rolled"]


def test_indices_of_copies_are_constants():
    f = Sums((-1, 120))
    f.y.axis(1).rolled()
    f.y.axis(2).unroll()
    text = emit(f.kernel(120))
    assert "i1" not in text
    assert "expf(x[at0]);" in text
    assert all(f"expf(x[at0 + {k}]);" in text for k in range(1, 12))


@pytest.mark.parametrize("columns", [1, 11, 12, 13, 59, 60, 61, 132])
@pytest.mark.parametrize(("outer", "inner"), [(2, None), (5, 0), (5, 7), (0, 5)])
def test_numerics(outer, inner, columns, rng):
    """0 stands for rolled, None for all trips."""
    f = Sums()
    for axis, factor in ((1, outer), (2, inner)):
        chosen = f.y.axis(axis)
        chosen.rolled() if factor == 0 else chosen.unroll(factor)
    f.fd.validate(
        [rng.standard_normal((3, columns)).astype(np.float32)], manual=True, backend="interpret"
    )


# ---- many tensors ------------------------------------------------------------------------------


class Pair:
    """``z = exp(x) * 2`` with exp in loops of its own."""

    def __init__(self):
        with FusionDefinition() as self.fd:
            x = self.fd.define_tensor(shape=[-1, 64], contiguity=True)
            y = self.fd.ops.exp(x)
            z = self.fd.ops.mul(y, 2.0)
            self.fd.add_output(z)
            z.split(1, 8)
            z.axis(0).parallelize(P.grid_x)
            self.fd.sched.transform_like(z, [y])
        self.y, self.z = y, z

    def run(self):
        return self.fd.manual_execute([np.ones((3, 64), np.float32)], backend="interpret")


def unrolls(tensor):
    return [d.unroll for d in tensor.schedule.domain.loop]


def test_parallelize_like_copies_directives():
    f = Pair()
    f.z.axis(1).unroll(4)
    f.z.axis(2).rolled()
    f.fd.sched.parallelize_like(f.z)
    assert unrolls(f.y) == [Unroll(), Unroll("partial", 4), Unroll("rolled")]
    f.y.inline_at(f.z)
    f.run()


def test_selected_kinds_copy_only_their_directives():
    f = Pair()
    f.z.axis(1).rolled()
    f.fd.sched.parallelize_like(f.z, selected_parallel_types=[P.grid_x])
    assert unrolls(f.y) == [Unroll()] * 3
    f.fd.sched.parallelize_like(f.z, selected_parallel_types=[P.serial])
    assert unrolls(f.y)[1] == Unroll("rolled")


def test_a_shared_loop_has_the_directive_of_either_tensor():
    f = Pair()
    f.fd.sched.parallelize_like(f.z)
    f.y.inline_at(f.z, 2)
    f.y.axis(1).unroll(4)
    (kernel,) = program_of(f.fd, bind(f.fd, [np.ones((3, 64), np.float32)], True), True).kernels
    loops = list(_loops(kernel.body, 0))
    assert loops == ["0 i0_round 2 rolled", *["1 i1 8 full", "1 i2 8 full"] * 4]


def test_contradicting_directives_on_a_shared_loop():
    f = Pair()
    f.fd.sched.parallelize_like(f.z)
    f.y.inline_at(f.z, 2)
    f.y.axis(1).unroll(4)
    f.z.axis(1).rolled()
    refused(
        "z: axis 1 has the directive rolled(), but it is one loop with axis 1 of y, which has "
        "unroll(4); a loop has one directive: give it to one of the tensors",
        f.run,
    )


# ---- misuse ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (True, "y: unroll: axis 2 by True; an int is needed"),
        (2.0, "y: unroll: axis 2 by 2.0; an int is needed"),
        ("4", "y: unroll: axis 2 by '4'; an int is needed"),
        (1, "y: unroll: axis 2 by 1; rolled() is the directive that keeps a loop"),
        (0, "y: unroll: axis 2 by 0; 2 to 1024 copies are possible"),
        (-4, "y: unroll: axis 2 by -4; 2 to 1024 copies are possible"),
        (1025, "y: unroll: axis 2 by 1025; 2 to 1024 copies are possible"),
        (13, "y: unroll: axis 2 by 13 has extent 12; unroll() repeats all of its trips"),
    ],
)
def test_bad_factors(factor, text):
    refused(text, Sums().y.axis(2).unroll, factor)


def test_a_factor_may_be_of_any_int_kind():
    f = Sums()
    f.y.axis(2).unroll(np.int64(4))
    assert "unroll(4)" in repr(f.fd)
    assert f.fd.hand.entry("y").domain.loop[2].unroll == Unroll("partial", 4)


def test_full_needs_a_constant_extent():
    refused(
        "y: unroll: axis 1 has extent (x_size1 + 11) / 12; a constant is needed: unroll(n), or "
        "split it by a constant",
        Sums().y.axis(1).unroll,
    )
    f = Sums((-1, 12 * 1025))
    refused("y: unroll: axis 1 has extent 1025; at most 1024 copies", f.y.axis(1).unroll)


def test_two_directives():
    f = Sums()
    f.y.axis(2).unroll(4)
    f.y.axis(2).unroll(4)
    refused(
        "y: rolled: axis 2 has the directive unroll(4) already, and this is rolled(); a loop has "
        "one: leave one of them out",
        f.y.axis(2).rolled,
    )
    refused("and this is unroll(); a loop has one", f.y.axis(2).unroll)
    assert f.y.schedule.domain.loop[2].unroll == Unroll("partial", 4)


@pytest.mark.parametrize("kind", [P.grid_y, P.block_x, P.vectorize, P.unroll, P.unswitch])
def test_an_axis_that_is_no_loop_of_its_own(kind):
    f = Pair()
    f.z.split(2, 4)
    f.z.axis(3).parallelize(kind)
    refused(
        f"z: unroll: axis 3 is bound to {kind.name}; only a serial axis is a loop of its own: "
        "parallelize(ParallelType.serial), or take another axis",
        f.z.axis(3).unroll,
    )
    f.z.axis(3).parallelize(P.serial)
    f.z.axis(3).rolled()
    refused(
        f"z: parallelize: axis 3 to {kind.name}, and its directive is rolled(); only a serial "
        "axis is a loop: needed one of the two",
        f.z.axis(3).parallelize,
        kind,
    )


def test_directives_come_after_transforms():
    f = Sums()
    axis = f.y.axis(2)
    f.y.split(2, 4)
    refused(
        "y: rolled: axis 2 was split, merged or left out after it was asked for; needed axis(2) or "
        "axis(3) instead",
        axis.rolled,
    )
    f.y.axis(2).rolled()
    text = "axis 2 has the directive rolled(); transform axes before giving them directives"
    refused(f"y: split: {text}", f.y.split, 2, 2)
    refused(f"y: merge: {text}", f.y.merge, 2)


def row_in_registers(fd):
    """Schedule a softmax whose rows are kept in registers; return their tensor."""
    x = fd.define_tensor(shape=[-1, 64], contiguity=True)
    y = fd.ops.softmax(x, 1)
    fd.add_output(y)
    cache = x.cache_after()
    y.axis(0).parallelize(P.grid_x)
    fd.sched.parallelize_like(y)
    fd.sched.inline_at(y, 1, best_effort=True)
    return cache


@pytest.mark.parametrize("directive", ["rolled", "by 3", "all"])
def test_registers_have_no_addresses(directive):
    """A loop whose index chooses registers must be unrolled completely."""
    with FusionDefinition() as fd:
        cache = row_in_registers(fd)
        axis = cache.axis(1)
        {"rolled": axis.rolled, "by 3": lambda: axis.unroll(3), "all": axis.unroll}[directive]()
    inputs = [np.ones((3, 64), np.float32)]
    if directive == "all":
        fd.validate(inputs, manual=True, backend="interpret")
        return
    refused(
        "cache: axis 1 is a loop in the code and chooses elements of cache, which is in registers; "
        "registers have no addresses: needed unroll()",
        fd.manual_execute, inputs, backend="interpret",
    )  # fmt: skip


def test_copies_have_a_budget(monkeypatch):
    monkeypatch.setattr(unroll_copies, "MAX_STATEMENTS", 100)
    f = Sums((-1, 48))
    f.y.axis(1).unroll()
    f.y.axis(2).unroll()
    refused(
        "y_acc: axis 1 unrolled into 4 copies makes 144 statements; needed at most 100: unroll it "
        "or a loop inside of it less",
        f.kernel,
        48,
    )


def test_the_default_must_be_known():
    with pytest.raises(DefinitionError, match="default_unroll: got 'full'; needed 'auto' or"):
        FusionDefinition(default_unroll="full")


def test_loops_of_pipelines_keep_their_directive():
    """All five loops, and the loops inside of them."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        y = fd.ops.sum(x, [1])
        fd.add_output(y)
        tile = x.cache_after(LoadStoreOpType.cp_async)
        tile.set_memory_type(MemoryType.shared)
        y.split(1, 64)
        y.split(2, 4)
        fd.sched.transform_like(y, [tile])
        y.axis(0).parallelize(P.grid_x)
        fd.sched.parallelize_like(y)
        tile.axis(2).parallelize(P.block_x)
        y.axis(2).parallelize(P.block_x)
        tile.axis(3).parallelize(P.vectorize)
        tile.inline_at(y, 2)
        tile.circular_buffer(3)
        y.axis(1).rolled()
        y.axis(3).rolled()
    inputs = [np.ones((2, 640), np.float32)]
    (kernel,) = program_of(fd, bind(fd, inputs, True), True).kernels
    loops = [s for s in walk_stmts(kernel.body) if isinstance(s, For) and s.unroll.origin]
    assert [(s.label, s.unroll.origin) for s in loops] == [
        ("prologue", "y_acc: axis 1"),
        ("main", "y_acc: axis 1"),
        ("", "y_acc: axis 3"),
        ("epilogue", "y_acc: axis 1"),
        ("", "y_acc: axis 3"),
    ]
    assert {s.unroll.kind for s in loops} == {"rolled"}
    assert all(s.extent != Const(1) for s in loops)


# ---- loops in functions of their own -----------------------------------------------------------


def test_outlined():
    f = Sums((-1, 120))
    f.y.axis(2).rolled()
    f.y.axis(2).outlined()
    text = emit(f.kernel(120))
    assert (
        "__device__ __noinline__ float fusion_i1_0(const float* __restrict__ x, float y_acc, "
        "const idx bx, const idx i0) {\n  #pragma unroll 1\n"
    ) in text
    assert "  return y_acc;\n}\n" in text
    assert "y_acc = fusion_i1_0(x, y_acc, bx, i0);" in text


@pytest.mark.parametrize("columns", [1, 12, 40])
def test_numerics_of_functions(columns, rng):
    """Every copy of an outer loop calls a function of its own."""
    f = Sums()
    f.y.axis(1).unroll(2)
    f.y.axis(2).rolled()
    f.y.axis(2).outlined()
    f.fd.validate(
        [rng.standard_normal((3, columns)).astype(np.float32)], manual=True, backend="interpret"
    )
    assert emit(f.kernel(columns)).count("__noinline__") == 3


def test_unrolled_loops_are_no_functions():
    f = Sums()
    f.y.axis(2).unroll()
    f.y.axis(2).outlined()
    refused(
        "y_acc: axis 2 is outlined and has the directive unroll(); no loop is left of it: needed "
        "rolled(), or an outer axis outlined",
        f.kernel,
    )


@pytest.mark.parametrize(
    ("stmts", "text"),
    [
        (
            (Assign("a", Literal(1.0, F32)), Assign("b", Literal(1.0, F32))),
            "y: axis 0 is outlined and changes a, b; a function returns one scalar: compute them",
        ),
        (
            (WarpReduce("a", "sum", F32),),
            "y: axis 0 is outlined, and its threads meet in it to reduce a; needed a loop that",
        ),
        (
            (MbarrierArrive("full", Const(0)),),
            "y: axis 0 is outlined, and MbarrierArrive in it belongs to a pipeline; needed a loop",
        ),
    ],
)
def test_what_no_function_does(stmts, text):
    loop = For("i", Const(4), stmts, Unroll("rolled"), outlined="y: axis 0")
    scalars = (DeclareScalar(name, F32, Literal(0.0, F32)) for name in "ab")
    kernel = Kernel("k", (), (), GRID_1, GRID_1, "i32", (*scalars, loop))
    with pytest.raises(ScheduleError, match=re.escape(text)):
        OutlineLoops()(kernel)


def test_functions_are_given_no_registers():
    with FusionDefinition() as fd:
        cache = row_in_registers(fd)
        cache.axis(1).outlined()
    refused(
        "cache: axis 1 is outlined and uses cache, which is in registers; they have no addresses "
        "to pass: needed a loop of scalars and memory",
        fd.manual_execute, [np.ones((3, 64), np.float32)], backend="interpret",
    )  # fmt: skip


def test_what_is_outlined_is_a_loop():
    f = Sums()
    refused("y: outlined: axis 0 is bound to grid_x; only a serial axis", f.y.axis(0).outlined)
    f.y.axis(2).outlined()
    refused("and its directive is outlined(); only a", f.y.axis(2).parallelize, P.block_x)
