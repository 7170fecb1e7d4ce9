"""What the size variables alone decide about a run: launch extents and buffer layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from fuser.core.expr import Expr, evaluate
from fuser.kir.core import Kernel, TensorMapParam, TensorParam
from fuser.kir.launch_limits import Dim3
from fuser.kir.program import Buffer, Program
from fuser.kir.tensor_map import Encoding, bind
from fuser.runtime.memory import span_elems


@dataclass(frozen=True, slots=True)
class Layout:
    """A buffer for one size environment; `strides` in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    numel: int

    @property
    def capacity(self) -> int:
        """Elements to allocate for it."""
        return max(self.numel, span_elems(self.shape, self.strides))


@dataclass(frozen=True, slots=True)
class PlannedMap:
    """A tensor map of which only the tensor's address is not known yet.

    Attributes
    ----------
    argument
        Its name among the arguments of all kernels.
    at_zero
        What would be encoded if the tensor began at address 0.
    """

    argument: str
    param: TensorMapParam
    at_zero: Encoding


@dataclass(frozen=True, slots=True)
class Plan:
    """What the size variables alone decide.

    Attributes
    ----------
    launches
        Grid and block of each kernel; None where there is nothing to do.
    layouts
        Of the buffers.
    maps
        Tensor maps of the kernels that are launched.
    """

    launches: tuple[tuple[Dim3, Dim3] | None, ...]
    layouts: Mapping[str, Layout]
    maps: tuple[PlannedMap, ...] = ()


@dataclass(frozen=True, slots=True)
class Roles:
    """What the names of a program stand for, whatever the sizes.

    Attributes
    ----------
    returned
        Buffers the caller receives.
    copies
        ``(buffer, input)``: copies after the last kernel.
    changed
        Inputs that are written, by a kernel or by a copy.
    aligned
        Bytes by which the address of a buffer divides.
    """

    buffers: Mapping[str, Buffer]
    returned: tuple[str, ...]
    copies: tuple[tuple[str, str], ...]
    changed: frozenset[str]
    aligned: Mapping[str, int]

    @property
    def temporary(self) -> tuple[str, ...]:
        """Buffers that the caller does not receive."""
        return tuple(name for name in self.buffers if name not in self.returned)


def roles_of(program: Program) -> Roles:
    """Read the roles of all names of `program`."""
    buffers = {buffer.name: buffer for buffer in program.buffers}
    returned = {b.buffer: None for b in program.outputs if b.returned and b.buffer in buffers}
    copies = tuple((b.buffer, b.copy_into) for b in program.outputs if b.copy_into is not None)
    params = [p for kernel in program.kernels for p in kernel.params if isinstance(p, TensorParam)]
    written = {param.name for param in params if param.mode != "in"}
    aligned = {name: 1 for name in buffers}
    for param in params:
        if param.name in buffers:
            aligned[param.name] = max(aligned[param.name], param.aligned_bytes)
    return Roles(
        buffers=buffers,
        returned=tuple(returned),
        copies=copies,
        changed=frozenset(written | {target for _, target in copies}) - set(buffers),
        aligned=aligned,
    )


def map_argument(kernel: Kernel, param: TensorMapParam) -> str:
    """Return a name that tells tensor maps of different kernels apart."""
    return f"{kernel.name}/{param.name}"


def layout_of(buffer: Buffer, env: Mapping[str, int]) -> Layout:
    """Return what `buffer` is for one set of sizes."""
    numel = int(evaluate(buffer.numel, env))
    return Layout(_extents(buffer.shape, env), _extents(buffer.strides, env), numel)


def _extents(expressions: tuple[Expr, ...], env: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(evaluate(e, env)) for e in expressions)


def make_plan(program: Program, env: Mapping[str, int]) -> Plan:
    """Evaluate every extent of `program`; a kernel without blocks or threads is skipped."""
    launches: list[tuple[Dim3, Dim3] | None] = []
    for kernel in program.kernels:
        grid, block = (
            cast(Dim3, _extents(kernel.grid, env)),
            cast(Dim3, _extents(kernel.block, env)),
        )
        launches.append(None if 0 in grid or 0 in block else (grid, block))
    layouts = {buffer.name: layout_of(buffer, env) for buffer in program.buffers}
    maps = tuple(
        PlannedMap(map_argument(kernel, param), param, bind(param, env, 0))
        for kernel, extent in zip(program.kernels, launches, strict=True)
        for param in kernel.params
        if isinstance(param, TensorMapParam) and extent is not None
    )
    return Plan(tuple(launches), layouts, maps)
