"""Sums of products of atoms: the canonical form index expressions are simplified in.

A `Linear` maps a monomial (a sorted tuple of atoms, each a `Var` or an irreducible subexpression)
to an integer coefficient; the empty monomial is the constant term.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

from fuser.core.expr import Const, Expr, Var, product

Monomial: TypeAlias = tuple[Expr, ...]
Linear: TypeAlias = dict[Monomial, int]

UNIT: Monomial = ()

_HARDWARE = {"bx": 0, "by": 0, "bz": 0, "cx": 0, "cy": 0, "cz": 0, "tx": 1, "ty": 1, "tz": 1}


@lru_cache(maxsize=65536)
def atom_key(atom: Expr) -> tuple[int, str]:
    """Sort key of an atom: block indices, thread indices, other variables, then by text."""
    if isinstance(atom, Var):
        return _HARDWARE.get(atom.name, 2), atom.name
    return 3, repr(atom)


def monomial(atoms: Iterable[Expr]) -> Monomial:
    """Return the sorted monomial of `atoms`."""
    return tuple(sorted(atoms, key=atom_key))


def constant(value: int) -> Linear:
    """Return the linear form of an integer."""
    return {UNIT: value} if value else {}


def atom(e: Expr) -> Linear:
    """Return the linear form of one atom."""
    return {(e,): 1}


def add(a: Mapping[Monomial, int], b: Mapping[Monomial, int], scale: int = 1) -> Linear:
    """Return ``a + scale * b``."""
    result = dict(a)
    for mono, coefficient in b.items():
        total = result.get(mono, 0) + scale * coefficient
        if total:
            result[mono] = total
        else:
            result.pop(mono, None)
    return result


def multiply(a: Mapping[Monomial, int], b: Mapping[Monomial, int]) -> Linear:
    """Return ``a * b``."""
    result: Linear = {}
    for m, c in a.items():
        for n, d in b.items():
            result = add(result, {monomial(m + n): c * d})
    return result


def as_constant(a: Mapping[Monomial, int]) -> int | None:
    """Return the integer `a` is, or None."""
    if not a:
        return 0
    return a[UNIT] if len(a) == 1 and UNIT in a else None


def single_term(a: Mapping[Monomial, int]) -> tuple[int, Monomial] | None:
    """Return ``(coefficient, monomial)`` when `a` has exactly one term."""
    if len(a) != 1:
        return None
    ((mono, coefficient),) = a.items()
    return coefficient, mono


def without(mono: Monomial, divisor: Monomial) -> Monomial | None:
    """Return `mono` with the atoms of `divisor` removed, or None when one is missing."""
    rest = list(mono)
    for a in divisor:
        if a not in rest:
            return None
        rest.remove(a)
    return tuple(rest)


def split_multiples(
    a: Mapping[Monomial, int], coefficient: int, mono: Monomial
) -> tuple[Linear, Linear]:
    """Split `a` into ``(q, r)`` with ``a == q * (coefficient * mono) + r``, term by term."""
    quotient: Linear = {}
    rest: Linear = {}
    for m, c in a.items():
        left = without(m, mono)
        if left is not None and c % coefficient == 0:
            quotient[left] = c // coefficient
        else:
            rest[m] = c
    return quotient, rest


def to_expr(a: Mapping[Monomial, int]) -> Expr:
    """Return `a` as an expression: positive terms first, the constant last."""
    return _to_expr(tuple(a.items()))


@lru_cache(maxsize=1 << 15)
def _to_expr(terms: tuple[tuple[Monomial, int], ...]) -> Expr:
    result: Expr | None = None
    for mono, c in sorted(terms, key=_order):
        magnitude = abs(c)
        term = Const(magnitude) if mono == UNIT else product(mono)
        if mono != UNIT and magnitude != 1:
            term = term * magnitude
        if result is None:
            result = term if c > 0 else (Const(c) if mono == UNIT else term * -1)
        else:
            result = result + term if c > 0 else result - term
    return Const(0) if result is None else result


def _order(item: tuple[Monomial, int]) -> tuple[bool, bool, tuple[tuple[int, str], ...]]:
    mono, coefficient = item
    return mono == UNIT, coefficient < 0, tuple(atom_key(x) for x in mono)
