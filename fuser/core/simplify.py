"""Simplify index expressions and prove inequalities about them.

Loop and thread indices have a known range ``[0, extent)``; sizes are at least 1 (nothing is
launched for an empty tensor) and may be known multiples of a constant; guards that enclose the code
are further facts ``lhs < rhs``. Everything is sound: what cannot be proved stays as it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import assert_never

from fuser.core import linear
from fuser.core.expr import BinOp, Const, Expr, Select, Var, all_of, binop, conjuncts, select
from fuser.core.facts import (
    Facts,
    atoms_non_negative,
    is_non_negative,
    mentions,
    once,
    variables_are_sizes,
)
from fuser.core.linear import UNIT, Linear, Monomial

__all__ = [
    "Facts", "coefficient_of", "guard_of", "is_multiple", "prove_equal", "prove_less",
    "prove_non_negative", "simplify",
]  # fmt: skip


def simplify(e: Expr, facts: Facts) -> Expr:
    """Return an equal, usually shorter expression; equal inputs get equal results."""
    return linear.to_expr(_linear(e, facts))


def prove_equal(a: Expr, b: Expr, facts: Facts) -> bool:
    """Return whether both sides are equal wherever `facts` hold (False: not proved)."""
    if a == b or not linear.add(_linear(a, facts), _linear(b, facts), -1):
        return True
    # a guard may pin what ranges do not: ``t == 0`` where ``t < 1``
    return bool(facts.bounds) and prove_less(a, b + 1, facts) and prove_less(b, a + 1, facts)


def prove_less(a: Expr, b: Expr, facts: Facts) -> bool:
    """Return whether ``a < b`` wherever `facts` hold (False: not proved)."""
    gap = linear.add(_linear(b, facts), _linear(a, facts), -1)
    return _non_negative(linear.add(gap, linear.constant(-1)), facts)


def prove_non_negative(e: Expr, facts: Facts) -> bool:
    """Return whether ``e >= 0`` wherever `facts` hold (False: not proved)."""
    return _non_negative(_linear(e, facts), facts)


def is_multiple(e: Expr, k: int, facts: Facts) -> bool:
    """Return whether `e` is always a multiple of `k` (False: not proved)."""
    return _is_multiple(_linear(e, facts), k, facts)


def coefficient_of(e: Expr, name: str, facts: Facts) -> int | None:
    """Return the constant coefficient of a variable, or None when `e` is not affine in it."""
    var, found = Var(name), 0
    for mono, c in _linear(e, facts).items():
        if mono == (var,):
            found = c
        elif any(mentions(a, name) for a in mono):
            return None
    return found


def _linear(e: Expr, facts: Facts) -> Linear:
    known: Linear | None = facts.memo.get(e)
    if known is None:
        known = facts.memo[e] = _compute(e, facts)
    return known


def _compute(e: Expr, facts: Facts) -> Linear:
    match e:
        case Const(value):
            return linear.constant(value)
        case Var(name):
            return {} if facts.ranges.get(name) == Const(1) else linear.atom(e)
        case BinOp("+" | "-" as op, a, b):
            total = linear.add(_linear(a, facts), _linear(b, facts), 1 if op == "+" else -1)
            return _rejoin(total, facts)
        case BinOp("*", a, b):
            return _rejoin(linear.multiply(_linear(a, facts), _linear(b, facts)), facts)
        case BinOp("/", a, b):
            return _divide(_linear(a, facts), _linear(b, facts), facts)
        case BinOp("%", a, b):
            return _modulo(_linear(a, facts), _linear(b, facts), facts)
        case BinOp(op, a, b):
            return _comparison(BinOp(op, simplify(a, facts), simplify(b, facts)), facts)
        case Select(cond, a, b):
            chosen = select(simplify(cond, facts), simplify(a, facts), simplify(b, facts))
            return linear.atom(chosen) if isinstance(chosen, Select) else _linear(chosen, facts)
        case _:
            assert_never(e)


def _comparison(e: BinOp, facts: Facts) -> Linear:
    a, b = e.lhs, e.rhs
    match e.op:
        case "<" if prove_less(a, b, facts):
            return linear.constant(1)
        case "<" if prove_less(b, a + 1, facts):
            return {}
        case "<=" if prove_less(a, b + 1, facts):
            return linear.constant(1)
        case "<=" if prove_less(b, a, facts):
            return {}
        case "==" | "!=" if prove_equal(a, b, facts):
            return linear.constant(int(e.op == "=="))
        case "==" | "!=" if prove_less(a, b, facts) or prove_less(b, a, facts):
            return linear.constant(int(e.op == "!="))
        case "min" | "max":
            return _extremum(e, facts)
        case _:
            folded = binop(e.op, a, b)
    if isinstance(folded, Const):
        return linear.constant(folded.value)
    return linear.atom(folded)


def _extremum(e: BinOp, facts: Facts) -> Linear:
    smaller, larger = (e.lhs, e.rhs) if prove_less(e.lhs, e.rhs + 1, facts) else (e.rhs, e.lhs)
    if prove_less(smaller, larger + 1, facts):
        return _linear(smaller if e.op == "min" else larger, facts)
    return linear.atom(e)


# --- division ---------------------------------------------------------------------------------


def _divide(num: Linear, den: Linear, facts: Facts) -> Linear:
    d = linear.as_constant(den)
    if d == 0:
        return {}  # by an extent of 0: no iteration gets here
    if d == 1 or not num:
        return num
    if not _non_negative(num, facts):
        return _negative_division("/", num, den, facts)
    term = linear.single_term(den)
    if term is None:
        return _opaque("/", num, den)
    quotient, rest = linear.split_multiples(num, *term)
    if quotient and _non_negative(rest, facts):
        return _rejoin(linear.add(quotient, _divide(rest, den, facts)), facts)
    if quotient and d and (left := linear.as_constant(rest)) is not None:
        return linear.add(quotient, linear.constant(left // d))  # (4 r - 1) / 4 is r - 1
    if _is_less(num, den, facts):
        return {}
    num, _ = _drop_small(num, den, facts)
    num, den = _cancel(num, den)
    if linear.as_constant(den) == 1:
        return num
    return _nested_division(num, den, facts)


def _negative_division(op: str, num: Linear, den: Linear, facts: Facts) -> Linear:
    # Only exact multiples may be taken out of a possibly negative numerator.
    term = linear.single_term(den)
    if term is not None:
        quotient, rest = linear.split_multiples(num, *term)
        if not rest:
            return quotient if op == "/" else {}
    return _opaque(op, num, den)


def _nested_division(num: Linear, den: Linear, facts: Facts) -> Linear:
    match linear.to_expr(num):
        case BinOp("/", x, inner):
            both = _rejoin(linear.multiply(_linear(inner, facts), den), facts)
            return _divide(_linear(x, facts), both, facts)
        case BinOp("%", x, m):
            term = linear.single_term(den)
            modulus = _linear(m, facts)
            if term is not None:
                quotient, rest = linear.split_multiples(modulus, *term)
                if quotient and not rest:
                    return _modulo(_divide(_linear(x, facts), den, facts), quotient, facts)
        case _:
            pass
    return _opaque("/", num, den)


def _modulo(num: Linear, den: Linear, facts: Facts) -> Linear:
    if linear.as_constant(den) in (0, 1) or not num:
        return {}
    if not _non_negative(num, facts):
        return _negative_division("%", num, den, facts)
    term = linear.single_term(den)
    if term is None:
        return num if _is_less(num, den, facts) else _opaque("%", num, den)
    quotient, rest = linear.split_multiples(num, *term)
    if quotient and _non_negative(rest, facts):
        return _modulo(rest, den, facts)
    if quotient and (d := linear.as_constant(den)) and (left := linear.as_constant(rest)):
        return linear.constant(left % d)  # (4 r - 1) % 4 is 3
    if _is_less(num, den, facts):
        return num
    large, small = _drop_small(num, den, facts)
    if small:
        return linear.add(_modulo(large, den, facts), small)
    scaled, modulus = _cancel(num, den)
    if modulus != den:
        factor, _ = linear.split_multiples(den, *_term(modulus))
        return linear.multiply(_modulo(scaled, modulus, facts), factor)
    match linear.to_expr(num):
        case BinOp("%", x, m) if not linear.split_multiples(_linear(m, facts), *term)[1]:
            return _modulo(_linear(x, facts), den, facts)
        case _:
            return _opaque("%", num, den)


def _term(a: Linear) -> tuple[int, Monomial]:
    term = linear.single_term(a)
    assert term is not None, a
    return term


def _drop_small(num: Linear, den: Linear, facts: Facts) -> tuple[Linear, Linear]:
    """Split ``num = large + small`` with ``large``, ``den`` multiples of g and 0 <= small < g."""
    sizes = {abs(c) for m, c in num.items() if m != UNIT} | {linear.as_constant(den) or 1}
    candidates = sorted((g for g in sizes if g > 1), reverse=True)
    for g in candidates:
        if not _is_multiple(den, g, facts):
            continue
        large = {m: c for m, c in num.items() if _is_multiple({m: c}, g, facts)}
        small = {m: c for m, c in num.items() if m not in large}
        if small and _non_negative(small, facts) and _is_less(small, linear.constant(g), facts):
            return large, small
    return num, {}


def _cancel(num: Linear, den: Linear) -> tuple[Linear, Linear]:
    """Divide both sides by their common integer and monomial factor."""
    d, mono = _term(den)
    g = math.gcd(d, *num.values())
    common = [
        a for a in dict.fromkeys(mono) if all(linear.without(m, (a,)) is not None for m in num)
    ]
    shared: Monomial = tuple(common)
    return (
        linear.split_multiples(num, g, shared)[0],
        linear.split_multiples(den, g, shared)[0],
    )


def _opaque(op: str, num: Linear, den: Linear) -> Linear:
    assert op in ("/", "%")
    result = binop("/" if op == "/" else "%", linear.to_expr(num), linear.to_expr(den))
    if isinstance(result, Const):
        return linear.constant(result.value)
    return linear.atom(result)


@once
def _rejoin(total: Linear, facts: Facts) -> Linear:
    """Join quotient and remainder: ``(x / n) * n + x % n == x``, and the two rules like it."""
    for mono, c in list(total.items()):
        for a in mono:
            if not (isinstance(a, BinOp) and a.op in "/%"):
                continue
            if a.op == "/":
                exact = _exact_quotient(mono, a, c, facts)
                if exact is not None:
                    return _rejoin(linear.add(linear.add(total, {mono: c}, -1), exact), facts)
                continue
            rest = linear.without(mono, (a,))
            assert rest is not None
            scale: Linear = {rest: c}
            x, n = _linear(a.lhs, facts), _linear(a.rhs, facts)
            whole = linear.multiply(linear.multiply(_divide(x, n, facts), n), scale)
            if whole and all(total.get(m) == k for m, k in whole.items()):
                without = linear.add(linear.add(total, whole, -1), {mono: c}, -1)
                return _rejoin(linear.add(without, linear.multiply(x, scale)), facts)
            joined = _join_digits(total, a, rest, c, facts)
            if joined is not None:
                return _rejoin(joined, facts)
    return total


def _join_digits(total: Linear, low: BinOp, rest: Monomial, c: int, facts: Facts) -> Linear | None:
    """Apply ``x % n + n * (x / n % m) == x % (n * m)`` to the term ``c * rest * (x % n)``."""
    match low.rhs:
        case Const(n):
            pass
        case _:
            return None
    shifted = _divide(_linear(low.lhs, facts), linear.constant(n), facts)
    for mono, k in total.items():
        if k != c * n:
            continue
        for high in mono:
            match high:
                case BinOp("%", x, Const(m)) if linear.without(mono, (high,)) == rest:
                    if linear.add(_linear(x, facts), shifted, -1):
                        continue
                    whole = _modulo(_linear(low.lhs, facts), linear.constant(n * m), facts)
                    parts = {linear.monomial((*rest, low)): c, mono: k}
                    scaled = linear.multiply({rest: c}, whole)
                    return linear.add(linear.add(total, parts, -1), scaled)
                case _:
                    pass
    return None


def _exact_quotient(mono: Monomial, a: BinOp, c: int, facts: Facts) -> Linear | None:
    """Return ``c * mono`` with ``d * (x / d)`` replaced by ``x`` when `d` divides `x`."""
    match a:
        case BinOp("/", x, Const(d)) if c % d == 0 and _is_multiple(_linear(x, facts), d, facts):
            rest = linear.without(mono, (a,))
            assert rest is not None
            return linear.multiply({rest: c // d}, _linear(x, facts))
        case _:
            return None


# --- proofs -----------------------------------------------------------------------------------


def _is_less(a: Linear, b: Linear, facts: Facts) -> bool:
    gap = linear.add(linear.add(b, a, -1), linear.constant(-1))
    return _non_negative(gap, facts)


@once
def _non_negative(a: Linear, facts: Facts) -> bool:
    # Guards are tried one at a time, and proofs below them use none: a guard on a quotient would
    # otherwise be asked to prove the bound of that same quotient, forever.
    base = facts.unguarded
    if _bounded_below(a, base):
        return True
    for lhs, rhs in facts.bounds:
        slack = linear.add(_linear(rhs, base), _linear(lhs, base), -1)
        if _bounded_below(linear.add(linear.add(a, slack, -1), linear.constant(1)), base):
            return True
    return False


@once
def _bounded_below(a: Linear, facts: Facts) -> bool:
    """Return whether the smallest value of `a` over all index variables is at least 0."""
    if all(c >= 0 for c in a.values()):
        return all(atoms_non_negative(m, facts) for m in a)
    low: Linear = {}
    for mono, c in a.items():
        term = _extreme_term(mono, c, facts, depth=4)
        if term is None:
            return False
        low = linear.add(low, term)
    return is_non_negative(_rejoin(_relax(low, facts), facts), facts)


@once
def _relax(low: Linear, facts: Facts) -> Linear:
    """Bound ``c * (x / d)`` of sizes from below by terms without that division.

    ``q = floor(x / d)`` satisfies ``x - (d - 1) <= d * q <= x``, and with ``d = k * e`` also
    ``k * q <= floor(x / e)``.
    """
    result: Linear = {}
    for mono, c in low.items():
        for a in mono:
            match a:
                case BinOp("/", x, Const(d)) if (
                    c % d == 0 or (c < 0 and d % c == 0)
                ) and variables_are_sizes(x, facts):
                    bound = _divide(_linear(x, facts), linear.constant(max(1, d // abs(c))), facts)
                    bound = linear.add(bound, linear.constant(-(d - 1) * (c > 0)))
                    scale = {linear.without(mono, (a,)) or UNIT: c // d if c % d == 0 else -1}
                    result = linear.add(result, linear.multiply(scale, bound))
                    break
                case _:
                    pass
        else:
            result = linear.add(result, {mono: c})
    return result if result == low else _relax(result, facts)  # a division of a division


def _extreme_term(mono: Monomial, c: int, facts: Facts, depth: int) -> Linear | None:
    """Return a lower bound of ``c * mono`` that only mentions sizes."""
    if any(facts.is_signed(a) for a in mono):
        return None
    sizes = [a for a in mono if isinstance(a, Var) and a.name not in facts.ranges]
    ranged = [a for a in mono if not (isinstance(a, Var) and a.name not in facts.ranges)]
    if not ranged:
        return {mono: c}
    if c > 0:
        return _low_product(sizes, ranged, c, facts)
    bound: Linear = {linear.monomial(sizes): c}
    for a in ranged:
        high = _upper(a, facts, depth)
        if high is None:
            return None
        bound = linear.multiply(bound, high)
    return bound


def _low_product(
    sizes: Sequence[Expr], ranged: Sequence[Expr], c: int, facts: Facts
) -> Linear | None:
    if len(ranged) == 1:
        match ranged[0]:
            case BinOp("/", x, Const(d)) if variables_are_sizes(x, facts):
                if c % d:
                    return {linear.monomial((*sizes, *ranged)): c}
                # q = floor(x / d) satisfies d * q >= x - (d - 1)
                low = linear.add(_linear(x, facts), linear.constant(-(d - 1)))
                return linear.multiply({linear.monomial(sizes): c // d}, low)
            case Select() | BinOp("min" | "max" | "+" | "-" | "*", _, _):
                return None
            case _:
                pass
    return {} if atoms_non_negative(tuple(ranged), facts) else None


def _upper(a: Expr, facts: Facts, depth: int) -> Linear | None:
    """Return an upper bound of an atom that only mentions sizes (or divisions of sizes)."""
    if depth == 0:
        return None
    match a:
        case Var(name):
            high = linear.add(_linear(facts.ranges[name], facts), linear.constant(-1))
        case BinOp("%", _, n):
            high = linear.add(_linear(n, facts), linear.constant(-1))
        case BinOp("/", x, Const(d)) if d > 0 and variables_are_sizes(x, facts):
            return linear.atom(a)
        case BinOp("/", x, Const(d)) if d > 0:
            return _divided_bound(x, d, facts, depth)
        case BinOp("/", x, _) | BinOp("min", x, _):
            high = _linear(x, facts)
        case BinOp("^", x, y):
            return _xor_bound(x, y, facts, depth)
        case BinOp("<" | "<=" | "==" | "!=" | "and" | "or", _, _):
            return linear.constant(1)
        case _:
            return None
    return _upper_sum(high, facts, depth)


def _upper_sum(a: Linear, facts: Facts, depth: int) -> Linear | None:
    """Return an upper bound of a sum, term by term."""
    total: Linear = {}
    for mono, c in a.items():
        term = _extreme_term(mono, -c, facts, depth - 1)
        if term is None:
            return None
        total = linear.add(total, term, -1)
    return total


def _divided_bound(x: Expr, d: int, facts: Facts, depth: int) -> Linear | None:
    """Return an upper bound of ``x / d``: exact for constant bounds, else that of ``x``."""
    high = _upper_sum(_linear(x, facts), facts, depth)
    known = None if high is None else linear.as_constant(high)
    return high if known is None else linear.constant(max(known, 0) // d)


def _xor_bound(x: Expr, y: Expr, facts: Facts, depth: int) -> Linear | None:
    """Return an upper bound of ``x ^ y``: all bits below the highest of either."""
    bits = 0
    for side in (x, y):
        high = _upper_sum(_linear(side, facts), facts, depth)
        known = None if high is None else linear.as_constant(high)
        if known is None:
            return None
        bits |= max(known, 0)
    return linear.constant((1 << bits.bit_length()) - 1)


def _is_multiple(a: Linear, k: int, facts: Facts) -> bool:
    return all(_monomial_multiple(m, c, facts) % k == 0 for m, c in a.items())


def _monomial_multiple(mono: Monomial, c: int, facts: Facts) -> int:
    """Return an integer that always divides ``c * mono``."""
    result = abs(c)
    for a in mono:
        match a:
            case Var(name):
                result *= facts.multiples.get(name, 1)
            case BinOp("%", x, n):
                result *= math.gcd(_divisor(x, facts), _divisor(n, facts))
            case _:
                pass
    return result


def _divisor(e: Expr, facts: Facts) -> int:
    return math.gcd(*(_monomial_multiple(m, c, facts) for m, c in _linear(e, facts).items())) or 0


def guard_of(e: Expr, facts: Facts) -> Expr:
    """Return the conjunction `e` without the terms that are provably true."""
    return all_of(*(t for c in conjuncts(e) if (t := simplify(c, facts)) != Const(1)))
