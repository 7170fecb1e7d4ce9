"""Which elements of the inputs one element of a value is computed from."""

from __future__ import annotations

from dataclasses import dataclass

from fuser.core.expr import TRUE, Expr, all_of
from fuser.core.simplify import Facts, simplify
from fuser.fusion.attrs import ReduceAttrs
from fuser.fusion.graph import FusionGraph, Value
from fuser.fusion.views import operand_access

Coords = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class InputAccess:
    """A read of `name` (an input or a reduction) at `coords`, wherever `guard` holds."""

    name: str
    coords: Coords
    guard: Expr


def input_accesses(
    graph: FusionGraph, value: Value, coords: Coords, facts: Facts
) -> tuple[InputAccess, ...]:
    """Return the distinct input elements that element `coords` of `value` needs.

    Reads below a reduction are left out: they are at many coordinates.
    """
    found = accesses(graph, value, coords, facts)
    return tuple(a for a in found if graph.value(a.name).op == "input")


def accesses(
    graph: FusionGraph, value: Value, coords: Coords, facts: Facts
) -> tuple[InputAccess, ...]:
    """Return the distinct elements of inputs and of reductions that an element of `value` needs.

    `coords` has the rank of the operand when `value` is a reduction itself.
    """
    found: dict[InputAccess, None] = {}
    todo: list[tuple[Value, Coords, Expr]] = [(value, coords, TRUE)]
    seen: set[tuple[str, Coords, Expr]] = set()
    while todo:
        at, where, guard = todo.pop()
        key = (at.name, where, guard)
        if key in seen:
            continue
        seen.add(key)
        if at.op == "input" or (isinstance(at.attrs, ReduceAttrs) and at is not value):
            found[InputAccess(at.name, where, guard)] = None
            continue
        for k, operand in enumerate(graph.operands(at)):
            access = operand_access(graph, at, k, where)
            inner = tuple(simplify(c, facts) for c in access.coords)
            todo.append((operand, inner, all_of(guard, access.guard)))
    return tuple(found)
