"""Registers have no addresses: an element of a ring of registers is chosen by a constant index.

Loops whose variable is part of such an index are unrolled. An index that is not constant then would
move the ring to local memory, which is what it shall hide the latency of; it is an error instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from fuser.core.errors import ScheduleError
from fuser.core.expr import Expr, variables
from fuser.core.unroll import Unroll
from fuser.kir.core import Stmt, walk_stmts
from fuser.kir.scalar import Element, walk
from fuser.kir.stmts import For, Store, VectorLoad, VectorStore, Wgmma
from fuser.passes.mentions import stmt_scalars

NO_LOOPS: Mapping[str, For] = MappingProxyType({})


def unrolled(loop: For, rings: frozenset[str]) -> For:
    """Return a loop unrolled if its variable chooses registers of a ring and its trips are few."""
    if loop.unroll.kind != "auto" or loop.trip() is None:
        return loop
    indices = (i for s in walk_stmts(loop.body) for name, i in accesses(s) if name in rings)
    chooses = any(loop.var in variables(index) for index in indices)
    return replace(loop, unroll=Unroll("full")) if chooses else loop


def chosen_in_a_loop(loop: For, array: str) -> ScheduleError:
    """Return the error that a loop which the user wants in the code chooses registers."""
    return ScheduleError(
        f"{loop.unroll.origin} is a loop in the code and chooses elements of {array}, which is in "
        "registers; registers have no addresses: needed unroll()"
    )


def check_slots(
    body: Sequence[Stmt],
    rings: frozenset[str],
    constant: frozenset[str] = frozenset(),
    directed: Mapping[str, For] = NO_LOOPS,
) -> None:
    """Raise `ScheduleError` where registers of a ring are chosen at run time.

    Parameters
    ----------
    constant
        Variables of the unrolled loops around `body`.
    directed
        Other loops around it that have a directive, by variable.
    """
    for stmt in body:
        for name, index in accesses(stmt):
            varying = sorted(variables(index) - constant)
            if name in rings and varying:
                for var in varying:
                    if var in directed:
                        raise chosen_in_a_loop(directed[var], name)
                raise ScheduleError(
                    f"{name}: circular-buffered in registers, and its element {index} depends on "
                    f"{', '.join(varying)} at run time; registers have no addresses: bind its axes "
                    "to the threads that read them, and read the others in loops of constant extent"
                )
        inner, others = constant, directed
        if isinstance(stmt, For):
            known = stmt.is_unrolled() and stmt.trip() is not None
            inner = constant | {stmt.var} if known else constant - {stmt.var}
            others = {**directed, stmt.var: stmt} if stmt.unroll.origin else directed
        for nested in stmt.bodies():
            check_slots(nested, rings, inner, others)


def accesses(stmt: Stmt) -> Iterator[tuple[str, Expr]]:
    """Yield memory and index of every element that a statement reads or writes by itself."""
    match stmt:
        case Store():
            yield stmt.memory, stmt.index
        case VectorLoad():
            yield stmt.dst, stmt.dst_index
        case VectorStore():
            yield stmt.src, stmt.src_index
        case Wgmma():
            yield stmt.accumulator, stmt.first
        case _:
            pass
    for value in stmt_scalars(stmt):
        for node in walk(value):
            if isinstance(node, Element):
                yield node.memory, node.index
