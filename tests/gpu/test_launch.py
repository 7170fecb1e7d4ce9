"""The runtime on a real GPU: hand-written kernels on torch, cupy, numba, jax and NumPy arrays."""

from __future__ import annotations

import importlib
import importlib.util
import threading

import ml_dtypes
import numpy as np
import pytest

from fuser.core.dtypes import DataType
from fuser.core.errors import InputError, LaunchError
from fuser.core.expr import ONE, Const, Var, ceil_div
from fuser.kir.core import GRID_1, Kernel, ScalarParam, SizeParam, TensorParam
from fuser.kir.program import Buffer, OutputBinding, Program
from fuser.runtime import driver
from fuser.runtime.arrays import view_of
from fuser.runtime.executor import CudaProgram
from fuser.runtime.launch import LaunchRecord, launch
from fuser.runtime.memory import allocate, current_stream, stream_handle
from fuser.runtime.nvrtc import compile_cubin

pytestmark = pytest.mark.gpu

SCALE = """
extern "C" __global__ void scale(const float* x, float* y, float a, int n, int stride) {{
  int i = blockIdx.x * 128 + threadIdx.x;
  {spin}
  if (i < n) y[i] = a * x[(long long)i * stride];
}}
"""
SPIN = "long long t = clock64(); while (clock64() - t < 20000000) {}"
SOURCE, SLOW_SOURCE = SCALE.format(spin=""), SCALE.format(spin=SPIN)

TYPES = """
typedef unsigned short u16; typedef unsigned char u8;
extern "C" __global__ void types(u8* out, bool b, signed char i8, u8 u, u16 h, int i, long long l,
                                 float f, double d) {
  *(long long*)(out + 0) = l;
  *(double*)(out + 8) = d;
  *(float*)(out + 16) = f;
  *(int*)(out + 20) = i;
  *(u16*)(out + 24) = h;
  out[26] = u; *(signed char*)(out + 27) = i8; out[28] = b;
}
"""
BIG_SHARED = """
extern "C" __global__ void big(float* y, int n) {
  extern __shared__ float s[];
  for (int i = threadIdx.x; i < n; i += 32) s[i] = i;
  __syncwarp();
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 32) sum += s[n - 1 - i];
  y[threadIdx.x] = sum;
}
"""
COUNT = """
extern "C" __global__ void count(unsigned* counter, float* y) {
  y[0] = atomicAdd(counter, 1u);
}
"""


def library(name):
    """Import `name`, or say why the case cannot run here."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed on this machine")
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def arch():
    return driver.device(0).arch


N = Var("x_size0")
FLOAT = DataType.Float
KERNEL = Kernel(
    name="scale",
    params=(
        TensorParam("x", FLOAT, "in", N, aligned_bytes=4),
        TensorParam("y", FLOAT, "out", N, aligned_bytes=4),
        ScalarParam("a", FLOAT),
        SizeParam("x_size0"),
        SizeParam("x_stride0"),
    ),
    shared=(),
    grid=(ceil_div(N, 128), ONE, ONE),
    block=(Const(128), ONE, ONE),
    index="i32",
    body=(),
)
PROGRAM = Program(
    "scaling", ("x", "a"), (Buffer("y", FLOAT, (N,), (ONE,), N),), (KERNEL,), (OutputBinding("y"),)
)
IN_PLACE = Program(
    "in_place", PROGRAM.inputs, PROGRAM.buffers, (KERNEL,), (OutputBinding("y", "x", False),)
)


@pytest.fixture(scope="module")
def scaling():
    return CudaProgram(PROGRAM, lambda kernel: SOURCE)


@pytest.fixture(scope="module")
def slow_scaling():
    return CudaProgram(PROGRAM, lambda kernel: SLOW_SOURCE)


def run(program, array, factor, **options):
    view = view_of(array)
    env = {"x_size0": view.shape[0], "x_stride0": view.strides_elems[0]}
    return program.run(env, {"x": view}, {"a": factor}, **options)


def to_numpy_array(array):
    return np.asarray(array)


def to_torch(array):
    return library("torch").from_numpy(array).cuda()


def to_cupy(array):
    return library("cupy").asarray(array)


def to_numba(array):
    library("numba")
    return importlib.import_module("numba.cuda").to_device(array)


def to_jax(array):
    jax = library("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("jax has no GPU backend on this machine")
    return jax.numpy.asarray(array)


def back(array):
    if type(array).__module__.startswith("torch"):
        return array.cpu().numpy()
    if type(array).__module__.startswith("cupy"):
        return array.get()
    if type(array).__module__.startswith("numba"):
        return array.copy_to_host()
    return np.asarray(array)


LIBRARIES = {
    "numpy": to_numpy_array,
    "torch": to_torch,
    "cupy": to_cupy,
    "numba": to_numba,
    "jax": to_jax,
}


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("count", [1, 127, 128, 129, 100_003])
def test_outputs_are_of_the_inputs_library(scaling, rng, name, count):
    x = rng.normal(size=count).astype(np.float32)
    given = LIBRARIES[name](x)
    array, view = run(scaling, given, 1.5)["y"]
    assert type(array).__module__.partition(".")[0] == type(given).__module__.partition(".")[0]
    assert view.kind == name
    assert back(array).tobytes() == (np.float32(1.5) * x).tobytes()


@pytest.mark.parametrize("name", ["numpy", "torch", "cupy"])
def test_strided_inputs(scaling, rng, name):
    x = rng.normal(size=3000).astype(np.float32)
    array, _ = run(scaling, LIBRARIES[name](x)[::3], -2.0)["y"]
    assert back(array).tobytes() == (np.float32(-2) * x[::3]).tobytes()


@pytest.mark.parametrize("name", LIBRARIES)
def test_no_elements(scaling, name):
    given = LIBRARIES[name](np.empty(0, np.float32))
    view = view_of(given)
    array, described = scaling.run({"x_size0": 0, "x_stride0": 1}, {"x": view}, {"a": 1.0})["y"]
    assert described.shape == (0,)
    assert tuple(array.shape) == (0,)


@pytest.mark.parametrize("name", ["numpy", "torch", "cupy"])
def test_an_alias_is_updated(rng, name):
    program = CudaProgram(IN_PLACE, lambda kernel: SOURCE)
    x = rng.normal(size=1000).astype(np.float32)
    given = LIBRARIES[name](x.copy())
    assert run(program, given, 3.0) == {}
    assert back(given).tobytes() == (np.float32(3) * x).tobytes()


def test_an_alias_with_gaps_is_updated(rng):
    torch = library("torch")
    program = CudaProgram(IN_PLACE, lambda kernel: SOURCE)
    x = rng.normal(size=1000).astype(np.float32)
    given = torch.from_numpy(x.copy()).cuda()
    run(program, given[::2], 3.0)
    expected = x.copy()
    expected[::2] *= np.float32(3)
    assert given.cpu().numpy().tobytes() == expected.tobytes()


def test_two_programs_in_a_row_need_no_wait(slow_scaling, scaling, rng):
    torch = library("torch")
    x = rng.normal(size=4096).astype(np.float32)
    middle, _ = run(slow_scaling, torch.from_numpy(x).cuda(), 2.0)["y"]
    array, _ = run(scaling, middle, 2.0)["y"]
    assert array.cpu().numpy().tobytes() == (np.float32(4) * x).tobytes()


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_the_librarys_current_stream_is_used(slow_scaling, scaling, rng, name):
    cuda = library(name).cuda
    x = rng.normal(size=4096).astype(np.float32)
    given = LIBRARIES[name](x)
    side = cuda.Stream() if name == "torch" else cuda.Stream(non_blocking=True)
    cuda.Device(0).synchronize() if name == "cupy" else cuda.synchronize()
    with cuda.stream(side) if name == "torch" else side:
        assert current_stream(name, 0) == stream_handle(side) != 0
        middle, _ = run(slow_scaling, given, 2.0)["y"]
        array, _ = run(scaling, middle, 2.0)["y"]
        side.synchronize()
    assert back(array).tobytes() == (np.float32(4) * x).tobytes()


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_an_explicit_stream_wins(slow_scaling, rng, name):
    cuda = library(name).cuda
    x = rng.normal(size=4096).astype(np.float32)
    given = LIBRARIES[name](x)
    cuda.Device(0).synchronize() if name == "cupy" else cuda.synchronize()
    side = cuda.Stream() if name == "torch" else cuda.Stream(non_blocking=True)
    array, _ = run(slow_scaling, given, 2.0, stream=side)["y"]
    queued = not (side.query() if name == "torch" else side.done)
    side.synchronize()
    assert queued  # the kernel spins for milliseconds: it was on this stream
    assert back(array).tobytes() == (np.float32(2) * x).tobytes()


def test_numpy_on_an_explicit_stream(slow_scaling, rng):
    side = library("torch").cuda.Stream()
    x = rng.normal(size=4096).astype(np.float32)
    array, _ = run(slow_scaling, x, 2.0, stream=side.cuda_stream)["y"]
    assert array.tobytes() == (np.float32(2) * x).tobytes()


def test_given_outputs_are_written(scaling, rng):
    torch = library("torch")
    x = rng.normal(size=500).astype(np.float32)
    out = torch.full((500,), float("nan"), device="cuda")
    result = run(scaling, torch.from_numpy(x).cuda(), 2.0, outputs={"y": view_of(out)})
    assert result["y"][0] is out
    assert out.cpu().numpy().tobytes() == (np.float32(2) * x).tobytes()


def test_wrong_arrays_are_refused_before_a_launch(scaling):
    torch = library("torch")
    with pytest.raises(InputError, match=r"input x: DataType\.BFloat16; needed"):
        run(scaling, torch.zeros(8, dtype=torch.bfloat16, device="cuda"), 1.0)
    with pytest.raises(InputError, match=r"element type torch\.complex64"):
        view_of(torch.zeros(8, dtype=torch.complex64, device="cuda"), what="input x")
    tensors = {"x": view_of(torch.zeros(8, device="cuda")), "z": view_of(torch.zeros(8))}
    with pytest.raises(InputError, match="input z: on cpu:0; needed cuda:0"):
        scaling.run({"x_size0": 8, "x_stride0": 1}, tensors, {"a": 1.0})


@pytest.mark.parametrize("dtype", list(DataType), ids=lambda d: d.short)
def test_torch_views_and_outputs_of_every_dtype(dtype, rng):
    torch = library("torch")
    array, view = allocate("torch", (3, 4), (1, 3), dtype, 0)
    assert isinstance(array, torch.Tensor)
    assert (view.shape, view.strides_elems, view.dtype) == ((3, 4), (1, 3), dtype)
    assert (view.pointer, view.device, view.device_id) == (array.data_ptr(), "cuda", 0)
    host = allocate("torch", (3, 4), (1, 3), dtype, "cpu")[1]
    values = rng.integers(0, 2, (3, 4)).astype(dtype.np)
    host.numpy()[...] = values
    assert host.numpy().tobytes() == values.tobytes()
    assert host.owner.float().numpy().tolist() == values.astype(np.float32).tolist()


@pytest.mark.parametrize("short", ["bool", "i8", "u8", "i32", "i64", "f16", "f32", "f64"])
def test_cupy_views_and_outputs(short):
    cupy = library("cupy")
    dtype = DataType.from_short(short)
    array, view = allocate("cupy", (3, 4), (1, 3), dtype, 0)
    assert isinstance(array, cupy.ndarray)
    assert (view.shape, view.strides_elems, view.dtype) == ((3, 4), (1, 3), dtype)
    assert view.pointer == array.data.ptr


def test_torch_through_dlpack_and_back():
    torch = library("torch")

    class Wrapped:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

        def __dlpack__(self, stream=None):
            return self.tensor.__dlpack__(stream=stream)

    tensor = torch.arange(12, dtype=torch.bfloat16, device="cuda").reshape(3, 4).T
    view = view_of(Wrapped(tensor))
    assert (view.pointer, view.shape) == (tensor.data_ptr(), (4, 3))
    assert (view.strides_elems, view.dtype, view.kind) == ((1, 4), DataType.BFloat16, "dlpack")
    buffer, described = allocate("dlpack", (5, 2), (2, 1), DataType.Float, 0)
    taken = torch.from_dlpack(buffer)
    taken.fill_(7)
    assert taken.data_ptr() == described.pointer
    del buffer, described
    assert taken.sum().item() == 70


def test_every_argument_kind(arch):
    torch = library("torch")
    function = driver.load_function(compile_cubin(TYPES, "types", arch).image, "types")
    out = torch.zeros(32, dtype=torch.uint8, device="cuda")
    bits = int(np.asarray(-1.5, ml_dtypes.bfloat16).view(np.uint16))
    params = [
        ("pointer", out.data_ptr()), ("bool", True), ("i8", -100), ("u8", 200), ("u16", bits),
        ("i32", -(2**31)), ("i64", -(2**63) + 1), ("f32", 0.1), ("f64", 0.1),
    ]  # fmt: skip
    launch(function, (1, 1, 1), (1, 1, 1), 0, params, current_stream("torch", 0))
    raw = out.cpu().numpy().tobytes()
    assert np.frombuffer(raw, np.int64, 1)[0] == -(2**63) + 1
    assert np.frombuffer(raw, np.float64, 1, 8)[0] == 0.1
    assert np.frombuffer(raw, np.float32, 1, 16)[0] == np.float32(0.1)
    assert np.frombuffer(raw, np.int32, 1, 20)[0] == -(2**31)
    assert np.frombuffer(raw, ml_dtypes.bfloat16, 1, 24)[0] == -1.5
    assert list(raw[26:29]) == [200, 156, 1]


def test_dynamic_shared_memory_up_to_the_opt_in_limit(arch):
    torch = library("torch")
    function = driver.load_function(compile_cubin(BIG_SHARED, "big", arch).image, "big")
    count = function.device.shared_bytes // 4
    out = torch.full((32,), float("nan"), device="cuda")
    params = [("pointer", out.data_ptr()), ("i32", count)]
    launch(function, (1, 1, 1), (32, 1, 1), 4 * count, params, current_stream("torch", 0))
    expected = np.arange(count, dtype=np.float64).sum()
    assert out.double().sum().item() == pytest.approx(expected, rel=1e-5)
    with pytest.raises(LaunchError, match=r"kernel big: 0 static \+ \d+ dynamic bytes"):
        launch(function, (1, 1, 1), (32, 1, 1), 4 * count + 4, params)


def test_limits_and_facts_of_the_device(arch):
    facts = driver.device(0)
    assert facts.capability >= (8, 0)
    assert facts.sm_count > 0
    assert facts.shared_bytes >= 99 * 1024
    function = driver.load_function(compile_cubin(SOURCE, "scale", arch).image, "scale")
    assert function.registers == compile_cubin(SOURCE, "scale", arch).log.registers
    assert function.shared_bytes == 0
    with pytest.raises(LaunchError, match="grid extent y is 65536; needed 1 to 65535"):
        launch(function, (1, 65536, 1), (1, 1, 1), 0, [])


def test_a_cubin_for_another_architecture_is_refused():
    image = compile_cubin(SOURCE, "scale", "sm_120a").image
    if driver.device(0).arch == "sm_120a":
        pytest.skip("this GPU runs sm_120a")
    with pytest.raises(LaunchError, match="kernel scale: the driver gave CUDA_ERROR_"):
        driver.load_function(image, "scale")


def counting() -> CudaProgram:
    """Return a program whose kernel stores its counter, then adds 1 and does not reset it."""
    counter = Buffer("counter", DataType.Int32, (ONE,), (ONE,), ONE, zeroed=True)
    out = Buffer("y", FLOAT, (ONE,), (ONE,), ONE)
    params = (
        TensorParam("counter", DataType.Int32, "workspace", ONE),
        TensorParam("y", FLOAT, "out", ONE),
    )
    kernel = Kernel("count", params, (), GRID_1, GRID_1, "i32", ())
    program = Program("counting", (), (counter, out), (kernel,), (OutputBinding("y"),))
    return CudaProgram(program, lambda k: COUNT)


def counted(program: CudaProgram, kind: str) -> list[float]:
    array, _ = program.run({}, {}, {}, kind=kind)["y"]
    return back(array).tolist()


def test_counters_are_zeroed_before_every_run_without_torch():
    program = counting()
    assert [counted(program, "numpy") for _ in range(3)] == [[0.0]] * 3


def test_counters_are_zeroed_once_per_torch_stream():
    """A kernel leaves its counters at zero (`fuser.runtime.counters`); this one shows who zeroes.

    A graph that is captured has counters of its own, zeroed in the graph.
    """
    torch = library("torch")
    program = counting()
    assert [counted(program, "torch") for _ in range(3)] == [[0.0], [1.0], [2.0]]
    with torch.cuda.stream(torch.cuda.Stream()):
        assert counted(program, "torch") == [0.0]
    assert counted(program, "torch") == [3.0]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured, _ = program.run({}, {}, {}, kind="torch")["y"]
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        assert back(captured).tolist() == [0.0]
    assert counted(program, "torch") == [4.0]


def test_threads_share_a_program(scaling, rng):
    torch = library("torch")
    inputs = [rng.normal(size=997).astype(np.float32) for _ in range(4)]
    results: list[list[np.ndarray]] = [[] for _ in inputs]

    def work(n):
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.from_numpy(inputs[n]).cuda()
            for _ in range(50):
                results[n].append(run(scaling, x, float(n + 1))["y"][0].cpu().numpy())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, found in enumerate(results):
        assert len(found) == 50
        assert {a.tobytes() for a in found} == {(np.float32(n + 1) * inputs[n]).tobytes()}


def test_a_launch_can_be_captured_in_a_cuda_graph(scaling, rng):
    torch = library("torch")
    x = torch.from_numpy(rng.normal(size=1000).astype(np.float32)).cuda()
    out = torch.zeros(1000, device="cuda")
    given = {"y": view_of(out)}
    run(scaling, x, 2.0, outputs=given)  # modules load outside of the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(scaling, x, 2.0, outputs=given)
    x.fill_(21.0)
    graph.replay()
    torch.cuda.synchronize()
    assert (out == 42.0).all().item()


def test_a_record_launches_quickly(arch):
    """A prepared launch costs microseconds, not the tens a rebuilt argument list would."""
    import time

    torch = library("torch")
    function = driver.load_function(compile_cubin(SOURCE, "scale", arch).image, "scale")
    record = LaunchRecord(function, ("pointer", "pointer", "f32", "i32", "i32"))
    x, y = torch.zeros(128, device="cuda"), torch.zeros(128, device="cuda")
    values = (x.data_ptr(), y.data_ptr(), 1.0, 128, 1)
    stream = current_stream("torch", 0)
    best = np.inf
    for _ in range(20):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(100):
            record.launch((1, 1, 1), (128, 1, 1), values, stream)
        best = min(best, (time.perf_counter() - started) / 100)
    print(f"launch: {best * 1e6:.2f} us")
    assert best < 30e-6
