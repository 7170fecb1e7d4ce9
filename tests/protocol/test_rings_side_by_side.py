"""Two rings in one kernel, one of them with roles: who arrives where, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from side_by_side import FORMS, both

from fuser import LoadStoreOpType, ParallelType, Pipelined
from fuser.api.execute import bind, program_of
from fuser.core.expr import Const
from fuser.interp.checked import check_kernel
from fuser.interp.functional import allocate
from fuser.kir.core import SizeParam
from fuser.kir.stmts import SyncThreads
from fuser.protocol import model
from fuser.protocol.counts import Counting
from fuser.protocol.errors import Unsupported
from fuser.protocol.explore import explore
from fuser.protocol.model import analyse, model_of, open_model
from fuser.protocol.mutants import mutants
from fuser.protocol.verdict import check, prove

pytestmark = pytest.mark.protocol

P, L = ParallelType, LoadStoreOpType


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


# ---- the protocol ------------------------------------------------------------------------------


def kernel_of(second, load):
    fd, x = both(second, load, False), np.ones(512, np.float32)
    (kernel,) = program_of(fd, bind(fd, [x, x], True), True).kernels
    return kernel


@pytest.mark.parametrize(
    ("second", "load"), [
        *((form, L.tma) for form in FORMS), (Pipelined(war="mbarrier"), L.set), (None, L.set),
    ],
    ids=str,
)  # fmt: skip
def test_rings_over_different_sizes_are_proved(second, load):
    """The block meets between them: each is proved for every number of trips of its own."""
    verdict = check(kernel_of(second, load))
    assert (verdict.reach, verdict.note) == ("proved", "")
    assert len(verdict.rings) == 1 + (second is not None or load is L.tma)


def fewest_trips(analysis):
    """Return with how few trips of each size a kernel goes wrong; None: with none of few."""
    for trips in product(range(4), repeat=2):
        sizes = {p.name: Const(64) for p in analysis.kernel.params if isinstance(p, SizeParam)}
        sizes |= {s.name: Const(s.tile * n) for s, n in zip(analysis.sizes, trips, strict=True)}
        exact = Counting((0, True), (0, True))
        if explore(model_of(analysis, sizes, {}, exact, (0,))).fault is not None:
            return trips
    return None


def test_mistakes_in_either_ring_are_found_by_the_proof():
    """And by exploration of every two small numbers of trips."""
    made = mutants(kernel_of(Pipelined("token", "barrier"), L.tma))
    for array in ("a_cache", "b_cache"):
        found = [m for m in made if array in m.where]
        assert len(found) > 10
        for mutant in found[::8]:
            analysis = analyse(mutant.kernel)
            assert prove(analysis)[0].fault is not None, (mutant.kind, mutant.where)
            assert fewest_trips(analysis) is not None, (mutant.kind, mutant.where)


def test_two_sizes_are_not_proved_where_the_block_does_not_meet(monkeypatch):
    """All agents must be at the meeting; else exploration has equal numbers of trips, no more."""
    kernel = kernel_of(Pipelined(war="mbarrier"), L.tma)
    apart = replace(kernel, body=tuple(s for s in kernel.body if not isinstance(s, SyncThreads)))
    assert check(apart).reach == "wrong"
    text = "nested equally deep, and do not lie apart, must have their trips from one size"
    with pytest.raises(Unsupported, match=text):
        prove(analyse(apart))
    nowhere = ((),) * len(open_model(analyse(kernel)).agents)
    monkeypatch.setattr(model, "partings", lambda _: nowhere)
    verdict = check(kernel)
    assert verdict.reach == "unknown"
    assert text in verdict.note
    assert verdict.note.endswith("nothing is wrong with 6 or fewer trips of each of its sizes")
