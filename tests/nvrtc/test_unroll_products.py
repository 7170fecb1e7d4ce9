"""Unroll directives on the K loop of products by tensor cores, in machine code."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from rings.choices import Choices, L, P
from rings.products import product

from fuser import DataType, FusionDefinition, Pipelined, WarpSpecialized
from fuser.api.execute import bind, program_of
from fuser.api.tensor import Tensor
from fuser.codegen.emit import emit
from fuser.core.errors import ScheduleError
from fuser.kir.core import Kernel
from fuser.protocol.verdict import check
from fuser.runtime.cache import CUBINS
from fuser.runtime.sass import disassemble
from fuser.sass import SassReport, nounroll_pragmas, read_sass

pytestmark = pytest.mark.nvrtc

TRIP, STEP = 2, 4
"""The loop over trips of K, and that over the instructions of one, in the product's loop axes."""
STEPS = 4
SETUP = 2
"""Loops that make and invalidate the barriers."""
KINDS = {"pipelined": Pipelined(war="mbarrier"), "roles": WarpSpecialized(P.block_x)}


def ring(kind, *, stages: int = 4, tile: int = 256) -> FusionDefinition:
    return product(Choices((L.tma, L.tma), stages, None, kind, DataType.BFloat16, tile))


def sums_of(fd: FusionDefinition) -> Tensor:
    (name,) = [n for n in fd.hand.materialised() if fd.hand.entry(n).is_product]
    return fd.adopt(name)


def directed(fd: FusionDefinition, trips, steps) -> FusionDefinition:
    sums = sums_of(fd)
    for at, asked in ((TRIP, trips), (STEP, steps)):
        axis = sums.axis(at)
        if asked == "rolled":
            axis.rolled()
        elif asked == "full":
            axis.unroll()
        elif asked is not None:
            axis.unroll(asked)
    return fd


def kernel(fd: FusionDefinition, k: int = 1000) -> Kernel:
    a, b = (np.ones((m, k), DataType.BFloat16.np) for m in (67, 72))
    (made,) = program_of(fd, bind(fd, [a, b], True), True).kernels
    return made


def compiled(made: Kernel) -> tuple[SassReport, int]:
    cubin = CUBINS.get(emit(made), made.name, "sm_90a", on_spill="ignore")
    report = read_sass(disassemble(cubin.image))
    assert not report.local_loads
    assert not report.local_stores
    return report, nounroll_pragmas(cubin.ptx or "")


# A pipelined ring has the products in its main loop and in its epilogue.
COUNTS = [
    # kind, trips, steps, loops over trips and steps, products
    ("roles", "rolled", None, 2, STEPS),
    ("roles", "rolled", "full", 2, STEPS),
    ("roles", "rolled", "rolled", 3, 1),
    ("roles", "rolled", 2, 3, 2),
    ("roles", None, None, 2, STEPS),
    ("roles", 4, None, 4, 5 * STEPS),
    ("roles", 4, "rolled", 9, 5),
    ("pipelined", "rolled", None, 3, 2 * STEPS),
    ("pipelined", "rolled", "rolled", 5, 2),
    ("pipelined", 4, None, 4, 6 * STEPS),
    ("pipelined", 4, "rolled", 10, 6),
]


@pytest.mark.parametrize(("kind", "trips", "steps", "loops", "products"), COUNTS)
def test_loops_and_products_are_what_the_directives_say(kind, trips, steps, loops, products):
    """Prologue (a remainder of 3 trips under unroll(4)), main loop and remainder, epilogue."""
    report, marks = compiled(kernel(directed(ring(KINDS[kind]), trips, steps)))
    assert (report.rolled_loops, report.hgmma) == (SETUP + loops, products)
    assert marks == report.rolled_loops + report.spin_loops


def test_unrolled_by_the_stages_no_stage_follows_from_the_trip():
    text = emit(kernel(directed(ring(KINDS["roles"]), 4, None)))
    main = re.search(r"for \(idx \w*round\w* = 0;.*?\n    }\n", text, re.S)
    assert main is not None
    assert "% 4" not in main.group(0)
    assert main.group(0).count("wgmma_wait<1>") == 4


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("trips", [None, 2])
def test_one_stage(kind, trips):
    """Products are complete before their only stage is given back, by those who issued them."""
    made = kernel(directed(ring(kind, stages=1), trips, None))
    report, marks = compiled(made)
    assert report.hgmma == STEPS * (1 if trips is None else 3)
    assert marks == report.rolled_loops + report.spin_loops
    assert check(made).reach == ("proved" if trips is None else "explored")


def test_copies_of_an_outer_loop_have_the_mark():
    fd = ring(KINDS["roles"], tile=512)
    report, marks = compiled(kernel(directed(fd, 2, "rolled")))
    assert report.hgmma == 3, "two copies of the rolled steps, and one in the remainder"
    assert marks == report.rolled_loops + report.spin_loops


@pytest.mark.parametrize(("copies", "products"), [(32, 128), (33, 132)])
def test_more_products_than_the_compiler_takes_well_are_refused(copies, products):
    fd = directed(ring(KINDS["roles"]), copies, None)
    if products <= 128:
        start = time.perf_counter()
        report, _ = compiled(kernel(fd))
        assert report.hgmma == products + STEPS
        assert time.perf_counter() - start < 60
        return
    with pytest.raises(ScheduleError, match=rf"{copies} copies makes {products} matrix products"):
        kernel(fd)


def test_the_limit_of_products_can_be_raised():
    fd = ring(KINDS["roles"])
    sums = sums_of(fd)
    with pytest.raises(ScheduleError, match="most_products 257; 1 to 256 is needed"):
        sums.axis(TRIP).unroll(33, most_products=257)
    sums.axis(TRIP).unroll(33, most_products=132)
    assert "most_products=132" in repr(fd)
    assert emit(kernel(fd)).count("wgmma_commit();") == 33 + 1
