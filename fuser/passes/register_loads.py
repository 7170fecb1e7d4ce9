"""The parts of a loop that a ring in registers clones: what loads them, and the rest."""

from __future__ import annotations

from dataclasses import replace

from fuser.core.expr import TRUE, ZERO, Expr
from fuser.core.simplify import Facts, guard_of
from fuser.core.unroll import Unroll
from fuser.nest.nodes import Allocate, Compute, Loop, NestNode, When

Body = tuple[NestNode, ...]
ROLLED, UNROLLED = Unroll("rolled"), Unroll("full")


def where(condition: Expr, body: Body, facts: Facts) -> Body:
    """Return a body that runs where a condition holds; nothing is tested that is known."""
    known = guard_of(condition, facts)
    return body if known == TRUE else (When(known, body),)


def computes(node: NestNode, tensors: tuple[str, ...]) -> bool:
    """Whether one of `tensors` is computed in a node."""
    return bool(loads_of((node,), tensors))


def loads_of(nodes: Body, tensors: tuple[str, ...]) -> Body:
    """Return a copy with only the statements of `tensors`; empty loops vanish."""
    result: list[NestNode] = []
    for node in nodes:
        match node:
            case Loop(body=body):
                inner = loads_of(body, tensors)
                if inner:
                    result.append(replace(node, body=inner))
            case Compute(tensor=tensor) if tensor in tensors:
                result.append(node)
            case _:
                pass
    return tuple(result)


def uses_of(nodes: Body, tensors: tuple[str, ...]) -> Body:
    """Return a copy without statements and allocations of `tensors`; empty loops vanish."""
    result: list[NestNode] = []
    for node in nodes:
        match node:
            case Loop(body=body):
                inner = uses_of(body, tensors)
                if inner:
                    result.append(replace(node, body=inner))
            case Compute(tensor=tensor) | Allocate(tensor=tensor) if tensor in tensors:
                pass
            case _:
                result.append(node)
    return tuple(result)


def is_empty(node: NestNode) -> bool:
    """Whether a loop is known to have no trip."""
    return isinstance(node, Loop) and (node.start == node.extent or node.extent == ZERO)
