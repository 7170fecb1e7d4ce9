"""The iteration-domain graph of one tensor: root dimensions, transforms, loop axes.

A `LoopDomain` is immutable; every transform returns a new one. It answers two questions.
*Backward*: given the loop indices, which root coordinates are these, and under which conditions are
they inside the tensor. *Forward*: at which loop indices are given root coordinates computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from fuser.core.errors import ScheduleError
from fuser.core.expr import ONE, TRUE, ZERO, Const, Expr, all_of, ceil_div, less
from fuser.core.simplify import Facts, prove_equal
from fuser.core.unroll import Unroll
from fuser.schedule.arguments import integer
from fuser.schedule.kinds import ParallelType

MAX_COUNT = 2**31 - 1
"""What indices of 32 bits can count to."""
INSTRUCTION_AXES = 5
"""Axes of a matrix instruction: threads, three that choose accumulators, and what it sums over."""


@dataclass(frozen=True, slots=True)
class IterDomain:
    """One axis: a root dimension or the result of a transform.

    Attributes
    ----------
    id
        Unique within its `LoopDomain`.
    extent
        Number of iterations.
    reduction
        Whether iterations are combined rather than kept.
    parallel, unroll, outlined
        Directives; they live on the axis, so whatever copies the axis copies them.
    """

    id: int
    extent: Expr
    reduction: bool = False
    parallel: ParallelType = ParallelType.serial
    unroll: Unroll = Unroll()
    outlined: bool = False

    @property
    def directives(self) -> str:
        """What the user wants of the loop that the axis is, as directives are written."""
        words = [self.unroll.directive] if self.unroll.is_given else []
        return " and ".join([*words, "outlined()"] if self.outlined else words)


@dataclass(frozen=True, slots=True)
class Split:
    """``axis -> outer, inner`` with ``axis = outer * inner.extent + inner``."""

    axis: int
    outer: int
    inner: int
    factor: Expr


@dataclass(frozen=True, slots=True)
class Merge:
    """``outer, inner -> axis`` with ``axis = outer * inner.extent + inner``."""

    outer: int
    inner: int
    axis: int
    inner_extent: Expr


@dataclass(frozen=True, slots=True)
class Swizzle:
    """``x, y -> x, out`` with ``out = y ^ (x % extent)``; `extent` is a power of two."""

    x: int
    y: int
    out: int
    extent: int


Transform: TypeAlias = Split | Merge | Swizzle


@dataclass(frozen=True, slots=True)
class LoopDomain:
    """Root dimensions, the transforms applied to them, and the resulting loop axes in order."""

    root: tuple[IterDomain, ...]
    transforms: tuple[Transform, ...]
    loop: tuple[IterDomain, ...]
    extents: Mapping[int, Expr]

    @staticmethod
    def of(extents: Sequence[Expr], reduced: Sequence[int] = ()) -> LoopDomain:
        """Return the untransformed domain of a tensor; dimensions `reduced` are reductions."""
        root = tuple(IterDomain(i, e, i in reduced) for i, e in enumerate(extents))
        return LoopDomain(root, (), root, {d.id: d.extent for d in root})

    # ---- transforms ----------------------------------------------------------------------

    def position(self, axis: int, what: str) -> int:
        """Normalise a possibly negative loop position; raise `ScheduleError` if there is none."""
        rank = len(self.loop)
        axis = integer(axis, f"{what}: axis")
        if not -rank <= axis < rank:
            raise ScheduleError(f"{what}: axis {axis}; the loop domain has {rank} axes")
        return axis % rank

    def split(self, axis: int, factor: Expr, inner_split: bool = True) -> LoopDomain:
        """Split loop axis `axis`.

        rewrite::

            for i in [0, n)  ->  for o in [0, ceil(n / factor)): for i in [0, factor)
            inner_split=False:   for o in [0, factor): for i in [0, ceil(n / factor))
        """
        at = self.position(axis, "split")
        old = self.loop[at]
        self._undirected(axis, old, "split")
        if isinstance(factor, Const) and factor.value < 1:
            raise ScheduleError(f"split: factor {factor.value}; at least 1 is needed")
        rest = ceil_div(old.extent, factor)
        outer_extent, inner_extent = (rest, factor) if inner_split else (factor, rest)
        outer = IterDomain(self._next(), outer_extent, old.reduction)
        inner = IterDomain(self._next() + 1, inner_extent, old.reduction)
        step = Split(old.id, outer.id, inner.id, inner_extent)
        result = self._with(step, (*self.loop[:at], outer, inner, *self.loop[at + 1 :]))
        if (count := result.count_past_end()) > MAX_COUNT:
            raise ScheduleError(
                f"split: axis {axis} by {factor} counts to {count} though its extent is "
                f"{old.extent}; at most {MAX_COUNT} is possible"
            )
        return result

    def merge(self, outer: int, inner: int) -> LoopDomain:
        """Merge two loop axes into one at the position of `outer`.

        rewrite::

            for o in [0, m): for i in [0, n)  ->  for oi in [0, m * n)
        """
        o, i = self.position(outer, "merge"), self.position(inner, "merge")
        if o == i:
            raise ScheduleError(f"merge: axes {outer} and {inner} are one axis; two are needed")
        a, b = self.loop[o], self.loop[i]
        self._undirected(outer, a, "merge")
        self._undirected(inner, b, "merge")
        if a.reduction != b.reduction:
            raise ScheduleError(
                f"merge: axis {outer} {'is' if a.reduction else 'is not'} a reduction and axis "
                f"{inner} {'is' if b.reduction else 'is not'}; both must be of one kind"
            )
        merged = IterDomain(self._next(), a.extent * b.extent, a.reduction)
        loop = [merged if x is a else x for x in self.loop if x is not b]
        return self._with(Merge(a.id, b.id, merged.id, b.extent), tuple(loop))

    def swizzle(self, x: int, y: int) -> LoopDomain:
        """XOR loop axis `y` with axis `x`; the extent of `y` must be a power of two.

        rewrite::

            tile[x][y]  ->  tile[x][y ^ (x % extent(y))]
        """
        a, b = self.loop[self.position(x, "swizzle")], self.loop[self.position(y, "swizzle")]
        if a is b or a.reduction or b.reduction:
            raise ScheduleError(
                f"swizzle: axes {x} and {y}; two different axes that are kept are needed"
            )
        extent = b.extent
        if not isinstance(extent, Const) or extent.value & (extent.value - 1):
            raise ScheduleError(f"swizzle: axis {y} has extent {extent}; a power of 2 is needed")
        out = replace(b, id=self._next())
        loop = tuple(out if d is b else d for d in self.loop)
        result = self._with(Swizzle(a.id, b.id, out.id, extent.value), loop)
        return self._keeping_instruction(result, "swizzle")

    def reorder(self, moves: Mapping[int, int]) -> LoopDomain:
        """Move axes ``old -> new``; the others keep their order in the free places.

        rewrite::

            for i: for j: for k   --{0: 2}-->   for j: for k: for i
        """
        old_to_new = {
            self.position(o, "reorder"): self.position(n, "reorder") for o, n in moves.items()
        }
        if len(set(old_to_new.values())) != len(moves) or len(old_to_new) != len(moves):
            raise ScheduleError(f"reorder: {dict(moves)}; every axis may appear once on each side")
        placed = {n: self.loop[o] for o, n in old_to_new.items()}
        rest = iter(d for i, d in enumerate(self.loop) if i not in old_to_new)
        loop = tuple(placed[i] if i in placed else next(rest) for i in range(len(self.loop)))
        return self._keeping_instruction(replace(self, loop=loop), "reorder")

    def once(self, axis: int) -> LoopDomain:
        """Leave a loop axis out: of its iterations only the first is run.

        rewrite::

            for m: for n: tile[m] = x[m]   -->   for m: tile[m] = x[m]
        """
        at = self.position(axis, "once")
        old = self.loop[at]
        self._undirected(axis, old, "once")
        if old.reduction:
            raise ScheduleError(f"once: axis {axis} is a reduction; a kept axis is needed")
        return replace(self, loop=(*self.loop[:at], *self.loop[at + 1 :]))

    def roots_of(self, axis: int) -> tuple[int, ...]:
        """Return the root dimensions whose coordinates depend on a loop axis."""
        found = {self.loop[self.position(axis, "axis")].id}
        for step in reversed(self.transforms):
            match step:
                case Split(above, outer, inner):
                    found |= {above} if found & {outer, inner} else set()
                case Merge(outer, inner, below):
                    found |= {outer, inner} if below in found else set()
                case Swizzle(x, y, out):
                    found |= {y} if found & {x, out} else set()
                case _:
                    assert_never(step)
        return tuple(i for i, d in enumerate(self.root) if d.id in found)

    @property
    def left_out(self) -> frozenset[int]:
        """Ids of the axes of which only the first iteration is run."""
        made, used = {d.id for d in self.root}, set[int]()
        for step in self.transforms:
            match step:
                case Split(axis, outer, inner):
                    made, used = made | {outer, inner}, used | {axis}
                case Merge(outer, inner, axis):
                    made, used = made | {axis}, used | {outer, inner}
                case Swizzle(_, y, out):
                    made, used = made | {out}, used | {y}
                case _:
                    assert_never(step)
        return frozenset(made - used - {d.id for d in self.loop})

    def bind(self, axis: int, parallel: ParallelType) -> LoopDomain:
        """Set what executes a loop axis; a hardware axis executes one loop axis at most."""
        at = self.position(axis, "parallelize")
        for j, other in enumerate(self.loop):
            if j != at and parallel.is_parallel and other.parallel is parallel:
                raise ScheduleError(
                    f"parallelize: axis {axis} to {parallel.name}, which axis {j} is bound to "
                    "already; each hardware axis executes one loop axis"
                )
        old = self.loop[at]
        if old.directives and parallel is not ParallelType.serial:
            raise ScheduleError(
                f"parallelize: axis {axis} to {parallel.name}, and its directive is "
                f"{old.directives}; only a serial axis is a loop: needed one of the two"
            )
        result = self._with_axis(at, replace(old, parallel=parallel))
        return self._keeping_instruction(result, f"parallelize: axis {axis} to {parallel.name}")

    @property
    def instruction(self) -> tuple[IterDomain, ...]:
        """The innermost axes, where ``wgmma`` has made them those of one matrix instruction."""
        made = any(d.reduction and d.parallel is ParallelType.mma for d in self.loop)
        return self.loop[-INSTRUCTION_AXES:] if made else ()

    def _keeping_instruction(self, result: LoopDomain, what: str) -> LoopDomain:
        """Return `result`; raise `ScheduleError` if it changes the axes of an instruction."""
        own = self.instruction
        if own and result.loop[-INSTRUCTION_AXES:] != own:
            last = len(self.loop) - 1
            raise ScheduleError(
                f"{what}; axes {last - INSTRUCTION_AXES + 1} to {last} are those of a matrix "
                "instruction, its threads, accumulators and k: needed as wgmma made them, innermost"
            )
        return result

    def direct(self, axis: int, unroll: Unroll) -> LoopDomain:
        """Set how often the body of a serial loop axis is repeated in the code."""
        at = self.position(axis, "unroll")
        return self._with_axis(at, replace(self.loop[at], unroll=unroll))

    def outline(self, axis: int) -> LoopDomain:
        """Put a serial loop axis into a device function of its own."""
        at = self.position(axis, "outlined")
        return self._with_axis(at, replace(self.loop[at], outlined=True))

    def _with_axis(self, at: int, axis: IterDomain) -> LoopDomain:
        return replace(self, loop=(*self.loop[:at], axis, *self.loop[at + 1 :]))

    def _undirected(self, at: int, axis: IterDomain, what: str) -> None:
        if axis.parallel is not ParallelType.serial:
            raise ScheduleError(
                f"{what}: axis {at} is bound to {axis.parallel.name}; transform axes before "
                "parallelizing them"
            )
        if axis.directives:
            raise ScheduleError(
                f"{what}: axis {at} has the directive {axis.directives}; transform axes before "
                "giving them directives"
            )

    def made_of(self, axis: int) -> tuple[int, ...]:
        """Return the positions of the loop axes that come from the axis of an id."""
        found = {axis}
        for step in self.transforms:
            match step:
                case Split(above, outer, inner):
                    found |= {outer, inner} if above in found else set()
                case Merge(outer, inner, below):
                    found |= {below} if found & {outer, inner} else set()
                case Swizzle(_, y, out):
                    found |= {out} if y in found else set()
                case _:
                    assert_never(step)
        return tuple(j for j, d in enumerate(self.loop) if d.id in found)

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> LoopDomain:
        """Return this domain with `fn` applied to every extent."""

        def mapped(axes: tuple[IterDomain, ...]) -> tuple[IterDomain, ...]:
            return tuple(replace(d, extent=fn(d.extent)) for d in axes)

        steps: list[Transform] = []
        for step in self.transforms:
            match step:
                case Split():
                    steps.append(replace(step, factor=fn(step.factor)))
                case Merge():
                    steps.append(replace(step, inner_extent=fn(step.inner_extent)))
                case Swizzle():
                    steps.append(step)
                case _:
                    assert_never(step)
        extents = {i: fn(e) for i, e in self.extents.items()}
        return LoopDomain(mapped(self.root), tuple(steps), mapped(self.loop), extents)

    def _next(self) -> int:
        return max(self.extents, default=-1) + 1

    def _with(self, step: Transform, loop: tuple[IterDomain, ...]) -> LoopDomain:
        extents = {**self.extents, **{d.id: d.extent for d in loop}}
        return LoopDomain(self.root, (*self.transforms, step), loop, extents)

    # ---- derivation ----------------------------------------------------------------------

    def backward(self, loop: Sequence[Expr], facts: Facts) -> tuple[tuple[Expr, ...], Expr]:
        """Return ``(root coordinates, guard)`` of the iteration with these loop indices.

        The guard holds exactly where every split with a remainder is inside its axis.
        """
        first = self.left_out
        at: dict[int, Expr] = dict.fromkeys(first, ZERO)
        at |= {d.id: e for d, e in zip(self.loop, loop, strict=True)}
        guards: dict[int, Expr] = {}
        for step in reversed(self.transforms):
            match step:
                case Split(axis, outer, inner, factor):
                    at[axis] = at[outer] * factor + at[inner]
                    if inner in first:
                        continue  # a < ceil(n / f) implies a * f < n
                    if not self._divides(step, facts):
                        guards[axis] = less(at[axis], self.extents[axis])
                        guards.pop(outer, None)  # a * f + i < n implies a < ceil(n / f)
                case Merge(outer, inner, axis, extent):
                    if prove_equal(self.extents[outer], ONE, facts):
                        at[outer], at[inner] = ZERO, at[axis]
                    else:
                        at[outer], at[inner] = at[axis] // extent, at[axis] % extent
                case Swizzle(x, y, out, extent):
                    at[y] = at[out] ^ (at[x] % extent)
                case _:
                    assert_never(step)
        return tuple(at[d.id] for d in self.root), all_of(TRUE, *guards.values())

    def count_past_end(self) -> int:
        """Return how far an index counts at least, where that is far past the end of its axis.

        Guards compare it with the extent. An extent that the sizes decide counts as 1.
        """
        count = dict.fromkeys(self.left_out, 1)
        count |= {d.id: _least(d.extent) for d in self.loop}
        for step in reversed(self.transforms):
            match step:
                case Split(axis, outer, inner, factor):
                    count[axis] = (count[outer] - 1) * _least(factor) + count[inner]
                case Merge(outer, inner, axis, extent):
                    count[outer] = -(-count[axis] // max(1, _least(extent)))
                    count[inner] = _least(extent)
                case Swizzle(_, y, out):
                    count[y] = count[out]
                case _:
                    assert_never(step)
        past = (n for axis, n in count.items() if n > 2 * _least(self.extents[axis]))
        return max(past, default=0)

    def _divides(self, step: Split, facts: Facts) -> bool:
        whole = self.extents[step.outer] * step.factor
        return prove_equal(whole, self.extents[step.axis], facts)

    def forward(self, root: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the loop indices at which the element with these root coordinates is computed."""
        at: dict[int, Expr] = {d.id: e for d, e in zip(self.root, root, strict=True)}
        for step in self.transforms:
            match step:
                case Split(axis, outer, inner, factor):
                    at[outer], at[inner] = at[axis] // factor, at[axis] % factor
                case Merge(outer, inner, axis, extent):
                    at[axis] = at[outer] * extent + at[inner]
                case Swizzle(x, y, out, extent):
                    at[out] = at[y] ^ (at[x] % extent)
                case _:
                    assert_never(step)
        return tuple(at[d.id] for d in self.loop)


def _least(extent: Expr) -> int:
    return extent.value if isinstance(extent, Const) else 1
