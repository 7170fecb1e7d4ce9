"""What launching a fusion takes, kept on disk by the fusion itself.

A process that finds it there loads the cubins and launches: it does not choose a schedule, lower or
print, nor import what that needs. The key covers everything the kernels follow from: fusion, shape
class, sizes of the call (recipes look at them), the definition's default for loops, architecture,
the build of NVRTC, and the text of every source file and template of this package and of jinja2. An
entry holds the program without the bodies of its kernels, and the keys of their cubins in the cache
of `fuser.runtime.cache`.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import io
import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from fuser.api.shape_class import ShapeClass
from fuser.codegen.env import template_dir
from fuser.core.boundary import Boundary
from fuser.core.dtypes import DataType
from fuser.core.expr import BinOp, Const, Select, Var
from fuser.core.unroll import LoopOptions
from fuser.fusion.graph import FusionGraph
from fuser.kir.core import (
    BarrierArray,
    Kernel,
    ScalarParam,
    SharedArray,
    SizeParam,
    TensorParam,
)
from fuser.kir.fallback import Fallback, Obstacle
from fuser.kir.program import Buffer, OutputBinding, Program
from fuser.kir.tensor_map import TensorMapParam
from fuser.runtime.cache import CUBINS, cubin_key, launch_store
from fuser.runtime.driver import device
from fuser.runtime.executor import CudaProgram
from fuser.runtime.nvrtc import compile_options, nvrtc_build

_KEPT = (
    BarrierArray, BinOp, Boundary, Buffer, Const, Fallback, Kernel, Obstacle, OutputBinding,
    Program, ScalarParam, Select, SharedArray, SizeParam, TensorMapParam, TensorParam, Var,
)  # fmt: skip
_CLASSES: dict[tuple[str, str], Any] = {(c.__module__, c.__qualname__): c for c in _KEPT}


class _Unspellable(Exception):
    """A part of a fusion of which two equal ones cannot be recognised."""


def key_of(
    graph: FusionGraph, cls: ShapeClass, env: Mapping[str, int], loops: LoopOptions
) -> str | None:
    """Return the key of a call; None when nothing is kept, or a part has no spelling."""
    if not launch_store().limit:
        return None
    values = tuple((value, graph.operand_names(value)) for value in graph.values)
    inputs = tuple(value.name for value in graph.inputs)
    parts = (
        values, inputs, graph.outputs, graph.constraints, cls, tuple(sorted(env.items())),
        loops,
    )  # fmt: skip
    try:
        text = "".join(spelled(parts))
    except _Unspellable:
        return None
    whole = "\0".join((source_text_digest(), nvrtc_build(), device(0).arch, text))
    return hashlib.sha256(whole.encode()).hexdigest()


def spelled(item: Any) -> Iterator[str]:
    """Yield text that only equal items share; where in the user's file they stand is left out."""
    match item:
        case enum.Enum():
            yield f"{type(item).__qualname__}.{item.name}"
        case float():
            yield item.hex()
        case None | bool() | int() | str():
            yield repr(item)
        case tuple():
            yield "["
            parts: tuple[Any, ...] = cast("Any", item)
            for part in parts:
                yield from spelled(part)
                yield ","
            yield "]"
        case _ if dataclasses.is_dataclass(item):
            yield f"{type(item).__module__}.{type(item).__qualname__}("
            for field in dataclasses.fields(item):
                if field.name != "location":
                    yield f"{field.name}="
                    yield from spelled(getattr(item, field.name))
                    yield ","
            yield ")"
        case _:
            raise _Unspellable(repr(item))


@cache
def source_text_digest() -> str:
    """Return a digest of all that makes a kernel: this package, jinja2, networkx, Python."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(f"{sys.version} {version('networkx')}".encode())
    found = find_spec("jinja2")
    places = found.submodule_search_locations if found else None
    folders = [package, template_dir(), *map(Path, places or ())]
    for folder in folders:
        for path in sorted(_files(folder)):
            content = Path(path).read_bytes()
            name = os.path.relpath(path, folder)
            digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[str]:
    for root, _, names in os.walk(folder):
        for name in names:
            if name.endswith((".py", ".j2", ".cu", ".cuh")):
                yield os.path.join(root, name)


def find(key: str) -> CudaProgram | None:
    """Return the compiled kernels kept under `key`, or None where any part of them is missing."""
    payload = launch_store().read(key)
    if payload is None:
        return None
    arch, keys, program = _Unpickler(io.BytesIO(payload)).load()
    cubins = [CUBINS.find(cubin) for cubin in keys]
    if any(cubin is None for cubin in cubins):
        return None
    return CudaProgram.of_cubins(program, [c for c in cubins if c is not None], arch)


def keep(key: str, binary: CudaProgram) -> None:
    """Keep what launching `binary` takes."""
    program, arch = binary.program, binary.arch
    options = compile_options(arch)
    pairs = zip(binary.sources, program.kernels, strict=True)
    keys = tuple(cubin_key(source, kernel.name, arch, options) for source, kernel in pairs)
    bare = tuple(
        dataclasses.replace(kernel, body=(), header=(), rings=()) for kernel in program.kernels
    )
    content = io.BytesIO()
    _Pickler(content, protocol=5).dump((arch, keys, dataclasses.replace(program, kernels=bare)))
    launch_store().write(key, content.getvalue())


class _Pickler(pickle.Pickler):
    """Writes dtypes by name: their NumPy types are no business of a file."""

    def persistent_id(self, obj: Any) -> str | None:
        return obj.name if isinstance(obj, DataType) else None


class _Unpickler(pickle.Unpickler):
    """Reads the records of `_KEPT` and builtin values, and calls nothing else."""

    def persistent_load(self, pid: Any) -> DataType:
        return DataType[pid]

    def find_class(self, module_name: str, global_name: str) -> Any:
        found = _CLASSES.get((module_name, global_name))
        if found is None:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} is none of the records")
        return found
