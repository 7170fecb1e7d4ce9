"""Sums whose values have other names than usual, by hand-made schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import FusionDefinition, LoadStoreOpType, MemoryType, ParallelType
from fuser.api.execute import bind, program_of
from fuser.kir.core import Kernel
from fuser.schedule.circular import Pipelined, WarpSpecialized

P, L = ParallelType, LoadStoreOpType


class Sum:
    """``y = sum(e)`` of rows, ``e = exp(x) * b``; values may have other names."""

    def __init__(self, **names: str):
        with FusionDefinition() as fd:
            x, b = (fd.define_tensor(shape=[-1, -1], contiguity=True) for _ in range(2))
            e = fd.ops.mul(fd.ops.exp(x), b)
            y = fd.ops.sum(e, [1])
            fd.add_output(y)
        fd.rename(names)
        self.fd, self.x, self.y = fd, x, y


def automatic(f: Sum) -> None:
    pass


def block_sum(f: Sum) -> None:
    f.y.split(1, 64)
    f.y.axis(2).parallelize(P.block_x)
    f.y.axis(0).parallelize(P.grid_x)


def grid_sum(f: Sum) -> None:
    block_sum(f)
    f.y.axis(1).parallelize(P.grid_y)


def outlined(f: Sum) -> None:
    f.y.split(1, 4)
    f.y.axis(0).parallelize(P.block_x)
    f.y.axis(1).unroll(2)
    f.y.axis(2).rolled()
    f.y.axis(2).outlined()


def register_ring(f: Sum) -> None:
    cache = f.x.cache_after()
    f.y.split(1, 4)
    f.fd.sched.transform_like(f.y, [cache])
    for t in (f.y, cache):
        t.axis(0).parallelize(P.block_x)
    cache.inline_at(f.y, 2)
    cache.circular_buffer(2)


def ring(load: L, kind: Any) -> Callable[[Sum], None]:
    """Return the schedule with a ring of three tiles."""

    def schedule(f: Sum) -> None:
        cache = f.x.cache_after(load)
        cache.set_memory_type(MemoryType.shared)
        f.y.split(1, 128)
        f.fd.sched.transform_like(f.y, [cache])
        f.y.split(2, 64)
        if load in (L.tma, L.bulk):
            cache.axis(2).parallelize(P.tma)
        else:
            cache.split(2, 64)
            cache.axis(3).parallelize(P.block_x)
        f.y.axis(3).parallelize(P.block_x)
        for t in (f.y, cache):
            t.axis(0).parallelize(P.grid_x)
        cache.inline_at(f.y, 2)
        cache.circular_buffer(3, type=kind)

    return schedule


CASES: dict[str, Callable[[Sum], None]] = {
    "automatic": automatic, "block sum": block_sum, "grid sum": grid_sum, "outlined": outlined,
    "register ring": register_ring,
    "ring by threads": ring(L.set, Pipelined("token", "barrier")),
    "ring by cp.async": ring(L.cp_async, Pipelined(war="mbarrier")),
    "ring by bulk": ring(L.bulk, WarpSpecialized()),
    "ring by tma": ring(L.tma, Pipelined(war="mbarrier")),
    "roles by tma": ring(L.tma, WarpSpecialized()),
    "roles by threads": ring(L.set, WarpSpecialized(P.block_x)),
}  # fmt: skip


def build(case: str, **names: str) -> FusionDefinition:
    """Return the scheduled fusion of a case, values called ``x b e y`` renamed."""
    f = Sum(**names)
    CASES[case](f)
    return f.fd


def inputs(rng: np.random.Generator) -> list[Any]:
    """Return arrays whose product is zero or one where ``exp(x)`` is one: sums are exact."""
    return [np.zeros((1, 136), "f4"), rng.integers(0, 9, (1, 136)).astype("f4")]


def lowered(case: str, fd: FusionDefinition) -> Kernel:
    """Return the one kernel."""
    call = bind(fd, inputs(np.random.default_rng(0)))
    (kernel,) = program_of(fd, call, case != "automatic").kernels
    return kernel


def interpret(case: str, fd: FusionDefinition, arrays: list[Any]) -> np.ndarray:
    """Return what the interpreter computes."""
    run = fd.execute if case == "automatic" else fd.manual_execute
    (result,) = run(arrays, backend="interpret")
    return np.asarray(result)
