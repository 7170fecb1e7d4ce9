"""Programs on a stubbed driver: order of events, host staging, aliases, empty grids, refusals."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from fake_cuda import installed, read_arguments

from fuser.core.dtypes import DataType
from fuser.core.errors import CompileError, InputError, LaunchError
from fuser.core.expr import ONE, Const, Var, ceil_div
from fuser.kir.core import GRID_1, Kernel, ScalarParam, SharedArray, SizeParam, TensorParam
from fuser.kir.program import Buffer, OutputBinding, Program
from fuser.runtime.arrays import ArrayView, view_of
from fuser.runtime.copies import copy_on_device
from fuser.runtime.executor import CudaProgram
from fuser.runtime.log import CompileLog
from fuser.runtime.memory import DeviceBuffer, allocate
from fuser.runtime.nvrtc import Cubin

pytestmark = pytest.mark.unit

N = Var("x_size0")
FLOAT = DataType.Float


@pytest.fixture
def cuda(monkeypatch):
    with installed(monkeypatch) as fake:
        fake.kernels["scale"] = scale
        yield fake


class FakeCache:
    """Stands for NVRTC and the cubin cache."""

    def __init__(self, reject=()):
        self.reject, self.built = reject, []

    def get(self, source, name, arch, **options):
        if name in self.reject:
            raise CompileError(f"kernel {name}: rejected; needed better")
        self.built.append((source, name, arch))
        return Cubin(name, arch, source.encode(), None, CompileLog(), 0.0)


def floats(pointer, count):
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(pointer))


def scale(grid, block, params):
    """y[i] = a * x[i] over n elements, the stride of x given."""
    types = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_float, ctypes.c_int32, ctypes.c_int32)
    x, y, a, n, stride = read_arguments(params, *types)
    floats(y, n)[:] = np.float32(a) * floats(x, (n - 1) * stride + 1)[::stride]


def tensor(name, mode="in", numel=N):
    return TensorParam(name, FLOAT, mode, numel, aligned_bytes=4)


SCALE = Kernel(
    name="scale",
    params=(
        tensor("x"),
        tensor("y", "out"),
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
Y = Buffer("y", FLOAT, (N,), (ONE,), N)
PROGRAM = Program("scaling", ("x", "a"), (Y,), (SCALE,), (OutputBinding("y"),))


def build(program=PROGRAM, **options):
    options.setdefault("cache", FakeCache())
    return CudaProgram(program, lambda kernel: f"// {kernel.name}", "sm_90a", **options)


def env(view):
    return {"x_size0": view.shape[0], "x_stride0": view.strides_elems[0]}


def on_gpu(array, kind="dlpack"):
    """A view that claims to be device memory (the stub's devices are the host)."""
    return replace(view_of(array), device="cuda", kind=kind)


@pytest.mark.parametrize("count", [1, 127, 128, 129, 1000])
@pytest.mark.parametrize("step", [1, 3])
def test_host_arrays_are_staged(cuda, rng, count, step):
    x = rng.normal(size=count * step).astype(np.float32)[::step]
    view = view_of(x)
    result = build().run(env(view), {"x": view}, {"a": 2.5})
    array, described = result["y"]
    assert isinstance(array, np.ndarray)
    assert array.tolist() == (np.float32(2.5) * x).tolist()
    assert described.pointer == array.ctypes.data
    assert cuda.launches == [("scale", (-(-count // 128), 1, 1), (128, 1, 1), 0)]
    assert cuda.blocks == {}  # everything is freed


def test_negative_strides_are_staged_whole(cuda, rng):
    x = rng.normal(size=50).astype(np.float32)[::-2]
    seen = []

    def look(grid, block, params):
        (pointer,) = read_arguments(params, ctypes.c_uint64)
        seen.append([floats(pointer - 8 * i, 1)[0] for i in range(25)])

    cuda.kernels["look"] = look
    kernel = replace(SCALE, name="look")
    view = view_of(x)
    build(replace(PROGRAM, kernels=(kernel,))).run(env(view), {"x": view}, {"a": 1.0})
    assert seen == [x.tolist()]


def test_device_arrays_are_not_copied(cuda, rng):
    x = rng.normal(size=300).astype(np.float32)
    view = on_gpu(x)
    result = build().run(env(view), {"x": view}, {"a": 3.0}, stream=55)
    buffer, described = result["y"]
    assert isinstance(buffer, DeviceBuffer)
    assert floats(described.pointer, 300).tolist() == (np.float32(3) * x).tolist()
    assert cuda.launches[0][3] == 55
    assert "cuMemcpyHtoDAsync" not in cuda.log


def test_no_elements_no_launch(cuda):
    view = on_gpu(np.empty(0, np.float32))
    result = build().run(env(view), {"x": view}, {"a": 3.0})
    assert result["y"][1].shape == (0,)
    assert cuda.launches == []


def test_outputs_may_be_given(cuda, rng):
    x = rng.normal(size=10).astype(np.float32)
    y = np.full(10, np.nan, np.float32)
    view, out = on_gpu(x), on_gpu(y)
    program = build()
    result = program.run(env(view), {"x": view}, {"a": 2}, outputs={"y": out})
    assert result["y"] == (out.owner, out)
    assert y.tolist() == (2 * x).tolist()
    short = on_gpu(np.zeros(9, np.float32))
    text = r"output y: f32\[9\] with strides \(1,\) on cuda:0, address .* a writable f32\[10\] with"
    cases = [
        ({"y": short}, text),
        ({"y": view_of(y)}, r"on cpu:0, address .* needed .* on cuda:0"),
        ({"y": replace(out, pointer=out.pointer + 2)}, r"needed .* address a multiple of 4$"),
        ({"y": replace(out, readonly=True)}, "output y: read-only f32"),
        ({"y": view}, "output y: shares memory with input x; needed memory of its own"),
        ({"z": out}, "output z: unknown; needed one of"),
    ]
    launches = len(cuda.launches)
    for outputs, text in cases:
        with pytest.raises(InputError, match=text):
            program.run(env(view), {"x": view}, {"a": 2}, outputs=outputs)
    assert len(cuda.launches) == launches


def test_all_kernels_compile_before_any_launch(cuda):
    second = replace(SCALE, name="second")
    program = replace(PROGRAM, kernels=(SCALE, second))
    with pytest.raises(CompileError, match="kernel second: rejected"):
        build(program, cache=FakeCache(reject=("second",)))
    assert cuda.launches == []


def test_all_kernels_load_before_any_launch(cuda, rng):
    program = build(replace(PROGRAM, kernels=(SCALE, replace(SCALE, name="missing"))))
    view = on_gpu(rng.normal(size=4).astype(np.float32))
    with pytest.raises(LaunchError, match="kernel missing: the driver gave 500"):
        program.run(env(view), {"x": view}, {"a": 1})
    assert cuda.launches == []


def in_place(**changes):
    binding = OutputBinding("y", copy_into="x", returned=False)
    return replace(PROGRAM, outputs=(binding,), **changes)


def test_an_alias_is_written_after_the_last_kernel(cuda, rng):
    x = rng.normal(size=20).astype(np.float32)
    before = x.copy()
    view = on_gpu(x)
    assert build(in_place()).run(env(view), {"x": view}, {"a": -2.0}) == {}
    assert x.tolist() == (-2 * before).tolist()
    assert cuda.log.index("cuLaunchKernelEx") < cuda.log.index("cuMemcpyHtoDAsync")


def test_a_failed_launch_leaves_the_alias_alone(cuda, rng):
    for arrange in (on_gpu, view_of):
        x = rng.normal(size=20).astype(np.float32)
        before = x.copy()
        cuda.failing["cuLaunchKernelEx"] = 719
        view = arrange(x)
        with pytest.raises(LaunchError, match=r"kernel scale: .*719"):
            build(in_place()).run(env(view), {"x": view}, {"a": -2.0})
        assert x.tolist() == before.tolist()
        assert cuda.blocks == {}


def test_a_kernel_that_fails_later_leaves_the_host_array_alone(cuda, rng):
    x = rng.normal(size=20).astype(np.float32)
    before = x.copy()
    cuda.failing["cuStreamSynchronize"] = 700
    view = view_of(x)
    with pytest.raises(LaunchError, match="stream 0x0: the driver gave 700"):
        build(in_place()).run(env(view), {"x": view}, {"a": -2.0})
    assert x.tolist() == before.tolist()


def test_interleaved_host_aliases_do_not_overwrite_each_other(cuda, rng):
    base = rng.normal(size=40).astype(np.float32)
    before = base.copy()
    evens, odds = view_of(base[::2]), view_of(base[1::2])
    second = replace(
        SCALE,
        name="scale2",
        params=(tensor("z"), tensor("w", "out"), *SCALE.params[2:]),
    )
    cuda.kernels["scale2"] = scale
    program = Program(
        "two",
        ("x", "z", "a"),
        (Y, replace(Y, name="w")),
        (SCALE, second),
        (OutputBinding("y", "x", False), OutputBinding("w", "z", False)),
    )
    build(program).run(env(evens), {"x": evens, "z": odds}, {"a": 2.0})
    assert base.tolist() == (2 * before).tolist()


def test_read_only_inputs_are_not_written(cuda):
    x = np.ones(4, np.float32)
    x.flags.writeable = False
    view = view_of(x)
    with pytest.raises(InputError, match="input x: read-only, but an output is written into it"):
        build(in_place()).run(env(view), {"x": view}, {"a": 2.0})


def test_counters_start_at_zero(cuda, rng):
    seen = []

    def count(grid, block, params):
        (pointer,) = read_arguments(params, ctypes.c_uint64)
        seen.append(floats(pointer, 7).tolist())
        floats(pointer, 7)[:] = 5

    cuda.kernels["count"] = count
    counter = Buffer("counter", FLOAT, (Const(7),), (ONE,), Const(7), zeroed=True)
    kernel = Kernel("count", (tensor("counter", "workspace"),), (), GRID_1, GRID_1, "i32", ())
    program = build(Program("p", (), (counter,), (kernel,), ()))
    for _ in range(2):
        program.run({}, {}, {}, kind="dlpack")
    assert seen == [[0.0] * 7] * 2
    assert cuda.blocks == {}


def test_no_inputs(cuda):
    def fill(grid, block, params):
        (pointer,) = read_arguments(params, ctypes.c_uint64)
        floats(pointer, 3)[:] = 4

    cuda.kernels["fill"] = fill
    out = Buffer("y", FLOAT, (Const(3),), (ONE,), Const(3))
    kernel = Kernel("fill", (tensor("y", "out"),), (), GRID_1, GRID_1, "i32", ())
    program = build(Program("p", (), (out,), (kernel,), (OutputBinding("y"),)))
    array, _ = program.run({}, {}, {})["y"]
    assert isinstance(array, np.ndarray)
    assert array.tolist() == [4, 4, 4]
    _, view = program.run({}, {}, {}, kind="dlpack", device_id=1)["y"]
    assert (view.device, view.device_id) == ("cuda", 1)


def test_wrong_inputs(cuda):
    program = build()
    x = on_gpu(np.ones(8, np.float32))
    sizes = env(x)
    cases = [
        ({}, {"a": 1}, "input x: not given"),
        ({"x": x}, {}, "input a: not given"),
        ({"x": on_gpu(np.ones(8))}, {"a": 1}, "input x: DataType.Double; needed DataType.Float"),
        ({"x": replace(x, pointer=x.pointer + 2)}, {"a": 1}, "needed a multiple of 4 bytes"),
        ({"x": x, "z": view_of(np.ones(8))}, {"a": 1}, "input z: on cpu:0; needed cuda:0"),
        ({"x": x, "z": replace(x, device_id=1)}, {"a": 1}, "input z: on cuda:1; needed cuda:0"),
    ]
    for tensors, scalars, text in cases:
        with pytest.raises(InputError, match=text):
            program.run(sizes, tensors, scalars)
    with pytest.raises(LaunchError, match=r"program scaling: arguments .* do not fit"):
        program.run({"x_size0": 8, "x_stride0": 2**31}, {"x": x}, {"a": 1})
    assert cuda.launches == []


def test_another_architecture_is_refused_in_words(cuda):
    program = CudaProgram(PROGRAM, lambda k: "", "sm_100a", cache=FakeCache())
    x = on_gpu(np.ones(8, np.float32))
    text = r"program for sm_100a: GPU 0 \(Fake H200\) is sm_90a; needed equal ones"
    with pytest.raises(InputError, match=text):
        program.run(env(x), {"x": x}, {"a": 1})


def test_plans_are_kept_per_size_and_bounded(cuda):
    program = build()
    for count in range(1, 300):
        view = on_gpu(np.ones(count, np.float32))
        array = program.run(env(view), {"x": view}, {"a": 1})["y"][1]
        assert array.shape == (count,)
    assert len(program._bound) <= 256


LAYOUTS = {
    "dense": (lambda a: a, lambda a: a),
    "column-major": (lambda a: a.T, lambda a: a.T),
    "rows into a window": (lambda a: a[:, :4], lambda a: np.ascontiguousarray(a[:, :4])),
    "every other row": (lambda a: a[::2], lambda a: np.ascontiguousarray(a[::2])),
    "one column": (lambda a: a[:, 2], lambda a: np.ascontiguousarray(a[:, 2])),
    "one element": (lambda a: a[3:4, 3:4], lambda a: a[3:4, 3:4]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_copies_by_layout(cuda, rng, name):
    into, outof = LAYOUTS[name]
    base, source = rng.normal(size=(2, 6, 8)).astype(np.float32)
    expected = base.copy()
    into(expected)[...] = outof(source)
    copy_on_device(on_gpu(into(base)), on_gpu(outof(source)), 0, "copy")
    assert base.tolist() == expected.tolist()


def test_copies_that_no_single_call_can_do(cuda, rng):
    base, source = rng.normal(size=(2, 6, 8)).astype(np.float32)
    with pytest.raises(LaunchError, match=r"copy from strides \(8, 1\) into strides \(1, 6\)"):
        copy_on_device(on_gpu(base.reshape(8, 6).T), on_gpu(source), 0, "y")
    expanded = replace(on_gpu(base), strides_elems=(0, 1))
    with pytest.raises(LaunchError, match="needed layouts that differ in one row pitch"):
        copy_on_device(expanded, on_gpu(source), 0, "y")
    with pytest.raises(LaunchError, match="needed equal shapes and dtypes"):
        copy_on_device(on_gpu(base[:3]), on_gpu(source), 0, "y")
    assert cuda.log == []


def test_device_buffers_export_dlpack(cuda):
    buffer, view = allocate("dlpack", (2, 3), (1, 2), DataType.BFloat16, 1)
    again = view_of(buffer)
    assert "cuCtxSynchronize" in cuda.log  # the consumer may read at once
    assert isinstance(again, ArrayView)
    layout = (view.pointer, (2, 3), (1, 2), DataType.BFloat16, 1)
    assert layout == (again.pointer, again.shape, again.strides_elems, again.dtype, again.device_id)
    assert buffer.pointer in cuda.blocks
    del buffer, view
    assert again.pointer in cuda.blocks  # the capsule keeps it
    pointer = again.pointer
    del again
    assert pointer not in cuda.blocks


@pytest.mark.parametrize(("numel", "asked"), [(12 * 1024, 0), (12 * 1024 + 1, 48 * 1024 + 4)])
def test_shared_memory_beyond_what_is_static_is_asked_for(cuda, numel, asked):
    ring = SharedArray("ring", FLOAT, numel)
    kernel = replace(SCALE, shared=(ring,))
    view = on_gpu(np.ones(8, np.float32))
    build(replace(PROGRAM, kernels=(kernel,))).run(env(view), {"x": view}, {"a": 1.0})
    limits = [line for line in cuda.log if "MAX_DYNAMIC_SHARED_SIZE_BYTES" in line]
    assert limits == (
        [f"scale.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES={asked}"] if asked else []
    )
