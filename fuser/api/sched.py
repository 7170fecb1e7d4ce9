"""``fd.sched``: directives on several tensors at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, cast

from fuser.api.call import Call
from fuser.api.directive import check_kind, directive, record, require_tensor
from fuser.api.owner import Owner
from fuser.api.scheduling import Scheduling
from fuser.core.errors import ScheduleError
from fuser.core.location import caller_location
from fuser.schedule.arguments import flag, integer, items
from fuser.schedule.circular import WarpSpecialized
from fuser.schedule.hand import HandSchedule
from fuser.schedule.kinds import ParallelType
from fuser.schedule.propagate import NO_FACTS, parallelize_like, transform_like

P = ParamSpec("P")


def recorded(
    method: Callable[Concatenate[Sched, P], None],
) -> Callable[Concatenate[Sched, P], None]:
    """Give a directive its place in `repr(fd)`."""

    @wraps(method)
    def call(self: Sched, *args: P.args, **kwargs: P.kwargs) -> None:
        method(self, *args, **kwargs)
        record(self.definition, Call(method.__name__, args, dict(kwargs), None))

    return cast("Callable[Concatenate[Sched, P], None]", call)


class Sched:
    """Directives of one `FusionDefinition`.

    Without `selected_tensors` they are about every tensor that owns loops: outputs, reductions,
    caches and whatever a directive named.
    """

    def __init__(self, definition: Owner) -> None:
        self.definition = definition

    @recorded
    def bounded_transform_backward(
        self,
        from_tv: Scheduling,
        pos: int = -1,
        to: Sequence[Scheduling] = (),
        propagate_parallel_type: bool = False,
    ) -> None:
        """Replay the transforms of `from_tv` on its producers, back to the tensors `to`.

        Parameters
        ----------
        pos
            Only what the first `pos` loop axes come from; -1 means all.
        """
        here, last = "bounded_transform_backward", _tensors(to, "bounded_transform_backward")
        with _directive(self.definition, here, (from_tv,), last) as hand:
            flag(propagate_parallel_type, f"{here}: propagate_parallel_type")
            producers = hand.graph.ancestors((from_tv.name,))
            bounds = {tv.name for tv in last}
            if bounds - producers:
                raise ScheduleError(
                    f"bounded_transform_backward: {', '.join(sorted(bounds - producers))} in `to`; "
                    "producers of it are needed"
                )
            beyond = hand.graph.ancestors(
                o for name in bounds for o in hand.graph.operand_names(name)
            )
            between = [n for n in hand.materialised() if n in producers - beyond]
            axes = _axes(hand, from_tv.name, pos)
            transform_like(hand, from_tv.name, between, axes=axes, bound=propagate_parallel_type)

    @recorded
    def transform_like(self, ref: Scheduling, selected_tensors: Sequence[Scheduling] = ()) -> None:
        """Replay the transforms of `ref` on other tensors.

        Tensors whose coordinates are no unconditional function of those of `ref` stay as they are.

        rewrite::

            ref: for b: for t      t: for i: for j   ->   t: for b: for t
        """
        selected = _tensors(selected_tensors, "transform_like")
        with _directive(self.definition, "transform_like", (ref,), selected) as hand:
            transform_like(hand, ref.name, _targets(hand, selected))

    @recorded
    def parallelize_like(
        self,
        ref: Scheduling,
        pos: int = -1,
        selected_tensors: Sequence[Scheduling] = (),
        selected_parallel_types: Sequence[ParallelType] = (),
    ) -> None:
        """Bind the first `pos` axes (-1: all) of other tensors as those of `ref` are.

        rewrite::

            ref: for b (grid_x)      t: for b   ->   t: for b (grid_x)
        """
        here, selected = "parallelize_like", _tensors(selected_tensors, "parallelize_like")
        with _directive(self.definition, here, (ref,), selected) as hand:
            for kind in (kinds := items(selected_parallel_types, here, "parallel types")):
                check_kind(here, kind, ParallelType)
            chosen = cast("frozenset[ParallelType]", frozenset(kinds)) or None
            axes = _axes(hand, ref.name, pos)
            parallelize_like(hand, ref.name, _targets(hand, selected), axes, chosen)

    @recorded
    def inline_most(self, selected_tensors: Sequence[Scheduling] = ()) -> None:
        """Compute every producer at the innermost position that its consumers allow."""
        selected = _tensors(selected_tensors, "inline_most")
        with _directive(self.definition, "inline_most", (), selected) as hand:
            _inline(hand, _targets(hand, selected), None)

    @recorded
    def inline_at(
        self,
        ref: Scheduling,
        pos: int = -1,
        best_effort: bool = False,
        selected_tensors: Sequence[Scheduling] = (),
    ) -> None:
        """Compute producers inside the first `pos` loops that they share with `ref`.

        Parameters
        ----------
        best_effort
            Use a smaller position where `pos` is not possible, instead of raising.
        """
        selected = _tensors(selected_tensors, "inline_at")
        with _directive(self.definition, "inline_at", (ref,), selected) as hand:
            flag(best_effort, "inline_at: best_effort")
            axes = _axes(hand, ref.name, pos)
            targets = _targets(hand, selected)
            _inline(hand, targets, axes, exact=not best_effort)

    def warp_specialize(
        self,
        tv: Scheduling,
        number_of_stages: int,
        prefetch_distance: int | None = None,
        parallel_type: ParallelType = ParallelType.block_x,
        num_registers: tuple[int, int] | None = None,
        stage_slice_position: int | None = None,
        ping_pong: bool = False,
    ) -> None:
        """Circular-buffer `tv` with extra warps that only load; see `Tensor.circular_buffer`.

        Parameters
        ----------
        parallel_type
            Thread axis that the loading warps extend.
        num_registers
            Registers a thread, ``(loading, computing)``, that change hands by ``setmaxnreg``.
        stage_slice_position, ping_pong
            Consumer groups and their order; see `WarpSpecialized`.
        """
        if not isinstance(cast("object", tv), Scheduling):
            raise ScheduleError(
                f"warp_specialize: got {tv!r}; a tensor is needed", caller_location()
            )
        kind = WarpSpecialized(parallel_type, num_registers, stage_slice_position, ping_pong)
        tv.circular_buffer(number_of_stages, prefetch_distance, kind)


def _directive(
    definition: Owner, what: str, about: tuple[Scheduling, ...], others: Sequence[Scheduling]
) -> directive:
    """Return what guards a directive about one tensor, or none, and some others."""
    here = caller_location()
    for tv in about:
        require_tensor(tv, what, here)
    return directive(definition, about[0].name if about else "", what, *about, *others)


def _tensors(given: Sequence[Scheduling], what: str) -> tuple[Scheduling, ...]:
    """Return the tensors of a list; what else is in it, `directive` tells."""
    try:
        return cast("tuple[Scheduling, ...]", items(given, what, "tensors"))
    except ScheduleError as error:
        raise ScheduleError(str(error), caller_location()) from None


def _targets(hand: HandSchedule, selected: Sequence[Scheduling]) -> tuple[str, ...]:
    for tv in selected:
        hand.entry(tv.name)
    return tuple(tv.name for tv in selected) or hand.materialised()


def _axes(hand: HandSchedule, ref: str, pos: int) -> int:
    rank, pos = len(hand.peek(ref).domain.loop), integer(pos, "position")
    axes = rank + 1 + pos if pos < 0 else pos
    if not 0 <= axes <= rank:
        raise ScheduleError(f"position {pos}; the loop domain has {rank} axes")
    return axes


def _inline(
    hand: HandSchedule, targets: Sequence[str], limit: int | None, exact: bool = False
) -> None:
    """Set positions, consumers before their producers."""
    from fuser.passes.reach import check_position, largest_position

    complete = hand.complete()
    graph, schedule = complete.part.graph, complete.schedule
    stores = {o.value for o in graph.outputs}
    order = [v.name for v in hand.graph.values if v.name in targets]
    found: dict[str, int] = {}
    for name in order:
        me = complete.names.get(name, name)
        if me not in stores:
            schedule.tensors[me].position = 0
    for name in reversed(order):
        me = complete.names.get(name, name)
        if me in stores:
            continue
        ts = schedule.tensors[me]
        if exact and limit is not None:
            ts.position = limit
            check_position(graph, schedule, me, NO_FACTS)
        else:
            most = largest_position(graph, schedule, me, NO_FACTS)
            ts.position = most if limit is None else min(most, limit)
        found[name] = ts.position
    for name, position in found.items():
        hand.entry(name).position = position
