"""One loop axis of a tensor: what executes it, and how often its body is in the code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, get_args

from fuser.api.call import Call
from fuser.api.directive import check_kind, directive, record
from fuser.api.owner import Owner
from fuser.core.errors import ScheduleError
from fuser.core.expr import Const
from fuser.core.unroll import MOST_PRODUCTS, LoopPart, Unroll
from fuser.schedule.arguments import integer
from fuser.schedule.cluster import check_cluster_axis
from fuser.schedule.kinds import ParallelType
from fuser.schedule.schedule import TensorSchedule

VECTOR_BYTES = (2, 4, 8, 16)
MAX_FACTOR = 1024
MAX_PRODUCTS = 256
_LATER = {ParallelType.mma}


class Scheduled(Protocol):
    """A tensor with loops."""

    fd: Owner
    name: str

    @property
    def schedule(self) -> TensorSchedule:
        """Its loops so far."""
        ...


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop axis of a tensor.

    Attributes
    ----------
    asked
        Its position when it was asked for; transforms may move it.
    """

    tensor: Scheduled
    id: int
    asked: int = field(compare=False)

    @property
    def extent(self) -> str:
        """The number of iterations, as text."""
        domain = self.tensor.schedule.domain
        return repr(domain.extents[self.id])

    def parallelize(self, kind: ParallelType) -> None:
        """Set what executes the iterations.

        rewrite::

            for i in [0, n)   --block_x-->   i = threadIdx.x; if (i < n)
        """
        tensor = self.tensor
        with directive(tensor.fd, tensor.name, "parallelize"):
            ts, at = self.place("parallelize")
            check_kind("parallelize", kind, ParallelType)
            if kind in _LATER:
                raise ScheduleError(
                    f"parallelize: axis {at} to {kind.name}; grid, cluster, block, vectorize, "
                    "unroll, unswitch or serial is needed"
                )
            if kind.is_cluster:
                check_cluster_axis(ts.domain.loop[at], at, kind)
            if kind is ParallelType.vectorize:
                self._check_vector(ts, at)
            ts.domain = ts.domain.bind(at, kind)
        record(tensor.fd, Call("parallelize", (kind,), {}, None), tensor, at)

    def unroll(
        self,
        factor: int | None = None,
        *,
        loop: LoopPart | None = None,
        most_products: int = MOST_PRODUCTS,
    ) -> None:
        """Repeat the body of this loop in the code: once a trip, or `factor` times.

        All copies together may have `most_products` matrix products, 256 at most: the compiler
        takes a second for 128 of them, and eight for 256.

        `loop` says which of the loops that a ring makes of its trips: ``"prologue"``, ``"main"``,
        ``"epilogue"``, or ``"producer"``, ``"consumer"``. Without it, those with no directive of
        their own.

        rewrite::

            for i in [0, 8): f(i)   --unroll()-->    f(0); f(1); .. f(7);
            for i in [0, n): f(i)   --unroll(4)-->   for r in [0, n / 4): f(4 r); .. f(4 r + 3);
                                                     for i in [n / 4 * 4, n): f(i)
        """
        with directive(self.tensor.fd, self.tensor.name, "unroll"):
            _, at = self.place("unroll")
            at = self._set(_unroll(factor, most_products, at), "unroll", loop)
        args = () if factor is None else (factor,)
        more: dict[str, Any] = {} if loop is None else {"loop": loop}
        more |= {} if most_products == MOST_PRODUCTS else {"most_products": most_products}
        record(self.tensor.fd, Call("unroll", args, more, None), self.tensor, at)

    def rolled(self, *, loop: LoopPart | None = None) -> None:
        """Keep this loop a loop, down to the machine code; `loop` as in `unroll`.

        rewrite::

            for i in [0, 4): f(i)   -->   #pragma unroll 1
                                          for (idx i = 0; i < 4; ++i) f(i)
        """
        with directive(self.tensor.fd, self.tensor.name, "rolled"):
            at = self._set(Unroll("rolled"), "rolled", loop)
        more = {} if loop is None else {"loop": loop}
        record(self.tensor.fd, Call("rolled", (), more, None), self.tensor, at)

    def outlined(self) -> None:
        """Put this loop, and what is in it, into a device function that is not inlined.

        It may change one scalar of the kernel around it, and no registers with an index.

        rewrite::

            for i in [0, 4): a += x[i]   -->   __device__ __noinline__ float f(x, a) { .. }
                                               a = f(x, a);
        """
        with directive(self.tensor.fd, self.tensor.name, "outlined"):
            ts, at = self.place("outlined")
            self._check_loop(ts, at, "outlined")
            ts.domain = ts.domain.outline(at)
        record(self.tensor.fd, Call("outlined", (), {}, None), self.tensor, at)

    def place(self, what: str) -> tuple[TensorSchedule, int]:
        """Return the tensor's schedule and where this axis is in its loops now."""
        ts = self.tensor.fd.hand.entry(self.tensor.name)
        at = next((j for j, d in enumerate(ts.domain.loop) if d.id == self.id), None)
        if at is None:
            made = ts.domain.made_of(self.id) or range(len(ts.domain.loop))
            raise ScheduleError(
                f"{what}: axis {self.asked} was split, merged or left out after it was asked for; "
                f"needed {' or '.join(f'axis({j})' for j in made)} instead"
            )
        return ts, at

    def _check_loop(self, ts: TensorSchedule, at: int, what: str) -> None:
        axis = ts.domain.loop[at]
        if axis.parallel is not ParallelType.serial:
            raise ScheduleError(
                f"{what}: axis {at} is bound to {axis.parallel.name}; only a serial axis is a loop "
                "of its own: parallelize(ParallelType.serial), or take another axis"
            )

    def _set(self, unroll: Unroll, what: str, part: LoopPart | None) -> int:
        ts, at = self.place(what)
        self._check_loop(ts, at, what)
        if part is not None and part not in get_args(LoopPart):
            names = ", ".join(map(repr, get_args(LoopPart)))
            raise ScheduleError(f"{what}: axis {at} with loop {part!r}; needed one of {names}")
        axis = ts.domain.loop[at]
        known = axis.unroll.for_part(part)
        if known is not None and known != unroll:
            raise ScheduleError(
                f"{what}: axis {at} has the directive {known.written(part)} already, and this is "
                f"{unroll.written(part)}; a loop has one: leave one of them out"
            )
        trips = axis.extent.value if isinstance(axis.extent, Const) else None
        if unroll.kind == "full" and trips is None:
            raise ScheduleError(
                f"unroll: axis {at} has extent {axis.extent!r}; a constant is needed: unroll(n), "
                "or split it by a constant"
            )
        if unroll.kind == "full" and trips is not None and trips > MAX_FACTOR:
            raise ScheduleError(
                f"unroll: axis {at} has extent {trips}; at most {MAX_FACTOR} copies are made: "
                "unroll(n), or split it"
            )
        if unroll.kind == "partial" and trips is not None and trips < unroll.factor:
            raise ScheduleError(
                f"unroll: axis {at} by {unroll.factor} has extent {trips}; unroll() repeats all of "
                "its trips"
            )
        ts.domain = ts.domain.direct(at, axis.unroll.with_part(part, unroll))
        return at

    def _check_vector(self, ts: TensorSchedule, at: int) -> None:
        extent = ts.domain.loop[at].extent
        dtype = self.tensor.fd.hand.graph.value(self.tensor.name).dtype
        if not isinstance(extent, Const):
            raise ScheduleError(
                f"parallelize: axis {at} to vectorize has extent {extent!r}; a constant is needed"
            )
        nbytes = extent.value * dtype.nbytes
        if extent.value > 1 and nbytes not in VECTOR_BYTES:
            raise ScheduleError(
                f"parallelize: axis {at} to vectorize is {extent.value} x {dtype.short}, {nbytes} "
                "bytes; 2, 4, 8 or 16 bytes are needed"
            )
        if at != len(ts.domain.loop) - 1:
            raise ScheduleError(
                f"parallelize: axis {at} to vectorize is not the innermost of "
                f"{len(ts.domain.loop)}; reorder it there"
            )


def _unroll(factor: object, most_products: object, at: int) -> Unroll:
    """Return the directive that `factor` asks for, of axis `at`."""
    what = f"unroll: axis {at}"
    most = integer(most_products, f"{what} with most_products")
    if not 1 <= most <= MAX_PRODUCTS:
        raise ScheduleError(f"{what} with most_products {most}; 1 to {MAX_PRODUCTS} is needed")
    if factor is None:
        return Unroll("full", most_products=most)
    copies = integer(factor, f"{what} by")
    if copies == 1:
        raise ScheduleError(f"{what} by 1; rolled() is the directive that keeps a loop")
    if not 2 <= copies <= MAX_FACTOR:
        raise ScheduleError(f"{what} by {copies}; 2 to {MAX_FACTOR} copies are possible")
    return Unroll("partial", copies, most_products=most)
