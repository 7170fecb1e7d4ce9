"""The CUDA driver: devices, contexts, modules and functions, every return code checked.

The driver is loaded on the first call, so importing this module needs no GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from fuser.core.errors import BackendError, LaunchError


@dataclass(frozen=True, slots=True)
class Device:
    """Facts of one GPU that schedules and checks need.

    Attributes
    ----------
    ordinal
        CUDA device number.
    capability
        Compute capability (major, minor).
    shared_bytes
        Largest shared memory a block may opt in to.
    """

    ordinal: int
    name: str
    capability: tuple[int, int]
    sm_count: int
    shared_bytes: int
    l2_bytes: int
    memory_bytes: int

    @property
    def arch(self) -> str:
        """NVRTC's name of the architecture, arch-specific features included where they exist."""
        major, minor = self.capability
        return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel loaded on a device.

    Attributes
    ----------
    handle
        ``CUfunction``.
    max_threads
        Largest block it can be launched with.
    shared_bytes
        Static shared memory per block.
    local_bytes
        Local memory per thread.
    """

    name: str
    handle: Any
    device: Device
    registers: int
    shared_bytes: int
    local_bytes: int
    max_threads: int

    def allow_dynamic_shared(self, nbytes: int) -> None:
        """Raise the limit of dynamic shared memory to `nbytes` (once per function, not a launch).

        Raises
        ------
        LaunchError
            If the device has less than static plus dynamic shared memory.
        """
        if self.shared_bytes + nbytes > self.device.shared_bytes:
            raise LaunchError(
                f"kernel {self.name}: {self.shared_bytes} static + {nbytes} dynamic bytes of "
                f"shared memory; needed at most {self.device.shared_bytes} on {self.device.name}"
            )
        api = driver()
        attribute = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(api.cuFuncSetAttribute(self.handle, attribute, nbytes), f"kernel {self.name}")


@cache
def driver() -> Any:
    """Return ``cuda.bindings.driver`` after ``cuInit``; raise `BackendError` without a GPU."""
    try:
        api: Any = import_module("cuda.bindings.driver")
    except ImportError as error:
        raise BackendError(
            f"CUDA driver: {error}; install cuda-python, or use the interpreter"
        ) from error
    try:
        (result,) = api.cuInit(0)
    except Exception as error:  # cuda.pathfinder found no libcuda
        reason = str(error).rstrip(".")
        raise BackendError(
            f"CUDA driver: {reason}; needed an NVIDIA driver, or use the interpreter"
        ) from error
    if int(result):
        raise BackendError(
            f"CUDA driver: cuInit gave {describe(api, result)}; "
            "needed a visible GPU, or use the interpreter"
        )
    return api


def describe(api: Any, result: Any) -> str:
    """Return the driver's name and sentence of an error code, e.g. ``CUDA_ERROR_X (text)``."""
    _, text = api.cuGetErrorString(result)
    sentence = text.decode(errors="replace") if text else "no description"
    return f"{getattr(result, 'name', result)} ({sentence})"


def check(answer: tuple[Any, ...], what: str) -> Any:
    """Return the value(s) of a driver call.

    Raises
    ------
    LaunchError
        If the call failed; the message starts with `what`.
    """
    result = answer[0]
    if result:
        raise LaunchError(
            f"{what}: the driver gave {describe(driver(), result)}; needed CUDA_SUCCESS"
        )
    if len(answer) == 2:
        return answer[1]
    return answer[1:] or None


@cache
def device_available() -> bool:
    """Return whether a kernel could be launched here; never raises, asks the system once."""
    try:
        return device_count() > 0
    except Exception:
        return False


def device_count() -> int:
    """Return the number of visible GPUs; raise `BackendError` without a driver."""
    return int(check(driver().cuDeviceGetCount(), "CUDA driver"))


@cache
def device(ordinal: int = 0) -> Device:
    """Return the facts of GPU `ordinal`."""
    api = driver()
    count = device_count()
    if not 0 <= ordinal < count:
        raise BackendError(f"cuda:{ordinal}: no such GPU; needed a number below {count}")
    what = f"cuda:{ordinal}"
    handle = check(api.cuDeviceGet(ordinal), what)

    def attribute(name: str) -> int:
        member = getattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(api.cuDeviceGetAttribute(member, handle), what))

    return Device(
        ordinal=ordinal,
        name=check(api.cuDeviceGetName(128, handle), what).rstrip(b"\0 ").decode(),
        capability=(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        sm_count=attribute("MULTIPROCESSOR_COUNT"),
        shared_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        memory_bytes=int(check(api.cuDeviceTotalMem(handle), what)),
    )


@cache
def _primary_context(ordinal: int) -> Any:
    """Retain the primary context, which torch, cupy, jax and numba share; never released."""
    api = driver()
    what = f"cuda:{ordinal}"
    handle = check(api.cuDeviceGet(device(ordinal).ordinal), what)
    return check(api.cuDevicePrimaryCtxRetain(handle), what)


def is_current(ordinal: int) -> bool:
    """Return whether the primary context of GPU `ordinal` is the calling thread's."""
    found = check(driver().cuCtxGetCurrent(), f"cuda:{ordinal}")
    return int(found) == int(_primary_context(ordinal))


@contextmanager
def on_device(ordinal: int) -> Generator[None]:
    """Make the primary context of GPU `ordinal` current, and the previous one after."""
    api = driver()
    context = _primary_context(ordinal)
    previous = check(api.cuCtxGetCurrent(), f"cuda:{ordinal}")
    if int(previous) == int(context):
        yield
        return
    check(api.cuCtxSetCurrent(context), f"cuda:{ordinal}")
    try:
        yield
    finally:
        check(api.cuCtxSetCurrent(previous), f"cuda:{ordinal}")


@contextmanager
def capture_relaxed() -> Generator[None]:
    """Allow calls that are not captured, such as loading a module, while this thread captures.

    A call that takes part in no stream is not what a graph records; drivers from CUDA 12.3 on load
    modules then.
    """
    api = driver()
    relaxed = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = check(api.cuThreadExchangeStreamCaptureMode(relaxed), "capture mode")
    try:
        yield
    finally:
        check(api.cuThreadExchangeStreamCaptureMode(before), "capture mode")


_functions: dict[tuple[bytes, str, int], Function] = {}
_functions_lock = threading.Lock()


def load_function(image: bytes, name: str, ordinal: int = 0) -> Function:
    """Load a cubin and return its kernel `name`; the same image is loaded once per device.

    Modules stay loaded: a launch may still be running when its program is collected.
    """
    key = (image, name, ordinal)
    with _functions_lock:
        if key not in _functions:
            _functions[key] = _load(image, name, ordinal)
        return _functions[key]


def _load(image: bytes, name: str, ordinal: int) -> Function:
    api = driver()
    what = f"kernel {name}"
    with on_device(ordinal), capture_relaxed():
        module = check(api.cuModuleLoadData(image), what)
        handle = check(api.cuModuleGetFunction(module, name.encode()), what)

        def attribute(suffix: str) -> int:
            member = getattr(api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{suffix}")
            return int(check(api.cuFuncGetAttribute(member, handle), what))

        return Function(
            name=name,
            handle=handle,
            device=device(ordinal),
            registers=attribute("NUM_REGS"),
            shared_bytes=attribute("SHARED_SIZE_BYTES"),
            local_bytes=attribute("LOCAL_SIZE_BYTES"),
            max_threads=attribute("MAX_THREADS_PER_BLOCK"),
        )


def synchronize(stream: int) -> None:
    """Wait until everything queued on `stream` has run; reports errors of earlier kernels."""
    check(driver().cuStreamSynchronize(stream), f"stream {stream:#x}")


def driver_version() -> tuple[int, int]:
    """Return the newest CUDA version the driver supports."""
    version = int(check(driver().cuDriverGetVersion(), "CUDA driver"))
    return version // 1000, version % 1000 // 10
