"""How the matrix runs on a GPU: by NumPy arrays or torch tensors, into poisoned memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from fuser.api.definition import FusionDefinition
from fuser.api.known_calls import KnownCalls
from fuser.core.dtypes import DataType
from fuser.runtime import job, memory
from fuser.runtime.arrays import torch_dtype, view_of
from fuser.runtime.driver import driver
from matrix.arrays import spanned_bytes

POISON = 0xFF  # NaN in every float type, and no bool
SAME_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def run_on_numpy(fd: FusionDefinition, inputs: Sequence[Any]) -> list[np.ndarray]:
    """Host arrays in and out; strides stay what they are on the way to the GPU."""
    return fd.execute(inputs, backend="cuda")


def run_by_hand_on_numpy(fd: FusionDefinition, inputs: Sequence[Any]) -> list[np.ndarray]:
    """As `run_on_numpy`, by the schedule that the definition was given."""
    return fd.manual_execute(inputs, backend="cuda")


def run_by_hand_on_torch(fd: FusionDefinition, inputs: Sequence[Any]) -> list[np.ndarray]:
    """As `run_on_torch`, by the schedule that the definition was given."""
    return run_on_torch(fd, inputs, by_hand=True)


def run_on_torch(
    fd: FusionDefinition, inputs: Sequence[Any], by_hand: bool = False
) -> list[np.ndarray]:
    """CUDA tensors of the same layout; inputs that are written in place are copied back."""
    placed = {i: to_torch(x) for i, x in enumerate(inputs) if isinstance(x, np.ndarray)}
    given = [placed.get(i, x) for i, x in enumerate(inputs)]
    run = fd.manual_execute if by_hand else fd.execute
    outputs = [to_numpy(y) for y in run(given, backend="cuda")]
    written = {o.alias_of for o in fd.fusion.outputs}
    for i, argument in enumerate(fd.arguments):
        if getattr(argument, "name", None) in written:
            inputs[i][...] = to_numpy(placed[i])
    return outputs


def to_torch(x: np.ndarray) -> Any:
    """A CUDA tensor with the elements, strides and address modulo 16 of `x`."""
    import torch

    view = view_of(x)
    kind = torch_dtype(view.dtype)
    if not x.size:
        return torch.empty(x.shape, dtype=kind, device="cuda")
    front, memory = view.pointer % 16, spanned_bytes(x)
    device = torch.full((front + memory.size,), POISON, dtype=torch.uint8, device="cuda")
    device[front:] = torch.from_numpy(memory.copy()).cuda()
    flat = device[front:].view(kind)
    return torch.as_strided(flat, x.shape, view.strides_elems, flat.storage_offset())


def to_numpy(y: Any) -> np.ndarray:
    """The elements of a tensor in the NumPy dtype of the same bits.

    A fusion without tensor inputs returns NumPy arrays, having no other library to follow.
    """
    if isinstance(y, np.ndarray):
        return y
    import torch

    dtype = view_of(y).dtype
    bits = y.contiguous().view(getattr(torch, SAME_BITS[dtype.nbytes]))
    return bits.cpu().numpy().view(dtype.np)


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fill all memory that a run allocates with `POISON` before a kernel sees it."""
    scratch, allocate = memory.Scratch.allocate, memory.allocate

    def poisoned_scratch(self: Any, nbytes: int) -> int:
        pointer = scratch(self, nbytes)
        if pointer:
            driver().cuMemsetD8Async(pointer, POISON, nbytes, self.stream)
        return pointer

    def poisoned_array(kind_of: Any, shape: Any, strides: Any, dtype: DataType, *rest: Any) -> Any:
        array, view = allocate(kind_of, shape, strides, dtype, *rest)
        if view.kind == "torch" and view.size:
            import torch

            array.view(getattr(torch, SAME_BITS[dtype.nbytes])).fill_(
                POISON if dtype.nbytes == 1 else -1
            )
        return array, view

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory.Scratch, "allocate", poisoned_scratch)
        patch.setattr(job, "allocate", poisoned_array)
        patch.setattr(KnownCalls, "run", lambda *_: None)  # they allocate by torch itself
        yield
