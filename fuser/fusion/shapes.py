"""Extents: size variables, broadcasting of equal ranks, canonical products, exact division."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fuser.core.errors import DefinitionError
from fuser.core.expr import ONE, BinOp, Const, Expr, Var, product
from fuser.core.location import SourceLocation
from fuser.fusion.graph import FusionGraph, Value


def size_var(name: str, dim: int) -> Var:
    """Return the extent variable of dimension `dim` of input `name`."""
    return Var(f"{name}_size{dim}")


def stride_var(name: str, dim: int) -> Var:
    """Return the stride variable, in elements, of dimension `dim` of input `name`."""
    return Var(f"{name}_stride{dim}")


def shape_text(shape: Sequence[Expr]) -> str:
    """Print a shape as ``[x_size0, 4096]``."""
    return f"[{', '.join(map(repr, shape))}]"


def unify(
    graph: FusionGraph, a: Expr, b: Expr, why: str, location: SourceLocation | None = None
) -> Expr:
    """Return the extent that `a` and `b` share, preferring a constant.

    Records a constraint when the agreement is not known before run time; raises
    `DefinitionError` when two constants differ.
    """
    if a == b:
        return a
    if isinstance(a, Const) and isinstance(b, Const):
        raise DefinitionError(f"{why}: extents {a} and {b} differ; they must agree", location)
    graph.constrain(a, b, why, location)
    return b if isinstance(b, Const) else a


def broadcast(
    graph: FusionGraph, op: str, operands: Sequence[Value], location: SourceLocation | None = None
) -> tuple[Expr, ...]:
    """Return the shape of a pointwise `op`: scalars mix freely, extents of 1 stretch."""
    tensors = [v for v in operands if v.shape]
    if not tensors:
        return ()
    first = tensors[0]
    shape = first.shape
    for other in tensors[1:]:
        if other.rank != first.rank:
            raise DefinitionError(
                f"{op}: {first.name} has {first.rank} dimensions {shape_text(first.shape)} and "
                f"{other.name} has {other.rank} {shape_text(other.shape)}; ranks must agree "
                f"(insert dimensions with broadcast_in_dim)",
                location,
            )
        shape = tuple(
            _stretch(graph, a, b, f"{op}: dimension {i} of {first.name} and {other.name}", location)
            for i, (a, b) in enumerate(zip(shape, other.shape, strict=True))
        )
    return shape


def _stretch(
    graph: FusionGraph, a: Expr, b: Expr, why: str, location: SourceLocation | None
) -> Expr:
    if b == ONE:
        return a
    return b if a == ONE else unify(graph, a, b, why, location)


@dataclass(frozen=True, slots=True)
class Product:
    """A product in canonical form: a constant times a multiset of other factors."""

    coefficient: int
    factors: tuple[tuple[Expr, int], ...]

    def divides(self, other: Product) -> bool:
        """Whether ``other / self`` is a product again."""
        if not self.coefficient or other.coefficient % self.coefficient:
            return False
        theirs = dict(other.factors)
        return all(theirs.get(factor, 0) >= power for factor, power in self.factors)


def canonical(extents: Sequence[Expr]) -> Product:
    """Multiply `extents` into canonical form."""
    coefficient, factors = 1, Counter[Expr]()
    todo = list(extents)
    while todo:
        match todo.pop():
            case Const(value):
                coefficient *= value
            case BinOp("*", lhs, rhs):
                todo += [lhs, rhs]
            case factor:
                factors[factor] += 1
    return Product(coefficient, tuple(sorted(factors.items(), key=repr)))


def quotient(whole: Sequence[Expr], part: Sequence[Expr]) -> tuple[Expr, bool]:
    """Return ``product(whole) / product(part)`` and whether the division is known to be exact."""
    a, b = canonical(whole), canonical(part)
    if b.divides(a):
        left = Counter(dict(a.factors))
        left.subtract(dict(b.factors))
        kept = tuple(f for f in dict.fromkeys(e for e, _ in a.factors) for _ in range(left[f]))
        return product((*kept, Const(a.coefficient // b.coefficient))), True
    return product(tuple(whole)) // product(tuple(part)), False
