"""Turn one element of the fusion into per-thread scalar statements.

Inlined values become one ``Define`` each; every view op only changes the coordinates at which its
operand is asked for. Values are shared by (name, coordinates, guard), so a value used at two places
is computed twice only where it really is two elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import TRUE, Const, Expr, all_of
from fuser.core.simplify import Facts, guard_of, simplify
from fuser.fusion.attrs import ConstantAttrs, FullAttrs, IotaAttrs, SizeAttrs
from fuser.fusion.dtypes import pointwise_types
from fuser.fusion.graph import FusionGraph, Value
from fuser.fusion.views import VIEW_OPS, operand_access
from fuser.kir.core import Stmt
from fuser.kir.scalar import Apply, Cast, Choose, Element, FromIndex, Literal, Ref
from fuser.kir.scalar import Value as Scalar
from fuser.kir.stmts import Define
from fuser.ops import BY_NAME

Coords = tuple[Expr, ...]
Key = tuple[str, Coords, Expr]
Finish = Callable[[Sequence[Scalar]], Scalar]


class Reader(Protocol):
    """How materialised tensors and fusion inputs are read."""

    def __call__(self, name: str, coords: Coords, guard: Expr, facts: Facts) -> Scalar | None:
        """Return the element, or None when the value is inlined."""
        ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """Element `coords` of `value`; only meaningful where `guard` holds."""

    value: Value
    coords: Coords
    guard: Expr
    facts: Facts

    @property
    def key(self) -> Key:
        """What elements are shared by."""
        return self.value.name, self.coords, self.guard


@dataclass(frozen=True, slots=True)
class Plan:
    """How one element is made: of which others, in order, and by what.

    Attributes
    ----------
    pending
        The operands not looked at yet.
    """

    operands: tuple[Wanted, ...]
    finish: Finish
    wanted: Wanted
    pending: Iterator[Wanted]


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
    _done: dict[Key, Scalar] = field(default_factory=dict[Key, Scalar])

    def operand(self, value: Value, k: int, coords: Coords, guard: Expr, facts: Facts) -> Scalar:
        """Return operand `k` of `value` where the element `coords` of `value` needs it."""
        wanted = self._operand(Wanted(value, coords, guard, facts), k)
        return self._make(Plan((wanted,), _only, wanted, iter((wanted,))))

    def compute(self, value: Value, coords: Coords, guard: Expr, facts: Facts) -> Scalar:
        """Emit the definition of element `coords` of `value` and return a reference to it."""
        return self._make(self._plan(Wanted(value, coords, guard, facts)))

    def _make(self, root: Plan) -> Scalar:
        """Make an element after its operands, depth first.

        The stack is a list: chains of operations are longer than Python's stack is deep.
        """
        stack = [root]
        while True:
            plan = stack[-1]
            for wanted in plan.pending:
                if wanted.key in self._done:
                    continue
                found = self.read(wanted.value.name, wanted.coords, wanted.guard, wanted.facts)
                if found is None:
                    stack.append(self._plan(wanted))
                    break
                self._done[wanted.key] = found
            else:
                scalar = plan.finish([self._done[o.key] for o in plan.operands])
                stack.pop()
                if not stack:
                    return scalar
                self._done[plan.wanted.key] = scalar

    def _plan(self, wanted: Wanted) -> Plan:
        operands, finish = self._rule(wanted)
        return Plan(operands, finish, wanted, iter(operands))

    def _rule(self, wanted: Wanted) -> tuple[tuple[Wanted, ...], Finish]:
        """Return the operands of an inlined element and what makes it of them."""
        value, facts = wanted.value, wanted.facts
        match value.attrs:
            case ConstantAttrs(number):
                return (), lambda _: Literal(number, value.dtype)
            case SizeAttrs(expr):
                return (), lambda _: FromIndex(simplify(expr, facts), value.dtype)
            case IotaAttrs(start, step):
                index = FromIndex(simplify(start + wanted.coords[0] * step, facts), DataType.Int)
                is_int = value.dtype is DataType.Int
                return (), lambda _: index if is_int else Cast(index, value.dtype)
            case FullAttrs():
                (filler,) = self.graph.operands(value)
                return (self._scalar(filler, wanted),), lambda args: _as(args[0], value.dtype)
            case _:
                pass
        if value.op == "scalar":
            return (), lambda _: Ref(value.name, value.dtype)
        if value.op == "cat":
            return self._cat(wanted)
        if value.op in VIEW_OPS:
            return self._view(wanted)
        if value.op == "cast":
            return (self._operand(wanted, 0),), lambda args: self._cast(value, args[0])
        return self._pointwise(wanted)

    def _pointwise(self, wanted: Wanted) -> tuple[tuple[Wanted, ...], Finish]:
        """Operation of the op table."""
        value = wanted.value
        spec = BY_NAME.get(value.op)
        if spec is None:
            raise VerifyError(f"{value.name}: {value.op} is no pointwise or view operation")
        operands = self.graph.operands(value)
        compute, result = pointwise_types(self.graph, value.op, operands)
        fixed = spec.constant(compute)
        if fixed is not None:
            return (), lambda _: Literal(fixed, result)
        dtypes = spec.operand_dtypes(compute)

        def finish(args: Sequence[Scalar]) -> Scalar:
            converted = tuple(_as(arg, dtype) for arg, dtype in zip(args, dtypes, strict=True))
            if value.op == "set":
                return converted[0]
            return self.define(value, _as(Apply(value.op, converted, result), value.dtype))

        return tuple(self._operand(wanted, k) for k in range(len(operands))), finish

    def _view(self, wanted: Wanted) -> tuple[tuple[Wanted, ...], Finish]:
        """Element of the operand that a view op shows, or its fill."""
        value, guard, facts = wanted.value, wanted.guard, wanted.facts
        access = operand_access(self.graph, value, 0, wanted.coords)
        inside = guard_of(access.guard, facts)
        operand = self.graph.operands(value)[0]
        if inside == TRUE:
            return (self._want(operand, access.coords, guard, facts),), _only
        shown = self._want(operand, access.coords, all_of(guard, inside), facts.with_guard(inside))
        outside = access.fill
        if outside is None:
            raise VerifyError(f"{value.name}: elements outside its operand have no value")

        def finish(args: Sequence[Scalar]) -> Scalar:
            if isinstance(outside, Value):
                fill = _as(args[1], value.dtype)
            else:
                fill = Literal(outside, value.dtype)
            return self.define(value, _chosen(inside, args[0], fill, shown.guard))

        if isinstance(outside, Value):
            return (shown, self._scalar(outside, wanted)), finish
        return (shown,), finish

    def _cat(self, wanted: Wanted) -> tuple[tuple[Wanted, ...], Finish]:
        """Element of the operand of a concatenation that supplies it."""
        value, guard, facts = wanted.value, wanted.guard, wanted.facts
        operands: list[Wanted] = []
        insides: list[Expr] = []
        for k, operand in reversed(list(enumerate(self.graph.operands(value)))):
            access = operand_access(self.graph, value, k, wanted.coords)
            inside = guard_of(access.guard, facts)
            known = facts.with_guard(inside)
            operands.append(self._want(operand, access.coords, all_of(guard, inside), known))
            insides.append(inside)

        def finish(args: Sequence[Scalar]) -> Scalar:
            result = args[0]
            for part, inside, wants in zip(args[1:], insides[1:], operands[1:], strict=True):
                result = _chosen(inside, part, result, wants.guard)
            return self.define(value, result)

        return tuple(operands), finish

    def _want(self, value: Value, coords: Coords, guard: Expr, facts: Facts) -> Wanted:
        return Wanted(value, tuple(simplify(c, facts) for c in coords), guard, facts)

    def _operand(self, wanted: Wanted, k: int) -> Wanted:
        """Operand `k` where `wanted` needs it."""
        operand = self.graph.operands(wanted.value)[k]
        access = operand_access(self.graph, wanted.value, k, wanted.coords)
        return self._want(operand, access.coords, wanted.guard, wanted.facts)

    def _scalar(self, value: Value, wanted: Wanted) -> Wanted:
        """The scalar `value` where `wanted` needs it."""
        return Wanted(value, (), wanted.guard, wanted.facts)

    def _cast(self, value: Value, arg: Scalar) -> Scalar:
        return arg if arg.dtype is value.dtype else self.define(value, Cast(arg, value.dtype))

    def define(self, value: Value, scalar: Scalar) -> Scalar:
        """Name a scalar after the value it is."""
        name = self.fresh(value.name)
        self.stmts.append(Define(name, value.dtype, scalar))
        return Ref(name, value.dtype)


def _chosen(inside: Expr, part: Scalar, other: Scalar, guard: Expr) -> Scalar:
    """Return `part`, which was wanted under `guard`, where `inside` holds, else `other`.

    An element that is read under the same condition takes `other` as its fill: one test, not two.
    """
    if inside == TRUE:
        return part
    if isinstance(part, Element) and part.guard == guard and part.fill is None:
        return replace(part, fill=other)
    return Choose(inside, part, other, part.dtype)


def _as(scalar: Scalar, dtype: DataType) -> Scalar:
    if scalar.dtype is dtype:
        return scalar
    if isinstance(scalar, FromIndex) and isinstance(scalar.expr, Const):
        scalar = Literal(scalar.expr.value, scalar.dtype)
    if isinstance(scalar, Literal) and dtype.kind != "bool" and not dtype.is_reduced_float:
        if dtype.is_float:
            return Literal(float(scalar.value), dtype)
    return Cast(scalar, dtype)


def _only(args: Sequence[Scalar]) -> Scalar:
    (arg,) = args
    return arg
