"""A GPU in host memory that runs what fuser generates: the interpreter, on the packed arguments.

Between `fd.execute` and the driver call nothing is replaced but NVRTC; the kernel sees addresses
and sizes only where the launch has put them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import fake_cuda
import numpy as np
import pytest

from fuser.codegen import emit
from fuser.core.dtypes import DataType
from fuser.core.expr import evaluate
from fuser.interp.functional import run_kernel
from fuser.kir.core import Kernel, ScalarParam, SizeParam, TensorParam
from fuser.runtime.cache import CUBINS
from fuser.runtime.log import CompileLog
from fuser.runtime.nvrtc import Cubin


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_cuda.FakeDriver]:
    """Put a fake driver that runs generated kernels in the place of the real one."""
    with fake_cuda.installed(monkeypatch) as fake:

        def compiled(kernel: Kernel) -> str:
            source = f"{kernel.name} {len(fake.images)}"
            fake.images[source.encode()] = partial(run, kernel)
            return source

        def built(source: str, name: str, arch: str, **_: object) -> Cubin:
            return Cubin(name, arch, source.encode(), None, CompileLog(), 0.0)

        monkeypatch.setenv("FUSER_CACHE_SIZE", "0")
        monkeypatch.setattr(emit, "emit", compiled)
        monkeypatch.setattr(CUBINS, "get", built)
        yield fake


def run(kernel: Kernel, grid: object, block: object, params: int) -> None:
    """Interpret `kernel` on the arguments that a ``void**`` array points at."""
    slots = (ctypes.c_void_p * len(kernel.params)).from_address(params) if params else ()
    sizes: dict[str, int] = {}
    scalars: dict[str, object] = {}
    index = ctypes.c_int32 if kernel.index == "i32" else ctypes.c_int64
    for param, slot in zip(kernel.params, slots, strict=True):
        if isinstance(param, SizeParam):
            sizes[param.name] = index.from_address(slot).value
        elif isinstance(param, ScalarParam):
            scalars[param.name] = memory(slot, 1, param.dtype)[0].item()
    arrays: dict[str, np.ndarray] = {}
    for param, slot in zip(kernel.params, slots, strict=True):
        if isinstance(param, TensorParam):
            pointer = ctypes.c_uint64.from_address(slot).value
            count = int(evaluate(param.numel, sizes))
            assert pointer % param.aligned_bytes == 0, f"misaligned {param.name}: {pointer:#x}"
            arrays[param.name] = memory(pointer, count, param.dtype)
    for param in kernel.params:
        if isinstance(param, TensorParam) and param.mode != "in":
            others = (array for name, array in arrays.items() if name != param.name)
            assert not any(np.shares_memory(arrays[param.name], other) for other in others)
    run_kernel(kernel, sizes, arrays, scalars)


def memory(pointer: int, count: int, dtype: DataType) -> np.ndarray:
    """Return `count` elements at an address."""
    if not count:
        return np.empty(0, dtype.np)
    raw = (ctypes.c_ubyte * (count * dtype.nbytes)).from_address(pointer)
    return np.frombuffer(raw, np.uint8).view(dtype.np)
