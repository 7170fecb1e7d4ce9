"""The dtype table: names, sizes and classes against NumPy and ml_dtypes."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from fuser.core.dtypes import DataType

pytestmark = pytest.mark.unit

D = DataType
REDUCED = {D.Half, D.BFloat16, D.Float8_e4m3fn, D.Float8_e5m2}
every_dtype = pytest.mark.parametrize("dtype", list(DataType), ids=lambda d: d.short)


def test_the_set_is_complete():
    assert len(DataType) == 11
    assert {d.np for d in DataType} == {
        np.dtype(t)
        for t in (
            bool, "i1", "u1", "i4", "i8", "f2", "f4", "f8",
            ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
        )
    }  # fmt: skip


@pytest.mark.parametrize(
    ("alias", "dtype"), [("Char", D.Int8), ("Byte", D.UInt8), ("Int64", D.Int)]
)
def test_other_names_are_the_same_member(alias: str, dtype: DataType):
    assert DataType[alias] is dtype
    assert getattr(DataType, alias) is dtype


@every_dtype
def test_round_trips(dtype: DataType):
    assert DataType.from_numpy(dtype.np) is dtype
    assert DataType.from_numpy(dtype.np.type) is dtype
    assert DataType.from_numpy(np.zeros(3, dtype.np).dtype) is dtype
    assert DataType.from_short(dtype.short) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert eval(repr(dtype), {"DataType": DataType}) is dtype  # repr(fd) relies on it


@every_dtype
def test_sizes_are_bytes(dtype: DataType):
    assert dtype.nbytes == np.zeros(7, dtype.np).nbytes // 7
    if dtype.short != "bool":
        bits = 8 if dtype.short.startswith("f8") else int(dtype.short.strip("iufb"))
        assert dtype.nbytes * 8 == bits


@every_dtype
def test_kinds_are_disjoint(dtype: DataType):
    assert [dtype.is_float, dtype.is_integer, dtype is D.Bool].count(True) == 1
    if dtype.is_integer:
        assert (np.iinfo(dtype.np).min < 0) == (dtype.kind == "int")
    if dtype.is_float:
        assert ml_dtypes.finfo(dtype.np).bits == dtype.nbytes * 8


@every_dtype
def test_reduced_floats_compute_in_f32_and_all_others_as_they_are(dtype: DataType):
    assert dtype.is_reduced_float == (dtype in REDUCED)
    assert dtype.compute is (D.Float if dtype in REDUCED else dtype)
    assert dtype.compute.compute is dtype.compute


@every_dtype
def test_compute_type_holds_every_value(dtype: DataType, rng: np.random.Generator):
    """Any bit pattern survives the way to the compute type and back."""
    bits = rng.integers(0, 256, (4096, dtype.nbytes), dtype=np.uint8)
    values = (bits % 2 if dtype is D.Bool else bits).view(dtype.np)
    with np.errstate(invalid="ignore"):  # signalling NaNs are among the patterns
        back = values.astype(dtype.compute.np).astype(dtype.np)
        same = back == values
        if dtype.is_float:
            same |= np.isnan(back.astype(np.float64)) & np.isnan(values.astype(np.float64))
    assert same.all()


def test_cuda_spellings_are_distinct():
    assert len({d.cuda for d in DataType}) == len(DataType)
    assert len({d.short for d in DataType}) == len(DataType)


@pytest.mark.skipif(
    np.dtype(np.longlong) != np.dtype(np.int64), reason="long long has 64 bits where CUDA runs"
)
def test_platform_integers_are_found():
    assert DataType.from_numpy(np.longlong) is D.Int
    assert DataType.from_numpy(np.intp) is D.Int


@pytest.mark.parametrize("dtype", ["i2", "u4", "c8", "U3", ">f4", ml_dtypes.float8_e4m3b11fnuz])
def test_unknown_dtypes_are_refused(dtype: object):
    with pytest.raises(KeyError):
        DataType.from_numpy(dtype)


def test_unknown_short_names_are_refused():
    with pytest.raises(KeyError, match="f33"):
        DataType.from_short("f33")
