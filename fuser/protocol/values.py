"""Index expressions as Python functions, and the elements that statements read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, cast, get_args

from fuser.core.expr import BinOp, Const, Expr, Select, Var, variables
from fuser.kir.core import Stmt, field_names
from fuser.kir.scalar import Element, Value, walk
from fuser.protocol.errors import Unsupported

_VALUES = get_args(Value)
_INFIX = {"+": "+", "-": "-", "*": "*", "/": "//", "%": "%", "^": "^"}
_COMPARE = {"<": "<", "<=": "<=", "==": "==", "!=": "!="}


class Function(Protocol):
    """An index of the loop variables and the trip counts of the levels, the outermost first."""

    def __call__(self, v: tuple[int, ...], n0: int, n1: int, n2: int = 0, /) -> int:
        """Return its value."""
        ...


@dataclass(frozen=True, slots=True)
class Compiled:
    """An index as a function of loop variables and trip counts.

    Attributes
    ----------
    counts
        Which trip counts it mentions: 0 the outer, 1 the inner; of three levels 2 the innermost.
    names
        The same, each with its name and level.
    """

    at: Function
    counts: tuple[int, ...]
    text: str
    names: tuple[tuple[str, int], ...] = ()


def compile_index(e: Expr, slots: Mapping[str, int], counts: Mapping[str, int]) -> Compiled:
    """Compile an index over loop variables (`slots`) and trip counts (`counts`)."""
    names = {name: f"v[{slot}]" for name, slot in slots.items()}
    names |= {name: f"n{level}" for name, level in counts.items()}
    unknown = variables(e) - names.keys()
    if unknown:
        raise Unsupported(f"an index of its pipeline depends on {', '.join(sorted(unknown))}")
    text = _python(e, names)
    mentioned = tuple((n, counts[n]) for n in sorted(variables(e) & counts.keys()))
    used = tuple(sorted({level for _, level in mentioned}))
    return Compiled(_function(text), used, text, mentioned)


@lru_cache(maxsize=1 << 14)
def _function(text: str) -> Function:
    """Return the function of a text: agents and mutants of a kernel have most in common."""
    return cast("Function", eval(f"lambda v, n0, n1, n2=0: {text}", {"min": min, "max": max}))


def _python(e: Expr, names: Mapping[str, str]) -> str:
    match e:
        case Const(value):
            return f"({value})" if value < 0 else str(value)
        case Var(name):
            return names[name]
        case Select(cond, if_true, if_false):
            parts = (_python(part, names) for part in (if_true, cond, if_false))
            return "({} if {} else {})".format(*parts)
        case BinOp(op, lhs, rhs):
            a, b = _python(lhs, names), _python(rhs, names)
            if op in ("min", "max"):
                return f"{op}({a}, {b})"
            if op in _COMPARE:
                return f"int({a} {_COMPARE[op]} {b})"
            if op in ("and", "or"):
                return f"int(bool({a} {op} {b}))"
            return f"({a} {_INFIX[op]} {b})"


def elements_of(stmt: Stmt) -> Iterator[Element]:
    """Yield every element that the values of a statement read."""
    for name in field_names(stmt):
        value = getattr(stmt, name)
        if isinstance(value, _VALUES):
            yield from (v for v in walk(cast("Value", value)) if isinstance(v, Element))
