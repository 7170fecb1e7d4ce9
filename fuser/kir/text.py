"""Scalar values as C expressions, with the parentheses C needs and few others."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import assert_never

import numpy as np

from fuser.core.dtypes import DataType
from fuser.core.errors import VerifyError
from fuser.core.expr import TRUE, Const, Expr, Var, to_c
from fuser.kir.scalar import Apply, Cast, Choose, Element, FromIndex, Literal, Ref, Value
from fuser.ops import BY_NAME

_INTEGER_SUFFIX = {DataType.Int32: "", DataType.Int: "ll"}


def literal_to_c(value: bool | int | float, dtype: DataType) -> str:
    """Print a constant so that it has exactly the type `dtype` and the value rounded to it."""
    if dtype is DataType.Bool:
        return "true" if value else "false"
    if dtype.is_integer:
        return _integer_to_c(int(value), dtype)
    if dtype.is_reduced_float:
        with np.errstate(all="ignore"):
            rounded = float(np.asarray(value, np.float32).astype(dtype.np).astype(np.float32))
        return cast_to_c(_float_to_c(rounded), DataType.Float, dtype)
    return _double_to_c(float(value)) if dtype is DataType.Double else _float_to_c(float(value))


def _integer_to_c(value: int, dtype: DataType) -> str:
    info = np.iinfo(dtype.np)
    if not info.min <= value <= info.max:
        raise VerifyError(
            f"literal {value}: outside {dtype.short}; needs a value in [{info.min}, {info.max}]"
        )
    suffix = _INTEGER_SUFFIX.get(dtype)
    if suffix is None:
        return f"{dtype.cuda}({value})"
    if value == info.min:  # the digits alone would not fit the positive literal's type
        return f"(-{info.max}{suffix} - 1)"
    return f"{value}{suffix}"


def _float_to_c(value: float) -> str:
    with np.errstate(over="ignore"):
        rounded = np.float32(value)
    if np.isnan(rounded):
        return "NAN_F32"
    if np.isinf(rounded):
        return "INF_F32" if value > 0 else "-INF_F32"
    text = np.format_float_positional(rounded, trim="0")
    scientific = np.format_float_scientific(rounded, trim="0")
    return min(text, scientific, key=len) + "f"


def _double_to_c(value: float) -> str:
    if math.isnan(value):
        return "NAN_F64"
    if math.isinf(value):
        return "INF_F64" if value > 0 else "-INF_F64"
    return repr(value)


def cast_to_c(text: str, source: DataType, target: DataType) -> str:
    """Print a conversion by the rules of ``prelude/convert.cuh``."""
    return text if source is target else f"cast<{target.cuda}>({text})"


def guarded(guard: Expr, text: str, fill: str) -> str:
    """Print ``guard ? text : fill``, parenthesised, or `text` alone when always true."""
    return text if guard == TRUE else f"({to_c(guard, 1)} ? {text} : {fill})"


def value_to_c(value: Value) -> str:
    """Print `value` as an expression; whoever nests it adds parentheses (see `is_atom`)."""
    match value:
        case Literal(number, dtype):
            return literal_to_c(number, dtype)
        case Ref(name=name):
            return name
        case Element(memory, index, dtype, guard, fill):
            other = literal_to_c(0, dtype) if fill is None else value_to_c(fill)
            return guarded(guard, f"{memory}[{to_c(index)}]", other)
        case FromIndex(expr, dtype):
            return index_to_c(expr, dtype)
        case Apply(op, args, _):
            return apply_to_c(op, args)
        case Cast(arg, dtype):
            return cast_to_c(bare(value_to_c(arg)), arg.dtype, dtype)
        case Choose(cond, if_true, if_false, _):
            return guarded(cond, value_to_c(if_true), value_to_c(if_false))
        case _:
            assert_never(value)


def index_to_c(expr: Expr, dtype: DataType) -> str:
    """Print an index expression as a value of integer `dtype`."""
    if isinstance(expr, Const):
        return literal_to_c(expr.value, dtype)
    return (
        f"{dtype.cuda}({to_c(expr)})" if isinstance(expr, Var) else f"({dtype.cuda})({to_c(expr)})"
    )


def apply_to_c(op: str, args: tuple[Value, ...]) -> str:
    """Print an operation of the table; operands are parenthesised where its text needs an atom."""
    spec = BY_NAME[op]
    compute = args[-1].dtype  # operand 0 of a select is its condition
    template = spec.cuda(compute)
    texts = (value_to_c(a) for a in args)
    return template.format(*(_operand(t, _needs_atom(template, i)) for i, t in enumerate(texts)))


def _operand(text: str, needs_atom: bool) -> str:
    return text if needs_atom and is_atom(text) else f"({text})" if needs_atom else bare(text)


@lru_cache(maxsize=1024)
def _needs_atom(template: str, operand: int) -> bool:
    """Whether `operand` stands somewhere else than between the parentheses of a call."""
    field = re.escape(f"{{{operand}}}")
    alone = re.findall(rf"[(,] ?{field}(?=[,)])", template)
    return len(alone) != len(re.findall(field, template))


def is_atom(text: str) -> bool:
    """Whether `text` can be an operand of any C operator as it stands."""
    depth, outside = 0, list[str]()
    for char in text:
        depth += char in "(["
        if depth == 0:
            outside.append(char)
        depth -= char in ")]"
    return _ATOM.fullmatch("".join(outside)) is not None


_ATOM = re.compile(r"[A-Za-z_][\w:]*(<\w+>)?|(\d[\d.]*(e[+-]?\d+)?\w{0,3})?")


def bare(text: str) -> str:
    """Drop one pair of parentheses that encloses the whole text."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]
