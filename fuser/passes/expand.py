"""Turn one element of the fusion into per-thread scalar statements.

Inlined values become one ``Define`` each; every view op only changes the coordinates at which its
operand is asked for. Values are shared by (name, coordinates, guard), so a value used at two places
is computed twice only where it really is two elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import TRUE, Const, Expr, all_of
from fuser.core.simplify import Facts, guard_of, simplify
from fuser.fusion.attrs import ConstantAttrs, FullAttrs, IotaAttrs, Number, SizeAttrs
from fuser.fusion.graph import FusionGraph, Value
from fuser.fusion.views import VIEW_OPS, Access, operand_access
from fuser.kir.core import Stmt
from fuser.kir.scalar import Apply, Cast, Choose, FromIndex, Literal, Ref
from fuser.kir.scalar import Value as Scalar
from fuser.kir.stmts import Define
from fuser.ops import BY_NAME, Operand, result_type

Coords = tuple[Expr, ...]


class Reader(Protocol):
    """How materialised tensors and fusion inputs are read."""

    def __call__(self, name: str, coords: Coords, guard: Expr, facts: Facts) -> Scalar | None:
        """Return the element, or None when the value is inlined."""
        ...


@dataclass(slots=True)
class Expander:
    """Expands values into `stmts`.

    Attributes
    ----------
    read
        Supplies elements of materialised tensors and inputs.
    fresh
        Turns a value name into a name unused in the kernel.
    stmts
        The statements produced so far.
    """

    graph: FusionGraph
    read: Reader
    fresh: Callable[[str], str]
    stmts: list[Stmt] = field(default_factory=list[Stmt])
    _done: dict[tuple[str, Coords, Expr], Scalar] = field(
        default_factory=dict[tuple[str, Coords, Expr], Scalar]
    )

    def operand(self, value: Value, k: int, coords: Coords, guard: Expr, facts: Facts) -> Scalar:
        """Return operand `k` of `value` where the element `coords` of `value` needs it."""
        access = operand_access(self.graph, value, k, coords)
        return self.value(self.graph.operands(value)[k], access.coords, guard, facts)

    def value(self, value: Value, coords: Coords, guard: Expr, facts: Facts) -> Scalar:
        """Return element `coords` of `value`; only meaningful where `guard` holds."""
        at = tuple(simplify(c, facts) for c in coords)
        key = (value.name, at, guard)
        found = self._done.get(key)
        if found is None:
            found = self.read(value.name, at, guard, facts)
            if found is None:
                found = self.compute(value, at, guard, facts)
            self._done[key] = found
        return found

    def compute(self, value: Value, coords: Coords, guard: Expr, facts: Facts) -> Scalar:
        """Emit the definition of an inlined value and return a reference to it."""
        match value.attrs:
            case ConstantAttrs(number):
                return Literal(number, value.dtype)
            case SizeAttrs(expr):
                return FromIndex(simplify(expr, facts), value.dtype)
            case IotaAttrs(start, step):
                index = FromIndex(simplify(start + coords[0] * step, facts), DataType.Int)
                return index if value.dtype is DataType.Int else Cast(index, value.dtype)
            case FullAttrs():
                filler = self.value(self.graph.operands(value)[0], (), guard, facts)
                return _as(filler, value.dtype)
            case _:
                pass
        if value.op == "scalar":
            return Ref(value.name, value.dtype)
        if value.op in VIEW_OPS:
            return self.view(value, coords, guard, facts)
        if value.op == "cast":
            arg = self.operand(value, 0, coords, guard, facts)
            return arg if arg.dtype is value.dtype else self.define(value, Cast(arg, value.dtype))
        return self.pointwise(value, coords, guard, facts)

    def pointwise(self, value: Value, coords: Coords, guard: Expr, facts: Facts) -> Scalar:
        """Emit an operation of the op table."""
        spec = BY_NAME.get(value.op)
        if spec is None:
            raise VerifyError(f"{value.name}: {value.op} is no pointwise or view operation")
        operands = self.graph.operands(value)
        kinds = [Operand(o.dtype, self.graph.is_scalar(o)) for o in operands]
        compute, result = result_type(spec, kinds)
        fixed = spec.constant(compute)
        if fixed is not None:
            return Literal(fixed, result)
        args = tuple(
            _as(self.operand(value, k, coords, guard, facts), dtype)
            for k, dtype in enumerate(spec.operand_dtypes(compute))
        )
        if value.op == "set":
            return args[0]
        return self.define(value, _as(Apply(value.op, args, result), value.dtype))

    def view(self, value: Value, coords: Coords, guard: Expr, facts: Facts) -> Scalar:
        """Return the operand element that a view op shows, or its fill."""
        operands = self.graph.operands(value)
        if value.op == "cat":
            return self.cat(value, coords, guard, facts)
        access = operand_access(self.graph, value, 0, coords)
        inside = guard_of(access.guard, facts)
        if inside == TRUE:
            return self.value(operands[0], access.coords, guard, facts)
        shown = self.value(
            operands[0], access.coords, all_of(guard, inside), facts.with_guard(inside)
        )
        fill = self.fill(access, value, guard, facts)
        return self.define(value, Choose(inside, shown, fill, value.dtype))

    def fill(self, access: Access, value: Value, guard: Expr, facts: Facts) -> Scalar:
        """Return the value of elements that no operand supplies."""
        match access.fill:
            case Value():
                return _as(self.value(access.fill, (), guard, facts), value.dtype)
            case bool() | int() | float():
                return Literal(_number(access.fill), value.dtype)
            case _:
                raise VerifyError(f"{value.name}: elements outside its operand have no value")

    def cat(self, value: Value, coords: Coords, guard: Expr, facts: Facts) -> Scalar:
        """Choose the operand of a concatenation that supplies this element."""
        result: Scalar | None = None
        for k in reversed(range(len(self.graph.operands(value)))):
            access = operand_access(self.graph, value, k, coords)
            inside = guard_of(access.guard, facts)
            part = self.value(
                self.graph.operands(value)[k], access.coords,
                all_of(guard, inside), facts.with_guard(inside),
            )  # fmt: skip
            if result is None or inside == TRUE:
                result = part
            else:
                result = Choose(inside, part, result, value.dtype)
        assert result is not None
        return self.define(value, result)

    def define(self, value: Value, scalar: Scalar) -> Scalar:
        """Name a scalar after the value it is."""
        name = self.fresh(value.name)
        self.stmts.append(Define(name, value.dtype, scalar))
        return Ref(name, value.dtype)


def _as(scalar: Scalar, dtype: DataType) -> Scalar:
    if scalar.dtype is dtype:
        return scalar
    if isinstance(scalar, FromIndex) and isinstance(scalar.expr, Const):
        scalar = Literal(scalar.expr.value, scalar.dtype)
    if isinstance(scalar, Literal) and dtype.kind != "bool" and not dtype.is_reduced_float:
        if dtype.is_float:
            return Literal(float(scalar.value), dtype)
    return Cast(scalar, dtype)


def _number(value: Number) -> bool | int | float:
    return value
