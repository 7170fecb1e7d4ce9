"""Extents as users write them (ints, Int scalars) and as the graph stores them (`Expr`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from fuser.api.tensor import Scalar, StaticNeededError
from fuser.core.errors import DefinitionError
from fuser.core.expr import ONE, ZERO, BinOp, Const, Expr, Select, Var, maximum, minimum
from fuser.fusion.attrs import ConstantAttrs, SizeAttrs
from fuser.fusion.graph import FusionGraph, Value
from fuser.fusion.shapes import canonical, quotient

_ARITHMETIC: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a // b,
    "floordiv": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "fmod": lambda a, b: a % b,
    "minimum": minimum,
    "maximum": maximum,
}


def to_expr(graph: FusionGraph, extent: Any, what: str) -> Expr:
    """Return the expression of an int or Int scalar; `what` names it in the error."""
    if isinstance(extent, Const | Var | BinOp | Select):
        return extent
    if isinstance(extent, int | np.integer) and not isinstance(extent, bool):
        return Const(int(cast("Any", extent)))
    if isinstance(extent, Scalar) and not extent.dtype.is_float:
        found = _expr_of(graph, extent.value)
        if found is not None:
            return found
    raise DefinitionError(
        f"{what}: {extent!r} is no extent; an int or an Int scalar made of sizes, integer scalar "
        f"inputs and + - * / % min max is needed"
    )


def _expr_of(graph: FusionGraph, value: Value) -> Expr | None:
    match value.attrs:
        case SizeAttrs(expr):
            return expr
        case ConstantAttrs(number) if isinstance(number, int):
            return Const(int(number))
        case _:
            pass
    if value.op == "scalar":
        return Var(value.name)
    parts = [_expr_of(graph, o) for o in graph.operands(value)]
    known = [p for p in parts if p is not None]
    if len(known) != len(parts):
        return None
    if value.op in ("set", "cast") and value.dtype.is_integer:
        return known[0]
    if value.op == "neg":
        return ZERO - known[0]
    build = _ARITHMETIC.get(value.op)
    return build(*known) if build else None


def to_shape(graph: FusionGraph, shape: Sequence[Any], what: str) -> tuple[Expr, ...]:
    """Return the expressions of a shape; raise `DefinitionError` on a negative constant."""
    exprs = tuple(to_expr(graph, e, f"{what}: dimension {d}") for d, e in enumerate(shape))
    for d, e in enumerate(exprs):
        if isinstance(e, Const) and e.value < 0:
            raise DefinitionError(
                f"{what}: dimension {d} of {list(shape)} is {e.value}; extents are not negative"
            )
    return exprs


def to_dim(dim: Any, rank: int, what: str) -> int:
    """Return `dim` counted from the front; raise `DefinitionError` when it does not exist."""
    if isinstance(dim, Scalar):
        raise StaticNeededError(dim, f"is used as a dimension in {what}")
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or not -rank <= dim < rank:
        allowed = f"{-rank}..{rank - 1} is needed" if rank else "a 0-d tensor has no dimensions"
        raise DefinitionError(f"{what}: dimension {dim!r} of a rank {rank} tensor; {allowed}")
    return int(cast("Any", dim)) % rank


def to_dims(dims: Any, rank: int, what: str) -> tuple[int, ...]:
    """Return distinct dimensions counted from the front; ``None`` means all of them."""
    if dims is None:
        return tuple(range(rank))
    single = isinstance(dims, int | np.integer | Scalar)
    listed: list[Any] = [dims] if single else list(dims)
    found = tuple(to_dim(d, rank, what) for d in listed)
    if len(set(found)) != len(found):
        raise DefinitionError(f"{what}: dimensions {listed} name one twice; each at most once")
    return found


def difference(a: Expr, b: Expr) -> Expr:
    """Return ``a - b`` with equal terms cancelled."""
    terms: Counter[Expr] = Counter()
    constant = _collect(a, 1, terms) + _collect(b, -1, terms)
    result: Expr = ZERO
    for term, count in terms.items():
        if count > 0:
            result = result + term * count
    for term, count in terms.items():
        if count < 0:
            result = result - term * -count
    return result + constant if constant >= 0 else result - (-constant)


def _collect(e: Expr, sign: int, terms: Counter[Expr]) -> int:
    match e:
        case Const(value):
            return sign * value
        case BinOp("+", lhs, rhs):
            return _collect(lhs, sign, terms) + _collect(rhs, sign, terms)
        case BinOp("-", lhs, rhs):
            return _collect(lhs, sign, terms) + _collect(rhs, -sign, terms)
        case _:
            terms[e] += sign
            return 0


def steps(length: Expr, stride: Expr) -> Expr:
    """Return how many multiples of `stride` are below `length`: their quotient rounded up."""
    if stride == ONE:
        return length
    if canonical((stride,)).divides(canonical((length,))):
        return quotient((length,), (stride,))[0]
    return (length + (stride - 1)) // stride


def is_nonnegative(e: Expr) -> bool:
    """Whether `e` is at least 0 whatever the sizes are."""
    match e:
        case Const(value):
            return value >= 0
        case Var(name):
            return "_size" in name
        case BinOp("+" | "*" | "/" | "%" | "min", lhs, rhs):
            return is_nonnegative(lhs) and is_nonnegative(rhs)
        case BinOp("max", lhs, rhs):
            return is_nonnegative(lhs) or is_nonnegative(rhs)
        case _:
            return False
