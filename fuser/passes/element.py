"""Lower one `Compute`: the element's coordinates, value, guard and store."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuser.core.dtypes import DataType
from fuser.core.errors import ScheduleError
from fuser.core.expr import ONE, TRUE, ZERO, Expr, Var, all_of, less, substitute
from fuser.core.simplify import Facts, guard_of, simplify
from fuser.fusion.graph import Value
from fuser.kir.core import SharedArray, Stmt
from fuser.kir.program import Buffer
from fuser.kir.scalar import Apply, Cast, Element, Literal, Ref
from fuser.kir.scalar import Value as Scalar
from fuser.kir.stmts import Assign, BlockReduce, DeclareScalar, GridReduce, Store
from fuser.kir.stmts.reduce import Axis
from fuser.nest.build import materialised_operands
from fuser.nest.nodes import Compute
from fuser.ops import BY_REDUCTION
from fuser.passes.buffers import buffer_index, buffer_size, locate, producer_root
from fuser.passes.expand import Coords, Expander
from fuser.passes.guards import guarded
from fuser.passes.inline import inline_last
from fuser.passes.launch import BLOCK, CLUSTER, GRID, LastBlock, padded_block
from fuser.passes.state import Lowering, Scope
from fuser.passes.zero_fill import filled_copy, is_vector_copy
from fuser.schedule.kinds import MemoryType, ParallelType
from fuser.schedule.schedule import TensorSchedule

COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}
_AXIS: dict[str, Axis] = {"tx": "x", "ty": "y", "tz": "z"}


@dataclass(slots=True)
class ElementLowering:
    """Lowers one statement of one tensor."""

    state: Lowering
    scope: Scope
    node: Compute
    root: Coords = ()

    @property
    def value(self) -> Value:
        """The tensor's value in the fusion graph."""
        return self.state.nest.graph.value(self.node.tensor)

    @property
    def ts(self) -> TensorSchedule:
        """The tensor's schedule."""
        return self.state.nest.schedule.tensors[self.node.tensor]

    def lower(self) -> tuple[Stmt, ...]:
        """Return the statements of this step."""
        match self.node.step:
            case "assign" | "combine":
                return self.assign()
            case "init":
                return self.init()
            case "finish":
                return self.finish()

    # ---- one element -----------------------------------------------------------------------

    def assign(self) -> tuple[Stmt, ...]:
        """Compute the element (or one operand element of a reduction) and keep it."""
        guard = self.guard()
        expander = Expander(self.state.nest.graph, self.read, self.state.fresh)
        kept = self.evaluate(guard, expander)
        if kept and not expander.stmts and is_vector_copy(self.state, kept[0]):
            return self.filled(kept[0])
        return guarded(guard, inline_last(expander.stmts, kept), self.scope.facts)

    def filled(self, copy: Stmt) -> tuple[Stmt, ...]:
        """Return a copy that every thread makes, of zeros where there is no element."""
        facts = self.scope.facts
        _, inside = self.ts.domain.backward(self.node.loops, facts)
        at = buffer_index(self.ts, self.node.loops, facts)  # it has a place in any case
        guard = guard_of(self.own_guard(TRUE), facts)
        return guarded(guard, (filled_copy(copy, at, guard_of(inside, facts)),), facts)

    def guard(self) -> Expr:
        """Return the condition under which the element exists and this thread computes it."""
        _, inside = self.ts.domain.backward(self.node.loops, self.scope.facts)
        return guard_of(self.own_guard(inside), self.scope.facts)

    def own_guard(self, inside: Expr) -> Expr:
        """Return the condition under which this thread computes elements that are `inside`."""
        scope, ts = self.scope, self.ts
        last = self.last_blocks()
        guard = all_of(scope.guard, inside, *(Var(b.flag) for b in last))
        if ts.memory is not MemoryType.local:
            chosen = scope.hardware.union(*(b.kinds for b in last))
            if ts.memory is MemoryType.shared:
                chosen |= {*GRID, *CLUSTER}  # every block has its own
            guard = all_of(guard, self.state.elsewhere(chosen))
        return guard

    def evaluate(self, guard: Expr, expander: Expander) -> tuple[Stmt, ...]:
        """Expand the element's value under `guard`; return the statements that keep it."""
        facts = self.scope.facts.with_guard(guard)
        root, _ = self.ts.domain.backward(self.node.loops, self.scope.facts)
        self.root = tuple(simplify(r, facts) for r in root)
        if self.node.step == "combine":
            element = expander.operand(self.value, 0, self.root, TRUE, facts)
            stored = self.combine(element)
        else:
            stored = expander.compute(self.value, self.coords(self.root), TRUE, facts)
        return self.keep(stored, facts)

    def coords(self, root: Coords) -> Coords:
        """Return the tensor's coordinates at root coordinates."""
        env = {f"r{i}": e for i, e in enumerate(root)}
        return tuple(substitute(c, env) for c in self.ts.coords)

    def combine(self, element: Scalar) -> Scalar:
        """Return the accumulator combined with one more element."""
        dtype = self.state.storage_dtype(self.node.tensor)
        if element.dtype is not dtype:
            element = Cast(element, dtype)
        return Apply(COMBINE[self.value.op], (self.kept(self.scope.facts), element), dtype)

    def kept(self, facts: Facts) -> Scalar:
        """Return the tensor's element at the current loop indices, as it is stored."""
        name, dtype = self.node.tensor, self.state.storage_dtype(self.node.tensor)
        if self.is_scalar(name):
            return Ref(name, dtype)
        return Element(name, buffer_index(self.ts, self.node.loops, facts), dtype)

    def keep(self, stored: Scalar, facts: Facts) -> tuple[Stmt, ...]:
        """Return the statement that puts a value where the tensor lives."""
        name = self.node.tensor
        if self.ts.memory is MemoryType.global_:
            layout = self.state.layouts[name]
            index = simplify(layout.address(self.coords(self.root)), facts)
            return (Store(name, index, stored),)
        if self.is_scalar(name):
            return (Assign(name, stored),)
        return (Store(name, buffer_index(self.ts, self.node.loops, facts), stored),)

    def is_scalar(self, tensor: str) -> bool:
        """Whether a tensor is one register of each thread."""
        ts = self.state.nest.schedule.tensors[tensor]
        if ts.memory is not MemoryType.local:
            return False
        return buffer_size(tensor, ts, self.state.nest.facts) == 1

    # ---- operands --------------------------------------------------------------------------

    def read(self, name: str, coords: Coords, guard: Expr, facts: Facts) -> Scalar | None:
        """Return an element of an input or of a materialised tensor; None when inlined."""
        state = self.state
        value = state.nest.graph.value(name)
        if value.op == "input":
            index = simplify(state.layouts[name].address(coords), facts)
            return Element(name, index, value.dtype, guard)
        ts = state.nest.schedule.tensors.get(name)
        if ts is None or name == self.node.tensor:
            return None
        dtype = state.storage_dtype(name)
        index = locate(name, ts, self.root_of(name, ts, coords, facts), self.shared_loops(ts),
                       facts, self.node.tensor)  # fmt: skip
        kept: Scalar = Ref(name, dtype)
        if not self.is_scalar(name):
            kept = Element(name, index, dtype, guard)
        return kept if dtype is value.dtype else Cast(kept, value.dtype)

    def shared_loops(self, ts: TensorSchedule) -> dict[int, Expr]:
        """Return the loops that a producer shares with this statement."""
        return dict(enumerate(self.node.loops[: ts.position]))

    def root_of(self, name: str, ts: TensorSchedule, coords: Coords, facts: Facts) -> Coords:
        """Return root coordinates of a producer's element."""
        label = self.ts.root_of or self.node.tensor
        return producer_root(name, ts, coords, label, self.root, facts)

    def last_blocks(self) -> tuple[LastBlock, ...]:
        """Return the blocks that alone have the results of grid reductions read here."""
        nest, known = self.state.nest, self.state.last_block
        names = materialised_operands(nest.graph, nest.schedule, self.node.tensor)
        blocks = tuple(dict.fromkeys(b for name in names for b in known.get(name, ())))
        if blocks:
            known[self.node.tensor] = blocks
        return blocks

    # ---- reductions ------------------------------------------------------------------------

    def init(self) -> tuple[Stmt, ...]:
        """Set the accumulator to the identity."""
        if self.is_scalar(self.node.tensor):
            home = self.ts.position
            first = next(
                (j for j, a in enumerate(self.ts.domain.loop) if a.reduction),
                len(self.ts.domain.loop),
            )
            if first <= home or all(
                a.parallel.is_parallel or a.extent == ONE for a in self.ts.domain.loop[home:first]
            ):
                return ()  # its declaration did
        dtype = self.state.storage_dtype(self.node.tensor)
        identity = Literal(BY_REDUCTION[self.value.op].identity(dtype), dtype)
        return self.keep(identity, self.scope.facts)

    def finish(self) -> tuple[Stmt, ...]:
        """Combine the accumulators of the threads and blocks that share the reduction."""
        reduced = [a.parallel for a in self.ts.domain.loop if a.reduction]
        axes: tuple[Axis, ...] = tuple(_AXIS[p.value] for p in BLOCK if p in reduced)
        grid = [p for p in GRID if p in reduced]
        if not axes and not grid:
            return ()
        name, dtype = self.node.tensor, self.state.storage_dtype(self.node.tensor)
        if grid and self.scope.team is not None:
            over = ", ".join(p.name for p in grid)
            raise ScheduleError(
                f"{name}: is reduced over {over} inside a warp role, and all threads of a block "
                "take part in that; needed a pipelined ring, or a reduction behind the roles, "
                "without num_registers"
            )
        stmts: list[Stmt] = []
        scalar = name
        if not self.is_scalar(name):
            scalar = self.state.fresh(f"{name}_total")
            stmts.append(DeclareScalar(scalar, dtype, self.kept(self.scope.facts)))
        scratch = ""
        if axes:
            reduce = self.block_reduce(scalar, axes)
            scratch = reduce.scratch
            stmts.append(reduce)
        if grid:
            whole = all(k in reduced for k in BLOCK if k in self.state.launch.used)
            stmts.append(self.grid_reduce(scalar, grid, scratch if whole else ""))
        if scalar != name:
            stmts += self.keep(Ref(scalar, dtype), self.scope.facts)
        return tuple(stmts)

    def block_reduce(self, scalar: str, axes: tuple[Axis, ...]) -> BlockReduce:
        """Return the statement that combines the threads that run this, and reserve its scratch."""
        state, team = self.state, self.scope.team
        dtype = state.storage_dtype(self.node.tensor)
        scratch = state.named(f"scratch_{dtype.short}")
        reduce = BlockReduce(scalar, self.value.op, dtype, axes, scratch)
        if team is not None:
            reduce = replace(reduce, box=state.box(team), scratch_at=team.first)
        self.reserve(reduce)
        return reduce

    def reserve(self, reduce: BlockReduce) -> None:
        """Have the shared array through which the warps of a reduction exchange partial results."""
        state = self.state
        block = padded_block(state.launch, state.extra_threads)
        numel = reduce.scratch_numel(reduce.extents(block), reduce.axes)
        if reduce.scratch_at != ZERO:  # groups: as many elements as threads lie between them
            numel = state.threads()
        known = [s for s in state.shared if s.name == reduce.scratch]
        numel = max([numel, *(s.numel for s in known)])
        state.shared = [s for s in state.shared if s not in known]
        state.shared.append(SharedArray(reduce.scratch, reduce.dtype, numel))

    def grid_reduce(self, scalar: str, grid: list[ParallelType], scratch: str) -> Stmt:
        """Return the statement that combines across blocks, and reserve its workspace."""
        state, launch = self.state, self.state.launch
        name, dtype = self.node.tensor, state.storage_dtype(self.node.tensor)
        rank: Expr = ZERO
        ranks: Expr = ONE
        segment: Expr = ZERO
        segments: Expr = ONE
        for kind in reversed(GRID):
            extent, index = launch.extents.get(kind, ONE), Var(kind.value)
            if extent == ONE:
                continue
            if kind in grid:
                rank, ranks = rank * extent + index, ranks * extent
            else:
                segment, segments = segment * extent + index, segments * extent
        slot: Expr = ZERO
        slots: Expr = ONE
        for kind in () if scratch else reversed(BLOCK):
            extent = launch.extents.get(kind, ONE)
            if extent != ONE:
                slot, slots = slot * extent + Var(kind.value), slots * extent
        if scalar != name:
            raise ScheduleError(
                f"{name}: {buffer_size(name, self.ts, state.nest.facts)} elements a thread are "
                "reduced across blocks; bind or inline its axes until one is left"
            )
        facts = state.nest.facts
        numel = simplify(segments * ranks * slots, facts)
        partials = Buffer(state.named(f"{name}_partials"), dtype, (), (), numel)
        arrivals = state.named(f"{name}_arrivals")
        counter = Buffer(arrivals, DataType.Int32, (), (), simplify(segments, facts), True)
        state.buffers += [partials, counter]
        flag = state.fresh(f"{name}_last")
        state.last_block[name] = (LastBlock(flag, frozenset(grid)),)
        return GridReduce(
            scalar, self.value.op, dtype, partials.name, counter.name,
            rank, ranks, segment, slot, slots, flag,
            TRUE if scratch else self.has_slot(), scratch,
        )  # fmt: skip

    def has_slot(self) -> Expr:
        """Return the condition of the threads that loops are bound to; producers have no slot."""
        axis = self.state.extra_axis
        if axis is None:
            return TRUE
        return less(Var(axis.value), self.state.launch.extents[axis])
