"""Kernel IR as text: every statement by its class and fields, so a new one prints at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

from fuser.core.dtypes import DataType
from fuser.core.expr import ZERO, BinOp, Const, Expr, Select, Var, to_c
from fuser.core.unroll import Unroll
from fuser.kir.core import (
    Kernel,
    Param,
    ScalarParam,
    SizeParam,
    Stmt,
    TensorMapParam,
    TensorParam,
)
from fuser.kir.scalar import Apply, Cast, Choose, Element, FromIndex, Literal, Ref
from fuser.kir.stmts import Roles
from fuser.kir.text import bare, value_to_c

_EXPR = (Const, Var, BinOp, Select)
_VALUE = (Literal, Ref, Element, FromIndex, Apply, Cast, Choose)


def to_text(kernel: Kernel) -> str:
    """Print the launch, the memory and the body of a kernel, one item a line."""
    lines = [f"kernel {kernel.name}  # {kernel.index} indices"]
    lines += [f"  grid  {_extents(kernel.grid)}", f"  block {_extents(kernel.block)}"]
    lines += [f"  param {_param(p)}" for p in kernel.params]
    lines += [
        f"  shared {s.name}: {s.dtype.short}[{s.numel}]  # {s.nbytes} bytes" for s in kernel.shared
    ]
    lines += [f"  shared {b.name}: {b.size} mbarriers" for b in kernel.barriers]
    lines += [
        f"  ring {r.name}: {r.stages} stages of {', '.join(r.arrays)}, {r.prefetch} trips ahead, "
        f"{r.kind}  # {', '.join(name for name in (r.full, r.empty) if name)}"
        for r in kernel.rings
    ]
    return "\n".join([*lines, *_body(kernel.body, 1)])


def _extents(extents: tuple[Expr, ...]) -> str:
    return ", ".join(to_c(e) for e in extents)


def _param(p: Param) -> str:
    match p:
        case TensorParam(name, dtype, mode, numel, aligned_bytes, aliased):
            alias = ", may alias" if aliased else ""
            size = to_c(numel)
            return f"{name}: {mode} {dtype.short}[{size}], aligned to {aligned_bytes}{alias}"
        case ScalarParam(name, dtype):
            return f"{name}: {dtype.short}"
        case SizeParam(name):
            return f"{name}: size"
        case TensorMapParam():
            return _tensor_map(p)


def _tensor_map(p: TensorMapParam) -> str:
    dims, strides = _extents(p.dims), _extents(p.strides_bytes)
    start = f" from element {to_c(p.offset_elems)}" if p.offset_elems != ZERO else ""
    steps = f", element strides {list(p.element_strides)}" if set(p.element_strides) > {1} else ""
    return (
        f"{p.name}: tensor map of {p.tensor}{start}, {p.dtype.short}[{dims}] innermost first, "
        f"strides [{strides}] bytes, box {list(p.box)}{steps}, swizzle {p.swizzle}"
    )


def _body(body: tuple[Stmt, ...], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for stmt in body:
        if isinstance(stmt, Roles):
            yield f"{pad}Roles"
            for role in stmt.roles:
                yield f"{pad}role {role.name}: threads {role.range.start} to {role.range.stop - 1}"
                yield from _body(role.body, depth + 1)
            continue
        held: list[tuple[Field[Any], Any]] = [
            (f, getattr(stmt, f.name))
            for f in fields(stmt)  # type: ignore[arg-type]
        ]
        nested = {id(body) for body in stmt.bodies() if body}
        words = [w for f, item in held if id(item) not in nested and (w := _field(f, item))]
        name = "".join(f" {item}:" for f, item in held if f.name == "name")
        yield f"{pad}{type(stmt).__name__}{name} {', '.join(words)}".rstrip()
        for f, item in held:
            if id(item) not in nested:
                continue
            if f.name != "body":
                yield f"{pad}{f.name}:"
            yield from _body(item, depth + 1)


def _field(field: Field[Any], value: Any) -> str:
    """Print ``name=value``; nothing for the statement's own name and for a default."""
    is_default = field.default is not MISSING and value == field.default
    if field.name == "name" or is_default or value == ():
        return ""
    return f"{field.name}={_text(value)}"


def _unroll(unroll: Unroll) -> str:
    """Print a directive, and why it is: who asked for it, or the registers that require it."""
    kind = f"{unroll.kind}:{unroll.factor}" if unroll.kind == "partial" else unroll.kind
    match unroll.reason:
        case "user":
            return f"{kind} ({unroll.origin})"
        case "required":
            return f"{kind} (required by registers {unroll.registers})"
        case "heuristic":
            moved = f" (moves {unroll.registers} to local memory)" if unroll.registers else ""
            return f"{kind}{moved}"


def _text(value: Any) -> str:
    match value:
        case DataType():
            return value.short
        case Unroll():
            return _unroll(value)
        case (*items,):
            return f"({', '.join(map(_text, items))})"
        case _ if isinstance(value, _EXPR):
            return to_c(value)
        case _ if isinstance(value, _VALUE):
            return bare(value_to_c(value))
        case _:
            return str(value)
