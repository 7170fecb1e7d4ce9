"""Copies by ``cp.async`` that have no branch around them: where there is no element, zeros land.

Threads whose elements lie outside of the tensor copy, too: as many elements as there are, and zeros
behind them. So what lands is the same for all sizes, and nobody waits for a copy that is not made.

rewrite::

    for v in [0, 4): if (i * 4 + v < n) tile[i * 4 + v] = x[i * 4 + v]
    ->
    cp_async(tile + i * 4, x + i * 4, 4 elements, of which n - i * 4 exist)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuser.core.dtypes import DataType
from fuser.core.errors import ScheduleError
from fuser.core.expr import (
    TRUE,
    BinOp,
    Const,
    Expr,
    all_of,
    conjuncts,
    minimum,
    substitute,
    variables,
)
from fuser.core.simplify import Facts, coefficient_of, prove_less, simplify
from fuser.kir.core import Stmt
from fuser.kir.scalar import Element, Literal
from fuser.kir.stmts import CpAsync, If, Store
from fuser.passes.rewrite import map_bodies
from fuser.passes.state import Lowering
from fuser.schedule.kinds import LoadStoreOpType, MemoryType, ParallelType

CP_ASYNC_BYTES = 4
Width = Callable[[str, Expr, DataType], int | None]
"""Of a memory, an index and a dtype: the widest access of neighbours, if there is one."""


def is_vector_copy(state: Lowering, stmt: Stmt) -> bool:
    """Whether a statement copies an element that ``cp.async`` shall load, one of a vector."""
    if not isinstance(stmt, Store) or not isinstance(stmt.value, Element):
        return False
    ts, value = state.nest.schedule.tensors.get(stmt.memory), stmt.value
    if ts is None or ts.memory is not MemoryType.shared or ts.load is not LoadStoreOpType.cp_async:
        return False
    vector = any(axis.parallel is ParallelType.vectorize for axis in ts.domain.loop)
    return vector and value.memory in state.layouts and value.guard == TRUE


def filled_copy(copy: Stmt, index: Expr, guard: Expr) -> Stmt:
    """Return a copy to `index` of an element, or of zero where `guard` is false."""
    assert isinstance(copy, Store)
    assert isinstance(copy.value, Element)
    if guard == TRUE:
        return replace(copy, index=index)
    value = replace(copy.value, guard=guard, fill=Literal(0, copy.value.dtype))
    return replace(copy, index=index, value=value)


def may_be_filled(state: Lowering, stmt: Stmt) -> bool:
    """Whether a statement is what `filled_copy` returns."""
    plain = _plain(stmt)
    return plain is not None and is_vector_copy(state, plain)


def _plain(stmt: Stmt) -> Store | None:
    """Return a copy without its guard; None of what else there is than zeros."""
    if not isinstance(stmt, Store) or not isinstance(stmt.value, Element):
        return None
    value = stmt.value
    zero = isinstance(value.fill, Literal) and isinstance(value.fill.value, int)
    if value.guard != TRUE and not zero:  # of a padded tensor: -0.0, say
        return None
    return replace(stmt, value=replace(value, guard=TRUE, fill=None))


def with_branches(body: tuple[Stmt, ...], state: Lowering) -> tuple[Stmt, ...]:
    """Return a body with its filled copies under branches, for what ``cp.async`` cannot do."""
    made: list[Stmt] = []
    for stmt in body:
        plain = _plain(stmt)
        if plain is not None and is_vector_copy(state, plain) and isinstance(stmt, Store):
            assert isinstance(stmt.value, Element)
            guard = stmt.value.guard
            made.append(plain if guard == TRUE else If(guard, (plain,)))
        else:
            made.append(map_bodies(stmt, lambda inner: with_branches(inner, state)))
    return tuple(made)


def map_guard(copy: Stmt, change: Callable[[Expr], Expr]) -> Store:
    """Return a filled copy with every condition of its guard changed."""
    assert isinstance(copy, Store)
    assert isinstance(copy.value, Element)
    guard = all_of(*map(change, conjuncts(copy.value.guard)))
    return replace(copy, value=replace(copy.value, guard=guard))


def vector_copies(
    copy: Store, var: str, extent: int, facts: Facts, width: Width
) -> tuple[Stmt, ...] | None:
    """Return the copies by ``cp.async`` of a loop over neighbours; None where they are narrower.

    Raises
    ------
    ScheduleError
        The two sides allow accesses of different widths.
    """
    value = copy.value
    assert isinstance(value, Element)
    terms = list(conjuncts(value.guard))
    cut = [t for t in terms if var in variables(t)]
    if not all(_ends(t, var, facts) for t in cut):
        return None
    there, here = (
        width(copy.memory, copy.index, value.dtype),
        width(value.memory, value.index, value.dtype),
    )
    if there is None or here is None or there * value.dtype.nbytes < CP_ASYNC_BYTES:
        return None
    if there != here:
        raise ScheduleError(
            f"{copy.memory}: loaded by cp_async, and its reads are {extent // here} accesses and "
            f"its writes {extent // there}; both sides must be aligned alike"
        )
    guard = all_of(*(t for t in terms if t not in cut))
    held = facts.with_guard(guard)
    made: list[Stmt] = []
    for first in range(0, extent, there):
        at = {var: Const(first)}
        limit = _limit([substitute(t, at) for t in cut], there, held)
        inside = held.with_guard(all_of(*(substitute(t, at) for t in cut)))
        made.append(
            CpAsync(
                copy.memory, simplify(substitute(copy.index, at), facts),
                value.memory, simplify(substitute(value.index, at), inside),
                there, value.dtype, guard, limit,
            )
        )  # fmt: skip
    return tuple(made)


def _ends(term: Expr, var: str, facts: Facts) -> bool:
    """Whether a condition holds for the first elements of a vector and then for no more."""
    if not (isinstance(term, BinOp) and term.op == "<"):
        return False
    return coefficient_of(term.rhs - term.lhs, var, facts) == -1


def _limit(terms: list[Expr], width: int, facts: Facts) -> Expr | None:
    """Return how many elements there are from the first one of a vector on; None for enough."""
    limit: Expr | None = None
    for term in terms:
        assert isinstance(term, BinOp)
        rest = simplify(term.rhs - term.lhs, facts)
        if not prove_less(Const(width - 1), rest, facts):
            limit = rest if limit is None else minimum(limit, rest)
    return limit
