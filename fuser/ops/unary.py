"""Rows of the unary ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import fuser.ops.meanings as meanings
import fuser.ops.special as special
from fuser.ops.spec import EXACT, ROUNDED, OpSpec, Text, Tolerance


def _libm(
    name: str,
    numpy: Callable[..., Any],
    ulp: tuple[float, float],
    near_zero: float = 0.0,
) -> OpSpec:
    """Row of a CUDA math function, ``<name>f`` in f32; `ulp` is its error in f32 and f64."""
    text = Text(f32=f"{name}f({{0}})", f64=f"{name}({{0}})")
    return OpSpec(name, 1, "float", numpy, text, Tolerance(*ulp, near_zero))


def _rounding(name: str, numpy_name: str, c_name: str) -> OpSpec:
    """Row of a rounding to an integral value; integers are left as they are."""
    text = Text(f32=f"{c_name}f({{0}})", f64=f"{c_name}({{0}})", integer="{0}")
    return OpSpec(name, 1, "arithmetic", meanings.keep_integers(numpy_name), text)


def _test(name: str, numpy: Callable[..., Any], floats: str, others: str) -> OpSpec:
    """Row of a predicate on floats that is the constant `others` on integers and bool."""
    text = Text(f32=floats, f64=floats, integer=others, boolean=others)
    return OpSpec(name, 1, "compare", numpy, text)


UNARY: tuple[OpSpec, ...] = (
    OpSpec("set", 1, "keep", meanings.same, Text.everything("{0}")),
    OpSpec("abs", 1, "arithmetic", np.abs, Text("fabsf({0})", "fabs({0})", "iabs({0})")),
    OpSpec("neg", 1, "arithmetic", np.negative, Text("(-{0})", "(-{0})", "ineg({0})")),
    OpSpec("relu", 1, "arithmetic", meanings.relu, Text.numbers("relu({0})")),
    # -- float results ----------------------------------------------------------------------------
    OpSpec(
        "reciprocal", 1, "float", meanings.reciprocal, Text("(1.0f / {0})", "(1.0 / {0})"), ROUNDED
    ),
    _libm("rsqrt", meanings.rsqrt, (2, 1)),
    _libm("sqrt", np.sqrt, (0.5, 0.5)),
    _libm("exp", np.exp, (2, 1)),
    _libm("exp2", np.exp2, (2, 1)),
    _libm("expm1", np.expm1, (1, 1)),
    _libm("log", np.log, (1, 1)),
    _libm("log2", np.log2, (1, 1)),
    _libm("log10", np.log10, (2, 1)),
    _libm("log1p", np.log1p, (1, 1)),
    _libm("sin", np.sin, (2, 2)),
    _libm("cos", np.cos, (2, 2)),
    _libm("tan", np.tan, (4, 2)),
    _libm("sinh", np.sinh, (3, 2)),
    _libm("cosh", np.cosh, (2, 1)),
    _libm("tanh", np.tanh, (2, 1)),
    _libm("asin", np.arcsin, (2, 2)),
    _libm("acos", np.arccos, (2, 2)),
    _libm("atan", np.arctan, (2, 2)),
    _libm("asinh", np.arcsinh, (3, 3)),
    _libm("acosh", np.arccosh, (4, 3)),
    _libm("atanh", np.arctanh, (3, 2)),
    _libm("erf", special.erf, (2, 2)),
    _libm("erfc", special.erfc, (4, 5)),
    _libm("erfinv", special.erfinv, (2, 5)),
    _libm("erfcinv", special.erfcinv, (4, 6)),
    _libm("lgamma", special.lgamma, (6, 4), near_zero=64),
    OpSpec("frac", 1, "float", meanings.frac, Text.floats("frac({0})")),
    # f32 flushes where exp(-x) overflows. The gelus round the argument of exp, which costs an error
    # proportional to that argument: 160 ulp where they underflow, about 5 ulp for |x| < 3.
    OpSpec(
        "sigmoid", 1, "float", meanings.sigmoid, Text.floats("sigmoid({0})"),
        Tolerance(4, 4, flushed=1),
    ),
    OpSpec(
        "silu", 1, "float", meanings.silu, Text.floats("silu({0})"),
        Tolerance(5, 5, flushed=128),
    ),
    OpSpec(
        "gelu", 1, "float", meanings.gelu, Text.floats("gelu({0})"),
        Tolerance(160, 1600, flushed=128),
    ),
    OpSpec(
        "gelu_tanh", 1, "float", meanings.gelu_tanh, Text.floats("gelu_tanh({0})"),
        Tolerance(160, 1600, flushed=128),
    ),
    # -- rounding ---------------------------------------------------------------------------------
    _rounding("ceil", "ceil", "ceil"),
    _rounding("floor", "floor", "floor"),
    _rounding("round", "rint", "rint"),
    _rounding("trunc", "trunc", "trunc"),
    # -- predicates and bits ----------------------------------------------------------------------
    OpSpec(  # on the bits as they are: the conversion of an fp8 NaN to f32 drops its sign
        "signbit", 1, "inspect", meanings.signbit,
        replace(Text.numbers("sign_bit({0})"), reduced="sign_bit({0})"),
    ),
    _test("isfinite", np.isfinite, "is_finite({0})", "true"),
    _test("isinf", np.isinf, "is_inf({0})", "false"),
    _test("isnan", np.isnan, "({0} != {0})", "false"),
    _test("isneginf", meanings.isneginf, "is_neg_inf({0})", "false"),
    _test("isposinf", meanings.isposinf, "is_pos_inf({0})", "false"),
    _test("isreal", meanings.isreal, "true", "true"),
    OpSpec("logical_not", 1, "logical", np.logical_not, Text(boolean="(!{0})")),
    OpSpec(
        "bitwise_not", 1, "arithmetic", np.invert,
        Text(integer="(({T})(~{0}))", boolean="(!{0})"), EXACT,
    ),
)  # fmt: skip
