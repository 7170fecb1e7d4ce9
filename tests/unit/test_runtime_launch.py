"""Launches on a stubbed driver: argument packing, limits, error texts, contexts."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from fake_cuda import installed, read_arguments

from fuser.core.dtypes import DataType
from fuser.core.errors import BackendError, LaunchError
from fuser.runtime import driver as runtime_driver
from fuser.runtime.launch import (
    ArgumentSlots,
    LaunchRecord,
    launch,
    scalar_kind,
    scalar_value,
)
from fuser.runtime.memory import DeviceBuffer

pytestmark = pytest.mark.unit


@pytest.fixture
def cuda(monkeypatch):
    with installed(monkeypatch) as fake:
        yield fake


def test_every_kind_reaches_its_slot():
    kinds = ("pointer", "bool", "i8", "u8", "u16", "i32", "i64", "f32", "f64")
    values = (2**63 + 5, True, -7, 250, 65535, -(2**31), -(2**63), 1.5, 1e300)
    slots = ArgumentSlots(kinds)
    slots.pack("kernel k", values)
    types = (
        ctypes.c_uint64, ctypes.c_bool, ctypes.c_int8, ctypes.c_uint8, ctypes.c_uint16,
        ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_double,
    )  # fmt: skip
    assert tuple(read_arguments(slots.array(range(len(kinds))), *types)) == values


def test_a_size_beyond_its_index_type_is_an_error_not_a_wrap():
    with pytest.raises(LaunchError, match=r"kernel k: arguments \(2147483648,\) do not fit"):
        ArgumentSlots(("i32",)).pack("kernel k", (2**31,))


@pytest.mark.parametrize("dtype", list(DataType), ids=lambda d: d.short)
def test_scalars_are_rounded_as_numpy_rounds_them(dtype, rng):
    values = rng.integers(0, 2, 5) if dtype.kind == "bool" else rng.integers(0, 127, 5)
    if dtype.is_float:
        values = rng.normal(size=5) * 3
    slots = ArgumentSlots((scalar_kind(dtype),))
    for value in values.tolist():
        slots.pack("kernel k", (scalar_value("s", dtype, value),))
        found = np.frombuffer(slots.memory.raw[: dtype.nbytes], dtype.np)[0]
        expected = np.asarray(value).astype(dtype.np)
        assert found.tobytes() == expected.tobytes()


def test_scalar_limits():
    assert scalar_value("s", DataType.Float, 1e300) == np.inf
    half = np.uint16(scalar_value("s", DataType.Half, 1e6)).view(np.float16)
    assert half == np.inf
    bits = np.uint16(scalar_value("s", DataType.BFloat16, -0.0)).view(ml_dtypes.bfloat16)
    assert np.signbit(bits)
    with pytest.raises(LaunchError, match=r"scalar s: 300 does not fit DataType.UInt8; needed 0"):
        scalar_value("s", DataType.UInt8, 300)


def load(fake, name="k", kernel=lambda grid, block, params: None):
    fake.kernels[name] = kernel
    return runtime_driver.load_function(b"image", name)


def test_launch_passes_grid_block_stream_and_arguments(cuda):
    seen = []

    def kernel(grid, block, params):
        seen.extend(read_arguments(params, ctypes.c_uint64, ctypes.c_float, ctypes.c_int32))

    function = load(cuda, kernel=kernel)
    launch(function, (3, 2, 1), (128, 1, 2), 0, [("pointer", 4096), ("f32", 0.25), ("i32", -9)], 77)
    assert cuda.launches == [("k", (3, 2, 1), (128, 1, 2), 77)]
    assert seen == [4096, 0.25, -9]


def test_a_kernel_without_parameters(cuda):
    function = load(cuda, kernel=lambda grid, block, params: cuda.log.append(f"params {params}"))
    launch(function, (1, 1, 1), (1, 1, 1), 0, [])
    assert "params 0" in cuda.log


@pytest.mark.parametrize(
    ("grid", "block", "text"),
    [
        ((2**31, 1, 1), (1, 1, 1), "grid extent x is 2147483648; needed 1 to 2147483647"),
        ((1, 65536, 1), (1, 1, 1), "grid extent y is 65536; needed 1 to 65535"),
        ((1, 1, 65536), (1, 1, 1), "grid extent z is 65536; needed 1 to 65535"),
        ((0, 1, 1), (1, 1, 1), "grid extent x is 0; needed 1 to"),
        ((1, 1, 1), (1, 1, 65), "block extent z is 65; needed 1 to 64"),
        ((1, 1, 1), (64, 32, 1), r"block \(64, 32, 1\) has 2048 threads; needed at most 1024"),
    ],
)
def test_extents_outside_the_hardware_limits(cuda, grid, block, text):
    with pytest.raises(LaunchError, match=f"kernel k: {text}"):
        launch(load(cuda), grid, block, 0, [])
    assert cuda.launches == []


def test_the_largest_grid_is_allowed(cuda):
    launch(load(cuda), (2**31 - 1, 65535, 65535), (1024, 1, 1), 0, [])
    assert len(cuda.launches) == 1


def test_a_driver_error_names_kernel_and_code(cuda):
    function = load(cuda)
    cuda.failing["cuLaunchKernelEx"] = 701
    with pytest.raises(LaunchError, match=r"kernel k: grid \(1, 1, 1\).*701 \(fake error 701\)"):
        launch(function, (1, 1, 1), (1, 1, 1), 0, [])


def test_dynamic_shared_memory_is_allowed_once_and_checked(cuda):
    function = load(cuda)
    record = LaunchRecord(function, (), 100_000)
    record.launch((1, 1, 1), (1, 1, 1), (), 0)
    record.launch((1, 1, 1), (1, 1, 1), (), 0)
    assert sum("MAX_DYNAMIC_SHARED_SIZE_BYTES=100000" in line for line in cuda.log) == 1
    with pytest.raises(LaunchError, match=r"32 static \+ 300000 dynamic bytes .*at most 232448"):
        LaunchRecord(function, (), 300_000)


def test_clusters_are_an_attribute_of_the_launch(cuda):
    record = LaunchRecord(load(cuda), (), cluster=(2, 1, 4))
    record.launch((6, 1, 8), (32, 1, 1), (), 0)
    assert cuda.clusters == [(2, 1, 4)]
    text = r"kernel k: grid \(5, 1, 8\) of clusters \(2, 1, 4\); needed extents that are multiples"
    with pytest.raises(LaunchError, match=text):
        record.launch((5, 1, 8), (32, 1, 1), (), 0)
    assert len(cuda.launches) == 1
    LaunchRecord(load(cuda), ()).launch((5, 1, 1), (32, 1, 1), (), 0)
    assert len(cuda.clusters) == 1


def test_clusters_need_a_device_that_has_them(cuda):
    function = load(cuda)
    old = replace(function, device=replace(function.device, capability=(8, 9)))
    record = LaunchRecord(old, (), cluster=(2, 1, 1))
    with pytest.raises(LaunchError, match=r"clusters \(2, 1, 1\) on Fake H200; needed compute"):
        record.launch((4, 1, 1), (32, 1, 1), (), 0)


def test_threads_sharing_a_record_do_not_mix_arguments(cuda):
    wrong = []

    def kernel(grid, block, params):
        a, b = read_arguments(params, ctypes.c_int64, ctypes.c_int64)
        if a != b or grid[0] != a + 1:
            wrong.append((a, b, grid))

    record = LaunchRecord(load(cuda, kernel=kernel), ("i64", "i64"))

    def work(n):
        for _ in range(200):
            record.launch((n + 1, 1, 1), (1, 1, 1), (n, n), 0)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cuda.launches) == 800
    assert wrong == []


def test_the_previous_context_is_restored(cuda):
    cuda.context = 1001
    with runtime_driver.on_device(0):
        assert cuda.context == 1000
    assert cuda.context == 1001
    with pytest.raises(RuntimeError, match="inside"), runtime_driver.on_device(0):
        raise RuntimeError("inside")
    assert cuda.context == 1001


def test_device_facts_and_numbers(cuda):
    facts = runtime_driver.device(1)
    assert (facts.name, facts.capability, facts.arch) == ("Fake H200", (9, 0), "sm_90a")
    assert (facts.sm_count, facts.shared_bytes, facts.ordinal) == (132, 232448, 1)
    with pytest.raises(BackendError, match="cuda:2: no such GPU; needed a number below 2"):
        runtime_driver.device(2)


def test_an_image_is_loaded_once_per_device(cuda):
    first = load(cuda)
    assert load(cuda) is first
    assert cuda.log.count("cuModuleLoadData") == 1
    assert runtime_driver.load_function(b"image", "k", 1).device.ordinal == 1
    with pytest.raises(LaunchError, match="kernel other: the driver gave 500"):
        runtime_driver.load_function(b"image", "other")


def test_what_a_graph_does_not_record_is_allowed_while_it_is_captured(cuda):
    load(cuda)
    buffer = DeviceBuffer(64, 0)
    del buffer
    with pytest.raises(LaunchError):
        runtime_driver.load_function(b"image", "other")
    calls = ("cuModuleLoadData", "cuMemAlloc", "cuMemFree", "cuModuleLoadData")
    assert cuda.unsafe_calls == [(call, "RELAXED") for call in calls]
    assert cuda.capture_mode == "GLOBAL"  # what it was before


@pytest.mark.parametrize("failing", ["cuInit", "cuDeviceGetCount"])
def test_device_available_never_raises(cuda, failing):
    cuda.failing[failing] = 100
    assert runtime_driver.device_available() is False
    if failing == "cuInit":
        with pytest.raises(BackendError, match=r"cuInit gave 100 \(fake error 100\); needed a vis"):
            runtime_driver.driver()


def test_no_gpu_among_none(cuda):
    cuda.devices = 0
    assert runtime_driver.device_available() is False
