"""Dtype rules: the compute and result dtype of an op, from the dtypes of its operands.

Rules by name (the `promotion` field of a row):

* ``arithmetic``: the common dtype; f16, bf16 and fp8 become Float, and the result stays so.
* ``float``: as arithmetic, and bool and integers become Float.
* ``compare``: computed like arithmetic, the result is Bool.
* ``inspect``: looks at the bits of the common dtype as it is, the result is Bool (signbit).
* ``logical``: operands are taken as truth values, the result is Bool.
* ``keep``: the common dtype as it is (set).
* ``select``: operand 0 is a condition, the others keep their common dtype (where).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError
from fuser.ops.spec import OpSpec

_CATEGORY = {"bool": 0, "int": 1, "uint": 1, "float": 2}
_WEAK_DEFAULT = {0: DataType.Bool, 1: DataType.Int, 2: DataType.Float}


@dataclass(frozen=True, slots=True)
class Operand:
    """What a dtype rule sees of an operand; `weak` marks Python scalars."""

    dtype: DataType
    weak: bool = False


def _wider(a: DataType, b: DataType) -> DataType:
    """Common dtype of two tensors."""
    if a is b:
        return a
    category_a, category_b = _CATEGORY[a.kind], _CATEGORY[b.kind]
    if category_a != category_b:
        return a if category_a > category_b else b
    if a.is_float and a.is_reduced_float and b.is_reduced_float:
        return DataType.Float
    if {a, b} == {DataType.Int8, DataType.UInt8}:
        return DataType.Int32
    return a if a.nbytes > b.nbytes else b


def common_dtype(operands: Iterable[Operand]) -> DataType:
    """Return the dtype that tensors and Python scalars share.

    Tensors decide. A weak operand matters only when its category (bool < integer < float) is above
    that of every tensor, or there is no tensor: then it counts as Bool, Int or Float.
    """
    listed = tuple(operands)
    common = reduce(_wider, (o.dtype for o in listed if not o.weak), DataType.Bool)
    weak_category = max((_CATEGORY[o.dtype.kind] for o in listed if o.weak), default=0)
    if weak_category > _CATEGORY[common.kind]:
        return _WEAK_DEFAULT[weak_category]
    return common


def _compute(spec: OpSpec, operands: Sequence[Operand]) -> DataType:
    match spec.promotion:
        case "arithmetic" | "compare":
            return common_dtype(operands).compute
        case "float":
            common = common_dtype(operands)
            return common.compute if common.is_float else DataType.Float
        case "logical":
            return DataType.Bool
        case "keep" | "inspect":
            return common_dtype(operands)
        case "select":
            return common_dtype(operands[1:])


def result_type(spec: OpSpec, operands: Sequence[Operand]) -> tuple[DataType, DataType]:
    """Return ``(compute dtype, result dtype)`` of `spec` on `operands`.

    Scalars alone compute a scalar, which keeps their dtypes: it has met no tensor yet.

    Raises
    ------
    DefinitionError
        Wrong operand count, or an op that does not exist for the common dtype.
    """
    spec.check_arity(len(operands))
    mixed = not all(o.weak for o in operands)
    compute = _compute(spec, [Operand(o.dtype, o.weak and mixed) for o in operands])
    if not spec.accepts(compute):
        given = ", ".join(o.dtype.name + (" scalar" if o.weak else "") for o in operands)
        needed = ", ".join(d.name for d in DataType if spec.accepts(d))
        raise DefinitionError(
            f"{spec.name}: operands ({given}) are computed in {compute.name}, where the op has no "
            f"meaning; needed one of {needed}"
        )
    returns_bool = spec.promotion in ("compare", "inspect", "logical")
    return compute, DataType.Bool if returns_bool else compute


def accepted_dtypes(spec: OpSpec) -> tuple[DataType, ...]:
    """Return the tensor dtypes that `spec` takes when all its operands have the same one."""
    taken: list[DataType] = []
    for dtype in DataType:
        try:
            result_type(spec, [Operand(dtype)] * spec.arity)
        except DefinitionError:
            continue
        taken.append(dtype)
    return tuple(taken)
