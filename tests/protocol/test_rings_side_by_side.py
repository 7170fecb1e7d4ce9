"""Two rings in one kernel, one of them with roles: who arrives where, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from rings.choices import staged

from fuser import FusionDefinition, LoadStoreOpType, ParallelType, Pipelined, WarpSpecialized
from fuser.api.execute import bind, program_of
from fuser.core.errors import ScheduleError
from fuser.interp.checked import check_kernel
from fuser.interp.functional import allocate
from fuser.protocol.verdict import check
from fuser.schedule.circular import CircularBufferType

pytestmark = pytest.mark.protocol

P, L = ParallelType, LoadStoreOpType
ROLES = WarpSpecialized(P.block_x)
FORMS = [
    *(Pipelined(sync, war) for sync in ("parity", "token") for war in ("mbarrier", "barrier")),
    ROLES, None,
]  # fmt: skip


def both(
    second: CircularBufferType | None, load: LoadStoreOpType, swap: bool, threads: int = 32,
    first: CircularBufferType = ROLES,
) -> FusionDefinition:  # fmt: skip
    """``2 a`` through a ring with roles and ``3 b`` through another one, or a tile of one stage."""
    with FusionDefinition() as fd:
        a = fd.define_tensor(shape=[-1], contiguity=True)
        b = fd.define_tensor(shape=[-1], contiguity=True)
        y, z = a * 2.0, b * 3.0
        for out in (z, y) if swap else (y, z):
            fd.add_output(out)
    for x, out, kind, how in ((a, y, first, L.tma), (b, z, second, load)):
        cache = staged(x, how)
        for t in (out, cache):
            t.split(0, 128)
        out.split(1, threads)
        out.axis(2).parallelize(P.block_x)
        if how in (L.tma, L.bulk):
            cache.axis(1).parallelize(P.tma)
        else:
            cache.split(1, threads)
            cache.axis(2).parallelize(P.block_x)
        cache.inline_at(out, 1)
        if kind is not None:
            cache.circular_buffer(2, None, kind)
    return fd


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("load", [L.tma, L.bulk, L.cp_async, L.set], ids=lambda load: load.name)
@pytest.mark.parametrize("second", FORMS, ids=str)
def test_all_threads_of_the_block_arrive(second, load, swap):
    """Producers of the first ring run the loop of the second one, so their arrivals count."""
    fd = both(second, load, swap)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-9, 10, n).astype("f4") for n in (900, 1100)]
    wanted = [inputs[1] * 3.0, inputs[0] * 2.0] if swap else [inputs[0] * 2.0, inputs[1] * 3.0]
    for got, want in zip(fd.manual_execute(inputs, backend="interpret"), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    call = bind(fd, inputs, True)
    program = program_of(fd, call, True)
    (kernel,) = program.kernels
    arrays = {name: view.numpy() for name, view in call.views.items()}
    outputs = {buffer.name: allocate(buffer, call.env)[1] for buffer in program.buffers}
    done = check_kernel(kernel, call.env, arrays | outputs, seed=1)
    for name, want in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(done[name], want)


def test_the_checker_agrees():
    fd = both(Pipelined(), L.tma, False)
    x = np.ones(512, np.float32)
    (kernel,) = program_of(fd, bind(fd, [x, x], True), True).kernels
    verdict = check(kernel)
    assert verdict.reach != "wrong", verdict


@pytest.mark.parametrize("second", [Pipelined(), WarpSpecialized(P.block_x, (24, 256))], ids=str)
def test_nothing_is_loaded_behind_registers_handed_over(second):
    fd = both(second, L.tma, False, 128, WarpSpecialized(P.block_x, (24, 256)))
    x = np.ones(512, np.float32)
    text = "loaded by a ring inside the roles of another one, which not all threads of the block"
    with pytest.raises(ScheduleError, match=re.escape(text)):
        fd.manual_execute([x, x], backend="interpret")
