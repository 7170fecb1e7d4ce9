"""Random Python expressions, which mean the same on NumPy arrays and inside ``@fuser.fuse``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import fuser.api.functions as fused_ops
from fuser.api.tensor import Handle
from fuser.core.dtypes import DataType
from tests.fuzz.inputs import LAYOUTS, elements, laid_out
from tests.fuzz.source import Source

Expression = Callable[..., Any]

BINARY: dict[str, Expression] = {
    "{} + {}": lambda a, b: a + b,
    "{} - {}": lambda a, b: a - b,
    "{} * {}": lambda a, b: a * b,
    "{} / ({} ** 2 + 1)": lambda a, b: a / (b**2 + 1),
    "where({} < {}, {}, {})": lambda a, b: _call("where", a < b, a, b),
    "minimum({}, {})": lambda a, b: _call("minimum", a, b),
    "1.5 - {} * {}": lambda a, b: 1.5 - a * b,
}
UNARY: dict[str, Expression] = {
    "-{}": lambda a: -a,
    "abs({})": abs,
    "{}[..., ::2]": lambda a: a[..., ::2] if a.ndim else a,
    "{}[None]": lambda a: a[None] if a.ndim < 4 else a,
    "{} ** 2": lambda a: a**2,
    "sum({}, 0, keepdim=True)": lambda a: _sum(a, True),
    "sum({}, 0)": lambda a: _sum(a, False),
    "{} * {}.shape[-1]": lambda a: a * a.shape[-1] if a.ndim else a,
    "exp(-abs({}))": lambda a: _call("exp", -abs(a)),
}


def _call(name: str, *operands: Any) -> Any:
    traced = any(isinstance(x, Handle) for x in operands)
    return getattr(fused_ops if traced else np, name)(*operands)


def _sum(a: Any, keep: bool) -> Any:
    if a.ndim == 0:
        return a
    return fused_ops.sum(a, [0], keep) if isinstance(a, Handle) else np.sum(a, 0, keepdims=keep)


@dataclass(frozen=True, slots=True)
class RandomFunction:
    """A function of arrays and numbers, and arguments for it.

    Attributes
    ----------
    steps
        ``(text, operation, operands)``: operands are positions among arguments and earlier results.
    """

    steps: tuple[tuple[str, Expression, tuple[int, ...]], ...]
    arguments: tuple[Any, ...]

    def __call__(self, *arguments: Any) -> Any:
        """Return the last result."""
        values = list(arguments)
        for _, operation, operands in self.steps:
            values.append(operation(*(values[i] for i in operands)))
        return values[-1]

    def __repr__(self) -> str:
        kinds = [f"v{i} = {_kind(a)}" for i, a in enumerate(self.arguments)]
        lines = [
            f"v{i} = " + text.replace("{}", "v{}").format(*operands * 2)
            for i, (text, _, operands) in enumerate(self.steps, len(kinds))
        ]
        return "\n".join([*kinds, *lines])


def _kind(a: Any) -> str:
    return f"{a.dtype}{list(a.shape)} strides {a.strides}" if hasattr(a, "shape") else repr(a)


def draw_function(source: Source) -> RandomFunction:
    """Draw a function of one to four arguments and up to eight steps."""
    shape = tuple(source.pick((3, 2, 1, 5, 8, 33)) for _ in range(source.integer(0, 3)))
    rng = np.random.default_rng(source.below(1 << 16))
    values: list[Any] = []
    for _ in range(source.integer(1, 4)):
        if values and source.chance(25):
            values.append(source.pick((2, -0.5, 3)))
            continue
        part = shape[source.integer(0, len(shape)) :]
        sizes = tuple(1 if source.chance(25) else n for n in part)
        array = elements(rng, DataType.Double, sizes, "small")
        values.append(laid_out(array, source.pick(LAYOUTS), rng))
    arguments = tuple(values)
    steps: list[tuple[str, Expression, tuple[int, ...]]] = []
    for _ in range(source.integer(1, 8)):
        first = source.pick([i for i, v in enumerate(values) if hasattr(v, "shape")][::-1])
        if source.chance(40):
            text, operation = source.pick(list(UNARY.items()))
            operands: tuple[int, ...] = (first,)
        else:
            text, operation = source.pick(list(BINARY.items()))
            others = [i for i, v in enumerate(values) if _fits(values[first], v)]
            operands = (first, source.pick(others))
        steps.append((text, operation, operands))
        values.append(np.asarray(operation(*(values[i] for i in operands))))
    return RandomFunction(tuple(steps), arguments)


def _fits(a: Any, b: Any) -> bool:
    try:
        return math.prod(np.broadcast_shapes(np.shape(a), np.shape(b))) <= 4_000
    except ValueError:
        return False


@st.composite
def functions(draw: Any) -> RandomFunction:
    """Strategy of random functions."""
    return draw_function(Source.drawn(draw))
