"""Copies of a fusion graph: with sizes replaced, or restricted to some values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fuser.core.expr import Const, Expr, Var, substitute
from fuser.fusion.attrs import InputAttrs, map_exprs
from fuser.fusion.graph import FusionGraph, Output, Value


def size_substitution(graph: FusionGraph, sizes: Mapping[str, int]) -> dict[str, Expr]:
    """Return what each size variable is, given fixed sizes and the graph's constraints.

    Extents that a constraint relates become one variable (or the constant one of them is); the
    constraints themselves were checked when sizes were bound.
    """
    env: dict[str, Expr] = {name: Const(size) for name, size in sizes.items()}
    for constraint in graph.constraints:
        lhs, rhs = substitute(constraint.lhs, env), substitute(constraint.rhs, env)
        old, new = (lhs, rhs) if isinstance(lhs, Var) else (rhs, lhs)
        if isinstance(new, Var) and isinstance(old, Var):
            old, new = _later_first(graph, old, new)
        if isinstance(old, Var) and old != new and isinstance(new, Var | Const):
            env = {name: substitute(e, {old.name: new}) for name, e in env.items()}
            env[old.name] = new
    return env


def specialise(graph: FusionGraph, sizes: Mapping[str, Expr]) -> FusionGraph:
    """Return `graph` with size variables replaced, without its constraints."""
    if not sizes:
        return graph
    result = FusionGraph()
    for value in graph.values:
        shape = tuple(substitute(e, sizes) for e in value.shape)
        attrs = map_exprs(value.attrs, lambda e: substitute(e, sizes))
        _add(result, replace(value, shape=shape, attrs=attrs), graph.operand_names(value))
    result.set_outputs(graph.outputs)
    return result


def _later_first(graph: FusionGraph, a: Var, b: Var) -> tuple[Var, Var]:
    """Order two size variables so that the one of the earlier input stays."""
    order = [v.name for v in graph.inputs]

    def rank(var: Var) -> int:
        stem = var.name.rpartition("_size")[0] or var.name
        return order.index(stem) if stem in order else len(order)

    return (a, b) if rank(a) > rank(b) else (b, a)


def _add(graph: FusionGraph, value: Value, operands: Iterable[str]) -> Value:
    return graph.add(
        value.op, tuple(operands), value.dtype, value.shape, value.attrs, value.name,
        value.location,
    )  # fmt: skip


def subgraph(graph: FusionGraph, targets: Iterable[str], cut: Iterable[str]) -> FusionGraph:
    """Return the part of `graph` that computes `targets`, with the values `cut` as inputs."""
    wanted, boundary = tuple(targets), set(cut) - set(targets)
    needed: set[str] = set()
    todo = list(wanted)
    while todo:
        name = todo.pop()
        if name not in needed:
            needed.add(name)
            if name not in boundary:
                todo.extend(graph.operand_names(name))
    result = FusionGraph()
    for value in graph.values:
        if value.name not in needed:
            continue
        if value.name in boundary:
            rank = value.rank
            contiguity = tuple(None if e == Const(1) else True for e in value.shape)
            attrs = InputAttrs(contiguity, tuple(reversed(range(rank))))
            _add(result, replace(value, op="input", attrs=attrs), ())
        else:
            _add(result, value, graph.operand_names(value))
    result.set_outputs(Output(name) for name in dict.fromkeys(wanted))
    return result
