"""What an operation needs besides its operands: a closed union of frozen records.

Every field is an int, bool, number, `Expr` or (nested) tuple of those, so `map_exprs` can rewrite
all index expressions of any record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias, cast

from fuser.core.expr import BinOp, Const, Expr, Select, Var

Number: TypeAlias = bool | int | float


@dataclass(frozen=True, slots=True)
class NoAttrs:
    """Pointwise operations: everything follows from operands, dtype and shape."""


@dataclass(frozen=True, slots=True)
class InputAttrs:
    """Layout promise of an input tensor.

    Attributes
    ----------
    contiguity
        Per logical dimension: ``True`` when its stride is the stride times the extent of the next
        inner dimension (1 for the innermost), ``False`` when the stride is free, ``None`` for
        broadcast and expanded dimensions.
    stride_order
        Per logical dimension its position counted from the innermost: ``(1, 0)`` is row major.
    is_cpu
        A 0-d tensor in host memory, passed by value.
    expanded
        Per logical dimension: the extent is not 1 but the stride is 0.
    """

    contiguity: tuple[bool | None, ...]
    stride_order: tuple[int, ...]
    is_cpu: bool = False
    expanded: tuple[bool, ...] = ()

    @property
    def outer_to_inner(self) -> tuple[int, ...]:
        """Logical dimensions from the largest stride to the smallest."""
        return tuple(sorted(range(len(self.stride_order)), key=lambda d: -self.stride_order[d]))


@dataclass(frozen=True, slots=True)
class ScalarAttrs:
    """A scalar passed at every call."""


@dataclass(frozen=True, slots=True)
class ConstantAttrs:
    """A scalar fixed in the definition; `weak` marks Python literals."""

    value: Number
    weak: bool = True


@dataclass(frozen=True, slots=True)
class SizeAttrs:
    """An extent as an Int scalar."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class BroadcastAttrs:
    """``dims[i]`` is the output dimension that operand dimension ``i`` becomes."""

    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExpandAttrs:
    """Dimensions of extent 1 grow to the extents of the output."""


@dataclass(frozen=True, slots=True)
class SqueezeAttrs:
    """Operand dimensions (of extent 1) that disappear."""

    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PermuteAttrs:
    """Output dimension ``i`` is operand dimension ``dims[i]``."""

    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SliceAttrs:
    """Output element ``c`` is operand element ``starts + c * strides`` (both non-negative)."""

    starts: tuple[Expr, ...]
    strides: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class UnfoldAttrs:
    """Windows along `dim`; element ``t`` of a window is the last dimension of the value.

    Element ``(.., i, .., t)`` is operand element ``(.., i * step + t, ..)``: windows overlap where
    `step` is less than their size.
    """

    dim: int
    step: Expr


@dataclass(frozen=True, slots=True)
class PadAttrs:
    """Elements ``(before, after)`` added per dimension; negative widths crop.

    The fill value is operand 1, a scalar.
    """

    widths: tuple[tuple[Expr, Expr], ...]


@dataclass(frozen=True, slots=True)
class CatAttrs:
    """Operands follow one another along `dim`."""

    dim: int


@dataclass(frozen=True, slots=True)
class ReshapeAttrs:
    """Same elements in row-major order; the new extents are the value's shape."""


@dataclass(frozen=True, slots=True)
class SplitDimAttrs:
    """``(.., n, ..)`` becomes ``(.., m, factor, ..)`` with ``m * factor >= n``.

    Element ``(o, i)`` is operand element ``o * factor + i``, and `fill` beyond the end.
    """

    dim: int
    factor: Expr
    fill: Number


@dataclass(frozen=True, slots=True)
class IotaAttrs:
    """Element ``i`` is ``start + i * step``."""

    start: Expr
    step: Expr


@dataclass(frozen=True, slots=True)
class FullAttrs:
    """Every element is operand 0, a scalar."""


@dataclass(frozen=True, slots=True)
class ReduceAttrs:
    """Operand dimensions that are reduced away, ascending."""

    dims: tuple[int, ...]


Attrs: TypeAlias = (
    NoAttrs
    | InputAttrs
    | ScalarAttrs
    | ConstantAttrs
    | SizeAttrs
    | BroadcastAttrs
    | ExpandAttrs
    | SqueezeAttrs
    | PermuteAttrs
    | SliceAttrs
    | UnfoldAttrs
    | PadAttrs
    | CatAttrs
    | ReshapeAttrs
    | SplitDimAttrs
    | IotaAttrs
    | FullAttrs
    | ReduceAttrs
)

NO_ATTRS = NoAttrs()

_WITH_EXPRS = (SizeAttrs, SliceAttrs, UnfoldAttrs, PadAttrs, SplitDimAttrs, IotaAttrs)


def map_exprs(attrs: Attrs, fn: Callable[[Expr], Expr]) -> Attrs:
    """Return `attrs` with `fn` applied to every index expression."""
    if not isinstance(attrs, _WITH_EXPRS):
        return attrs
    return replace(attrs, **{f.name: _map(getattr(attrs, f.name), fn) for f in fields(attrs)})


def _map(item: Any, fn: Callable[[Expr], Expr]) -> Any:
    if isinstance(item, tuple):
        parts: tuple[Any, ...] = cast("Any", item)
        return tuple(_map(part, fn) for part in parts)
    return fn(item) if isinstance(item, Const | Var | BinOp | Select) else item


def attr_exprs(attrs: Attrs) -> tuple[Expr, ...]:
    """Return every index expression of `attrs`."""
    found: list[Expr] = []

    def note(e: Expr) -> Expr:
        found.append(e)
        return e

    map_exprs(attrs, note)
    return tuple(found)
