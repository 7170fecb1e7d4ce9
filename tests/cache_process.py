"""What the tests of the cache run in processes of their own, started by ``spawn``."""

from __future__ import annotations

import hashlib
import multiprocessing
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fuser import FusionDefinition
from fuser.api.execute import bind, program_of
from fuser.codegen.emit import emit
from fuser.kir.program import Program
from fuser.runtime.cache import CubinCache
from fuser.runtime.executor import CudaProgram
from fuser.runtime.nvrtc import compile_cubin
from fuser.runtime.store import EntryStore

X = np.linspace(-3, 3, 5 * 96, dtype=np.float32).reshape(5, 96)


def softmax_and_sum() -> FusionDefinition:
    """Return a fusion of two kernels: reductions over both axes of one tensor."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        e = fd.ops.exp(fd.ops.sub(x, fd.ops.max(x, [1], True)))
        fd.add_output(fd.ops.div(e, fd.ops.sum(e, [1], True)))
        fd.add_output(fd.ops.sum(x, [0]))
    return fd


def lowered(fd: FusionDefinition) -> Program:
    """Return the kernels of `fd` for `X`."""
    return program_of(fd, bind(fd, [X]))


class Counting:
    """NVRTC, counted."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, source: str, name: str, arch: str, **options: Any) -> Any:
        self.names.append(name)
        return compile_cubin(source, name, arch, **options)


def compile_fusion(number: int, folder: Path) -> dict[str, Any]:
    """Compile `softmax_and_sum` through a cache in `folder`; say what NVRTC had to do."""
    compiler = Counting()
    built = CudaProgram(
        lowered(softmax_and_sum()), emit, "sm_90a", cache=CubinCache(folder, compiler)
    )
    return {"calls": len(compiler.names), "images": [cubin.image for cubin in built.cubins]}


def churn(number: int, folder: Path, limit: int) -> dict[str, Any]:
    """Read and write entries of a folder that is too small for all; count what is found."""
    store, draw = EntryStore(folder, limit), random.Random(number)
    found = wrong = 0
    for _ in range(150):
        index = draw.randrange(12)
        key, payload = entry(index)
        kept = store.read(key)
        found += kept == payload
        wrong += kept not in (None, payload)
        if kept is None:
            store.write(key, payload)
    return {"found": found, "wrong": wrong}


def entry(index: int) -> tuple[str, bytes]:
    """Return key and payload of one of the entries of `churn`."""
    name = str(index).encode()
    return hashlib.sha256(name).hexdigest(), name * 700


class Processes:
    """Fresh processes that begin every task together."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.count = count
        self.pool = context.Pool(count, _Start.meet_at, (context.Barrier(count),))

    def __call__(self, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return what ``task(number, *arguments)`` gives in each of them."""
        calls = [(task, number, arguments) for number in range(self.count)]
        return self.pool.starmap_async(_Start.work, calls, chunksize=1).get(120)


class _Start:
    """Where the processes wait for each other: none takes a second call of a task then."""

    barrier: Any = None

    @classmethod
    def meet_at(cls, barrier: Any) -> None:
        cls.barrier = barrier

    @classmethod
    def work(cls, task: Callable[..., Any], number: int, arguments: tuple[Any, ...]) -> Any:
        cls.barrier.wait(60)
        return task(number, *arguments)


def full_disk(folder: Path) -> None:
    """Compile on a disk that takes 4000 bytes of a file; print warnings and the images' sum."""
    import resource
    import warnings

    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = compile_fusion(0, folder)
    text = [f"{w.category.__name__}: {w.message}" for w in caught]
    print(len(text), *text, digest(result["images"]), sep="\n")


def digest(images: list[bytes]) -> str:
    """Return one checksum of some images."""
    return hashlib.sha256(b"".join(images)).hexdigest()


if __name__ == "__main__":
    full_disk(Path(sys.argv[1]))
