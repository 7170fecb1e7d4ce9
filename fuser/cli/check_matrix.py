"""``check --matrix``: every form of pipeline proved and explored, and every mutant caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from fuser.api.definition import FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.cli import harmless, pipelines, show
from fuser.cli.harmless import Harmless
from fuser.cli.workers import interrupts_held, worker_pool
from fuser.kir.core import Kernel
from fuser.protocol.explore import explore
from fuser.protocol.model import analyse, exact_model
from fuser.protocol.mutants import Mutant, mutants
from fuser.protocol.verdict import (
    FEW_OUTER_TRIPS,
    FEW_TRIPS,
    LAST_TILE_CUT,
    check,
    explore_few,
    prove,
)
from fuser.schedule.circular import CircularBufferType, Pipelined, WarpSpecialized
from fuser.schedule.kinds import LoadStoreOpType, ParallelType

Build: TypeAlias = Callable[
    [LoadStoreOpType, int, int | None, CircularBufferType], FusionDefinition
]
LOAD = LoadStoreOpType
FORMS = tuple(
    Pipelined(sync, war) for sync in ("parity", "token") for war in ("mbarrier", "barrier")
)
SPECIAL = WarpSpecialized()
MOST_STAGES = 8
EXPLORED_STAGES = 4
"""Up to so many stages every interleaving of few trips is explored."""
FEWER_STAGES = 3
"""The same where one more takes minutes; and so many where the proof for every number of trips is
also by all interleavings."""
FITTING_STAGES = 7
"""Of 32 KB each: eight have no room in shared memory."""
MUTATED = ((2, 1), (3, 2))
"""Stages and prefetch distance of the kernels that mutants are made of."""


@dataclass(frozen=True, slots=True)
class Family:
    """Pipelines that differ in stages and prefetch distance only.

    Attributes
    ----------
    shapes, dtype
        Of the inputs; without `shapes` all `tensors` have `shape`.
    explored, every_run
        Up to how many stages all interleavings are explored, of few trips; of any number of them.
    stages
        The most that are proved.
    harmless
        Mutants that are right: another statement says what they leave out.
    """

    name: str
    build: Build
    load: LoadStoreOpType
    form: CircularBufferType
    explored: int = EXPLORED_STAGES
    every_run: int = FEWER_STAGES
    every_prefetch: bool = True
    rank: int = 1
    tensors: int = 1
    groups: int = 1
    stages: int = MOST_STAGES
    shape: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = "f4"
    harmless: tuple[Harmless, ...] = ()

    def configurations(self) -> Iterator[tuple[int, int]]:
        """Yield stages and prefetch distance."""
        for stages in range(self.groups, self.stages + 1, self.groups):
            for prefetch in range(0 if self.every_prefetch else stages - 1, stages):
                yield stages, prefetch

    def kernel(self, stages: int, prefetch: int) -> Kernel:
        """Return the kernel of one configuration."""
        fd = self.build(self.load, stages, prefetch, self.form)
        shapes = self.shapes or (self.shape or (512,) * self.rank,) * self.tensors
        inputs: list[Any] = [np.zeros(shape, self.dtype) for shape in shapes]
        (kernel,) = program_of(fd, bind(fd, inputs, True), True).kernels
        return kernel


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one configuration.

    Attributes
    ----------
    mutants, caught
        Those that must be caught, and those that are.
    harmless
        Those that are listed as right and shown to be.
    faults
        What is not as it must be, in words.
    """

    ok: bool
    states: int
    mutants: int
    caught: int
    harmless: tuple[Harmless, ...] = ()
    faults: tuple[str, ...] = ()


def families() -> tuple[Family, ...]:
    """Return all families."""
    found = list[Family]()
    for form in FORMS:
        name = f"pipelined, {form.sync}, war {form.war}"
        for load in (LOAD.bulk, LOAD.tma, LOAD.cp_async, LOAD.set):
            found.append(Family(f"{name}, {load.name}", pipelines.ring_map, load, form))
        for second in (LOAD.tma, LOAD.cp_async, LOAD.set):
            both = partial(pipelines.ring_map, second=second)
            label = f"{name}, bulk and {second.name}"
            found.append(_few(label, both, LOAD.bulk, form, tensors=2))
        found.append(_rows(f"{name}, inside a loop over rows", LOAD.bulk, form))
    return (*found, *_specialized(), *_stores(), *_products(), *_clusters())


def _clusters() -> Iterator[Family]:
    """Clusters of two blocks, one of which loads a tile for both.

    Blocks are of one warp: arrivals of two warps from two blocks are too many interleavings.
    """
    build = partial(pipelines.ring_multicast, threads=32)
    forms: tuple[CircularBufferType, ...] = (*FORMS, SPECIAL)
    for form in forms:
        name, stages = "warp-specialised", FEWER_STAGES
        if isinstance(form, Pipelined):
            name, stages = f"pipelined, {form.sync}, war {form.war}", MOST_STAGES
        yield Family(
            f"multicast to two blocks, {name}", build, LOAD.tma, form, 2, 2,
            every_prefetch=form is not SPECIAL, shapes=((2, 512), (512,)),
            harmless=harmless.of_clusters(form), stages=stages,
        )  # fmt: skip


def _stores() -> Iterator[Family]:
    forms: tuple[CircularBufferType, ...] = (*FORMS, SPECIAL)
    for form in forms:
        name = "specialised"
        if isinstance(form, Pipelined):
            name = f"{form.sync}, war {form.war}"
        for load in (LOAD.tma, LOAD.bulk):
            yield Family(
                f"stores out of tiles, {name}, {load.name}", pipelines.ring_store, load, form,
                FEWER_STAGES, every_prefetch=form is not SPECIAL,
                harmless=harmless.of_stores_out_of_tiles(form),
            )  # fmt: skip
            yield Family(
                f"stores out of the ring, {name}, {load.name}", pipelines.ring_copy, load, form,
                FEWER_STAGES, every_prefetch=form is not SPECIAL,
            )  # fmt: skip


def _products() -> Iterator[Family]:
    """Rings whose stages matrix products read until their group has been waited for."""
    build, load = pipelines.ring_products, LOAD.tma
    one = partial(Family, load=load, shapes=((64, 512), (64, 512)), dtype="f2")
    two = partial(Family, load=load, shapes=((128, 512), (64, 512)), dtype="f2")
    for form in FORMS:
        name = f"products, pipelined, {form.sync}, war {form.war}"
        listed = harmless.of_products(form)
        yield one(name, build, form=form, harmless=listed)
    piped, special = Pipelined(war="mbarrier"), WarpSpecialized(ParallelType.block_y)
    groups, rows = partial(build, groups=2), partial(build, outer=True)
    yield two(
        "products, pipelined, two warp groups", groups, form=piped, explored=FEWER_STAGES,
        every_prefetch=False, harmless=harmless.of_products(piped), stages=FITTING_STAGES,
    )  # fmt: skip
    yield one(
        "products, pipelined, inside a loop over rows", rows, form=piped, explored=FEWER_STAGES,
        every_prefetch=False, rank=2, harmless=harmless.of_products(piped, "i1 in i0"),
    )  # fmt: skip
    yield one(
        "products, warp-specialised", build, form=SPECIAL,
        every_prefetch=False, harmless=harmless.of_products(SPECIAL),
    )  # fmt: skip
    yield two(
        "products, warp-specialised, two warp groups", groups, form=special, explored=FEWER_STAGES,
        every_prefetch=False, harmless=harmless.of_products(special), stages=FITTING_STAGES,
    )  # fmt: skip
    yield one(
        "products, warp-specialised, stages carried over rows", rows, form=SPECIAL, explored=2,
        every_run=2, every_prefetch=False, rank=2,
        harmless=harmless.of_products(SPECIAL, "i1 in i0", ends=False),
    )  # fmt: skip


def _specialized() -> Iterator[Family]:
    name = "warp-specialised"
    family = partial(Family, form=SPECIAL, every_prefetch=False)
    for load in (LOAD.bulk, LOAD.tma):
        yield family(f"{name}, {load.name}", pipelines.ring_map, load)
    both = partial(pipelines.ring_map, second=LOAD.tma)
    yield _few(f"{name}, bulk and tma", both, LOAD.bulk, SPECIAL, tensors=2)
    for load in (LOAD.cp_async, LOAD.set):
        yield _few(f"{name}, {load.name}", pipelines.ring_map, load, SPECIAL)
        both = partial(pipelines.ring_map, second=load)
        yield _few(f"{name}, tma and {load.name}", both, LOAD.tma, SPECIAL, tensors=2)
    wide = partial(pipelines.ring_map, threads=128)
    yield family(f"{name}, four consumer warps", wide, LOAD.bulk)
    yield family(f"{name}, sum", pipelines.ring_sum, LOAD.bulk)
    row = pipelines.ring_persistent
    yield family(f"{name}, reduced in every trip", row, LOAD.bulk, rank=2)
    yield _rows(f"{name}, stages carried over rows", LOAD.tma, SPECIAL)
    yield from _groups()


def _groups() -> Iterator[Family]:
    """Two consumer groups: with stages of their own, and taking turns around loops of trips."""
    for turns in (False, True):
        form = WarpSpecialized(ParallelType.block_y, None, 3, turns)
        name = "two consumer groups" + (", ping-pong" if turns else " with their own stages")
        for trips in (1, 2, 3):
            build = partial(pipelines.ring_groups, trips=trips)
            yield Family(
                f"{name}, rounds of {show.plural(trips, 'trip')}", build, LOAD.tma, form,
                every_prefetch=False, rank=2, groups=1 if turns else 2,
                shape=(512, 16 * trips),
                harmless=harmless.OF_SINGLE_TURNS if turns and trips == 1 else (),
            )  # fmt: skip


def _rows(name: str, load: LoadStoreOpType, form: CircularBufferType) -> Family:
    return Family(name, pipelines.ring_rows, load, form, every_prefetch=False, rank=2)


def _few(
    name: str, build: Build, load: LoadStoreOpType, form: CircularBufferType, tensors: int = 1
) -> Family:
    """Return a family of which four stages have more interleavings than one cares to explore."""
    return Family(name, build, load, form, FEWER_STAGES, every_prefetch=False, tensors=tensors)


def judge(task: tuple[Family, int, int]) -> Result:
    """Prove and explore one configuration, and all its mutants."""
    family, stages, prefetch = task
    kernel = family.kernel(stages, prefetch)
    what = f"S = {stages}, P = {prefetch}"
    verdict = check(kernel)
    ok, states = verdict.reach == "proved", verdict.states
    if stages <= family.explored:
        clean, more = _explored(kernel)
        ok, states = ok and clean, states + more
    if stages <= family.every_run:
        clean, more = _of_every_run(kernel)
        ok, states = ok and clean, states + more
    faults = [] if ok else [f"{what}: {verdict.reach} {verdict.note}"]
    if (stages, prefetch) not in MUTATED:
        return Result(ok, states, 0, 0, faults=tuple(faults))
    made = mutants(kernel)
    listed = [h for h in family.harmless if stages in h.stages]
    for h in listed:
        if not any(h.is_about(m) for m in made):
            faults.append(f"{what}: {h.kind}, {h.where}: listed as harmless, and not made")
    caught, right = 0, list[Harmless]()
    for mutant in made:
        expected = next((h for h in listed if h.is_about(mutant)), None)
        is_wrong, words, more = _verdict_of(mutant, expected)
        states += more
        caught += is_wrong
        if words:
            faults.append(f"{what}: {mutant.kind}, {mutant.where}: {words}")
        elif expected is not None:
            right.append(expected)
    return Result(ok, states, len(made) - len(right), caught, tuple(right), tuple(faults))


def _verdict_of(mutant: Mutant, expected: Harmless | None) -> tuple[bool, str, int]:
    """Return whether a mutant is caught, what is not as it must be, and the states explored.

    One that is listed as harmless must be right for every number of trips by the proof, and for all
    small ones by exploration; any other must be wrong by both.
    """
    found = check(mutant.kernel)
    if found.reach == "wrong" and found.trips:
        words = "" if expected is None else "is wrong, and listed as harmless"
        return True, words, found.states
    if expected is None:
        return False, f"{found.reach} {found.note}", found.states
    analysis = analyse(mutant.kernel)
    assert analysis is not None
    few = explore_few(analysis, "")
    shown = found.reach == "proved" and few.reach == "explored"
    words = "" if shown else f"listed as harmless, and not shown to be: {found.note or few.note}"
    return False, words, found.states + few.states


def _explored(kernel: Kernel) -> tuple[bool, int]:
    """Explore every interleaving of few trips, with the last tile whole and cut short."""
    analysis = analyse(kernel)
    assert analysis is not None
    most = (FEW_OUTER_TRIPS, FEW_TRIPS)[-analysis.levels :]
    clean, states = True, 0
    for trips in product(*(range(n + 1) for n in most)):
        for cut in (0, LAST_TILE_CUT) if all(trips) else (0,):
            outcome = explore(exact_model(analysis, trips, cut))
            clean &= outcome.fault is None and outcome.complete
            states += outcome.states
    return clean, states


def _of_every_run(kernel: Kernel) -> tuple[bool, int]:
    """Prove it by all interleavings, whether they are one run or not."""
    analysis = analyse(kernel)
    assert analysis is not None
    outcome, _ = prove(analysis, one_run=False)
    return outcome.fault is None and outcome.complete, outcome.states


def run_matrix(only: Callable[[Family], bool] = lambda _: True) -> int | None:
    """Judge all configurations, print one line a family, and return the exit status.

    None when no family is chosen.
    """
    out = show.console()
    chosen = [family for family in families() if only(family)]
    if not chosen:
        return None
    every = list[Result]()
    with worker_pool() as pool:
        with interrupts_held():
            pending = [
                [pool.submit(judge, (family, s, p)) for s, p in [*family.configurations()][::-1]]
                for family in chosen
            ]
        for family, futures in zip(chosen, pending, strict=True):
            results = [future.result() for future in futures]
            out.print(_line(family.name, results), markup=False, soft_wrap=True)
            for text in (text for r in results for text in r.faults):
                out.print(f"  {text}", markup=False, soft_wrap=True)
            every += results
    ok, caught = sum(r.ok for r in every), sum(r.caught for r in every)
    made, right = sum(r.mutants for r in every), sum(len(r.harmless) for r in every)
    if right:
        out.print(f"harmless {show.plural(right, 'mutant')}, each of them proved", soft_wrap=True)
    out.print(f"configurations {ok} ok, mutants {caught} caught of {made}", soft_wrap=True)
    return int(any(r.faults for r in every))


def _line(name: str, results: list[Result]) -> str:
    """Return what is printed of a family."""
    good, states = sum(r.ok for r in results), sum(r.states for r in results)
    parts = [f"{name}: {good} of {len(results)} proved for all N"]
    caught, made = sum(r.caught for r in results), sum(r.mutants for r in results)
    if made:
        parts.append(f"mutants {caught} of {made}")
    right = [h for r in results for h in r.harmless]
    if right:
        said_by = "; ".join(dict.fromkeys(h.said_by for h in right))
        verb = "is" if len(right) == 1 else "are"
        parts.append(f"{len(right)} more {verb} harmless (proved): said by {said_by}")
    return ", ".join((*parts, show.plural(states, "state")))
