"""Rows whose answer hangs on single bits: signs of NaN, and erfcinv where erfc underflows."""

from __future__ import annotations

from decimal import Decimal, getcontext

import numpy as np
import ops_oracle
import pytest

from fuser.api.definition import FusionDefinition
from fuser.core.dtypes import DataType
from fuser.ops import BY_NAME
from fuser.ops.special import erfcinv

D = DataType


@pytest.mark.parametrize("dtype", [d for d in D if d.is_reduced_float], ids=repr)
def test_signbit_of_every_pattern(dtype: DataType) -> None:
    """NaN of both signs included: the row looks at the dtype as it is stored."""
    bits = np.arange(1 << 8 * dtype.nbytes, dtype=f"u{dtype.nbytes}")
    want = bits >> (8 * dtype.nbytes - 1) == 1
    x = bits.view(dtype.np)
    assert np.array_equal(BY_NAME["signbit"](x), want)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.signbit(fd.define_tensor(shape=[-1], dtype=dtype)))
    (got,) = fd.execute([x], backend="interpret")
    assert np.array_equal(got, want)


def erfc(x: Decimal) -> Decimal:
    """The asymptotic series, whose smallest term is about exp(-x**2) of its first."""
    term = total = Decimal(1)
    for k in range(1, 100):
        term *= -(2 * k - 1) / (2 * x * x)
        total += term
    pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
    return (-x * x).exp() * total / (x * pi.sqrt())


def ulps_off(x: float, q: float) -> float:
    """Distance of `x` from the root of ``erfc(x) = q``, in units in the last place of x."""
    at = Decimal(x)
    slope = 2 * (-at * at).exp() / Decimal("1.7724538509055160272981674833411451827975494561")
    return float((erfc(at) - Decimal(q)) / slope) / float(np.spacing(x))


def test_erfcinv_where_erfc_underflows() -> None:
    """Reference and oracle are both within a few ulp of the root, down to the last subnormal."""
    getcontext().prec = 60
    powers = 2.0 ** np.arange(-1074.0, -334.0, 31.0)
    q = np.concatenate([powers, 1.75 * powers, [1e-323, 2.2250738585072014e-308, 1e-300]])
    for x, y in zip(erfcinv(q).tolist(), q.tolist(), strict=True):
        assert abs(ulps_off(x, y)) < 2
        assert abs(ulps_off(ops_oracle.UNARY["erfcinv"](y), y)) < 2
