"""The op table: every row against `ops_oracle`, the dtype rules, the reductions, the errors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import ops_oracle
import pytest

from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError
from fuser.ops import (
    BY_NAME,
    BY_REDUCTION,
    POINTWISE,
    REDUCTIONS,
    Operand,
    OpSpec,
    accepted_dtypes,
    special,
)
from fuser.ops import result_type as rule
from fuser.ops.convert import convert

pytestmark = [pytest.mark.unit, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

D = DataType
CASES = [(s, d) for s in POINTWISE for d in accepted_dtypes(s)]
# Sums cancel: their error is relative to these magnitudes, not to the result.
MAGNITUDE = {
    "lerp": lambda a, b, w: (abs(a) + abs(b)) * (1 + abs(w)),
    "addcmul": lambda x, a, b, v: abs(x) + abs(v * a * b) + overflow(v, a),
    "fma": lambda a, b, c: abs(a * b) + abs(c),
}


# fuser.ops.special promises this, more than any f32 result shows.
SPECIAL_RTOL = {"erf": 1e-13, "erfc": 1e-13, "erfinv": 1e-13, "erfcinv": 1e-12, "lgamma": 1e-13}


def overflow(*factors: float) -> float:
    """Infinite where finite factors have a product outside f32, whatever is done with it."""
    outside = abs(math.prod(factors)) > float(np.finfo(np.float32).max)
    return math.inf if outside and all(map(math.isfinite, factors)) else 0.0


def values(dtype: DataType, seed: int, count: int = 150) -> np.ndarray:
    """Special values of `dtype` and random ones, in an order of its own for each seed."""
    rng = np.random.default_rng(seed)
    if dtype is D.Bool:
        return rng.integers(0, 2, count).astype(bool)
    if dtype.is_integer:
        limits = np.iinfo(dtype.np)
        ends = [limits.min, limits.min + 1, limits.max, 0, 1, 2, 3, 7, limits.max // 2]
        ends += [-1, -2, -7] if dtype.kind == "int" else []
        some = rng.integers(limits.min, limits.max, count, dtype=dtype.np, endpoint=True)
        small = rng.integers(-9 if dtype.kind == "int" else 0, 70, count)
        special = np.array(ends * 4, dtype.np)
        return rng.permutation(np.concatenate([some, small.astype(dtype.np), special]))
    info = np.finfo(dtype.compute.np)
    ends = [0.0, -0.0, 1, -1, 0.5, -0.5, 2, 3, 2.5, 3.5, -2.5, 1e-3, 100.25]
    ends += [np.inf, -np.inf, np.nan]
    ends += [info.max, -info.max, info.tiny, -info.tiny, info.smallest_subnormal, -info.tiny / 4]
    spread = rng.normal(size=count) * np.exp2(rng.integers(-12, 7, count))
    unit = rng.uniform(-1, 1, count)
    return convert(rng.permutation(np.concatenate([ends * 5, spread, unit])), dtype)


def oracle(spec: OpSpec, compute: DataType, args: tuple[Any, ...]) -> Any:
    """The expected element, before rounding or wrapping to the result dtype."""
    if spec.name in ops_oracle.SIZED:
        return ops_oracle.SIZED[spec.name](*args, 8 * compute.nbytes)
    table = {1: ops_oracle.UNARY, 2: ops_oracle.BINARY}.get(spec.arity, ops_oracle.MORE)
    return table[spec.name](*args)


def expected(spec: OpSpec, compute: DataType, result: DataType, args: tuple[Any, ...]) -> Any:
    value = oracle(spec, compute, args)
    if not result.is_integer:
        return value
    low, width = int(np.iinfo(result.np).min), 8 * result.nbytes
    return (int(value) - low) % (1 << width) + low


def close(
    got: Any, want: np.ndarray, spec: OpSpec, dtype: DataType, slack: np.ndarray
) -> np.ndarray:
    """Within the row's tolerance and the two roundings of NumPy's own function."""
    info = np.finfo(dtype.np)
    rounded = want.astype(dtype.np)
    same = (got == rounded) & (np.signbit(got) == np.signbit(rounded))
    same |= np.isnan(got) & np.isnan(rounded)
    rtol = spec.tolerance.rtol(dtype) + 4 * float(info.eps) + SPECIAL_RTOL.get(spec.name, 0.0)
    limit = rtol * np.abs(want)
    limit = limit + spec.tolerance.atol(dtype) + 4 * float(info.smallest_subnormal)
    limit = limit + 4 * float(info.eps) * slack
    near = np.abs(got.astype(np.float64) - want) <= limit
    near &= np.isfinite(got) & (np.signbit(got) == np.signbit(want))
    return same | near | np.isinf(slack)


@pytest.mark.parametrize(
    ("spec", "dtype"), CASES, ids=lambda x: getattr(x, "short", None) or x.name
)
def test_row_means_what_the_oracle_says(spec: OpSpec, dtype: DataType) -> None:
    compute, result = rule(spec, [Operand(dtype)] * spec.arity)
    sources = [values(dtype, seed) for seed in range(spec.arity)]
    if spec.promotion == "select":
        sources[0] = values(D.Bool, 9, len(sources[1]))
    operands = [convert(x, d) for x, d in zip(sources, spec.operand_dtypes(compute), strict=True)]
    got = spec(*operands)
    assert got.dtype == result.np
    assert got.shape == operands[-1].shape
    if compute.is_reduced_float:
        operands, got = [convert(x, D.Float) for x in operands], convert(got, D.Float)
    elements = list(zip(*(x.tolist() for x in operands), strict=True))
    want = [expected(spec, compute, result, e) for e in elements]
    if not result.is_float:
        assert got.tolist() == want
        return
    scale = MAGNITUDE.get(spec.name, lambda *_: 0.0)
    slack = np.nan_to_num([scale(*e) for e in elements], nan=0.0, posinf=np.inf)
    slack[[not all(map(math.isfinite, e)) for e in elements]] = 0.0
    good = close(got, np.array(want, np.float64), spec, result.compute, slack)
    bad = np.flatnonzero(~good)
    assert not bad.size, [(elements[i], got[i], want[i]) for i in bad[:5]]


def test_table_is_complete_and_named_once() -> None:
    assert len(BY_NAME) == len(POINTWISE)
    listed = {*ops_oracle.UNARY, *ops_oracle.BINARY, *ops_oracle.SIZED, *ops_oracle.MORE}
    assert set(BY_NAME) == listed
    assert [s.name for s in REDUCTIONS] == ["sum", "prod", "max", "min"]


@pytest.mark.parametrize(
    ("op", "dtypes", "want"),
    [
        ("add", [D.BFloat16, D.Half], (D.Float, D.Float)),
        ("add", [D.BFloat16, D.BFloat16], (D.Float, D.Float)),
        ("neg", [D.Float8_e4m3fn], (D.Float, D.Float)),
        ("add", [D.Int32, D.Int], (D.Int, D.Int)),
        ("add", [D.Int8, D.UInt8], (D.Int32, D.Int32)),
        ("add", [D.Int, D.Half], (D.Float, D.Float)),
        ("add", [D.Int, D.Float], (D.Float, D.Float)),
        ("add", [D.Float, D.Double], (D.Double, D.Double)),
        ("add", [D.Bool, D.Bool], (D.Bool, D.Bool)),
        ("sub", [D.Bool, D.UInt8], (D.UInt8, D.UInt8)),
        ("exp", [D.Int], (D.Float, D.Float)),
        ("exp", [D.Bool], (D.Float, D.Float)),
        ("exp", [D.Double], (D.Double, D.Double)),
        ("div", [D.Int32, D.Int32], (D.Int32, D.Int32)),
        ("truediv", [D.Int, D.Int], (D.Float, D.Float)),
        ("lt", [D.BFloat16, D.Int], (D.Float, D.Bool)),
        ("eq", [D.Bool, D.Bool], (D.Bool, D.Bool)),
        ("logical_and", [D.Float, D.Int], (D.Bool, D.Bool)),
        ("set", [D.BFloat16], (D.BFloat16, D.BFloat16)),
        ("where", [D.Bool, D.Half, D.Half], (D.Half, D.Half)),
        ("where", [D.Bool, D.Half, D.BFloat16], (D.Float, D.Float)),
        ("where", [D.Float, D.Int, D.Half], (D.Half, D.Half)),
    ],
)
def test_dtype_rules(op: str, dtypes: list[DataType], want: tuple[DataType, DataType]) -> None:
    assert rule(BY_NAME[op], [Operand(d) for d in dtypes]) == want


@pytest.mark.parametrize(
    ("op", "tensor", "scalar", "want"),
    [
        ("mul", D.BFloat16, D.Double, D.Float),
        ("mul", D.Float, D.Double, D.Float),
        ("mul", D.Double, D.Double, D.Double),
        ("mul", D.Int, D.Double, D.Float),
        ("mul", D.Int32, D.Int, D.Int32),
        ("mul", D.UInt8, D.Bool, D.UInt8),
        ("mul", D.Bool, D.Int, D.Int),
        ("pow", D.Half, D.Int, D.Float),
    ],
)
def test_python_scalars_do_not_widen(
    op: str, tensor: DataType, scalar: DataType, want: DataType
) -> None:
    for operands in ([Operand(tensor), Operand(scalar, True)],) * 2:
        operands.reverse()
        assert rule(BY_NAME[op], operands) == (want, want)


def test_where_keeps_a_reduced_tensor_next_to_a_scalar() -> None:
    operands = [Operand(D.Bool), Operand(D.BFloat16), Operand(D.Double, True)]
    assert rule(BY_NAME["where"], operands) == (D.BFloat16, D.BFloat16)
    assert BY_NAME["where"].operand_dtypes(D.BFloat16) == (D.Bool, D.BFloat16, D.BFloat16)


MASKED = [s for s in POINTWISE if s.arity > 1]
SCALARS = [
    ([D.Bool, D.Bool], D.Bool), ([D.Bool, D.Int32], D.Int), ([D.Int32, D.Int], D.Int),
    ([D.Int, D.Double], D.Float), ([D.Double, D.Half], D.Float), ([D.Double, D.Double], D.Float),
]  # fmt: skip


@pytest.mark.parametrize(("scalars", "want"), SCALARS, ids=str)
@pytest.mark.parametrize("spec", MASKED, ids=lambda spec: spec.name)
def test_scalars_next_to_a_mask_are_never_wide(
    spec: OpSpec, scalars: list[DataType], want: DataType
) -> None:
    given = [Operand(s, True) for s in [*scalars, *scalars][1 : spec.arity]]
    fixed = {"float": D.Float, "logical": D.Bool}
    want = fixed.get(spec.promotion, want)
    if spec.accepts(want):
        assert rule(spec, [Operand(D.Bool), *given])[0] is want
    else:
        with pytest.raises(DefinitionError, match=f"are computed in {want.name}, where"):
            rule(spec, [Operand(D.Bool), *given])


def test_scalars_alone_keep_their_dtypes() -> None:
    assert rule(BY_NAME["add"], [Operand(D.Double, True)] * 2) == (D.Double, D.Double)


def test_errors_name_the_op_the_values_and_the_need() -> None:
    with pytest.raises(DefinitionError, match=r"^add: got 1 operand\(s\); takes 2$"):
        rule(BY_NAME["add"], [Operand(D.Float)])
    with pytest.raises(DefinitionError, match=r"^exp: got 2 operand\(s\); takes 1$"):
        BY_NAME["exp"](np.ones(1), np.ones(1))
    text = r"^gcd: operands \(Float, Int scalar\) are computed in Float, .*; needed one of Int8, U"
    with pytest.raises(DefinitionError, match=text):
        rule(BY_NAME["gcd"], [Operand(D.Float), Operand(D.Int, True)])
    with pytest.raises(DefinitionError, match=r"^neg: operands of dtype Bool have no meaning"):
        BY_NAME["neg"].cuda(D.Bool)
    with pytest.raises(DefinitionError, match=r"^sub: operands \(Bool, Bool\)"):
        rule(BY_NAME["sub"], [Operand(D.Bool)] * 2)


# -- reductions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", REDUCTIONS, ids=lambda s: s.name)
@pytest.mark.parametrize("dtype", list(DataType), ids=repr)
def test_reduction_identity_and_combine(spec: Any, dtype: DataType) -> None:
    accumulate = spec.accumulate(dtype)
    x = convert(values(dtype, 3), accumulate)
    identity = np.full(x.shape, spec.identity(accumulate), accumulate.np)
    combined = spec(identity, x)
    assert combined.dtype == accumulate.np
    np.testing.assert_array_equal(combined, x)
    assert spec.cuda(accumulate).count("{0}") == 1


@pytest.mark.parametrize(
    ("name", "dtype", "accumulate", "result"),
    [
        ("sum", D.BFloat16, D.Float, D.BFloat16),
        ("sum", D.Float8_e5m2, D.Float, D.Float8_e5m2),
        ("sum", D.Bool, D.Int, D.Int),
        ("prod", D.UInt8, D.Int, D.Int),
        ("max", D.Int8, D.Int8, D.Int8),
        ("max", D.Half, D.Float, D.Half),
        ("min", D.Bool, D.Bool, D.Bool),
        ("sum", D.Double, D.Double, D.Double),
    ],
)
def test_reduction_dtypes(
    name: str, dtype: DataType, accumulate: DataType, result: DataType
) -> None:
    spec = BY_REDUCTION[name]
    assert (spec.accumulate(dtype), spec.result(dtype)) == (accumulate, result)
    assert spec.result(dtype, D.Float) is D.Float


# -- special functions, densely --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("erf", -6, 6),
        ("erfc", -6, 26),
        ("lgamma", 0.01, 30),
        ("lgamma", 0.9, 2.1),
        ("erf", -1e-3, 1e-3),
    ],
)
def test_special_functions_are_accurate_in_float64(name: str, low: float, high: float) -> None:
    x = np.random.default_rng(5).uniform(low, high, 20_000)
    want = np.array([getattr(math, name)(v) for v in x.tolist()])
    got = getattr(special, name)(x)
    # near its zeros 1 and 2 math.lgamma itself is only absolutely accurate
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=3e-15 if name == "lgamma" else 0)


@pytest.mark.parametrize(("name", "low", "high"), [("erf", -6, 6), ("erfc", -6, 9)])
def test_error_functions_of_float32_round_the_right_number(name: str, low: int, high: int) -> None:
    x = np.random.default_rng(7).uniform(low, high, 20_000).astype(np.float32)
    want = np.array([getattr(math, name)(v) for v in x.tolist()], np.float32)
    np.testing.assert_array_max_ulp(getattr(special, name)(x), want, 1)


@pytest.mark.parametrize(("inverse", "name"), [("erfinv", "erf"), ("erfcinv", "erfc")])
def test_inverse_error_functions_are_right_to_three_ulps(inverse: str, name: str) -> None:
    """The exact function, three ulps to either side, encloses what was inverted."""
    rng = np.random.default_rng(8)
    y = np.concatenate([rng.uniform(-1, 1, 20_000), 10.0 ** rng.uniform(-300, 0, 2_000)])
    y = y + 1.0 * (name == "erfc")
    x = getattr(special, inverse)(y)
    ends = np.stack([x - 3 * np.spacing(np.abs(x)), x + 3 * np.spacing(np.abs(x))])
    at_ends = getattr(special, name)(ends)
    assert np.all(at_ends.min(0) - np.spacing(np.abs(y)) <= y)
    assert np.all(at_ends.max(0) + np.spacing(np.abs(y)) >= y)


def test_inverse_error_functions_invert() -> None:
    rng = np.random.default_rng(6)
    y = np.concatenate([rng.uniform(-1, 1, 20_000), 10.0 ** rng.uniform(-300, 0, 2_000)])
    np.testing.assert_allclose(special.erf(special.erfinv(y)), y, rtol=1e-13)
    q = np.concatenate([rng.uniform(0, 2, 20_000), 10.0 ** rng.uniform(-300, 0, 2_000)])
    np.testing.assert_allclose(special.erfc(special.erfcinv(q)), q, rtol=5e-12)


def test_documentation_lists_every_op() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "ops.md").read_text()
    assert not [
        s.name for s in POINTWISE if f"| `{s.name}` | {s.arity} | {s.promotion} |" not in text
    ]


def test_constant_texts_say_what_numpy_says():
    found = 0
    for spec in POINTWISE:
        for dtype in DataType:
            fixed = spec.constant(dtype) if spec.accepts(dtype) else None
            assert fixed is None or "{0}" not in spec.cuda(dtype)
            if fixed is not None:
                found += 1
                x = np.array([0, 1, 3]).astype(dtype.np)
                assert (spec(*[x] * spec.arity) == fixed).all(), (spec.name, dtype)
    assert found >= 6
