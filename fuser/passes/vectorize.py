"""Vector loops: element accesses that a loop makes to neighbours become one wide access.

rewrite::

    for v in [0, 8): y[i*8 + v] = f(x[i*8 + v])
    ->
    x_v[0:8] = x[i*8 : i*8+8]                  one 16-byte load
    for v in [0, 8): y_v[v] = f(x_v[v])
    y[i*8 : i*8+8] = y_v[0:8]                  one 16-byte store

An access qualifies when its index is ``base + v`` with `base` provably a multiple of the width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fuser.core.dtypes import DataType
from fuser.core.errors import ScheduleError
from fuser.core.expr import ONE, TRUE, ZERO, BinOp, Const, Expr, Var, all_of, conjuncts, substitute
from fuser.core.simplify import (
    Facts,
    coefficient_of,
    is_multiple,
    simplify,
)
from fuser.core.unroll import Unroll
from fuser.kir.core import Stmt, walk_stmts
from fuser.kir.scalar import Element
from fuser.kir.scalar import Value as Scalar
from fuser.kir.stmts import DeclareRegisters, For, If, Store, VectorLoad, VectorStore
from fuser.kir.stmts.memory import Hint
from fuser.passes.demand import demand_whole, memory_dtype
from fuser.passes.guards import hoist_guards, split_guard
from fuser.passes.mentions import memories_of
from fuser.passes.rewrite import map_stmt
from fuser.passes.state import Lowering
from fuser.passes.unswitch import holds_for_all
from fuser.passes.zero_fill import map_guard, may_be_filled, vector_copies, with_branches

VECTOR_BYTES = 16


def vectorize_loop(
    var: str, extent: Expr, body: tuple[Stmt, ...], facts: Facts, state: Lowering
) -> tuple[Stmt, ...]:
    """Return the statements of a loop bound to `vectorize`.

    Where the guard depends on the vector index, whole vectors take the wide path and the last,
    partial one takes an element-wise loop.
    """
    if not isinstance(extent, Const):
        raise ScheduleError(f"vectorize: the axis has extent {extent}; a constant is needed")
    if extent == ONE:
        return body
    copies = _without_branches(var, extent, body, facts, state)
    if copies is not None:
        return copies
    merged = hoist_guards(with_branches(body, state))
    guard: Expr = TRUE
    if len(merged) == 1 and isinstance(merged[0], If) and not merged[0].orelse:
        guard, merged = merged[0].cond, merged[0].body
    guard = all_of(*(_whole_vectors(t, var, extent, facts) for t in conjuncts(guard)))
    outer, inner = split_guard(guard, frozenset((var,)))
    whole = holds_for_all(inner, var, 0, extent.value - 1, facts)
    if state.nest.schedule.exact_vectors:
        guarded = inner if whole is None else TRUE
        demand_whole(var, extent.value, merged, guarded, facts.with_guard(guard), state)
    if inner != TRUE and whole is None:
        return (For(var, extent, body, Unroll("full")),)
    held = facts.with_guard(outer)
    wide = _Widener(var, extent.value, held.with_guard(inner), state).rewrite(merged)
    if inner == TRUE or whole is None:
        return wide if outer == TRUE else (If(outer, wide),)
    tail = (For(var, extent, (If(inner, merged),), _tail_unroll(merged, state)),)
    both: tuple[Stmt, ...] = (If(whole, wide, tail),)
    return both if outer == TRUE else (If(outer, both),)


def _without_branches(
    var: str, extent: Const, body: tuple[Stmt, ...], facts: Facts, state: Lowering
) -> tuple[Stmt, ...] | None:
    """Return the copies by ``cp.async`` that a loop is; None where it is something else."""
    merged = hoist_guards(body)
    guard: Expr = TRUE
    if len(merged) == 1 and isinstance(merged[0], If) and not merged[0].orelse:
        guard, merged = merged[0].cond, merged[0].body
    if len(merged) != 1 or not may_be_filled(state, merged[0]):
        return None
    held = facts.with_guard(guard)
    widener = _Widener(var, extent.value, held, state)
    copy = map_guard(merged[0], lambda term: _whole_vectors(term, var, extent, facts))
    copies = vector_copies(copy, var, extent.value, held, widener.width)
    if copies is None or (state.nest.schedule.exact_vectors and len(copies) > 1):
        return None
    return copies if guard == TRUE else (If(guard, copies),)


def _whole_vectors(term: Expr, var: str, extent: Const, facts: Facts) -> Expr:
    """Return ``base < n`` for ``base + var < n`` where both are multiples of the vector."""
    match term:
        case BinOp("<", lhs, rhs) if coefficient_of(rhs - lhs, var, facts) == -1:
            at_first: Expr = substitute(term, {var: ZERO})
            gap = substitute(rhs - lhs, {var: ZERO})
            return simplify(at_first, facts) if is_multiple(gap, extent.value, facts) else term
        case _:
            return term


def _tail_unroll(body: tuple[Stmt, ...], state: Lowering) -> Unroll:
    """Roll the element-wise loop unless it indexes registers, which needs constant indices."""
    registers = any(memory_dtype(state, memory) is None for memory in memories_of(body))
    return Unroll("full") if registers else Unroll("rolled")


@dataclass(slots=True)
class _Widener:
    var: str
    extent: int
    facts: Facts
    state: Lowering
    before: list[Stmt] = field(default_factory=list[Stmt])
    after: list[Stmt] = field(default_factory=list[Stmt])
    loaded: dict[tuple[str, Expr], str] = field(default_factory=dict[tuple[str, Expr], str])

    def rewrite(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Return the loop over `body` with its wide accesses moved before and after it."""
        written = {s.memory for s in walk_stmts(body) if isinstance(s, Store)}
        # Accesses in nested branches and loops stay: they may not happen for a whole vector.
        load = self.load(written)
        inner = tuple(s if s.bodies() else self.store(map_stmt(s, load, lambda e: e)) for s in body)
        copy = self.plain_copy(inner)
        if copy is not None:
            return (*self.before, *copy)
        loop = For(self.var, Const(self.extent), inner, Unroll("full"))
        return (*self.before, loop, *self.after)

    def load(self, written: set[str]) -> Callable[[Scalar], Scalar]:
        """Return the rewrite of one element read."""

        def replace_element(value: Scalar) -> Scalar:
            if not isinstance(value, Element) or value.guard != TRUE or value.memory in written:
                return value
            width = self.width(value.memory, value.index, value.dtype)
            if width is None:
                return value
            base = simplify(substitute(value.index, {self.var: ZERO}), self.facts)
            key = (value.memory, base)
            if key not in self.loaded:
                name = self.state.fresh(f"{value.memory}_v")
                self.loaded[key] = name
                self.before.append(DeclareRegisters(name, value.dtype, self.extent))
                for part in range(0, self.extent, width):
                    index = simplify(base + part, self.facts)
                    self.before.append(
                        VectorLoad(name, Const(part), value.memory, index, width, value.dtype)
                    )
            return Element(self.loaded[key], Var(self.var), value.dtype)

        return replace_element

    def store(self, stmt: Stmt) -> Stmt:
        """Return the statement that keeps an element for a wide store, or `stmt` itself."""
        if not isinstance(stmt, Store):
            return stmt
        dtype = memory_dtype(self.state, stmt.memory)
        width = None if dtype is None else self.width(stmt.memory, stmt.index, dtype)
        if width is None or dtype is None:
            return stmt
        base = simplify(substitute(stmt.index, {self.var: ZERO}), self.facts)
        name = self.state.fresh(f"{stmt.memory}_v")
        self.before.append(DeclareRegisters(name, dtype, self.extent))
        ts = self.state.nest.schedule.tensors.get(stmt.memory)
        hint: Hint = "cs" if ts is not None and ts.streams else ""
        for part in range(0, self.extent, width):
            self.after.append(
                VectorStore(stmt.memory, simplify(base + part, self.facts), name, Const(part),
                            width, dtype, hint)
            )  # fmt: skip
        return Store(name, Var(self.var), stmt.value)

    def plain_copy(self, inner: tuple[Stmt, ...]) -> list[Stmt] | None:
        """Return the stores of a loop that only copies vectors, without the register copy."""
        if len(inner) != 1 or not isinstance(inner[0], Store) or len(self.loaded) != 1:
            return None
        (source,) = self.loaded.values()
        value = inner[0].value
        if not (isinstance(value, Element) and value.memory == source and self.after):
            return None
        target = inner[0].memory
        self.before = [
            s for s in self.before if not (isinstance(s, DeclareRegisters) and s.name == target)
        ]
        return [
            VectorStore(s.memory, s.index, source, s.src_index, s.width, s.dtype, s.hint)
            for s in self.after
            if isinstance(s, VectorStore)
        ]

    def width(self, memory: str, index: Expr, dtype: DataType) -> int | None:
        """Return the widest access of neighbours that is aligned, or None."""
        in_registers = memory_dtype(self.state, memory) is None
        if in_registers or coefficient_of(index, self.var, self.facts) != 1:
            return None
        base = substitute(index, {self.var: ZERO})
        layout = self.state.layouts.get(memory)
        aligned = VECTOR_BYTES if layout is None else layout.aligned_bytes
        width = min(self.extent, VECTOR_BYTES // dtype.nbytes)
        while width > 1:
            fits = self.extent % width == 0 and width * dtype.nbytes <= aligned
            if fits and is_multiple(base, width, self.facts):
                return width
            width //= 2
        return None
