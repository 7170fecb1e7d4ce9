"""``fd.ops``: the operations of a fusion; pointwise ones come from the op table, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from fuser.api.builder import Builder
from fuser.api.composites import Composites
from fuser.api.creation_ops import CreationOps
from fuser.api.given import check_dtype
from fuser.api.recording import recorded
from fuser.api.reduction_ops import ReductionOps
from fuser.api.tensor import Operand, Scalar, Tensor
from fuser.api.view_ops import ViewOps
from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError, MissingOperationError
from fuser.core.location import caller_location
from fuser.ops import POINTWISE, OpSpec
from fuser.ops.planned import PLANNED


class Ops(ViewOps, ReductionOps, CreationOps, Composites):
    """The operations of one `FusionDefinition`.

    Every row of the op table is a method taking its operands in order (tensors, scalars or Python
    numbers). Ranks of tensors must agree; a dimension of extent 1 stretches.
    """

    prefix = "ops."

    def __init__(self, definition: Builder) -> None:
        self.definition = definition

    @recorded
    def cast(self, a: Operand, dtype: DataType) -> Any:
        """Convert to `dtype`; the only operation that narrows a float."""
        check_dtype("cast", dtype)
        value = self.definition.operand("cast", a)
        self.definition.check_fits("cast", value, dtype)
        return self.definition.emit("cast", (value,), dtype, value.shape)

    @recorded
    def clamp(self, a: Operand, min: Operand | None = None, max: Operand | None = None) -> Any:
        """Limit to the range from `min` to `max`, either of which may be left out."""
        if min is not None and max is not None:
            return self.pointwise("clamp", (a, min, max))
        if min is None and max is None:
            raise DefinitionError("clamp: neither min nor max is given; at least one is needed")
        if min is not None:
            return self.pointwise("maximum", (a, min))
        return self.pointwise("minimum", (a, max))

    @recorded
    def addcmul(self, a: Operand, b: Operand, c: Operand, value: Operand = 1) -> Any:
        """Return ``a + value * b * c``."""
        return self.pointwise("addcmul", (a, b, c, value))

    @recorded
    def gelu(self, a: Operand, approximate: str = "none") -> Any:
        """Gaussian error linear unit; `approximate` is ``"none"`` (erf) or ``"tanh"``."""
        names = {"none": "gelu", "tanh": "gelu_tanh"}
        if approximate not in names:
            raise DefinitionError(f"gelu: approximate is {approximate!r}; 'none' or 'tanh' needed")
        return self.pointwise(names[approximate], (a,))

    @recorded
    def where(self, c: Operand, a: Operand, b: Operand) -> Any:
        """Return `a` where `c` holds, else `b`; `c` is Bool."""
        condition = self.definition.operand("where", c)
        if condition.dtype is not DataType.Bool:
            raise DefinitionError(
                f"where: condition {condition.name} has dtype {condition.dtype.name}; Bool is "
                "needed"
            )
        return self.pointwise("where", (c, a, b))

    def pointwise(self, op: str, operands: Sequence[Any]) -> Tensor | Scalar:
        """Add one pointwise value."""
        result: Tensor | Scalar = self.definition.emit_pointwise(op, operands)
        return result

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Say that there is no such operation; one per row of the op table is attached below."""
        raise missing(name)


def operation_names() -> list[str]:
    """Return the names of all operations."""
    return sorted(n for n in dir(Ops) if hasattr(getattr(Ops, n), "__wrapped__"))


def missing(name: str) -> AttributeError:
    """Return the error about an operation that does not exist."""
    if name.startswith("_"):
        return AttributeError(f"there is no operation {name!r}")
    what = "is not there yet" if name in PLANNED else "is no operation"
    near = get_close_matches(name, operation_names())
    hint = f"; near names: {', '.join(near)}" if near else ""
    return MissingOperationError(f"ops.{name}: {what}{hint}", caller_location())


def _method(spec: OpSpec) -> Callable[..., Any]:
    """Return the method of one row of the op table."""

    def method(self: Ops, *operands: Operand) -> Tensor | Scalar:
        return self.pointwise(spec.name, operands)

    names = ", ".join("abcdef"[: spec.arity])
    method.__name__ = spec.name
    method.__qualname__ = f"Ops.{spec.name}"
    method.__doc__ = (
        f"``{spec.name}({names})``, elementwise.\n\n"
        f"Dtype rule: {spec.promotion} (see `fuser.ops.promotion`)."
    )
    return recorded(method)


for _spec in POINTWISE:
    if _spec.name not in vars(Ops):
        setattr(Ops, _spec.name, _method(_spec))
