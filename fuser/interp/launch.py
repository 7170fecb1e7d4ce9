"""What both interpreter modes set up before a kernel's first statement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuser.core.errors import InputError
from fuser.core.expr import Expr, evaluate
from fuser.kir.core import Kernel, ScalarParam, TensorMapParam, TensorParam
from fuser.kir.launch_limits import Dim3, check_cluster_tiles, check_extents
from fuser.kir.tensor_map import SWIZZLE_BYTES
from fuser.sim.agent import Agent, Array, uniform
from fuser.sim.copies import TensorMap
from fuser.sim.memory import Memory, flat_view, poison
from fuser.sim.phases import Mbarriers

COORDINATES = ("bx", "by", "bz", "cx", "cy", "cz", "cluster_rank", "tx", "ty", "tz")


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel with its sizes, arrays and scalars bound.

    Attributes
    ----------
    env
        Size variables of the kernel.
    tensors
        Global memories by parameter name.
    scalars
        Scalar parameters by name, as NumPy scalars of their dtype.
    maps
        Tensor maps by parameter name.
    """

    kernel: Kernel
    grid: Dim3
    block: Dim3
    env: Mapping[str, int]
    tensors: Mapping[str, Memory]
    scalars: Mapping[str, Any]
    maps: Mapping[str, TensorMap]

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def is_empty(self) -> bool:
        """Whether there is no thread to run."""
        return self.blocks * self.threads == 0

    @property
    def cluster_size(self) -> int:
        """Blocks of a cluster."""
        return self.kernel.cluster_size

    @property
    def clusters(self) -> Dim3:
        """Extents of the grid in clusters."""
        x, y, z = (n // side for n, side in zip(self.grid, self.kernel.cluster, strict=True))
        return x, y, z

    def shared(self, blocks: int) -> dict[str, Memory]:
        """Return fresh, poisoned shared arrays for `blocks` blocks."""
        return {
            s.name: Memory(
                s.name, s.dtype, poison(blocks * s.numel, s.dtype.np), s.numel, "shared",
                aligned_bytes=s.align_bytes,
            )
            for s in self.kernel.shared
        }  # fmt: skip

    def mbarriers(self, blocks: int) -> dict[str, Mbarriers]:
        """Return fresh memory for the mbarriers of `blocks` blocks."""
        return {b.name: Mbarriers.raw(b.name, b.size, blocks) for b in self.kernel.barriers}

    def agent(self, name: str, ids: NDArray[np.int64], tid: NDArray[np.int64]) -> Agent:
        """Return the agent of threads `tid` (one per lane) of every block in `ids`.

        Blocks are numbered cluster by cluster, and by rank inside of one.
        """
        lanes = np.tile(tid, ids.size)
        env: dict[str, Any] = dict(self.env)
        sides, size = self.kernel.cluster, self.cluster_size
        numbers = np.repeat(ids, tid.size)
        env["cluster_rank"] = numbers % size if size > 1 else 0
        for letter, extents, linear in (
            ("b", self.clusters, numbers // size),
            ("c", sides, numbers % size),
            ("t", self.block, lanes),
        ):
            names = (f"{letter}{axis}" for axis in "xyz")
            env.update(zip(names, _coordinates(linear, extents), strict=True))
        env["thread"] = lanes
        if ids.size == 1:
            env.update((n, uniform(env[n], None)) for n in COORDINATES)
        slot = np.repeat(np.arange(ids.size), tid.size)
        return Agent(name, lanes, slot, env, dict(self.scalars))


def _coordinates(linear: NDArray[np.int64], extents: Dim3) -> Iterator[Any]:
    """Yield x, y and z of linear numbers; 0 along extents of 1."""
    left = math.prod(extents)
    for extent in extents:
        left //= max(extent, 1)
        if extent == 1:
            yield 0
        elif left <= 1:  # nothing but this coordinate is left
            yield linear
        else:
            linear, value = np.divmod(linear, extent)
            yield value


def bind(
    kernel: Kernel,
    env: Mapping[str, int],
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Any],
) -> Launch:
    """Bind a kernel to its arguments.

    Raises
    ------
    InputError
        An array is missing, has another dtype, or spans fewer elements than the kernel may touch.
    LaunchError
        No GPU launches such a grid or block.
    """
    tensors = {p.name: _tensor(kernel, p, env, arrays) for p in kernel.params if _is_tensor(p)}
    with np.errstate(over="ignore"):  # a number past the largest one of its dtype is infinite
        values = {
            p.name: p.dtype.np.type(scalars[p.name])
            for p in kernel.params
            if isinstance(p, ScalarParam)
        }
    grid, block = _extents(kernel.grid, env), _extents(kernel.block, env)
    if 0 not in (*grid, *block):  # as on a GPU, a kernel of no blocks or threads is not launched
        check_extents(kernel.name, grid, block)
    check_cluster_tiles(kernel.name, grid, kernel.cluster)
    maps = {p.name: _tensor_map(p, env) for p in kernel.params if isinstance(p, TensorMapParam)}
    return Launch(kernel, grid, block, dict(env), tensors, values, maps)


def _tensor_map(p: TensorMapParam, env: Mapping[str, int]) -> TensorMap:
    strides = (int(evaluate(s, env)) // p.dtype.nbytes for s in p.strides_bytes)
    return TensorMap(
        tensor=p.tensor,
        offset=int(evaluate(p.offset_elems, env)),
        dims=tuple(int(evaluate(d, env)) for d in p.dims),
        strides=(1, *strides),
        extents=p.loaded,
        steps=(1, *p.element_strides[1:]),
        swizzle_bits=max(0, SWIZZLE_BYTES[p.swizzle].bit_length() - 5),
    )


def _is_tensor(p: object) -> bool:
    return isinstance(p, TensorParam)


def _extents(extents: Sequence[Expr], env: Mapping[str, int]) -> Dim3:
    x, y, z = (int(evaluate(e, env)) for e in extents)
    return x, y, z


def _tensor(kernel: Kernel, p: Any, env: Mapping[str, int], arrays: Mapping[str, Array]) -> Memory:
    array = arrays.get(p.name)
    where = f"kernel {kernel.name}, tensor {p.name}"
    if array is None:
        raise InputError(f"{where}: no array; got {sorted(arrays)}")
    if array.dtype != p.dtype.np:
        raise InputError(f"{where}: dtype {array.dtype}; needs {p.dtype.np}")
    data = flat_view(p.name, array)
    numel = int(evaluate(p.numel, env))
    if data.size < numel:
        raise InputError(f"{where}: spans {data.size} elements; the kernel may touch {numel}")
    return Memory(p.name, p.dtype, data, numel, "global", p.mode != "in", p.aligned_bytes)
