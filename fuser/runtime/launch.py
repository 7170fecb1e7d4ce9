"""Kernel launches: argument slots packed in place, limits checked, one driver call.

What is fixed for a launch (slot layout, ``void**`` array, launch config) is built once; a launch
packs the values with one ``struct`` call.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from fuser.core.dtypes import DataType
from fuser.core.errors import LaunchError
from fuser.kir.launch_limits import Dim3, check_cluster_tiles, check_extents
from fuser.kir.tensor_map import MAP_ALIGN_BYTES, MAP_BYTES
from fuser.runtime.driver import Function, check, driver

ArgKind: TypeAlias = Literal[
    "pointer", "bool", "i8", "u8", "u16", "i32", "i64", "f32", "f64", "tensor_map"
]  # u16 and u8 also carry the bits of 2-byte and 1-byte floats

_FORMAT: dict[ArgKind, str] = {  # a slot is a multiple of 8 bytes
    "pointer": "Q", "bool": "?7x", "i8": "b7x", "u8": "B7x", "u16": "H6x",
    "i32": "i4x", "i64": "q", "f32": "f4x", "f64": "d", "tensor_map": f"{MAP_BYTES}s",
}  # fmt: skip
_ALIGN: dict[ArgKind, int] = {"tensor_map": MAP_ALIGN_BYTES}  # 8 bytes for all others

_F32_SAFE = 3.4e38  # below the largest f32: packing cannot overflow


def scalar_kind(dtype: DataType) -> ArgKind:
    """Return how a scalar of `dtype` is passed by value."""
    match dtype:
        case DataType.Half | DataType.BFloat16:
            return "u16"
        case DataType.Float8_e4m3fn | DataType.Float8_e5m2:
            return "u8"
        case _:
            short: ArgKind = dtype.short  # type: ignore[assignment]
            return short


def scalar_value(name: str, dtype: DataType, value: Any) -> int | float | bool:
    """Round a Python number to `dtype` and return what its slot holds.

    Raises
    ------
    LaunchError
        If an integer does not fit.
    """
    if dtype.is_integer:
        low, high = _integer_range(dtype)
        if not low <= value <= high:
            raise LaunchError(
                f"scalar {name}: {value} does not fit {dtype!r}; needed {low} to {high}"
            )
        return int(value)
    if dtype.kind == "bool":
        return bool(value)
    if dtype.nbytes == 8:
        return float(value)
    if dtype.nbytes == 4 and abs(value) < _F32_SAFE:
        return float(value)  # packing rounds
    rounded = _round(dtype, value)
    if dtype.nbytes == 4:
        return float(rounded)
    return int(rounded.view(f"u{dtype.nbytes}"))


def _round(dtype: DataType, value: Any) -> Any:
    import numpy as np

    with np.errstate(over="ignore"):  # too large becomes inf, as a cast on the device would
        return np.asarray(value, dtype=np.float64).astype(dtype.np)


def _integer_range(dtype: DataType) -> tuple[int, int]:
    bits = 8 * dtype.nbytes
    return (0, 2**bits - 1) if dtype.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


class LaunchRecord:
    """Launches one kernel by itself; programs use `fuser.runtime.prepared`.

    Parameters
    ----------
    function
        The loaded kernel.
    kinds
        Kinds of its parameters, in order.
    dynamic_smem
        Bytes of dynamic shared memory.
    cluster
        Blocks of a cluster (x, y, z), as the kernel was compiled for.
    """

    def __init__(
        self,
        function: Function,
        kinds: Sequence[ArgKind],
        dynamic_smem: int = 0,
        cluster: Dim3 = (1, 1, 1),
    ) -> None:
        if dynamic_smem:
            function.allow_dynamic_shared(dynamic_smem)
        self.function = function
        self.slots = ArgumentSlots(kinds)
        self.dynamic_smem = dynamic_smem
        self.cluster = cluster
        self._address = self.slots.array(range(len(self.slots.kinds)))
        self._lock = threading.Lock()  # slots are shared by all threads

    def launch(self, grid: Dim3, block: Dim3, values: Sequence[Any], stream: int) -> None:
        """Queue the kernel on `stream` of the current context.

        Raises
        ------
        LaunchError
            If an extent is out of range, a value does not fit its slot or the driver refuses.
        """
        function = self.function
        config = launch_config(function, grid, block, stream, self.dynamic_smem, self.cluster)
        with self._lock:
            self.slots.pack(f"kernel {function.name}", values)
            # The driver copies the arguments before it returns, so the slots may be reused.
            answer = driver().cuLaunchKernelEx(config, function.handle, self._address, 0)
        if answer[0]:
            check(answer, f"kernel {function.name}: grid {grid}, block {block}")


def launch_config(
    function: Function,
    grid: Dim3,
    block: Dim3,
    stream: int,
    dynamic_smem: int = 0,
    cluster: Dim3 = (1, 1, 1),
) -> Any:
    """Return the driver's description of a launch, which any number of launches may use at once.

    Raises
    ------
    LaunchError
        If an extent is out of range, or clusters do not tile the grid.
    """
    check_extents(function.name, grid, block, function.max_threads, function.registers)
    api = driver()
    config = api.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = dynamic_smem
    config.hStream = stream
    config.numAttrs = 0
    if cluster != (1, 1, 1):
        check_cluster(function, grid, cluster)
        config.attrs = [_cluster_attribute(api, cluster)]
        config.numAttrs = 1
    return config


def _cluster_attribute(api: Any, cluster: Dim3) -> Any:
    attribute = api.CUlaunchAttribute()
    attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    extents = attribute.value.clusterDim
    extents.x, extents.y, extents.z = cluster
    return attribute


class ArgumentSlots:
    """Aligned memory for arguments, and the ``void**`` arrays of kernels that point into it.

    Eight bytes each, tensor maps 128 bytes at a multiple of 64.
    """

    def __init__(self, kinds: Sequence[ArgKind]) -> None:
        self.kinds = tuple(kinds)
        layout, self._offsets = slot_layout(self.kinds)
        self._struct = struct.Struct(layout)
        self.memory = aligned_memory(self._struct.size)
        self._arrays: list[Any] = []  # kept alive: only their addresses are handed out

    def array(self, slots: Sequence[int]) -> int:
        """Return the address of a new ``void**`` array of `slots`; 0 when there are none."""
        if not slots:
            return 0
        start = ctypes.addressof(self.memory)
        array = (ctypes.c_void_p * len(slots))(*(start + self._offsets[i] for i in slots))
        self._arrays.append(array)
        return ctypes.addressof(array)

    def pack(self, what: str, values: Sequence[Any]) -> None:
        """Write `values` into the slots; `what` is named where one does not fit."""
        try:
            self._struct.pack_into(self.memory, 0, *values)
        except (struct.error, OverflowError) as error:
            raise misfit(what, values, self.kinds, error) from error


def misfit(
    what: str, values: Sequence[Any], kinds: Sequence[ArgKind], error: Exception
) -> LaunchError:
    """Return the error of values that do not fit the slots of a kernel or program."""
    return LaunchError(
        f"{what}: arguments {tuple(values)} do not fit ({error}); needed {tuple(kinds)}"
    )


def slot_layout(kinds: Sequence[ArgKind]) -> tuple[str, list[int]]:
    """Return the ``struct`` format of all slots and where each one begins."""
    layout, offsets, end = "<", list[int](), 0
    for kind in kinds:
        padding = -end % _ALIGN.get(kind, 8)
        layout += f"{padding}x{_FORMAT[kind]}" if padding else _FORMAT[kind]
        offsets.append(end + padding)
        end = struct.calcsize(layout)
    return layout, offsets


def aligned_memory(nbytes: int) -> ctypes.Array[ctypes.c_char]:
    """Return zeroed memory that begins at a multiple of a tensor map's alignment."""
    block = ctypes.create_string_buffer(nbytes + MAP_ALIGN_BYTES)
    start = -ctypes.addressof(block) % MAP_ALIGN_BYTES
    return (ctypes.c_char * nbytes).from_buffer(block, start)


def check_cluster(function: Function, grid: Dim3, cluster: Dim3) -> None:
    """Raise `LaunchError` where clusters do not tile the grid, or the device has none."""
    check_cluster_tiles(function.name, grid, cluster)
    if function.device.capability < (9, 0):
        raise LaunchError(
            f"kernel {function.name}: clusters {cluster} on {function.device.name}; needed compute "
            "capability 9.0"
        )


def launch(
    function: Function,
    grid: Dim3,
    block: Dim3,
    dynamic_smem: int,
    params: Sequence[tuple[ArgKind, Any]],
    stream: int = 0,
) -> None:
    """Launch once without keeping a record (tests and tools; programs keep a `LaunchRecord`)."""
    record = LaunchRecord(function, [kind for kind, _ in params], dynamic_smem)
    record.launch(grid, block, [value for _, value in params], stream)
