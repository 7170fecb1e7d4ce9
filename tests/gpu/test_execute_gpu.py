"""``fd.execute`` on a GPU: array libraries, streams, aliases, errors."""

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.core.errors import FuserError, InputError

pytestmark = pytest.mark.gpu


def add_one(dtype=DataType.Float, rank=2):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1] * rank, dtype=dtype)
        fd.add_output(fd.ops.cast(x * 2.0 + 1.0, dtype))
    return fd


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_torch_in_torch_out(torch):
    x = torch.randn(37, 130, device="cuda")
    (y,) = add_one().execute([x])
    assert isinstance(y, torch.Tensor)
    assert y.device == x.device
    torch.testing.assert_close(y, x * 2 + 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "float8_e4m3fn"])
def test_torch_dtypes(torch, dtype):
    kind = getattr(torch, dtype)
    names = {"bfloat16": DataType.BFloat16, "float16": DataType.Half, "float64": DataType.Double}
    x = torch.randn(33, 65, device="cuda").to(kind)
    (y,) = add_one(names.get(dtype, DataType.Float8_e4m3fn)).execute([x])
    assert y.dtype == kind
    wide = torch.float64 if dtype == "float64" else torch.float32
    torch.testing.assert_close(y.to(wide), (x.to(wide) * 2 + 1).to(kind).to(wide), rtol=0, atol=0)


def test_cupy_in_cupy_out():
    cupy = pytest.importorskip("cupy")
    x = cupy.random.standard_normal((37, 130), dtype=cupy.float32)
    (y,) = add_one().execute([x])
    assert isinstance(y, cupy.ndarray)
    cupy.testing.assert_allclose(y, x * 2 + 1, rtol=1e-6, atol=1e-6)


def test_jax_in_jax_out():
    jax = pytest.importorskip("jax")
    x = jax.random.normal(jax.random.key(0), (37, 130))
    (y,) = add_one().execute([x])
    assert isinstance(y, jax.Array)
    np.testing.assert_allclose(np.asarray(y), np.asarray(x) * 2 + 1, rtol=1e-6, atol=1e-6)


def test_numba_in_numba_out():
    cuda = pytest.importorskip("numba.cuda")
    host = np.random.default_rng(0).standard_normal((37, 130)).astype(np.float32)
    (y,) = add_one().execute([cuda.to_device(host)])
    assert cuda.is_cuda_array(y)
    np.testing.assert_allclose(y.copy_to_host(), host * 2 + 1, rtol=1e-6, atol=1e-6)


def test_numpy_runs_on_the_gpu_by_copy():
    x = np.random.default_rng(1).standard_normal((37, 130)).astype(np.float32)
    for backend in ("cuda", None):
        (y,) = add_one().execute([x], backend=backend)
        assert isinstance(y, np.ndarray)
        np.testing.assert_allclose(y, x * 2 + 1, rtol=1e-6, atol=1e-6)


def test_both_backends_agree():
    x = np.random.default_rng(2).standard_normal((70, 33)).astype(np.float32)
    (a,) = add_one().execute([x], backend="cuda")
    (b,) = add_one().execute([x], backend="interpret")
    np.testing.assert_allclose(a, b, rtol=2e-7)


@pytest.mark.parametrize(
    "view",
    [lambda x: x.t(), lambda x: x[::2], lambda x: x[:, 1::3], lambda x: x[3:, 5:],
     lambda x: x[:1].expand(50, -1), lambda x: x[:, :1].expand(-1, 77), lambda x: x[:0]],
    ids=["transposed", "rows", "columns", "offset", "expanded rows", "expanded columns", "empty"],
)  # fmt: skip
def test_layouts(torch, view):
    x = view(torch.randn(64, 128, device="cuda"))
    (y,) = add_one().execute([x])
    assert y.is_contiguous()
    torch.testing.assert_close(y, x * 2 + 1, rtol=0, atol=1e-6)


def test_misaligned_pointer_after_an_aligned_call(torch):
    fd = add_one(rank=1)
    base = torch.randn(4097, device="cuda")
    for x in (base[:4096], base[1:], base[:4096]):
        (y,) = fd.execute([x])
        torch.testing.assert_close(y, x * 2 + 1, rtol=0, atol=1e-6)


def test_side_stream_is_used(torch):
    fd = add_one()
    fd.execute([torch.randn(4, 4, device="cuda")])
    stream = torch.cuda.Stream()
    big = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        x = big * 3  # ready only on the side stream
        (y,) = fd.execute([x])
    stream.synchronize()
    torch.testing.assert_close(y, big * 6 + 1, rtol=1e-6, atol=1e-5)


def test_an_output_may_overwrite_its_input(torch):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype=DataType.Float)
        fd.add_output(x + 1.0, x)
        fd.add_output(fd.ops.permute(x, [1, 0]))
    a = torch.randn(65, 65, device="cuda")
    before = a.clone()
    (t,) = fd.execute([a])
    torch.testing.assert_close(a, before + 1, rtol=0, atol=0)
    torch.testing.assert_close(t, before.t(), rtol=0, atol=0)


def test_errors_name_the_input_and_both_values(torch):
    fd = add_one()
    with pytest.raises(InputError, match=r"input x: .*f64|input x: .*Double"):
        fd.execute([torch.zeros(2, 2, device="cuda", dtype=torch.float64)])
    with pytest.raises(InputError, match=r"input x: .*3.*2"):
        fd.execute([torch.zeros(2, 2, 2, device="cuda")])
    with FusionDefinition() as two:
        a, b = (two.define_tensor(shape=[-1], dtype=DataType.Float) for _ in range(2))
        two.add_output(a + b)
    with pytest.raises(FuserError, match=r"4.*5|5.*4"):
        two.execute([torch.zeros(4, device="cuda"), torch.zeros(5, device="cuda")])
    with pytest.raises(FuserError, match="cpu"):
        two.execute([torch.zeros(4, device="cuda"), torch.zeros(4)])


def test_twenty_runs_are_bitwise_equal(torch):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        fd.add_output(fd.ops.sum(x))
        fd.add_output(fd.ops.sum(x, [1]))
        fd.add_output(fd.ops.sum(x, [0]))
    x = torch.randn(2000, 3001, device="cuda")
    first = fd.execute([x])
    for _ in range(20):
        assert all(torch.equal(a, b) for a, b in zip(first, fd.execute([x]), strict=True))
    torch.testing.assert_close(first[0].double(), x.double().sum(), rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(first[1].double(), x.double().sum(1), rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(first[2].double(), x.double().sum(0), rtol=1e-5, atol=1e-3)


def test_grid_reductions_on_many_streams_share_no_counters(torch):
    """Counters are kept per stream: concurrent launches, repeated ones, and a captured graph."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float)
        fd.add_output(fd.ops.sum(x))
    inputs = [torch.full((1_000_003 + 64 * i,), float(i + 1), device="cuda") for i in range(4)]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    results = []
    for _ in range(25):
        for tensor, stream in zip(inputs, streams, strict=True):
            with torch.cuda.stream(stream):
                results.append((tensor, fd.execute([tensor])[0]))
    torch.cuda.synchronize()
    for tensor, total in results:
        assert total.item() == pytest.approx(tensor.double().sum().item(), rel=1e-6)


def test_a_captured_grid_reduction_replays(torch):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=[True], dtype=DataType.Float)
        fd.add_output(fd.ops.sum(x))
    t = torch.ones(1_000_000, device="cuda")
    fd.execute([t])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (total,) = fd.execute([t])
    for value in (2.0, 3.0):
        t.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert total.item() == value * t.numel()
