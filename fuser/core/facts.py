"""What is known about the variables of an index expression."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from typing import Any, TypeAlias, TypeVar

from fuser.core import linear
from fuser.core.expr import BinOp, Const, Expr, Var, conjuncts, variables
from fuser.core.linear import UNIT, Linear, Monomial

T = TypeVar("T")
Memo: TypeAlias = dict[Any, Any]

SHIFTED_FACTORS = 5
"""Products of more sizes are not expanded by `shift_sizes`, which doubles a term per factor."""


MEMO_ENTRIES = 1 << 13
"""A memo that has grown beyond this starts afresh: a process may compile fusions forever."""


@lru_cache(maxsize=1024)
def shared_memo(*content: object) -> Memo:
    """Return what has been found out under facts of this content, in whatever kernel."""
    return {}


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about the variables of an expression.

    Attributes
    ----------
    ranges
        ``name -> extent``: the variable lies in ``[0, extent)``. Other variables are sizes, >= 1,
        unless they are `signed`.
    multiples
        ``name -> k``: the size is a multiple of ``k``.
    bounds
        Pairs ``(lhs, rhs)`` with ``lhs < rhs`` known to hold.
    signed
        Variables that may have any value: the user's integer scalars.
    memo
        Results of functions of expressions and these facts, one for all equal facts: nested
        scopes and repeated lowerings ask the same questions again and again.
    """

    ranges: Mapping[str, Expr] = field(default_factory=dict[str, Expr])
    multiples: Mapping[str, int] = field(default_factory=dict[str, int])
    bounds: tuple[tuple[Expr, Expr], ...] = ()
    signed: frozenset[str] = frozenset()
    memo: Memo = field(init=False, compare=False, repr=False)
    base: list[Facts] = field(default_factory=list["Facts"], init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        known = frozenset(self.ranges.items()), frozenset(self.multiples.items())
        memo = shared_memo(*known, self.bounds, self.signed)
        if len(memo) > MEMO_ENTRIES:
            memo.clear()
        object.__setattr__(self, "memo", memo)

    @property
    def unguarded(self) -> Facts:
        """Return these facts without `bounds`; those of index variables shorten their ranges."""
        if not self.bounds:
            return self
        if not self.base:
            self.base.append(Facts(self._shortened(), self.multiples, (), self.signed))
        return self.base[0]

    def _shortened(self) -> Mapping[str, Expr]:
        """Return the ranges, as short as `bounds` by constants say."""
        ranges = dict(self.ranges)
        for lhs, rhs in self.bounds:
            if isinstance(lhs, Var) and isinstance(rhs, Const):
                known = ranges.get(lhs.name)
                if isinstance(known, Const) and 0 < rhs.value < known.value:
                    ranges[lhs.name] = rhs
        return ranges

    def with_range(self, name: str, extent: Expr) -> Facts:
        """Return these facts plus the range of one index variable."""
        return Facts({**self.ranges, name: extent}, self.multiples, self.bounds, self.signed)

    def with_guard(self, guard: Expr) -> Facts:
        """Return these facts plus the comparisons of a guard that encloses the code."""
        extra = tuple(
            (c.lhs, c.rhs if c.op == "<" else c.rhs + 1)
            for c in conjuncts(guard)
            if isinstance(c, BinOp) and c.op in ("<", "<=")
        )
        if not extra:
            return self
        return Facts(self.ranges, self.multiples, self.bounds + extra, self.signed)

    def least(self, name: str) -> int:
        """Return the smallest value of a size; 0 for what may be negative."""
        return 0 if name in self.signed else self.multiples.get(name, 1)

    def is_signed(self, e: Expr) -> bool:
        """Whether `e` mentions a variable that may be negative."""
        return bool(self.signed) and not self.signed.isdisjoint(variables(e))


def once(compute: Callable[[Linear, Facts], T]) -> Callable[[Linear, Facts], T]:
    """Remember what `compute` returns for a sum, by its terms in their order."""

    @wraps(compute)
    def remembered(a: Linear, facts: Facts) -> T:
        key = (compute, *a.items())
        known = facts.memo.get(key)
        if known is None:
            known = facts.memo[key] = compute(a, facts)
        result: T = known
        return result

    return remembered


def mentions(e: Expr, name: str) -> bool:
    """Return whether variable `name` occurs in `e`."""
    return name in variables(e)


def variables_are_sizes(e: Expr, facts: Facts) -> bool:
    """Return whether `e` mentions no index variable."""
    return variables(e).isdisjoint(facts.ranges)


def atoms_non_negative(mono: Monomial, facts: Facts) -> bool:
    """Return whether every atom of a product is known to be 0 or more."""
    return all(
        isinstance(a, Var) or (isinstance(a, BinOp) and a.op not in ("-", "+", "min", "max", "*"))
        for a in mono
    ) and not any(facts.is_signed(a) for a in mono)


def is_non_negative(a: Linear, facts: Facts) -> bool:
    """Return whether `a`, which mentions no index variable, is known to be 0 or more."""
    if outweighed(a, facts):
        return True
    if any(len(mono) > SHIFTED_FACTORS for mono in a):
        return False
    return all(c >= 0 for c in shift_sizes(a, facts).values())


def outweighed(a: Linear, facts: Facts) -> bool:
    """Return whether each negative term divides a positive one that outweighs it: ``m * n - n``.

    Decides most bounds at a cost that does not grow with the rank, unlike `shift_sizes`.
    """
    left = {mono: c for mono, c in a.items() if c > 0}
    for mono, c in a.items():
        if c > 0:
            continue
        for larger, available in left.items():
            factor = least_quotient(larger, mono, facts)
            if factor and available * factor + c >= 0:
                left[larger] = available + c // factor
                break
        else:
            return False
    return True


def least_quotient(larger: Monomial, mono: Monomial, facts: Facts) -> int:
    """Return the smallest value of ``larger / mono``; 0 when that is not a product of sizes."""
    extra = Counter(larger)
    extra.subtract(mono)
    least = 1
    for atom, power in extra.items():
        if power == 0:
            continue
        if power < 0 or not isinstance(atom, Var) or atom.name in facts.ranges:
            return 0
        least *= facts.multiples.get(atom.name, 1) ** power
    return least if not any(facts.is_signed(atom) for atom in larger) else 0


def shift_sizes(a: Linear, facts: Facts) -> Linear:
    """Substitute ``size = k * (s + 1)`` with ``s >= 0`` so that signs decide non-negativity."""
    result: Linear = {}
    for mono, c in a.items():
        term: Linear = linear.constant(c)
        for x in mono:
            if isinstance(x, Var) and x.name not in facts.ranges:
                k = facts.multiples.get(x.name, 1)
                term = linear.multiply(term, {(x,): k, UNIT: k})
            else:
                term = linear.multiply(term, linear.atom(x))
        result = linear.add(result, term)
    return result
