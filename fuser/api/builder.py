"""The graph under construction: handles, constants, and how operations add values."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from fuser.api.call import Call, Directed
from fuser.api.destination import is_writing_other
from fuser.api.extents import to_expr
from fuser.api.tensor import Handle, Number, Scalar, Tensor
from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError
from fuser.core.expr import ONE, Expr
from fuser.core.location import SourceLocation, caller_location
from fuser.core.unroll import LoopOptions
from fuser.fusion.attrs import NO_ATTRS, Attrs, BroadcastAttrs, ConstantAttrs
from fuser.fusion.dtypes import pointwise_types
from fuser.fusion.graph import FusionGraph, Value
from fuser.fusion.shapes import broadcast, unify
from fuser.ops import BY_NAME
from fuser.schedule.hand import HandSchedule

INT_RANGE = (-(2**63), 2**63 - 1)
FLOAT_RANGE = (-sys.float_info.max, sys.float_info.max)


def check_range(what: str, number: object, dtype: DataType) -> None:
    """Raise `DefinitionError` for a Python integer beyond what `dtype` is computed in."""
    low, high = FLOAT_RANGE if dtype.is_float else INT_RANGE
    if type(number) is int and not low <= number <= high:
        name, shown = ("a float", "an integer") if dtype.is_float else ("Int", str(number))
        raise DefinitionError(f"{what}: {shown} does not fit {name}; {low} to {high} is needed")


class Builder:
    """What the operations see of a definition.

    Attributes
    ----------
    fusion
        The graph.
    ops
        The operations.
    numpy_broadcasting
        Whether pointwise operations insert leading dimensions as NumPy does (`@fuse`); otherwise
        ranks must agree.
    location
        The user's line of the call in progress.
    calls, directives
        What the user called, for `repr`.
    loops
        What is said of all loops.
    closed
        Whether the definition is finished.
    """

    ops: Any

    def __init__(self, numpy_broadcasting: bool, loops: LoopOptions) -> None:
        self.fusion = FusionGraph()
        self.numpy_broadcasting = numpy_broadcasting
        self.location: SourceLocation | None = None
        self.loops = loops
        self.calls: list[Call] = []
        self.directives: list[Directed] = []
        self.closed = False
        self._hand: HandSchedule | None = None
        self._handles: dict[str, Tensor | Scalar] = {}
        self._constants: dict[tuple[str, str], str] = {}

    def rename(self, names: Mapping[str, str]) -> None:
        """Rename values, and the objects that users hold."""
        self.fusion.rename_all({old: new for old, new in names.items() if old in self.fusion})
        if self._hand is not None:
            self._hand.rename(names)
        for old, new in names.items():
            self._handles[old].name = new
        self._handles = {handle.name: handle for handle in self._handles.values()}

    def check_open(self, call: str, operands: Sequence[Any] = ()) -> None:
        """Raise `DefinitionError` when the definition is finished, or another is being written."""
        mine = [item.name for item in operands if isinstance(item, Handle) and item.fd is self]
        if self.closed and mine and is_writing_other(self):
            raise DefinitionError(
                f"{call}: operand {mine[0]} belongs to another FusionDefinition", caller_location()
            )
        if self.closed:
            raise DefinitionError(
                f"{call}: the definition is finished; call it inside `with`", caller_location()
            )
        if self._hand is not None:
            raise DefinitionError(
                f"{call}: the fusion is being scheduled; define it before the first directive",
                caller_location(),
            )

    # ---- scheduling by hand --------------------------------------------------------------

    @property
    def hand(self) -> HandSchedule:
        """The schedule that `manual_execute` runs; the first directive begins it."""
        if self._hand is None:
            self._hand = HandSchedule.of(self.fusion)
        return self._hand

    def value(self, name: str) -> Value:
        """Return a value of the fusion, or one that a directive added."""
        if self._hand is not None and name not in self.fusion:
            return self._hand.graph.value(name)
        return self.fusion.value(name)

    def has(self, name: str) -> bool:
        """Whether `name` is taken by a value of the fusion or of its schedule."""
        return name in self.fusion or (self._hand is not None and name in self._hand.graph)

    def adopt(self, name: str) -> Tensor:
        """Return the user's object for a tensor that a directive added."""
        tensor = self._handles[name] = Tensor(self, name)
        return tensor

    # ---- definition ----------------------------------------------------------------------

    def handle(self, value: Value) -> Any:
        """Return the user's object for a value of the graph."""
        found = self._handles.get(value.name)
        if found is None:
            kind = Scalar if self.fusion.is_scalar(value) else Tensor
            found = self._handles[value.name] = kind(self, value.name)
        return found

    def operand(self, op: str, item: Any) -> Value:
        """Return the graph value of a tensor, scalar or Python number."""
        if isinstance(item, Handle):
            if item.fd is not self:
                raise DefinitionError(
                    f"{op}: operand {item.name} belongs to another FusionDefinition"
                )
            return item.value
        if isinstance(item, np.generic):
            item = cast("Any", item).item()
        if isinstance(item, bool | int | float):
            return self.constant(item, None)
        raise DefinitionError(
            f"{op}: operand {item!r} is a {type(item).__name__}; a tensor, a scalar or a number is "
            "needed"
        )

    def tensor(self, op: str, item: Any) -> Value:
        """Return the graph value of a tensor; raise `DefinitionError` on anything else."""
        if isinstance(item, Tensor):
            return self.operand(op, item)
        raise DefinitionError(f"{op}: got {item!r}; a tensor of this fusion is needed")

    def scalar_operand(self, what: str, item: Any) -> Value:
        """Return the graph value of a scalar or Python number."""
        value = self.operand(what, item)
        if not self.fusion.is_scalar(value):
            raise DefinitionError(f"{what}: value {value.name} is a tensor; a scalar is needed")
        return value

    def constant(self, number: Number, dtype: DataType | None) -> Value:
        """Return a constant, the same value for the same number and dtype."""
        defaults: dict[type, DataType] = {bool: DataType.Bool, int: DataType.Int}
        default = defaults.get(type(number), DataType.Double)
        key = (f"{type(number).__name__} {(dtype or default).name}", repr(number))
        name = self._constants.get(key)
        if name is not None and name in self.fusion:
            return self.fusion.value(name)
        value = self.fusion.add(
            "constant", (), dtype or default, (), ConstantAttrs(number, dtype is None),
            location=self.location,
        )  # fmt: skip
        if dtype is not None:
            self.check_fits("define_scalar", value, dtype)
        self._constants[key] = value.name
        return value

    def check_fits(self, op: str, value: Value, dtype: DataType) -> None:
        """Raise `DefinitionError` for a constant integer beyond what is computed with."""
        if isinstance(value.attrs, ConstantAttrs):
            check_range(op, value.attrs.value, dtype)

    def unify(self, a: Expr, b: Expr, why: str) -> Expr:
        """Return the extent that `a` and `b` share."""
        return unify(self.fusion, a, b, why, self.location)

    def unify_extent(self, a: Expr, extent: Any, why: str) -> Expr:
        """As `unify`, for an extent as users write it."""
        return self.unify(a, to_expr(self.fusion, extent, why), why)

    def constrain(self, a: Expr, b: Expr, why: str) -> None:
        """Require two extents to agree at execution."""
        self.fusion.constrain(a, b, why, self.location)

    def emit(
        self,
        op: str,
        operands: Iterable[Value],
        dtype: DataType,
        shape: tuple[Expr, ...],
        attrs: Attrs = NO_ATTRS,
    ) -> Any:
        """Add a value at the user's line and return its handle."""
        value = self.fusion.add(op, tuple(operands), dtype, shape, attrs, None, self.location)
        return self.handle(value)

    def emit_tensor(
        self,
        op: str,
        operands: Iterable[Value],
        dtype: DataType,
        shape: tuple[Expr, ...],
        attrs: Attrs = NO_ATTRS,
    ) -> Tensor:
        """As `emit`, for operations that give a tensor whatever their operands are."""
        tensor: Tensor = self.emit(op, operands, dtype, shape, attrs)
        return tensor

    def emit_pointwise(self, op: str, operands: Sequence[Any]) -> Any:
        """Add a pointwise value of the op table: dtype and shape follow from the operands."""
        values = [self.operand(op, item) for item in operands]
        compute, dtype = pointwise_types(self.fusion, op, values)
        for value, needed in zip(values, BY_NAME[op].operand_dtypes(compute), strict=True):
            self.check_fits(op, value, needed)
        if self.numpy_broadcasting:
            rank = max((v.rank for v in values), default=0)
            values = [self._with_rank(v, rank) for v in values]
        shape = broadcast(self.fusion, op, values, self.location)
        return self.emit(op, values, dtype, shape)

    def _with_rank(self, value: Value, rank: int) -> Value:
        """Insert leading dimensions of extent 1; scalars stay as they are."""
        missing = rank - value.rank
        if missing == 0 or value.rank == 0:
            return value
        shape = (*(ONE,) * missing, *value.shape)
        attrs = BroadcastAttrs(tuple(range(missing, rank)))
        broadcasted: Value = self.emit("broadcast", (value,), value.dtype, shape, attrs).value
        return broadcasted
