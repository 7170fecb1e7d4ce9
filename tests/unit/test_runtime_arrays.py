"""Zero-copy views of NumPy, interface and DLPack objects; bounds, overlaps, refusals."""

from __future__ import annotations

import gc
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from matrix.arrays import LAYOUTS, arrange, spanned_bytes, values

from fuser.core.dtypes import DataType
from fuser.core.errors import InputError
from fuser.runtime import arrays, dlpack
from fuser.runtime.arrays import (
    ArrayView,
    byte_bounds,
    host_array,
    may_overlap,
    repeats_elements,
    share_elements,
    view_of,
)
from fuser.runtime.dlpack import DLTensor, read_capsule, write_capsule
from fuser.runtime.memory import allocate, span_elems, stream_handle

pytestmark = pytest.mark.unit


def random_array(rng, dtype, shape):
    raw = rng.integers(0, 2, shape) if dtype.kind == "bool" else rng.integers(0, 100, shape)
    return raw.astype(dtype.np)


@pytest.mark.parametrize("dtype", list(DataType), ids=lambda d: d.short)
def test_numpy_is_viewed_without_a_copy(dtype, rng):
    array = random_array(rng, dtype, (3, 8, 5))[:, ::2].transpose(2, 0, 1)
    view = view_of(array)
    assert (view.shape, view.strides_elems) == ((5, 3, 4), (1, 40, 10))
    assert (view.dtype, view.device, view.kind) == (dtype, "cpu", "numpy")
    assert view.pointer == array.ctypes.data
    again = host_array(view)
    assert again.dtype == array.dtype
    assert again.tobytes() == array.tobytes()
    assert np.shares_memory(again, array)


@pytest.mark.parametrize("dtype", list(DataType), ids=repr)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (1,), (5, 1, 3), (0, 4)], ids=str)
def test_every_dtype_in_every_layout(shape, layout, dtype, rng):
    """Views give the elements back, and so do the bytes between the first and the last one."""
    x = arrange(values(dtype, int(np.prod(shape)), rng).reshape(shape), layout)
    view = view_of(x)
    assert view.dtype is dtype
    assert host_array(view).tobytes() == x.tobytes()
    memory = spanned_bytes(x)
    low, high = byte_bounds(view)
    assert memory.size == high - low
    if x.size:
        steps = tuple(s * dtype.nbytes for s in view.strides_elems)
        again = np.ndarray(shape, f"u{dtype.nbytes}", memory.tobytes(), strides=steps)
        assert again.tobytes() == x.tobytes()


def test_numpy_details():
    assert view_of(np.float32(2.5)).shape == ()
    assert view_of(np.zeros((0, 4))).is_dense
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    assert view_of(frozen).readonly
    assert not host_array(view_of(frozen)).flags.writeable
    assert view_of(np.zeros((4, 6))).is_dense
    assert not view_of(np.zeros((4, 6))[:, :3]).is_dense
    assert view_of(np.broadcast_to(np.float32(1), (4, 4))).strides_elems == (0, 0)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros(2, np.complex64), "input x: element type complex64; needed one of"),
        (np.zeros(2, ">f4"), "input x: element type >f4; needed one of"),
        (np.zeros(2, np.uint32), "input x: element type uint32; needed"),
        (np.zeros(4, [("a", "f4"), ("b", "i1")])["a"], "strides of .5,. bytes; needed multiples"),
        ([1, 2], "input x: builtins.list is no array; needed NumPy"),
    ],
)
def test_refusals_name_the_input(array, text):
    with pytest.raises(InputError, match=text):
        view_of(array, what="input x")


class CudaInterface:
    def __init__(self, **fields):
        self.__cuda_array_interface__ = {"version": 3, "data": (0x1000, False), **fields}


def test_cuda_array_interface():
    view = view_of(CudaInterface(shape=(2, 3), typestr="<f4", strides=(4, 8)))
    assert (view.pointer, view.shape, view.strides_elems) == (0x1000, (2, 3), (1, 2))
    assert (view.dtype, view.device, view.kind) == (DataType.Float, "cuda", "dlpack")
    fp8 = np.zeros(1, ml_dtypes.float8_e5m2).__array_interface__["typestr"]
    assert view_of(CudaInterface(shape=(2,), typestr=fp8)).dtype is DataType.Float8_e5m2
    dense = view_of(CudaInterface(shape=(2, 3), typestr="<i8", data=(64, True)))
    assert dense.strides_elems == (3, 1)
    assert dense.readonly
    with pytest.raises(InputError, match="element type <c8"):
        view_of(CudaInterface(shape=(2,), typestr="<c8"))
    with pytest.raises(InputError, match=r"no host memory; needed a copy first"):
        view.numpy()


def test_numba_is_known_by_its_module():
    cls = type("DeviceNDArray", (CudaInterface,), {"__module__": "numba.cuda.cudadrv.devicearray"})
    assert view_of(cls(shape=(2,), typestr="<f8")).kind == "numba"


class Producer:
    """A DLPack producer without a framework."""

    def __init__(self, tensor: DLTensor, owner: object = None):
        self.tensor, self.owner = tensor, owner
        self.stream = None

    def __dlpack_device__(self):
        return (1 if self.tensor.on_host else 2), self.tensor.device_id

    def __dlpack__(self, stream=None):
        self.stream = stream
        return write_capsule(self.tensor, self.owner)


@pytest.mark.parametrize("dtype", list(DataType), ids=lambda d: d.short)
def test_dlpack_on_the_host(dtype, rng):
    array = random_array(rng, dtype, (4, 6))[:, 1:4]
    strides = tuple(s // dtype.nbytes for s in array.strides)
    producer = Producer(DLTensor(array.ctypes.data, (4, 3), strides, dtype, True, 0))
    view = view_of(producer)
    assert (view.shape, view.strides_elems, view.dtype) == ((4, 3), (6, 1), dtype)
    assert view.numpy().tobytes() == array.tobytes()
    assert np.shares_memory(view.numpy(), array)
    assert producer.stream is None


def test_dlpack_on_cuda_is_ordered_before_the_stream():
    producer = Producer(DLTensor(0x2000, (5,), (1,), DataType.BFloat16, False, 1))
    view = view_of(producer, stream=99)
    assert (view.pointer, view.device, view.device_id) == (0x2000, "cuda", 1)
    assert producer.stream == 99
    view_of(producer, stream=0)
    assert producer.stream == 1  # the protocol forbids 0


def test_our_capsules_are_read_by_numpy_and_released():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    before = len(dlpack._exported)
    producer = Producer(DLTensor(array.ctypes.data, (3, 2), (4, 2), DataType.Float, True, 0))
    taken = np.from_dlpack(producer)
    assert taken.tolist() == array[:, ::2].tolist()
    assert len(dlpack._exported) == before + 1
    del taken
    gc.collect()
    assert len(dlpack._exported) == before
    capsule = producer.__dlpack__()
    assert read_capsule(capsule, "x").shape == (3, 2)
    del capsule  # never consumed
    assert len(dlpack._exported) == before


def test_numpy_capsules_are_read():
    array = np.arange(6, dtype=np.int64).reshape(2, 3)[:, ::-1]
    tensor = read_capsule(array.__dlpack__(), "x")
    assert (tensor.shape, tensor.strides) == ((2, 3), (3, -1))
    assert tensor.pointer == array.ctypes.data
    with pytest.raises(InputError, match="x: DLPack element type code 5, 64 bits"):
        read_capsule(np.zeros(2, np.complex64).__dlpack__(), "x")


def test_byte_bounds_match_numpy(rng):
    base = rng.normal(size=(6, 7, 8))
    for array in (base, base[::2, 1:3], base[:, ::-1, ::-3], base[2, 3], base[:0], base.T):
        view = view_of(array)
        if array.size:
            assert byte_bounds(view) == np.lib.array_utils.byte_bounds(array)
        else:
            assert byte_bounds(view)[0] == byte_bounds(view)[1]


def test_overlap():
    base = np.zeros(100, np.float32)
    a, b, c = view_of(base[:50]), view_of(base[50:]), view_of(base[49:60])
    assert not may_overlap(a, b)
    assert may_overlap(a, c)
    assert may_overlap(c, b)
    assert not may_overlap(a, view_of(base[:0]))
    on_gpu = ArrayView(a.pointer, a.shape, (1,), a.dtype, "cuda", 0, "dlpack", None)
    assert not may_overlap(a, on_gpu)


def addresses(view: ArrayView) -> list[int]:
    """Where each element is, counted one by one."""
    steps = [range(0, n * s, s) if s else [0] * n
             for n, s in zip(view.shape, view.strides_elems, strict=True)]  # fmt: skip
    return [view.pointer + view.dtype.nbytes * sum(at) for at in product(*steps)]


def test_shared_and_repeated_elements_are_those_that_counting_finds(rng):
    """Also on a GPU, whose addresses cannot be read here."""
    seen = set()
    for _ in range(200):
        views = []
        for _ in range(2):
            rank = rng.integers(0, 4)
            shape, strides = rng.integers(0, 5, rank), rng.integers(-6, 7, rank)
            at = 64 + 4 * int(rng.integers(0, 40))
            place = tuple(shape.tolist()), tuple(strides.tolist())
            views.append(ArrayView(at, *place, DataType.Float, "cuda", 0, "dlpack", None))
        a, b = map(addresses, views)
        answers = not {*a}.isdisjoint(b), len({*a}) < len(a)
        assert (share_elements(*views), repeats_elements(views[0])) == answers
        seen.add(answers)
    assert len(seen) == 4


def test_elements_that_are_too_hard_to_tell_apart_count_as_shared(monkeypatch):
    shape, strides = (9, 9, 9), (997, 1009, 1511)
    a, b = (ArrayView(at, shape, strides, DataType.Float, "cuda", 0, "dlpack", None)
            for at in (4, 8))  # fmt: skip
    assert not share_elements(a, b)
    monkeypatch.setattr(arrays, "SEARCH_STEPS", 1)
    assert share_elements(a, b)


@pytest.mark.parametrize("dtype", list(DataType), ids=lambda d: d.short)
def test_host_outputs_have_the_asked_layout(dtype):
    array, view = allocate("numpy", (2, 3, 4), (3, 1, 6), dtype)
    assert isinstance(array, np.ndarray)
    assert (view.shape, view.strides_elems, view.dtype) == ((2, 3, 4), (3, 1, 6), dtype)
    empty, view = allocate("numpy", (2, 0), (0, 1), dtype)
    assert empty.shape == (2, 0)


def test_numpy_outputs_on_a_gpu_are_refused():
    with pytest.raises(InputError, match="NumPy has no memory on cuda:1; needed device='cpu'"):
        allocate("numpy", (2,), (1,), DataType.Float, 1)


def test_span():
    assert span_elems((3, 4), (10, 2)) == 27
    assert span_elems((), ()) == 1
    assert span_elems((3, 0), (10, 2)) == 0
    assert span_elems((5, 2), (0, 1)) == 2


def test_stream_objects():
    class Protocol:
        def __cuda_stream__(self):
            return 0, 42

    torch_like = type("Stream", (), {"cuda_stream": 7})()
    cupy_like = type("Stream", (), {"ptr": 8})()
    assert [stream_handle(s) for s in (5, Protocol(), torch_like, cupy_like)] == [5, 42, 7, 8]
    with pytest.raises(InputError, match="stream: str 'fast'; needed a handle"):
        stream_handle("fast")


class FakeTorchTensor:
    """What the torch reader asks of a tensor."""

    __module__ = "torch"

    def __init__(self, dtype="torch.bfloat16", device="cuda", layout="torch.strided", neg=False):
        self.dtype, self.layout, self.neg = dtype, layout, neg
        self.device = type("device", (), {"type": device, "index": 1})()
        self.shape = (2, 3)

    def stride(self):
        return 1, 2

    def data_ptr(self):
        return 0x4000

    def is_neg(self):
        return self.neg


FakeTorchTensor.__module__ = "torch"


def test_torch_tensors_are_read_by_their_own_methods():
    view = view_of(FakeTorchTensor())
    assert (view.pointer, view.shape, view.strides_elems) == (0x4000, (2, 3), (1, 2))
    assert (view.dtype, view.device_id, view.kind) == (DataType.BFloat16, 1, "torch")
    for tensor, text in (
        (FakeTorchTensor(dtype="torch.complex64"), "element type torch.complex64; needed one of"),
        (FakeTorchTensor(device="meta"), "needed a strided one on cpu or cuda"),
        (FakeTorchTensor(layout="torch.sparse_coo"), "torch.sparse_coo tensor on"),
        (FakeTorchTensor(neg=True), "needed a tensor after .resolve_neg()"),
    ):
        with pytest.raises(InputError, match=text):
            view_of(tensor)


def test_bfloat16_bits_survive(rng):
    array = rng.normal(size=9).astype(ml_dtypes.bfloat16)
    pointer = array.ctypes.data
    view = ArrayView(pointer, (3, 3), (1, 3), DataType.BFloat16, "cpu", 0, "torch", array)
    assert view.numpy().tobytes() == array.reshape(3, 3).T.tobytes()
