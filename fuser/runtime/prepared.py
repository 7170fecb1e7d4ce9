"""A program with its sizes bound, ready to launch: only addresses and scalars are still missing.

A launch takes a block of argument slots that no other launch is using, writes what varies with one
``struct`` call, and gives the driver what was made earlier: per kernel a launch config, a function
and the address of a ``void**`` array. Threads share nothing but the list of free blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fuser.core.dtypes import DataType
from fuser.kir.core import Kernel, ScalarParam, SizeParam, TensorMapParam, TensorParam
from fuser.kir.launch_limits import Dim3
from fuser.runtime.driver import Function, check, driver, is_current, on_device
from fuser.runtime.launch import (
    ArgKind,
    ArgumentSlots,
    launch_config,
    misfit,
    scalar_kind,
    slot_layout,
)
from fuser.runtime.plan import PlannedMap, map_argument
from fuser.runtime.tensor_map import encode_planned

_STREAMS_KEPT = 64
_MAPS_KEPT = 64

Slot: TypeAlias = tuple[str, ArgKind]
Call: TypeAlias = tuple[Any, Any, int, int]  # config, function, void** array, no extras


@dataclass(frozen=True, slots=True)
class Launch:
    """One loaded kernel with its extents."""

    kernel: Kernel
    function: Function
    grid: Dim3
    block: Dim3

    def config(self, stream: int) -> Any:
        """Return the driver's description of the launch."""
        smem, cluster = self.kernel.dynamic_shared_bytes, self.kernel.cluster
        return launch_config(self.function, self.grid, self.block, stream, smem, cluster)

    @property
    def slots(self) -> Iterator[Slot]:
        """Name and kind of each argument; of a tensor map, `map_argument`."""
        for param in self.kernel.params:
            match param:
                case TensorParam():
                    yield param.name, "pointer"
                case ScalarParam():
                    yield param.name, scalar_kind(param.dtype)
                case SizeParam():
                    yield param.name, self.kernel.index
                case TensorMapParam():
                    yield map_argument(self.kernel, param), "tensor_map"


@dataclass(slots=True)
class Block:
    """Argument slots of all kernels of a program, for one launch at a time.

    Attributes
    ----------
    arrays
        Addresses of the kernels' ``void**`` arrays.
    calls
        What the driver is given, per stream.
    values
        What the slots hold.
    """

    slots: ArgumentSlots
    arrays: tuple[int, ...]
    values: Sequence[Any] | None = None
    calls: dict[int, tuple[Call, ...]] = field(default_factory=dict[int, tuple[Call, ...]])


class Prepared:
    """The kernels of a program for one set of sizes on one GPU.

    Parameters
    ----------
    tensors
        Inputs and buffers, in the order in which `launch` is given their addresses.
    scalars
        In the order in which `launch` is given their values.
    sizes
        Values of size and stride variables.

    Raises
    ------
    LaunchError
        If a grid or block is out of range, or a size does not fit the index type.
    """

    def __init__(
        self,
        name: str,
        launches: Sequence[Launch],
        tensors: Sequence[str],
        scalars: Mapping[str, DataType],
        sizes: Mapping[str, int],
        maps: Sequence[PlannedMap],
        device_id: int,
    ) -> None:
        self.name, self.device_id = name, device_id
        self._launches = tuple(launches)
        self._maps = tuple((p, tensors.index(p.param.tensor)) for p in maps)
        self._encoded: dict[tuple[int, int], bytes] = {}
        self._has_scalars = bool(scalars)
        varying = [
            *(_slot(tensor, "pointer") for tensor in tensors),
            *(_slot(scalar, scalar_kind(dtype)) for scalar, dtype in scalars.items()),
            *(_slot(planned.argument, "tensor_map") for planned in maps),
        ]
        known = set(varying)
        used = dict.fromkeys(slot for launch in self._launches for slot in launch.slots)
        self._constants = tuple(slot for slot in used if slot not in known)
        self._sizes = tuple(sizes[name] for name, _ in self._constants)
        self._slots = (*varying, *self._constants)
        self._kinds: tuple[ArgKind, ...] = tuple(kind for _, kind in varying)
        self._pack = struct.Struct(slot_layout(self._kinds)[0]).pack_into
        self._launch = driver().cuLaunchKernelEx
        self._free = [self._new_block()]
        self._calls(self._free[0], 0)  # extents are checked before anything is launched

    def launch(self, values: Sequence[Any], stream: int) -> None:
        """Queue the kernels on `stream`.

        Parameters
        ----------
        values
            Addresses of the tensors, then what `scalar_value` makes of the scalars; not changed
            afterwards.

        Raises
        ------
        LaunchError
            If a value does not fit its slot or the driver refuses.
        """
        try:
            block = self._free.pop()
        except IndexError:  # as many launches at this moment as there are blocks
            block = self._new_block()
        if values != block.values or self._has_scalars:  # 0.0 == -0.0: compare addresses only
            self._fill(block, values)
        try:
            calls = block.calls[stream]
        except KeyError:
            calls = self._calls(block, stream)
        launch = self._launch
        for call in calls:
            # The driver copies the arguments before it returns, so the slots may be reused.
            answer = launch(*call)
            if answer[0]:
                self._launch_elsewhere(calls, call, stream, answer)
                break
        self._free.append(block)

    def _fill(self, block: Block, values: Sequence[Any]) -> None:
        maps = self._encode(values) if self._maps else ()
        block.values = None
        try:
            self._pack(block.slots.memory, 0, *values, *maps)
        except (struct.error, OverflowError) as error:
            raise misfit(f"program {self.name}", values, self._kinds, error) from error
        block.values = values

    def _launch_elsewhere(
        self, calls: tuple[Call, ...], refused: Call, stream: int, answer: tuple[Any]
    ) -> None:
        """Launch from `refused` on in the GPU's own context, unless it was refused there.

        Kernels belong to one context, and the driver refuses them in any other. So nobody has to
        ask which one is current before a launch.
        """
        first = calls.index(refused)
        if is_current(self.device_id):
            self._check(first, stream, answer)
        with on_device(self.device_id):
            for i in range(first, len(calls)):
                self._check(i, stream, self._launch(*calls[i]))

    def _check(self, i: int, stream: int, answer: tuple[Any]) -> None:
        launch = self._launches[i]
        what = f"kernel {launch.kernel.name}: grid {launch.grid}, block {launch.block}"
        check(answer, what if stream == 0 else f"{what}, stream {stream:#x}")

    def _encode(self, values: Sequence[int]) -> Iterator[bytes]:
        """Yield the tensor maps for tensors at `values`; allocators hand out addresses again."""
        for i, (planned, tensor) in enumerate(self._maps):
            key = i, values[tensor]
            encoded = self._encoded.get(key)
            if encoded is None:
                encoded = encode_planned(planned, values[tensor])
                if len(self._encoded) >= _MAPS_KEPT * len(self._maps):
                    self._encoded = {}
                self._encoded[key] = encoded
            yield encoded

    def _new_block(self) -> Block:
        slots = ArgumentSlots([kind for _, kind in self._slots])
        blank: list[Any] = [b"" if kind == "tensor_map" else 0 for kind in self._kinds]
        slots.pack(f"program {self.name}", (*blank, *self._sizes))
        place = {slot: i for i, slot in enumerate(self._slots)}
        arrays = (slots.array([place[s] for s in launch.slots]) for launch in self._launches)
        return Block(slots, tuple(arrays))

    def _calls(self, block: Block, stream: int) -> tuple[Call, ...]:
        """Make what the driver is given for `stream`; an explicit one may come and go."""
        if len(block.calls) >= _STREAMS_KEPT:
            block.calls.clear()
        pairs = zip(self._launches, block.arrays, strict=True)
        calls = tuple((x.config(stream), x.function.handle, array, 0) for x, array in pairs)
        block.calls[stream] = calls
        return calls


def _slot(name: str, kind: ArgKind) -> Slot:
    return name, kind
