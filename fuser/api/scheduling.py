"""Scheduling directives of a tensor: they shape the schedule that ``fd.manual_execute`` runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Self, cast

from fuser.api.axis import Axis
from fuser.api.directive import check_kind, directive, on_tensor, require_tensor
from fuser.api.owner import Owner
from fuser.core.errors import ScheduleError
from fuser.core.expr import Const
from fuser.schedule import stage
from fuser.schedule.arguments import flag, integer, integers, moves
from fuser.schedule.circular import CircularBuffer, CircularBufferType, Pipelined
from fuser.schedule.domain import LoopDomain
from fuser.schedule.kinds import LoadStoreOpType, MemoryType
from fuser.schedule.product import product_domain
from fuser.schedule.propagate import NO_FACTS
from fuser.schedule.schedule import TensorSchedule, check_same
from fuser.schedule.stores import stored_tiles
from fuser.schedule.swizzle import SwizzleName, TileSwizzle


class Scheduling:
    """Directives; axes are positions in the loop domain, negative ones count from the end."""

    fd: Owner
    name: str

    @property
    def schedule(self) -> TensorSchedule:
        """What the directives so far made of this tensor."""
        return self.fd.hand.peek(self.name)

    def _transform(self, rewrite: Callable[[LoopDomain], LoopDomain], what: str) -> None:
        ts = self.fd.hand.entry(self.name)
        if ts.allocation is not None:
            raise ScheduleError(
                f"{what}: its allocation domain is set; transform axes before set_allocation_domain"
            )
        ts.domain = rewrite(ts.domain)

    # ---- loop axes -------------------------------------------------------------------------

    @property
    def loop_axes(self) -> tuple[Axis, ...]:
        """The loop axes, outermost first."""
        return tuple(self.axis(j) for j in range(len(self.schedule.domain.loop)))

    def axis(self, position: int) -> Axis:
        """Return one loop axis, to bind it."""
        with directive(self.fd, self.name, "axis"):
            domain = self.schedule.domain
            at = domain.position(position, "axis")
            return Axis(self, domain.loop[at].id, at)

    @on_tensor
    def split(self, axis: int, factor: int, inner_split: bool = True) -> None:
        """Split an axis in two.

        rewrite::

            for i in [0, n)  ->  for o in [0, ceil(n / factor)): for i in [0, factor)
            inner_split=False:   for o in [0, factor): for i in [0, ceil(n / factor))
        """
        by = Const(integer(factor, f"split: axis {axis} by"))
        flag(inner_split, "split: inner_split")
        self._transform(lambda d: d.split(axis, by, inner_split), "split")

    @on_tensor
    def merge(self, outer: int, inner: int | None = None) -> None:
        """Merge two axes, `inner` varying faster; it is the one right of `outer` by default.

        rewrite::

            for o in [0, m): for i in [0, n)  ->  for oi in [0, m * n)
        """
        right = integer(outer, "merge: axis") + 1 if inner is None else inner
        self._transform(lambda d: d.merge(outer, right), "merge")

    @on_tensor
    def reorder(self, old_to_new: Mapping[int, int]) -> None:
        """Move axes; those not named keep their order in the free places.

        rewrite::

            for i: for j: for k   --{0: 2}-->   for j: for k: for i
        """
        places = moves(old_to_new, "reorder")
        self._transform(lambda d: d.reorder(places), "reorder")

    @on_tensor
    def swizzle(self, x: int, y: int) -> None:
        """XOR axis `y` with axis `x`: where the elements of a tile live, free of bank conflicts.

        rewrite::

            tile[x][y]  ->  tile[x][y ^ (x % extent(y))]
        """
        self._transform(lambda d: d.swizzle(x, y), "swizzle")

    @on_tensor
    def once(self, axis: int) -> None:
        """Leave out an axis that no element of this tensor depends on.

        A tile scheduled like its reader has all axes of it, also those along which it is the same.

        rewrite::

            for m: for n: tile[m][n] = x[m]   -->   for m: tile[m] = x[m]
        """
        check_same(self.fd.hand.entry(self.name), axis)
        self._transform(lambda d: d.once(axis), "once")

    @on_tensor
    def wgmma(self, m: int, n: int, k: int) -> None:
        """Have a sum of products computed by the tensor cores, 64 rows by n columns by 16 at once.

        Axes `m` (64), `n` (a multiple of 8, at most 256) and `k` (16, summed over) become those of
        one instruction, innermost. A warp group computes it, which the new axis of 128 threads is.
        The operands are bf16 or f16, cast to Float and multiplied, each in a tile of shared memory
        that `LoadStoreOpType.tma` loads. Products run on while the threads wait for the next
        stage; a stage is released when the group that reads it is complete.

        rewrite::

            for m: for n: for k: c[m][n] += a[m][k] * b[n][k]
            -->
            for thread (block_x): for n / 8, half, pair, k (mma): c += a * b
        """
        value = self.fd.hand.graph.value(self.name)
        self._transform(lambda d: product_domain(value, d, m, n, k), "wgmma")

    # ---- memory ----------------------------------------------------------------------------

    @on_tensor
    def set_memory_type(self, memory: MemoryType) -> None:
        """Choose where the values live.

        rewrite::

            float t[..] in registers   --shared-->   __shared__ float t[..]
        """
        check_kind("set_memory_type", memory, MemoryType)
        ts, hand = self.fd.hand.entry(self.name), self.fd.hand
        stored = hand.is_output(self.name) and not hand.is_reduction(self.name)
        if memory is MemoryType.tensor:
            raise ScheduleError("set_memory_type: tensor memory; this architecture has none")
        if stored != (memory is MemoryType.global_):
            role = "an output lives" if stored else "what is no output cannot live"
            need = "cache_before it and place the cache" if stored else "local or shared is needed"
            raise ScheduleError(f"set_memory_type: {memory.value}; {role} in global memory, {need}")
        if memory is MemoryType.shared and hand.is_reduction(self.name):
            raise ScheduleError(
                "set_memory_type: shared; a reduction accumulates in registers, cache_after it and "
                "place the cache"
            )
        ts.memory = memory

    @on_tensor
    def set_allocation_domain(self, order: Sequence[int]) -> None:
        """Order the loop axes from the slowest to the fastest varying one in memory.

        rewrite::

            tile[x][y]   --[1, 0]-->   tile[y][x]
        """
        ts = self.fd.hand.entry(self.name)
        if ts.memory is MemoryType.global_:
            raise ScheduleError("set_allocation_domain: it is an output; those are row major")
        rank = len(ts.domain.loop)
        order = integers(order, "set_allocation_domain")
        axes = tuple(ts.domain.position(axis, "set_allocation_domain") for axis in order)
        if sorted(axes) != list(range(rank)):
            raise ScheduleError(
                f"set_allocation_domain: {list(order)}; each of the {rank} axes once is needed"
            )
        own = len(ts.domain.instruction)
        if own and axes[-own:] != tuple(range(rank - own, rank)):
            raise ScheduleError(
                f"set_allocation_domain: {list(order)}; a matrix instruction has its accumulators "
                f"in the order of its axes: needed {rank - own} to {rank - 1} last"
            )
        ts.allocation = axes

    @on_tensor
    def set_swizzle(self, swizzle: SwizzleName) -> None:
        """Let the copy engine permute pieces of 16 bytes of this tile, so that columns spread out.

        `swizzle` is ``"32B"``, ``"64B"`` or ``"128B"``, the bytes of a box along its innermost
        axis, or ``"none"``. The tile is loaded by `LoadStoreOpType.tma`.

        rewrite::

            tile[row][piece]   --128B-->   tile[row][piece ^ (row % 8)]
        """
        check_kind("set_swizzle", swizzle, str)
        ts, hand = self.fd.hand.entry(self.name), self.fd.hand
        if ts.load is not LoadStoreOpType.tma or hand.is_output(self.name):
            raise ScheduleError("set_swizzle: needed a tile that LoadStoreOpType.tma loads")
        itemsize = hand.graph.value(self.name).dtype.nbytes
        ts.swizzle = None if swizzle == "none" else TileSwizzle(swizzle, itemsize)

    def _adopted(self, name: str) -> Self:
        directed = self.fd.hand.directed
        if self.name in directed:  # the line of the directive that made the new tensor
            directed[name] = directed[self.name]
        return cast("Self", self.fd.adopt(name))

    # ---- new tensors -----------------------------------------------------------------------

    @on_tensor
    def cache_after(self, op_type: LoadStoreOpType = LoadStoreOpType.set) -> Self:
        """Insert a copy between this tensor and its uses; return the copy.

        rewrite::

            y = relu(x)   ->   x_cache = set(x); y = relu(x_cache)
        """
        _check_load(op_type, "cache_after")
        return self._adopted(stage.cache_after(self.fd.hand, self.name, op_type))

    @on_tensor
    def cache_before(self, op_type: LoadStoreOpType = LoadStoreOpType.set) -> Self:
        """Compute this tensor into a new one first, and copy; return the new tensor.

        By `tma` or `bulk` the copy engine stores an output out of a cache in shared memory.

        rewrite::

            y = relu(x)   ->   y_cache = relu(x); y = set(y_cache)
        """
        _check_load(op_type, "cache_before")
        if op_type.is_async_proxy and not self.fd.hand.is_output(self.name):
            raise ScheduleError(
                f"cache_before: {op_type.name} copies store outputs, and it is none; set is needed"
            )
        return self._adopted(stage.cache_before(self.fd.hand, self.name, op_type))

    @on_tensor
    def rfactor(self, axes: Sequence[int]) -> Self:
        """Reduce loop axes `axes` first, into a new tensor; return it.

        rewrite::

            t = sum(x over o, i)   --rfactor o-->   t_rf = sum(x over o); t = sum(t_rf over i)
        """
        first = integers(axes, "rfactor")
        return self._adopted(stage.rfactor(self.fd.hand, self.name, first))

    # ---- pipelines -------------------------------------------------------------------------

    @on_tensor
    def circular_buffer(
        self,
        number_of_stages: int,
        prefetch_distance: int | None = None,
        type: CircularBufferType = Pipelined(),  # noqa: B008 (a frozen record)
    ) -> None:
        """Keep several stages of this shared or local tensor and fill them ahead of their use.

        The loop is the innermost serial one left of the compute-at position (pipelined; a stage
        holds what is unrolled right of it), or all loops left of it (warp-specialised). In local
        memory, registers, it is pipelined.
        `prefetch_distance` is one less than the stages when left out; negative ones count from the
        number of stages.

        Of a tile that the copy engine stores, trip l of all loops left of the position writes stage
        ``l % S`` while up to S - 1 stores still read theirs.

        rewrite::

            for l: tile = load(l); use(tile)
            ->  for l: tile[(l + P) % S] = load(l + P); use(tile[l % S])
        """
        ts = self.fd.hand.entry(self.name)
        if self._is_stored_out_of(ts):
            return self._stage(ts, number_of_stages, prefetch_distance, type)
        if self.fd.hand.graph.value(self.name).op != "set":
            raise ScheduleError(
                f"circular_buffer: defined by {self.fd.hand.graph.value(self.name).op}; needed a "
                "copy made by cache_after"
            )
        if ts.position == 0:
            raise ScheduleError(
                "circular_buffer: compute-at position 0; inline it inside the loop first"
            )
        if ts.circular is not None:
            raise ScheduleError(
                f"circular_buffer: it is circular-buffered with {ts.circular.stages} stages "
                "already; needed one circular_buffer of a tensor"
            )
        ts.circular = CircularBuffer.of(number_of_stages, prefetch_distance, type)
        if not 1 <= ts.stage_position <= ts.position:
            at, ts.circular = ts.stage_position, None
            raise ScheduleError(
                f"circular_buffer: stage_slice_position {at}; needed 1 to {ts.position}, the "
                "compute-at position"
            )

    def _is_stored_out_of(self, ts: TensorSchedule) -> bool:
        """Whether threads fill this tensor for the copy engine to store."""
        hand = self.fd.hand
        return (
            not ts.load.is_async_proxy
            and self.name in stored_tiles(hand.graph, hand.tensors).values()
        )

    def _stage(
        self, ts: TensorSchedule, stages: int, prefetch: int | None, type: CircularBufferType
    ) -> None:
        """Set the stages of a tile that is stored: stores end in order, nothing is fetched."""
        if prefetch is not None or type != Pipelined():
            raise ScheduleError(
                f"circular_buffer: prefetch distance {prefetch} and {type} of a tile that the copy "
                "engine stores; it has stages only"
            )
        if ts.staging:
            raise ScheduleError(
                f"circular_buffer: it has {ts.staging} stages already; needed one circular_buffer "
                "of a tensor"
            )
        CircularBuffer(stages, 0)
        if ts.position == 0 and stages > 1:
            raise ScheduleError(
                "circular_buffer: compute-at position 0; inline it inside the loop first"
            )
        ts.staging = stages

    # ---- compute position ------------------------------------------------------------------

    @on_tensor
    def inline_at(self, consumer: Scheduling, pos: int = -1) -> None:
        """Compute this tensor inside the first `pos` loops of `consumer`; -1 means all of them.

        rewrite::

            for i: for j: t[..] = ..        for i:
            for i: for j: y[..] = t[..]  ->     for j: t[j] = ..
                                                for j: y[..] = t[j]        (pos = 1)
        """
        require_tensor(consumer, "inline_at")
        hand, ts = self.fd.hand, self.fd.hand.entry(self.name)
        if hand.is_output(self.name) and not hand.is_reduction(self.name):
            raise ScheduleError("inline_at: it is an output; cache_before it and inline the cache")
        rank, pos = len(ts.domain.loop), integer(pos, "inline_at: position")
        position = rank + 1 + pos if pos < 0 else pos
        if not 0 <= position <= rank:
            raise ScheduleError(f"inline_at: position {pos}; the loop domain has {rank} axes")
        if consumer.name not in hand.materialised():
            raise ScheduleError(
                f"inline_at: {consumer.name} owns no loops; needed an output, a reduction, a cache "
                "or a tensor that a directive named"
            )
        ts.position = position
        if ts.circular is not None and not 1 <= ts.stage_position <= position:
            raise ScheduleError(
                f"inline_at: position {position}, and it is circular-buffered with "
                f"{ts.circular.stages} stages; at least {max(1, ts.stage_position)} is needed"
            )
        self._check_inlined(consumer.name)

    def _check_inlined(self, consumer: str) -> None:
        from fuser.passes.reach import check_position, consumers_of

        complete = self.fd.hand.complete()
        graph, schedule = complete.part.graph, complete.schedule
        me = complete.names.get(self.name, self.name)
        readers = consumers_of(graph, schedule, me)
        reader = complete.names.get(consumer, consumer)
        if reader not in readers:
            raise ScheduleError(
                f"inline_at: {consumer} does not read it; one of {', '.join(readers)} is needed"
            )
        schedule.tensors[me].position = self.schedule.position
        check_position(graph, schedule, me, NO_FACTS)


def _check_load(op_type: LoadStoreOpType, what: str) -> None:
    check_kind(what, op_type, LoadStoreOpType)
    if op_type is LoadStoreOpType.load_matrix or (
        what == "cache_before" and op_type is LoadStoreOpType.cp_async
    ):
        raise ScheduleError(f"{what}: {op_type.name} copies are not generated; set is needed")
