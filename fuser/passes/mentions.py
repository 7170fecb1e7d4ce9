"""What a kernel's body refers to: memories, scalars, index variables."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from fuser.core.expr import BinOp, Const, Expr, Select, Var, variables
from fuser.kir.core import Kernel, Stmt, field_names, walk_stmts
from fuser.kir.scalar import Apply, Cast, Choose, Element, FromIndex, Literal, Ref, walk
from fuser.kir.scalar import Value as Scalar
from fuser.kir.stmts import DeclareRegisters, DeclareScalar, Define, For, GridReduce, Let

HARDWARE = frozenset(
    {"bx", "by", "bz", "cx", "cy", "cz", "cluster_rank", "tx", "ty", "tz", "thread"}
)
_EXPR = (Const, Var, BinOp, Select)
_SCALAR = (Literal, Ref, Element, FromIndex, Apply, Cast, Choose)


def stmt_exprs(stmt: Stmt) -> list[Expr]:
    """Return the index expressions among the fields of a statement, values included."""
    found: list[Expr] = []
    for name in field_names(stmt):
        item: object = getattr(stmt, name)
        if isinstance(item, _EXPR):
            found.append(item)
        elif isinstance(item, _SCALAR):
            found += scalar_exprs(item)
        elif isinstance(item, tuple):
            found += [e for e in cast("tuple[object, ...]", item) if isinstance(e, _EXPR)]
    return found


def scalar_exprs(value: Scalar) -> list[Expr]:
    """Return the index expressions inside a scalar value."""
    found: list[Expr] = []
    for node in walk(value):
        match node:
            case Element(index=index, guard=guard):
                found += [index, guard]
            case FromIndex(expr=expr):
                found.append(expr)
            case Choose(cond=cond):
                found.append(cond)
            case _:
                pass
    return found


def stmt_scalars(stmt: Stmt) -> list[Scalar]:
    """Return the scalar values among the fields of a statement."""
    names = field_names(stmt)
    return [v for name in names if isinstance(v := getattr(stmt, name), _SCALAR)]


def memories_of(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Return the names of every memory that a body reads or writes."""
    found: set[str] = set()
    for stmt in walk_stmts(body):
        for f in ("memory", "src", "dst", "partials", "counter", "accumulator", "a", "b"):
            name = getattr(stmt, f, None)
            if name:
                found.add(name)
        for value in stmt_scalars(stmt):
            found |= {node.memory for node in walk(value) if isinstance(node, Element)}
    return frozenset(found)


def mentioned(kernel: Kernel) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the names of ``(memories, scalars, free index variables)`` that `kernel` uses."""
    scalars: set[str] = set()
    used: set[str] = set()
    defined: set[str] = set(HARDWARE)
    for stmt in walk_stmts(kernel.body):
        for value in stmt_scalars(stmt):
            scalars |= {node.name for node in walk(value) if isinstance(node, Ref)}
        for expr in stmt_exprs(stmt):
            used |= variables(expr)
        for f in DEFINES.get(type(stmt), ()):
            defined.add(getattr(stmt, f))
    for extent in (*kernel.grid, *kernel.block):
        used |= variables(extent)
    return memories_of(kernel.body), frozenset(scalars), frozenset(used - defined)


def declared(kernel: Kernel) -> frozenset[str]:
    """Return every name that `kernel` gives to something."""
    names = {p.name for p in kernel.params} | {s.name for s in kernel.shared}
    names |= {b.name for b in kernel.barriers}
    for stmt in walk_stmts(kernel.body):
        names |= {getattr(stmt, f) for f in DEFINES.get(type(stmt), ())}
        if isinstance(stmt, Define | DeclareScalar | DeclareRegisters):
            names.add(stmt.name)
    return frozenset(names)


def unused(name: str, taken: Collection[str]) -> str:
    """Return a name like `name` that is not taken."""
    while name in taken:
        name += "_"
    return name


DEFINES: dict[type[Stmt], tuple[str, ...]] = {
    For: ("var",),
    Let: ("name",),
    GridReduce: ("is_last",),
}
