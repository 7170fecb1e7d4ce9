"""What the checker says of a kernel: proved for every number of trips, explored, or wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, TypeAlias

from fuser.core.expr import Const
from fuser.kir.core import Kernel, Stmt, walk_stmts
from fuser.kir.stmts import BulkLoad, MbarrierArriveExpectTx
from fuser.protocol.errors import Undecided, Unsupported
from fuser.protocol.explore import MOST_STATES, Explored, Fault, GoOn, explore, for_ever
from fuser.protocol.joined import joined
from fuser.protocol.model import (
    MOST_BLOCKS,
    Analysis,
    Model,
    analyse,
    exact_model,
    meets_each_time,
    open_model,
)
from fuser.protocol.model import residues as residues_of
from fuser.protocol.one_run import follow
from fuser.protocol.rings import MOST_LEVELS
from fuser.protocol.sample import sample

Reach: TypeAlias = Literal[
    "proved", "explored", "sampled", "wrong", "unknown", "stopped", "no pipeline"
]

FEW_TRIPS = 6
FEW_OUTER_TRIPS = 3
WALKS = 8
"""Random interleavings of each number of trips, where all are too many."""
LAST_TILE_CUT = 4
"""Elements by which the last tile is short when sizes do not divide."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A kernel's verdict.

    Attributes
    ----------
    reach
        How far it holds.
    states
        Explored in all.
    walks
        Random interleavings of each number of trips, of a verdict that is sampled.
    trips
        Explored up to so many, or with so many it is wrong; none where no exploration was complete.
    model, fault
        What is wrong, in a model with exact trip counts where there is one.
    note
        Why it was not proved; of a kernel without pipeline, which rings need no proof.
    one_run
        Whether it is proved by one run, which all interleavings are (`fuser.protocol.one_run`).
    """

    kernel: str
    reach: Reach
    states: int = 0
    trips: tuple[int, ...] = ()
    rings: tuple[tuple[str, int], ...] = ()
    model: Model | None = None
    fault: Fault | None = None
    note: str = ""
    walks: int = 0
    one_run: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, as far as it reaches."""
        return self.reach in ("proved", "explored", "sampled", "no pipeline")


def check(kernel: Kernel, most: int = MOST_STATES, go_on: GoOn = for_ever) -> Verdict:
    """Prove the pipeline of a kernel for every number of trips, or find what is wrong with it.

    Where the proof has no rule for something, all small numbers of trips are explored instead.

    Parameters
    ----------
    most
        States of one exploration; a proof that takes more is given up for small numbers of trips.
    go_on
        Told now and then how many states have been explored; no more are, where it says no.
    """
    try:
        analysis = analyse(kernel)
        if analysis is None:
            return Verdict(kernel.name, "no pipeline", note=in_registers(kernel))
        if analysis.levels > MOST_LEVELS:
            analysis = joined(analysis) or analysis
    except Unsupported as reason:
        return Verdict(kernel.name, "unknown", note=str(reason))
    rings = tuple((ring.name, ring.stages) for ring in analysis.rings.values())
    try:
        outcome, model = prove(analysis, most, go_on)
    except (Unsupported, Undecided) as reason:
        return explore_few(analysis, str(reason), most, go_on)
    if outcome.fault is not None:
        return story_of(analysis, outcome, model, most, go_on)
    if outcome.stopped:
        note = "time was up before all states of the proof were explored"
        return Verdict(kernel.name, "stopped", outcome.states, rings=rings, note=note)
    if not outcome.complete:
        return explore_few(analysis, f"more than {most} states", most, go_on)
    return _cut_short(analysis, outcome.states, most, go_on) or Verdict(
        kernel.name, "proved", outcome.states, rings=rings, one_run=outcome.one_run
    )


def _cut_short(analysis: Analysis, states: int, most: int, go_on: GoOn) -> Verdict | None:
    """Return what is wrong where a tile that the proof took as whole ends before.

    Sizes of copies that follow the tensor's are looked at with a last tile that is cut short in
    each of its halves, filled ahead of the loop and inside of it: they matter in no other trip.
    """
    if not any(_is_cut(s) for s in walk_stmts(analysis.kernel.body)) or not analysis.sizes:
        return None
    rings = tuple((ring.name, ring.stages) for ring in analysis.rings.values())
    level, tile = max((size.level, size.tile) for size in analysis.sizes)
    cuts = {cut for cut in (LAST_TILE_CUT, tile // 2 + LAST_TILE_CUT, tile // 2) if 0 < cut < tile}
    many = max(ring.stages for ring in analysis.rings.values()) + 1
    for last, cut in product((1, many), sorted(cuts)):
        trips = tuple(last if at == level else 1 for at in range(analysis.levels))
        try:
            model = exact_model(analysis, trips, cut)
            outcome = explore(model, most, _beyond(states, go_on))
        except (Unsupported, Undecided):
            return None
        states += outcome.states
        if outcome.stopped:
            note = "time was up before the last tile cut short was explored"
            return Verdict(analysis.kernel.name, "stopped", states, rings=rings, note=note)
        if outcome.fault is not None:
            note = f"with a last tile that is {cut} elements short"
            return Verdict(
                analysis.kernel.name, "wrong", states, trips, rings, model, outcome.fault, note
            )
    return None


def _is_cut(stmt: Stmt) -> bool:
    """Whether how much a stage gets follows from the sizes of its tensor."""
    match stmt:
        case MbarrierArriveExpectTx(tx_bytes=nbytes) | BulkLoad(nbytes=nbytes):
            return not isinstance(nbytes, Const)
        case _:
            return False


def in_registers(kernel: Kernel) -> str:
    """Say why rings in registers have nothing to check; nothing where there are none."""
    if not kernel.register_rings:
        return ""
    names = ", ".join(f"{name} ({slots} slots)" for name, slots in kernel.register_rings)
    return f"{names}: in registers, which one thread alone writes and reads; no protocol to check"


def prove(
    analysis: Analysis,
    most: int = MOST_STATES,
    go_on: GoOn = for_ever,
    one_run: bool = True,
) -> tuple[Explored, Model]:
    """Explore with unknown trip counts; return the sum of all cases, or the first fault.

    Parameters
    ----------
    one_run
        Where all interleavings are one run, that one is enough; else all of them are explored.

    Raises
    ------
    Unsupported, Undecided
        There is no rule for it, or the states are too many whatever the stages are.
    """
    states, known = 0, _of_fewer_levels(analysis, most, go_on, one_run)
    if known is not None:
        return known
    model: Model | None = None
    only = one_run
    for model in _cases(analysis):
        beyond = _beyond(states, go_on)
        outcome = follow(model, beyond) if one_run else None
        if outcome is None and analysis.is_large:
            raise Unsupported(too_large(analysis))
        outcome = outcome or explore(model, most, beyond)
        states += outcome.states
        only &= outcome.one_run
        if outcome.fault is not None or not outcome.complete:
            return replace(outcome, states=states), model
    assert model is not None
    return Explored(states, None, True, one_run=only), model


def too_large(analysis: Analysis) -> str:
    """Say why nothing but one run can be proved."""
    return (
        f"a cluster of {analysis.kernel.cluster_size} blocks; states of at most {MOST_BLOCKS} are "
        "few enough to explore, and its interleavings are not one run"
    )


def _of_fewer_levels(
    analysis: Analysis, most: int, go_on: GoOn, one_run: bool
) -> tuple[Explored, Model] | None:
    """Return the proof with two levels of trips as one; None where it is none.

    What is wrong is told of the loops as they are.
    """
    one = joined(analysis)
    if one is None:
        return None
    try:
        outcome, model = prove(one, most, go_on, one_run)
    except (Unsupported, Undecided):
        return None
    right = outcome.fault is None and (outcome.complete or outcome.stopped)
    return (outcome, model) if right else None


def _beyond(states: int, go_on: GoOn) -> GoOn:
    """Return `go_on` for an exploration before which there were `states` already."""
    return lambda more: go_on(states + more)


def _cases(analysis: Analysis) -> Iterator[Model]:
    """Yield models that together have every trip count."""
    for residue in residues_of(analysis):
        yield open_model(analysis, residue)
    first, inner = analysis.fewest
    if analysis.levels > 1 and not inner and not meets_each_time(analysis):
        for outer in range(first, FEW_OUTER_TRIPS):
            yield exact_model(analysis, (outer, 0))


def few_trips(analysis: Analysis) -> Iterator[tuple[int, ...]]:
    """Yield small trip counts for every level, fewest first: those that the sizes may make."""
    if not analysis.sizes:
        yield (0,) * max(1, analysis.levels)
        return
    most = FEW_TRIPS if analysis.levels < 2 else FEW_OUTER_TRIPS
    ends = [most] * (analysis.levels - 1) + [max(FEW_TRIPS, analysis.period + 1)]
    first = (*analysis.fewest, *[0] * len(ends))
    ranges = [range(few, end + 1) for few, end in zip(first, ends, strict=False)]
    yield from sorted(product(*ranges), key=sum)


def explore_few(
    analysis: Analysis, note: str, most: int = MOST_STATES, go_on: GoOn = for_ever
) -> Verdict:
    """Explore all small trip counts, with a last tile that is whole and one that is cut short.

    From the number of trips on that has more than `most` states, some interleavings are taken at
    random instead of all.
    """
    name, states, reached = analysis.kernel.name, 0, tuple[int, ...]()
    rings = tuple((ring.name, ring.stages) for ring in analysis.rings.values())
    walks = WALKS if analysis.is_large else 0
    for trips in few_trips(analysis):
        for cut in (0, LAST_TILE_CUT) if all(trips) and analysis.sizes else (0,):
            try:
                model = exact_model(analysis, trips, cut)
                outcome, walks = _all_or_some(model, walks, most, _beyond(states, go_on))
            except (Unsupported, Undecided) as reason:
                return Verdict(name, "unknown", states, rings=rings, note=str(reason))
            states += outcome.states
            if outcome.fault is not None:
                return Verdict(name, "wrong", states, trips, rings, model, outcome.fault, note)
            if outcome.stopped:
                return Verdict(name, "stopped", states, reached, rings, note=note)
            reached = trips
    reach: Reach = "unknown" if analysis.several else "sampled" if walks else "explored"
    if analysis.several:
        note += f"; nothing is wrong with {reached[-1]} or fewer trips of each of its sizes"
    return Verdict(name, reach, states, reached, rings, note=note, walks=walks)


def _all_or_some(model: Model, walks: int, most: int, go_on: GoOn) -> tuple[Explored, int]:
    """Explore all interleavings, or walk through some where they are too many; return the walks."""
    if not walks:
        outcome = explore(model, most, go_on)
        if outcome.complete or outcome.stopped:
            return outcome, 0
    return sample(model, walks or WALKS, go_on), walks or WALKS


def story_of(
    analysis: Analysis, proof: Explored, model: Model, most: int, go_on: GoOn = for_ever
) -> Verdict:
    """Find the fewest trips that go wrong, so that the story has true numbers.

    Where none are found, or not in time, it is the story of the proof, about any number of trips.
    """
    rings = tuple((ring.name, ring.stages) for ring in analysis.rings.values())
    found = explore_few(analysis, "", most, go_on)
    if found.fault is not None:
        return found
    assert proof.fault is not None
    if any(model.partings) and not analysis.several:
        note = f"{proof.fault.kind} where its parts make different numbers of trips"
        return replace(found, note=f"the proof finds {note}, which they do not")
    return Verdict(
        analysis.kernel.name, "wrong", proof.states, rings=rings, model=model, fault=proof.fault
    )
