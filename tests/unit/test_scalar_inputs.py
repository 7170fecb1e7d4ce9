"""Scalar inputs of a call: every kind of number that fits its dtype, an error for every other."""

from __future__ import annotations

import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType as D
from fuser import FusionDefinition
from fuser.core.errors import InputError
from fuser.fusion.scalars import bind_scalars

pytestmark = pytest.mark.unit

INTEGERS = [D.Int8, D.UInt8, D.Int32, D.Int]
FLOATS = [d for d in D if d.is_float]
ARRAY = np.array([1.0, 2.0])


def one_scalar(dtype):
    """A fusion of one scalar input that hands it back."""
    with FusionDefinition() as fd:
        s = fd.define_scalar(dtype)
        fd.add_output(fd.ops.full([2], s, dtype))
    return fd


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
def test_integers_of_every_kind_up_to_the_limits(dtype):
    fd, limits = one_scalar(dtype), np.iinfo(dtype.np)
    for given in (limits.min, limits.max, True, 3.0, np.int8(5), np.float32(7), np.array(9)):
        (out,) = fd.execute([given], backend="interpret")
        assert out.tolist() == [int(given)] * 2


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_floats_of_every_kind_are_rounded_once(dtype):
    fd = one_scalar(dtype)
    three = ml_dtypes.bfloat16(3)
    for given in (1, 0.1, True, -np.inf, 1e300, np.float16(0.3), three, np.array(2)):
        (out,) = fd.execute([given], backend="interpret")
        with np.errstate(over="ignore"):
            expected = np.full(2, float(given)).astype(dtype.np)
        assert out.tobytes() == expected.tobytes(), given


@pytest.mark.parametrize("given", [0, 1, 7, -0.0, np.nan, False, np.True_])
def test_bool_is_not_zero(given):
    (out,) = one_scalar(D.Bool).execute([given], backend="interpret")
    assert out.tolist() == [given != 0] * 2


REFUSED = [
    (D.Int, 1.5, "1.5 is no integer; the definition says Int"),
    (D.Int, np.nan, "nan is no integer"),
    (D.Int32, np.inf, "inf is no integer"),
    (D.Int, "x", "'x' is no number; the definition says Int"),
    (D.Int, 2**63, "9223372036854775808 does not fit Int; -9223372036854775808 to"),
    (D.Int32, 2**31, "2147483648 does not fit Int32"),
    (D.UInt8, -1, "-1 does not fit UInt8; 0 to 255 is needed"),
    (D.Int8, 128.0, "128.0 does not fit Int8"),
    (D.Double, 10**400, "an integer past 1e308; the definition says Double"),
    (D.Float, 1j, "1j is no number"),
    (D.Float, "1.0", "'1.0' is no number"),
    (D.Double, ARRAY, "array([1., 2.]) is no number"),
    (D.Double, Fraction(1, 2), "Fraction(1, 2) is no number"),
    (D.Bool, [True], "[True] is no number"),
    (D.Half, None, "is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "given", "text"), REFUSED, ids=[text for *_, text in REFUSED])
def test_what_is_no_such_number_is_refused_by_name(dtype, given, text):
    fd = one_scalar(dtype)
    with pytest.raises(InputError, match=re.escape(text)) as caught:
        fd.execute([given], backend="interpret")
    assert str(caught.value).startswith("input s: ")
    with pytest.raises(InputError, match=re.escape(text)):
        bind_scalars(fd.fusion, {"s": given})
