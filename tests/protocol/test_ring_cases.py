"""Bug reports on rings that hang, overwrite or are mixed up, as behaviours, on the interpreter.

Checked mode reports a deadlock as such, so nothing here can hang. On a GPU the same choices are
cells of `tests/rings`, each in a process with a time limit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rings import interpret
from rings.cells import GROUPED, ROLES, TRIPS, TYPES, Cell, build
from rings.choices import (
    GROUPS,
    Choices,
    L,
    P,
    buffered,
    shared_out,
    staged,
    tensor,
    tiled,
)
from rings.families import single_dim

from fuser import FusionDefinition, WarpSpecialized
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.core.errors import ScheduleError
from fuser.kir.core import Kernel, walk_stmts
from fuser.kir.stmts import BulkLoad, TensorLoad
from fuser.protocol.mutants import mutants
from fuser.protocol.verdict import check
from fuser.runtime import cache
from fuser.schedule.circular import CircularBufferType, Pipelined

pytestmark = [
    pytest.mark.protocol,
    pytest.mark.filterwarnings("ignore::fuser.core.errors.FallbackWarning"),
]

SHARED_BYTES = 232_448
"""What a block of compute capability 9.0 may have."""


def kernel_of(fd: FusionDefinition, *inputs: np.ndarray) -> Kernel:
    (kernel,) = program_of(fd, bind(fd, inputs, True), True).kernels
    return kernel


def cell_of(kind: str, load: L, stages: int) -> Cell:
    """Return a cell of a type, of the family that has it."""
    tile = 512 if kind.endswith("-regs") else 256
    if kind.startswith("pingpong"):
        return Cell("groups_sum", (L.tma,), stages, stages - 1, kind)
    family = "groups_map" if kind in GROUPED else "single_dim"
    return Cell(
        family, (load,), stages, stages - 1, kind, tile=tile if family != "groups_map" else 256
    )


@pytest.mark.parametrize("stages", [1, 2, 3, 6])
@pytest.mark.parametrize("kind", ROLES)
@pytest.mark.parametrize("load", [L.tma, L.bulk])
def test_case_38_roles_with_one_trip(load: L, kind: str, stages: int) -> None:
    cells = [replace(cell_of(kind, load, stages), trips="1", edge=e) for e in ("whole", "cut")]
    for cell in cells:
        if cell.is_legal():
            interpret.check(cell)


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind not in GROUPED])
def test_case_40_fewer_trips_than_stages(kind: str) -> None:
    """Every number of trips below S, of one kernel for all of them."""
    cell = cell_of(kind, L.bulk, 6)
    fd = build(cell.family, cell.choices())
    for trips in range(1, 6):
        for short in (0, 8):
            x = np.arange(trips * cell.tile - short, dtype="f4")
            (y,) = interpret.run_by_hand(fd, [x], seed=trips)
            np.testing.assert_array_equal(y, 2 * x.astype("f8") + 1)


ORDERED = {
    "mbarrier": (Pipelined(war="mbarrier"), "acquire dropped"),
    "barrier": (Pipelined(war="barrier"), "barrier dropped"),
    "roles": (WarpSpecialized(), "acquire dropped"),
}


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("how", ORDERED)
def test_case_42_no_refill_before_the_last_read(how: str, stages: int) -> None:
    """Right as it is, and a race without what orders the last read before the refill."""
    kind, mistake = ORDERED[how]
    kernel = kernel_of(single_dim(Choices((L.bulk,), stages, type=kind)), np.ones(1000, "f4"))
    assert check(kernel).reach == "proved"
    broken = [m for m in mutants(kernel) if m.kind == mistake and "in loop" in m.where]
    assert broken
    for mutant in broken:
        verdict = check(mutant.kernel)
        assert verdict.fault is not None
        assert verdict.fault.kind in ("WAR", "WAW"), verdict.fault.text


def exact_fit(tile: int, threads: int) -> FusionDefinition:
    """``y = x + 1`` in two stages, each of `tile` floats and one mbarrier."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x + 1.0
        fd.add_output(y)
    cache = staged(x, L.set)
    for t in (y, cache):
        t.split(0, tile)
        t.split(1, threads)
        t.axis(2).parallelize(P.block_x)
    cache.inline_at(y, 1)
    cache.circular_buffer(2, type=Pipelined(war="barrier"))
    return fd


def test_case_43_all_of_shared_memory_and_a_float_more() -> None:
    tile = (SHARED_BYTES // 2 - 8) // 4
    x = np.arange(2 * tile + 5, dtype="f4")
    fd = exact_fit(tile, 146)
    assert kernel_of(fd, x).shared_bytes == SHARED_BYTES
    np.testing.assert_array_equal(fd.manual_execute([x], backend="interpret")[0], x + 1)
    with pytest.raises(ScheduleError) as caught:
        exact_fit(tile + 1, 149).manual_execute([x], backend="interpret")
    needed = f"in all {SHARED_BYTES + 8} bytes of shared memory; {SHARED_BYTES} are available"
    assert f"x_cache: circular-buffered with 2 stages of {4 * tile + 4} bytes, {needed}" in str(
        caught.value
    )
    assert str(caught.value).endswith("where 1 stage fits")


def scaled(factor: float, stages: int, prefetch: int, kind: CircularBufferType) -> FusionDefinition:
    """``y = factor x`` by a ring."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        y = x * factor
        fd.add_output(y)
    cache = staged(x, L.bulk)
    y.split(0, 256)
    y.split(1, 64)
    y.axis(2).parallelize(P.block_x)
    cache.split(0, 256)
    cache.axis(1).parallelize(P.tma)
    cache.inline_at(y, 1)
    cache.circular_buffer(stages, prefetch, kind)
    return fd


def test_case_54_what_differs_is_compiled_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants, stages, distances and types that differ in nothing else: a cache entry each."""
    monkeypatch.setattr(cache, "nvrtc_build", lambda: "13.0")
    choices = [
        (factor, stages, prefetch, kind)
        for factor in (2.0, 3.0)
        for stages, prefetch in ((2, 1), (3, 1), (3, 2))
        for kind in (
            Pipelined(war="mbarrier"),
            Pipelined("token", "mbarrier"),
            Pipelined(war="barrier"),
        )
    ]
    x = np.arange(1000, dtype="f4")
    keys: list[str] = []
    for choice in choices * 2:
        fd = scaled(*choice)
        kernel = kernel_of(fd, x)
        keys.append(cache.cubin_key(emit(kernel), kernel.name, "sm_90a", ()))
        np.testing.assert_array_equal(
            fd.manual_execute([x], backend="interpret")[0], x * np.float32(choice[0])
        )
    assert len(set(keys)) == len(choices)
    assert keys[: len(choices)] == keys[len(choices) :]


@pytest.mark.parametrize("load", [L.tma, L.bulk])
def test_case_55_sizes_that_divide_and_then_do_not(load: L) -> None:
    """Each has its program, found again when its sizes come back; TMA is used where it may be."""
    fd = build("pointwise", Choices((load, load), tile=64, threads=32))
    programs = {}
    for columns in (64, 66, 128, 66, 64, 67):
        x, z = np.arange(6.0 * columns, dtype="f4").reshape(2, 3, columns)
        (y,) = interpret.run_by_hand(fd, [x, z])
        np.testing.assert_array_equal(y, 2 * x + z)
        kernel = kernel_of(fd, x, z)
        by_engine = any(isinstance(s, BulkLoad | TensorLoad) for s in walk_stmts(kernel.body))
        assert by_engine is (columns % 4 == 0)
        assert programs.setdefault(columns, kernel) is kernel
    assert programs[64] is programs[128]
    assert len({id(kernel) for kernel in programs.values()}) == 3


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("stages", range(1, 7))
def test_case_62_trips_around_the_stages(stages: int, kind: str) -> None:
    cells = [replace(cell_of(kind, L.tma, stages), trips=trips, edge="whole") for trips in TRIPS]
    if kind.startswith("groups") and stages % GROUPS:
        assert not any(cell.is_legal() for cell in cells)  # stages are dealt out to the groups
        return
    ran = [cell for cell in cells if cell.is_legal()]
    assert len(ran) >= 4
    for cell in ran:
        interpret.check(cell, seeds=1)


@pytest.mark.parametrize("load", [L.tma, L.bulk, L.cp_async, L.set])
@pytest.mark.parametrize("shift", [0, 1, 4])
def test_case_64_tiles_of_memory_that_is_written_over(load: L, shift: int) -> None:
    """``b[...] = a + b`` where `a` and `b` are one array, `shift` elements apart."""
    c = Choices((load,))
    memory = np.arange(2000, dtype="f4")
    n = memory.size - shift
    before = memory.astype("f8")
    with FusionDefinition() as fd:
        a, b = tensor(fd, 1, c.dtype), tensor(fd, 1, c.dtype)
        y = a + b
        fd.add_output(y, alias_input=b)
    cache = staged(a, load)
    shared_out(y, 0, c)
    tiled(cache, 0, load, c)
    buffered(cache, y, 1, c)
    fd.manual_execute([memory[:n], memory[shift:]], backend="interpret")
    np.testing.assert_array_equal(memory[shift:], before[:n] + before[shift:])
    np.testing.assert_array_equal(memory[:shift], before[:shift])
