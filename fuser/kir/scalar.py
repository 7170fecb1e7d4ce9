"""Scalar values computed by a thread: a closed union of frozen records.

A value has a dtype; operands of `Apply` already have the operation's compute dtype (the lowering
inserts `Cast`). Memory is read by `Element` only, so a pass that moves loads has one node to find.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from fuser.core.dtypes import DataType
from fuser.core.expr import TRUE, Expr


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; `value` is exactly representable in `dtype` or rounded to it when printed."""

    value: bool | int | float
    dtype: DataType


@dataclass(frozen=True, slots=True)
class Ref:
    """A named per-thread scalar: a `Define`, a scalar kernel parameter."""

    name: str
    dtype: DataType


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a global tensor, a shared array or a register array.

    Attributes
    ----------
    memory
        Name of a tensor parameter, shared array or register array.
    index
        Flat element index.
    guard
        The element is read only where this holds; elsewhere the value is `fill`.
    fill
        Value where `guard` is false. ``None``: unspecified (the consumer never uses it).
    """

    memory: str
    index: Expr
    dtype: DataType
    guard: Expr = TRUE
    fill: Value | None = None


@dataclass(frozen=True, slots=True)
class FromIndex:
    """An integer index expression as a value of integer dtype (iota, size)."""

    expr: Expr
    dtype: DataType


@dataclass(frozen=True, slots=True)
class Apply:
    """``op(args)`` of the op table; `dtype` is the result dtype."""

    op: str
    args: tuple[Value, ...]
    dtype: DataType


@dataclass(frozen=True, slots=True)
class Cast:
    """Conversion by the rules of the prelude (round to nearest even; see docs/dtypes.md)."""

    arg: Value
    dtype: DataType


@dataclass(frozen=True, slots=True)
class Choose:
    """``cond ? if_true : if_false`` on an index predicate; both sides are evaluated safely."""

    cond: Expr
    if_true: Value
    if_false: Value
    dtype: DataType


Value: TypeAlias = Literal | Ref | Element | FromIndex | Apply | Cast | Choose


def operands(value: Value) -> tuple[Value, ...]:
    """Return the direct operand values."""
    match value:
        case Literal() | Ref() | FromIndex():
            return ()
        case Element(fill=fill):
            return () if fill is None else (fill,)
        case Apply(args=args):
            return args
        case Cast(arg=arg):
            return (arg,)
        case Choose(if_true=a, if_false=b):
            return a, b
        case _:
            assert_never(value)


def walk(value: Value) -> Iterator[Value]:
    """Yield `value` and everything below it."""
    yield value
    for operand in operands(value):
        yield from walk(operand)
