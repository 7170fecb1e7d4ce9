"""Rows of the binary ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fuser.ops.meanings as meanings
from fuser.ops.spec import ROUNDED, OpSpec, Text, Tolerance


def _compare(name: str, numpy: Callable[..., Any], symbol: str) -> OpSpec:
    """Row of a comparison: one C operator for every dtype, result Bool."""
    text = f"({{0}} {symbol} {{1}})"
    return OpSpec(name, 2, "compare", numpy, Text.numbers(text, text))


def _bitwise(name: str, numpy: Callable[..., Any], symbol: str) -> OpSpec:
    """Row of a bitwise op on integers and bool."""
    text = f"(({{T}})({{0}} {symbol} {{1}}))"
    return OpSpec(name, 2, "arithmetic", numpy, Text(integer=text, boolean=text))


def _shift(name: str, numpy: Callable[..., Any], function: str) -> OpSpec:
    """Row of a shift; counts outside the width shift everything out."""
    return OpSpec(name, 2, "arithmetic", numpy, Text(integer=f"{function}({{0}}, {{1}})"))


def _remainder(name: str) -> OpSpec:
    """Row of the rest that has the divisor's sign."""
    floats = "remainder_of({0}, {1})"
    return OpSpec(name, 2, "arithmetic", meanings.remainder, Text(floats, floats, "imod({0}, {1})"))


BINARY: tuple[OpSpec, ...] = (
    OpSpec(
        "add", 2, "arithmetic", np.add,
        Text("({0} + {1})", "({0} + {1})", "iadd({0}, {1})", "({0} || {1})"), ROUNDED,
    ),
    OpSpec(
        "sub", 2, "arithmetic", np.subtract,
        Text("({0} - {1})", "({0} - {1})", "isub({0}, {1})"), ROUNDED,
    ),
    OpSpec(
        "mul", 2, "arithmetic", np.multiply,
        Text("({0} * {1})", "({0} * {1})", "imul({0}, {1})", "({0} && {1})"), ROUNDED,
    ),
    OpSpec(
        "div", 2, "arithmetic", meanings.div,
        Text("({0} / {1})", "({0} / {1})", "idiv({0}, {1})"), ROUNDED,
    ),
    OpSpec("truediv", 2, "float", np.true_divide, Text("({0} / {1})", "({0} / {1})"), ROUNDED),
    OpSpec(
        "floordiv", 2, "arithmetic", meanings.floordiv,
        Text("floorf({0} / {1})", "floor({0} / {1})", "ifloordiv({0}, {1})"), ROUNDED,
        in_compute_dtype=True,  # floor of the rounded quotient
    ),
    _remainder("mod"),
    _remainder("remainder"),
    OpSpec(
        "fmod", 2, "arithmetic", meanings.fmod,
        Text("fmod_of({0}, {1})", "fmod_of({0}, {1})", "irem({0}, {1})"),
    ),
    OpSpec(
        "pow", 2, "arithmetic", meanings.power,
        Text("powf({0}, {1})", "pow({0}, {1})", "ipow({0}, {1})"), Tolerance(4, 2),
    ),
    OpSpec("atan2", 2, "float", np.arctan2, Text("atan2f({0}, {1})", "atan2({0}, {1})"),
           Tolerance(3, 2)),
    OpSpec(
        "minimum", 2, "arithmetic", meanings.minimum,
        Text.numbers("min_nan({0}, {1})", "({0} && {1})"),
    ),
    OpSpec(
        "maximum", 2, "arithmetic", meanings.maximum,
        Text.numbers("max_nan({0}, {1})", "({0} || {1})"),
    ),
    OpSpec(
        "nextafter", 2, "arithmetic", np.nextafter,
        Text("nextafterf({0}, {1})", "nextafter({0}, {1})"), in_compute_dtype=True,
    ),
    OpSpec("gcd", 2, "arithmetic", np.gcd, Text(integer="igcd({0}, {1})")),
    _compare("lt", np.less, "<"),
    _compare("le", np.less_equal, "<="),
    _compare("gt", np.greater, ">"),
    _compare("ge", np.greater_equal, ">="),
    _compare("eq", np.equal, "=="),
    _compare("ne", np.not_equal, "!="),
    OpSpec("logical_and", 2, "logical", np.logical_and, Text(boolean="({0} && {1})")),
    OpSpec("logical_or", 2, "logical", np.logical_or, Text(boolean="({0} || {1})")),
    OpSpec("logical_xor", 2, "logical", np.logical_xor, Text(boolean="({0} != {1})")),
    _bitwise("bitwise_and", np.bitwise_and, "&"),
    _bitwise("bitwise_or", np.bitwise_or, "|"),
    _bitwise("bitwise_xor", np.bitwise_xor, "^"),
    _shift("bitwise_left_shift", np.left_shift, "shift_left"),
    _shift("bitwise_right_shift", np.right_shift, "shift_right"),
    _shift("logical_right_shift", meanings.logical_right_shift, "shift_right_logical"),
)  # fmt: skip
