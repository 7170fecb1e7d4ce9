"""One guard for all trips of a loop: true exactly where the guard holds in every one of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fuser import FusionDefinition, ParallelType
from fuser.api.execute import bind, program_of
from fuser.cli.main import main
from fuser.core.dtypes import DataType
from fuser.core.expr import Const, Var, all_of, evaluate, less, less_equal
from fuser.core.simplify import Facts
from fuser.kir.core import Kernel
from fuser.kir.scalar import Literal
from fuser.kir.stmts import For, If, Store
from fuser.passes.unswitch import Unswitch

pytestmark = pytest.mark.unit

THREADS = 5
OUTER = 3


def unswitched(loop):
    """Return what the pass makes of a loop inside ``for o in [0, OUTER)`` of THREADS threads."""
    kernel = Kernel(
        "k", (), (), (Const(1),) * 3, (Const(THREADS), Const(1), Const(1)), "i32",
        (For("o", Const(OUTER), (loop,)),),
    )  # fmt: skip
    (outer,) = Unswitch(Facts())(kernel).body
    assert isinstance(outer, For)
    return outer.body[0]


def test_the_guard_of_loops_from_anywhere_by_any_step(rng):
    """Against all trips of all threads, one by one: neither too weak nor too strong."""
    store = Store("y", Var("i"), Literal(1.0, DataType.Float))
    switched = bare = kept = 0
    for _ in range(600):
        start, trips, step = (int(rng.integers(*r)) for r in ((0, 5), (2, 5), (1, 4)))
        extent = start + (trips - 1) * step + 1 + int(rng.integers(step))
        indices = range(start, extent, step)
        terms = []
        for _ in range(int(rng.integers(1, 3))):
            a, b, c = (int(rng.integers(-3, 4)) for _ in range(3))
            index = Var("i") * a + Var("tx") * b + Var("o") * c
            limit = Const(int(rng.integers(-12, 25)))
            terms.append(less(index, limit) if rng.integers(2) else less_equal(limit, index))
        guard = all_of(*terms)
        if isinstance(guard, Const):
            continue
        loop = For("i", Const(extent), (If(guard, (store,)),), start=Const(start), step=Const(step))
        made = unswitched(loop)
        held = [
            all(evaluate(guard, {"i": i, "tx": t, "o": o}) for i in indices)
            for t in range(THREADS) for o in range(OUTER)
        ]  # fmt: skip
        if isinstance(made, If):
            assert [
                bool(evaluate(made.cond, {"tx": t, "o": o}))
                for t in range(THREADS) for o in range(OUTER)
            ] == held, (loop, made.cond)  # fmt: skip
            assert made.body == (For("i", Const(extent), (store,), loop.unroll, Const(start),
                                     Const(step)),)  # fmt: skip
            assert isinstance(made.orelse[0], For)
            assert made.orelse[0].body == loop.body
            switched += 1
        elif made.body == (store,):
            assert all(held), loop
            bare += 1
        else:
            assert made == loop
            assert not any(held), loop
            kept += 1
    assert min(switched, bare, kept) > 20, (switched, bare, kept)


# ---- rings in registers whose last tile is cut short -------------------------------------------


def streamed(columns, tile, stages, prefetch, op, position):
    """Return a fusion that loads rows ahead into registers, and what it shall give."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, columns], contiguity=True)
        y = fd.ops.sum(x, [1]) if op == "sum" else x * 2.0
        fd.add_output(y)
    t = x.cache_after()
    for q in (y, t):
        q.split(1, tile)
        if position == 3:
            q.split(1, 2)
        q.axis(position).parallelize(ParallelType.block_x)
    t.inline_at(y, position)
    t.circular_buffer(stages, prefetch)
    return fd


@pytest.mark.parametrize("op", ["sum", "double"])
@pytest.mark.parametrize("position", [2, 3])
@pytest.mark.parametrize("columns", [1, 15, 16, 17, 47, 63, 65, 100])
def test_a_ring_with_a_tail(columns, position, op, rng):
    """Every prefetch makes another epilogue, which starts at another trip."""
    a = rng.integers(-9, 10, (2, columns)).astype("f4")
    expected = a.astype("f8").sum(1) if op == "sum" else a.astype("f8") * 2
    for stages, prefetch in ((2, 1), (3, 2), (4, 2), (5, 4)):
        fd = streamed(columns, 16, stages, prefetch, op, position)
        out = np.full(expected.shape, np.nan, "f4")
        (got,) = fd.manual_execute([a], backend="interpret", out=[out])
        np.testing.assert_array_equal(got, expected, err_msg=f"{stages} slots, {prefetch} ahead")


def test_the_guard_of_an_epilogue_is_about_its_last_trip():
    fd = streamed(200, 64, 3, 2, "double", 2)
    call = bind(fd, [np.ones((2, 200), "f4")], True)
    (kernel,) = program_of(fd, call, True).kernels
    text = repr(kernel.body)
    assert "tx + 192 < 200" in text
    assert "tx + 64 < 200" not in text


SCRIPT = """
import numpy as np
from fuser import FusionDefinition, ParallelType
with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[-1, 200], contiguity=True)
    y = x * 2.0
    fd.add_output(y)
t = x.cache_after()
for q in (y, t):
    q.split(1, 64)
    q.axis(2).parallelize(ParallelType.block_x)
t.inline_at(y, 2)
t.circular_buffer(3)
fd.manual_execute([np.ones((2, 200), "f4")], backend="interpret")
"""


def test_check_says_that_registers_have_no_protocol(tmp_path, capsys):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    assert main(["check", str(file)]) == 0
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert (
        "x_cache (3 slots): in registers, which one thread alone writes and reads; no protocol to "
        "check"
    ) in out
    assert "has no pipeline" not in out
