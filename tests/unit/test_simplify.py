"""Simplification keeps values and proofs hold, on random expressions and small ranges in full."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser.core.expr import (
    BinOp,
    Const,
    Select,
    Var,
    ceil_div,
    evaluate,
    less,
    maximum,
    minimum,
    product,
    select,
)
from fuser.core.facts import is_non_negative
from fuser.core.simplify import (
    Facts,
    coefficient_of,
    is_multiple,
    prove_equal,
    prove_less,
    prove_non_negative,
    simplify,
)

M, N = Var("M"), Var("N")
FACTS = Facts({"i": M, "j": N, "t": Const(6), "v": Const(4)}, {"N": 4})


def environments():
    """Every assignment of small sizes and of the index variables in their ranges."""
    for m, n in itertools.product((1, 2, 5), (4, 8)):
        for i, j, t, v in itertools.product(
            {0, m // 2, m - 1}, {0, 1, n // 2, n - 1}, {0, 1, 4, 5}, range(4)
        ):
            yield {"M": m, "N": n, "i": i, "j": j, "t": t, "v": v}


ENVS = list(environments())

leaves = st.one_of(st.sampled_from([Var(n) for n in "ijtvMN"]), st.integers(0, 9).map(Const))


def compose(children):
    divisors = st.sampled_from(
        [Const(2), Const(3), Const(4), Const(6), Const(8), M, N, M * N, N * 2]
    )
    return st.one_of(
        st.builds(BinOp, st.sampled_from(["+", "*", "min", "max"]), children, children),
        st.builds(BinOp, st.sampled_from(["/", "%"]), children, divisors),
        st.builds(BinOp, st.sampled_from(["<", "<=", "==", "!="]), children, children),
        st.builds(lambda a, b, c: Select(less(a, b), c, a), children, children, children),
    )


exprs = st.recursive(leaves, compose, max_leaves=10)


@given(exprs)
@settings(max_examples=150, deadline=None)
def test_simplify_keeps_the_value(e):
    short = simplify(e, FACTS)
    for env in ENVS:
        assert evaluate(short, env) == evaluate(e, env), (e, short, env)


@given(exprs, exprs)
@settings(max_examples=150, deadline=None)
def test_simplify_of_differences_keeps_the_value(a, b):
    short = simplify(a - b, FACTS)
    for env in ENVS:
        assert evaluate(short, env) == evaluate(a - b, env)


@given(exprs, exprs, st.sampled_from([2, 4, 8]))
@settings(max_examples=150, deadline=None)
def test_what_is_proved_holds(a, b, k):
    if prove_less(a, b, FACTS):
        assert all(evaluate(a, env) < evaluate(b, env) for env in ENVS)
    if prove_equal(a, b, FACTS):
        assert all(evaluate(a, env) == evaluate(b, env) for env in ENVS)
    if prove_non_negative(a - b, FACTS):
        assert all(evaluate(a, env) >= evaluate(b, env) for env in ENVS)
    if is_multiple(a, k, FACTS):
        assert all(evaluate(a, env) % k == 0 for env in ENVS)


@given(exprs, exprs, exprs)
@settings(max_examples=100, deadline=None)
def test_guards_are_used_only_where_they_hold(a, b, e):
    facts = FACTS.with_guard(less(a, b))
    short = simplify(e, facts)
    for env in ENVS:
        if evaluate(a, env) < evaluate(b, env):
            assert evaluate(short, env) == evaluate(e, env)


SPLIT = Var("o") * 4 + Var("k")
SPLIT_FACTS = Facts({"o": ceil_div(N, 4), "k": Const(4)})
FLAT = (Var("b") * 128 + Var("t")) * 8 + Var("v")
FLAT_FACTS = Facts({"b": ceil_div(M * N, 1024), "t": Const(128), "v": Const(8)}, {"N": 8})
ROWS = Facts({"i": M, "j": N})


@pytest.mark.parametrize(
    ("e", "facts", "expected"),
    [
        (FLAT // N * N + FLAT % N, FLAT_FACTS, "b * 1024 + t * 8 + v"),
        (FLAT % N, FLAT_FACTS, "v + (b * 1024 + t * 8) % N"),
        (FLAT // N, FLAT_FACTS, "(b * 1024 + t * 8) / N"),
        ((Var("i") * N + Var("j")) // N, ROWS, "i"),
        ((Var("i") * N + Var("j")) % N, ROWS, "j"),
        (SPLIT // 4, SPLIT_FACTS, "o"),
        (SPLIT % 4, SPLIT_FACTS, "k"),
        (Var("i") // 3 // 5, ROWS, "i / 15"),
        (Var("i") % 12 // 4, ROWS, "i / 4 % 3"),
        (Var("i") % 12 % 4, ROWS, "i % 4"),
    ],
)
def test_forms(e, facts, expected):
    assert repr(simplify(e, facts)) == expected


def test_a_split_is_in_range_exactly_when_it_divides():
    assert not prove_less(SPLIT, N, SPLIT_FACTS)
    assert prove_less(SPLIT, N, Facts(SPLIT_FACTS.ranges, {"N": 4}))
    assert prove_less(SPLIT, N, SPLIT_FACTS.with_guard(less(SPLIT, N)))


def test_coefficient_of():
    assert coefficient_of(FLAT % N, "v", FLAT_FACTS) == 1
    assert coefficient_of(FLAT % N, "t", FLAT_FACTS) is None
    assert coefficient_of(M, "v", FLAT_FACTS) == 0


S = Var("s")  # an integer scalar: any value
SIGNED = Facts({"i": N}, signed=frozenset({"s"}))
CLIPPED = select(less(S, 0), maximum(N + S, 0), minimum(S, N))


@pytest.mark.parametrize(
    "e",
    [
        CLIPPED,
        maximum(minimum(Const(4), N) - CLIPPED, Const(0)),
        less(S, 0),
        less(S, N + 1),
        less(Const(-1), S),
        minimum(S, N),
        maximum(S, 0),
        minimum(S * 3, S * 2),
        maximum(N - S, N),
        less(Var("i") + S, N + S),
        less(Var("i"), N + maximum(S, 0)),
    ],
)
def test_integer_scalars_may_be_negative(e):
    simplified = simplify(e, SIGNED)
    for s, n in itertools.product((-20, -3, -1, 0, 1, 2, 7, 30), (1, 2, 7)):
        for i in range(n):
            env = {"s": s, "N": n, "i": i}
            assert evaluate(simplified, env) == evaluate(e, env), env


def test_signed_variables_survive_ranges_and_guards():
    facts = SIGNED.with_range("j", Const(4)).with_guard(less(Var("i"), 3))
    assert not prove_non_negative(S, facts)
    assert not prove_non_negative(S * N, facts)
    assert not prove_less(Var("i"), N + S, facts.unguarded)
    assert prove_non_negative(S, facts.with_guard(less(Const(-1), S)))


def test_a_guard_pins_a_variable():
    facts = Facts({"t": Const(128)})
    assert not prove_equal(Var("t"), Const(0), facts)
    assert prove_equal(Var("t"), Const(0), facts.with_guard(less(Var("t"), 1)))


def test_the_trip_before_is_in_the_stage_before():
    """A difference that a guard keeps from being negative is divided as if it were a sum."""
    trips = ROWS.with_guard(less(0, Var("i") * 4))
    for e, form in (((Var("i") * 4 - 1) % 4, "3"), ((Var("i") * 4 - 1) // 4, "i - 1")):
        assert repr(simplify(e, trips)) == form
        assert repr(simplify(e, ROWS)) != form, "of trip 0 it is -1"


def test_guards_by_constants_bound_what_is_divided():
    """Threads of a block that is larger than a loop, as with producer warps behind the others."""
    facts = Facts({"tx": Const(160), "r": Const(2)})
    row = Var("r") * 4 + Var("tx") // 32
    assert not prove_less(row, Const(8), facts)
    assert prove_less(row, Const(8), facts.with_guard(less(Var("tx"), 128)))
    assert not prove_less(row, Const(8), facts.with_guard(less(Var("tx"), 129)))
    assert not prove_less(row, Const(7), facts.with_guard(less(Var("tx"), 128)))


@pytest.mark.parametrize("op", ["/", "%"])
def test_division_by_an_extent_of_zero_is_dead_code(op):
    assert simplify(BinOp(op, Var("i") * 3 + 1, Const(0)), ROWS) == Const(0)


def test_a_nested_division_by_a_quotient_without_rest_is_one_division():
    facts = Facts({"i": M * N}, {"N": 8})
    assert simplify(Var("i") // (N // 8) // 8, facts) == Var("i") // N
    assert prove_equal(Var("i") // (N // 8) // 8, Var("i") // N, facts)
    assert not prove_equal(Var("i") // (N // 8) // 8, Var("i") // N, Facts({"i": M * N}))


def test_bounds_of_twelve_sizes_are_decided_without_expanding_them() -> None:
    sizes = [Var(f"x_size{d}") for d in range(12)]
    facts = Facts({"i": product(tuple(sizes))}, {"x_size3": 4})
    smaller = product(tuple(sizes[1:]))
    assert is_non_negative({tuple(sizes): 1, tuple(sizes[1:]): -1}, facts)
    assert is_non_negative({tuple(sizes): 1, tuple(sizes[4:]): -4}, facts)
    assert not is_non_negative({tuple(sizes): 1, tuple(sizes[1:]): -2}, facts)
    assert simplify(Var("i") // smaller // sizes[0], facts) == Const(0)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_rounds_of_trips(stages, ahead):
    """Whole rounds of a pipeline load trips that exist, of whole tiles: division of a division."""
    trips = ceil_div(M, 256)
    rounds = Facts({"r": (trips - ahead) // stages, "s": Const(stages), "e": Const(256)})
    trip = Var("r") * stages + Var("s")
    assert prove_less(trip + ahead, trips, rounds)
    assert not prove_less(trip + ahead + 1, trips, rounds)
    assert prove_less(trip * 256 + Var("e"), M, rounds) == (ahead > 0)
    assert not prove_less((trip + ahead) * 256 + Var("e"), M, rounds)


SUMS_OF_QUOTIENTS = (
    M, M // 2, M // 3, M // 4, M // 6, (M + 5) // 6, ((M + 5) // 6) // 2, ((M + 1) // 2 - 1) // 3,
)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(SUMS_OF_QUOTIENTS), st.integers(-12, 12)), max_size=4),
       st.integers(-6, 6))  # fmt: skip
@settings(max_examples=1500, deadline=None)
def test_bounds_of_quotients_hold(terms, offset):
    e = Const(offset)
    for term, factor in terms:
        e = e + term * factor
    if prove_non_negative(e, Facts()):
        assert min(evaluate(e, {"M": m}) for m in range(1, 80)) >= 0, e
