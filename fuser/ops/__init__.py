"""The one table of operations; reference, interpreter, codegen and dtype rules read its rows."""

from fuser.ops.binary import BINARY
from fuser.ops.promotion import Operand, accepted_dtypes, common_dtype, result_type
from fuser.ops.reduction import REDUCTIONS, ReductionSpec
from fuser.ops.spec import OpSpec
from fuser.ops.ternary import TERNARY
from fuser.ops.unary import UNARY

POINTWISE: tuple[OpSpec, ...] = (*UNARY, *BINARY, *TERNARY)
BY_NAME: dict[str, OpSpec] = {spec.name: spec for spec in POINTWISE}
BY_REDUCTION: dict[str, ReductionSpec] = {spec.name: spec for spec in REDUCTIONS}

__all__ = [
    "BY_NAME",
    "BY_REDUCTION",
    "POINTWISE",
    "REDUCTIONS",
    "OpSpec",
    "Operand",
    "ReductionSpec",
    "accepted_dtypes",
    "common_dtype",
    "result_type",
]
