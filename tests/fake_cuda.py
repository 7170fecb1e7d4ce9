"""A CUDA driver in host memory: kernels are Python functions that read the packed arguments.

It stands in for ``cuda.bindings.driver``, so everything above the driver call runs unchanged.
Device memory is host memory at addresses of its own; freeing poisons it.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from fuser.runtime import driver as runtime_driver


class _Names:
    """An enum whose members are their own names."""

    def __getattr__(self, name: str) -> str:
        return name


class LaunchConfig:
    gridDimX = gridDimY = gridDimZ = blockDimX = blockDimY = blockDimZ = 0
    sharedMemBytes = numAttrs = hStream = 0

    def __init__(self) -> None:
        self.attrs: list[LaunchAttribute] = []


class LaunchAttribute:
    def __init__(self) -> None:
        self.id = ""
        self.value = SimpleNamespace(clusterDim=SimpleNamespace(x=0, y=0, z=0))


class Memcpy2D:
    srcMemoryType = dstMemoryType = srcDevice = dstDevice = 0
    srcPitch = dstPitch = WidthInBytes = Height = 0


class FakeDriver:
    """The driver calls of the runtime, recording launches and frees."""

    CUdevice_attribute = CUfunction_attribute = CUpointer_attribute = CUmemorytype = _Names()
    CUlaunchAttributeID = CUstreamCaptureStatus = CUstreamCaptureMode = _Names()
    CUlaunchAttribute = LaunchAttribute
    CUlaunchConfig = LaunchConfig
    CUDA_MEMCPY2D = Memcpy2D

    def __init__(self) -> None:
        self.kernels: dict[str, Callable[..., None]] = {}
        self.images: dict[bytes, Callable[..., None]] = {}  # what `fake_gpu` compiled
        self.blocks: dict[int, Any] = {}
        self.launches: list[tuple[str, tuple[int, ...], tuple[int, ...], int]] = []
        self.clusters: list[tuple[int, ...]] = []
        self.log: list[str] = []
        self.failing: dict[str, int] = {}  # call -> error code
        self.context = 0
        self.capturing: set[int] = set()
        self.capture_mode = "GLOBAL"
        self.unsafe_calls: list[tuple[str, str]] = []  # refused while a graph is captured, and mode
        self.devices = 2

    def _code(self, call: str) -> int:
        self.log.append(call)
        return self.failing.get(call, 0)

    def cuInit(self, _: int) -> tuple[int]:
        return (self._code("cuInit"),)

    def cuGetErrorString(self, code: int) -> tuple[int, bytes]:
        return 0, f"fake error {int(code)}".encode()

    def cuDriverGetVersion(self) -> tuple[int, int]:
        return 0, 13010

    def cuDeviceGetCount(self) -> tuple[int, int]:
        return self._code("cuDeviceGetCount"), self.devices

    def cuDeviceGet(self, ordinal: int) -> tuple[int, int]:
        return 0, ordinal

    def cuDeviceGetName(self, length: int, _: int) -> tuple[int, bytes]:
        return 0, b"Fake H200".ljust(length, b"\0")

    def cuDeviceTotalMem(self, _: int) -> tuple[int, int]:
        return 0, 2**37

    def cuDeviceGetAttribute(self, name: str, _: int) -> tuple[int, int]:
        values = {
            "COMPUTE_CAPABILITY_MAJOR": 9,
            "COMPUTE_CAPABILITY_MINOR": 0,
            "MULTIPROCESSOR_COUNT": 132,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
            "L2_CACHE_SIZE": 2**26,
        }
        return 0, values[name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuDevicePrimaryCtxRetain(self, ordinal: int) -> tuple[int, int]:
        return 0, 1000 + ordinal

    def cuCtxGetCurrent(self) -> tuple[int, int]:
        return 0, self.context

    def cuCtxSetCurrent(self, context: int) -> tuple[int]:
        self.context = context
        return (0,)

    def cuModuleLoadData(self, image: bytes) -> tuple[int, bytes]:
        self.unsafe_calls.append(("cuModuleLoadData", self.capture_mode))
        return self._code("cuModuleLoadData"), image

    def cuModuleGetFunction(self, image: bytes, name: bytes) -> tuple[int, str]:
        handle = name.decode()
        if image in self.images:
            handle = f"{handle}@{len(self.kernels)}"
            self.kernels[handle] = self.images[image]
        return (0 if handle in self.kernels else 500), handle

    def cuFuncGetAttribute(self, name: str, _: str) -> tuple[int, int]:
        return 0, 1024 if name.endswith("MAX_THREADS_PER_BLOCK") else 32

    def cuFuncSetAttribute(self, function: str, name: str, value: int) -> tuple[int]:
        self.log.append(f"{function}.{name}={value}")
        return (0,)

    def cuPointerGetAttribute(self, _: str, pointer: int) -> tuple[int, int]:
        return 0, 0

    def cuLaunchKernelEx(self, config: LaunchConfig, name: str, params: int, extra: int) -> Any:
        code = self._code("cuLaunchKernelEx")
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        block = (config.blockDimX, config.blockDimY, config.blockDimZ)
        self.launches.append((name, grid, block, config.hStream))
        for attribute in config.attrs[: config.numAttrs]:
            assert attribute.id == "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"
            extents = attribute.value.clusterDim
            self.clusters.append((extents.x, extents.y, extents.z))
        if not code:
            self.kernels[name](grid, block, params)
        return (code,)

    def cuMemAllocAsync(self, nbytes: int, _: int) -> tuple[int, int]:
        if code := self._code("cuMemAllocAsync"):
            return code, 0
        raw = (ctypes.c_ubyte * (nbytes + 256))()
        ctypes.memset(raw, 0xA5, nbytes + 256)
        pointer = (ctypes.addressof(raw) + 255) // 256 * 256
        self.blocks[pointer] = (raw, nbytes)
        return 0, pointer

    def cuMemFreeAsync(self, pointer: int, _: int) -> tuple[int]:
        _raw, nbytes = self.blocks.pop(pointer)
        ctypes.memset(pointer, 0x5A, nbytes)
        return (0,)

    def cuMemAlloc(self, nbytes: int) -> tuple[int, int]:
        self.unsafe_calls.append(("cuMemAlloc", self.capture_mode))
        return self.cuMemAllocAsync(nbytes, 0)

    def cuMemFree(self, pointer: int) -> tuple[int]:
        self.unsafe_calls.append(("cuMemFree", self.capture_mode))
        return self.cuMemFreeAsync(pointer, 0)

    def cuMemcpyHtoDAsync(self, dst: int, src: int, nbytes: int, _: int) -> tuple[int]:
        ctypes.memmove(dst, src, nbytes)
        return (self._code("cuMemcpyHtoDAsync"),)

    cuMemcpyDtoHAsync = cuMemcpyDtoDAsync = cuMemcpyHtoDAsync

    def cuMemcpy2DAsync(self, copy: Memcpy2D, _: int) -> tuple[int]:
        for row in range(copy.Height):
            ctypes.memmove(
                copy.dstDevice + row * copy.dstPitch,
                copy.srcDevice + row * copy.srcPitch,
                copy.WidthInBytes,
            )
        return (self._code("cuMemcpy2DAsync"),)

    def cuMemsetD8Async(self, pointer: int, value: int, nbytes: int, _: int) -> tuple[int]:
        ctypes.memset(pointer, value, nbytes)
        return (0,)

    def cuStreamIsCapturing(self, stream: int) -> tuple[int, str]:
        status = "ACTIVE" if stream in self.capturing else "NONE"
        return 0, f"CU_STREAM_CAPTURE_STATUS_{status}"

    def cuThreadExchangeStreamCaptureMode(self, mode: str) -> tuple[int, str]:
        before, self.capture_mode = self.capture_mode, mode.rpartition("_")[2]
        return 0, before

    def cuCtxSynchronize(self) -> tuple[int]:
        return (self._code("cuCtxSynchronize"),)

    def cuStreamSynchronize(self, stream: int) -> tuple[int]:
        self.log.append(f"synchronize {int(stream)}")
        return (self.failing.get("cuStreamSynchronize", 0),)


def read_arguments(params: int, *ctypes_types: Any) -> list[Any]:
    """Read what a ``void**`` argument array points at."""
    slots = (ctypes.c_void_p * len(ctypes_types)).from_address(params)
    return [
        kind.from_address(address).value for kind, address in zip(ctypes_types, slots, strict=True)
    ]


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """Put a new fake driver in the place of the real one."""
    fake = FakeDriver()
    cached = (
        runtime_driver.driver,
        runtime_driver.device,
        runtime_driver.device_available,
        runtime_driver._primary_context,
    )
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)
    monkeypatch.setattr(runtime_driver, "_functions", {})
    for function in cached:
        function.cache_clear()
    yield fake
    gc.collect()  # buffers are freed by the driver that made them
    for function in cached:
        function.cache_clear()
