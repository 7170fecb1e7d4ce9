"""Calls on torch tensors of layouts that were bound before: only addresses are new."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from fuser.core.errors import LaunchError
from fuser.runtime.arrays import ArrayView, torch_dtype
from fuser.runtime.copies import copy_on_device, zero
from fuser.runtime.driver import on_device
from fuser.runtime.executor import CudaProgram
from fuser.runtime.job import Bound
from fuser.runtime.memory import allocating_on, stream_handle

Signature: TypeAlias = tuple[Any, ...]  # dtype, shape, strides, device
Recipe: TypeAlias = tuple[int | None, Any, Any, Any]  # like which input; shape, strides, dtype
Guard: TypeAlias = Callable[..., bool]

GUARDED_RELEASES = ("2.11.",)
"""Releases of torch whose `TensorGuards`, which no documentation promises, are known."""


def signature_of(tensor: Any) -> Signature:
    """Return all that a kernel may depend on but the address.

    Raises
    ------
    TypeError
        The tensor is a lazily negated view, of which the memory holds something else.
    """
    if tensor.is_neg():
        raise TypeError("negated")
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.device


def never(*_: Any) -> bool:
    """Return False: a guard that lets nothing pass."""
    return False


def guard_of(tensors: Sequence[Any]) -> Guard:
    """Return a fast test of whether as many tensors have the signatures of `tensors`.

    False does not say that they have not: torch compares more, such as whether they require
    gradients, and `never` is all there is for tensors of other classes and other releases.
    """
    torch = sys.modules["torch"]
    known = (torch.Tensor, torch.nn.Parameter)
    if not torch.__version__.startswith(GUARDED_RELEASES) or any(
        type(tensor) not in known for tensor in tensors
    ):
        return never
    guards = torch._C._dynamo.guards.TensorGuards(
        *tensors,
        dynamic_dims_sizes=[list(tensor.shape) for tensor in tensors],
        dynamic_dims_strides=[list(tensor.stride()) for tensor in tensors],
    )
    check: Guard = guards.check
    return check


class TorchCall:
    """One program bound to the layouts of its tensors, on one GPU.

    Parameters
    ----------
    views
        The input tensors of a call with these layouts.
    scalars
        Of the same call; `run` is given those that may change.

    Attributes
    ----------
    launch
        `Prepared.launch`.
    current
        Returns torch's current stream of a GPU.
    is_short
        Whether all there is to do is to make one output, or to be given it, and to launch.
    """

    def __init__(
        self, binary: CudaProgram, bound: Bound, views: Mapping[str, ArrayView],
        scalars: Mapping[str, Any],
    ) -> None:  # fmt: skip
        torch = sys.modules["torch"]
        self._roles, self._bound = binary.roles, bound
        self._views = {name: replace(view, owner=None) for name, view in views.items()}
        self._numbers = binary.numbers
        self._scalars = dict(scalars) if binary.scalars else dict[str, Any]()
        first = next(iter(views.values()))
        self.device_id, self._device = first.device_id, first.owner.device
        self.current = torch._C._cuda_getCurrentRawStream
        self._empty_like, self._empty = torch.empty_like, torch.empty_strided
        self.launch = bound.prepared.launch
        self._simple = not (self._roles.temporary or self._roles.copies)
        returned = self._roles.returned
        self._made = tuple(self._recipe(name, views) for name in returned)
        names = tuple(o.buffer for o in binary.program.outputs if o.returned)
        self.is_short = self._simple and len(names) == 1 and not self._scalars
        self._like = self._made[0][0] if self._made else None
        self._again = None if names == returned else tuple(returned.index(n) for n in names)

    def _recipe(
        self, name: str, views: Mapping[str, ArrayView]
    ) -> tuple[int | None, Any, Any, Any]:
        """Return how a buffer is made: like an input, the cheapest way, where one is like it."""
        layout, dtype = self._bound.plan.layouts[name], self._roles.buffers[name].dtype
        wanted = layout.shape, layout.strides, dtype
        same = (
            i
            for i, view in enumerate(views.values())
            if (view.shape, view.strides_elems, view.dtype) == wanted
        )
        return next(same, None), layout.shape, layout.strides, torch_dtype(dtype)

    def run(
        self,
        tensors: Sequence[Any],
        addresses: Sequence[int],
        outs: Sequence[Any] | None,
        scalars: Mapping[str, Any],
        stream: Any,
    ) -> Sequence[Any]:
        """Queue the kernels and return what the caller receives.

        Parameters
        ----------
        tensors, addresses
            Inputs; the addresses of `outs` behind theirs.
        outs
            Buffers to write to; new ones by default.
        """
        numbers: tuple[Any, ...] = ()
        if self._scalars:
            numbers = self._numbers({**self._scalars, **scalars})
        if stream is not None:
            return self._run_on(stream_handle(stream), tensors, addresses, outs, numbers)
        queue = self.current(self.device_id)
        if not self._simple:
            return self._run_all(tensors, addresses, outs, numbers, queue)
        if outs is None:
            outs = self._make(tensors)
            addresses = (*addresses, *[out.data_ptr() for out in outs])
        self.launch((*addresses, *numbers), queue)
        return outs if self._again is None else [outs[i] for i in self._again]

    def run_short(self, tensors: Sequence[Any], addresses: tuple[int, ...]) -> Any:
        """Do what `run` does when `is_short`, into a new array, and return it."""
        like = self._like
        out = self._make(tensors)[0] if like is None else self._empty_like(tensors[like])
        self.launch((*addresses, out.data_ptr()), self.current(self.device_id))
        return out

    def _make(self, tensors: Sequence[Any]) -> list[Any]:
        device = self._device
        return [
            self._empty(shape, strides, dtype=dtype, device=device)
            if like is None
            else self._empty_like(tensors[like])
            for like, shape, strides, dtype in self._made
        ]

    def _run_on(
        self,
        queue: int,
        tensors: Sequence[Any],
        addresses: Sequence[int],
        outs: Sequence[Any] | None,
        numbers: tuple[Any, ...],
    ) -> Sequence[Any]:
        """Run on a stream that need not be torch's current one."""
        with allocating_on("torch", self.device_id, queue):
            return self._run_all(tensors, addresses, outs, numbers, queue)

    def _run_all(
        self,
        tensors: Sequence[Any],
        addresses: Sequence[int],
        outs: Sequence[Any] | None,
        numbers: tuple[Any, ...],
        queue: int,
    ) -> Sequence[Any]:
        """Run with temporaries, counters and copies into aliased inputs."""
        bound, roles = self._bound, self._roles
        if outs is None:
            outs = self._make(tensors)
            addresses = (*addresses, *[out.data_ptr() for out in outs])
        kept: list[Any] = []  # until the launches are queued
        with on_device(self.device_id):
            places = [*addresses, *(self._temporary(name, queue, kept) for name in roles.temporary)]
            try:
                self.launch((*places, *numbers), queue)
            except LaunchError:
                bound.counters.forget()
                raise
            at = dict(zip(bound.tensors, places, strict=True))
            for source, target in roles.copies:
                self._copy(source, target, at, queue)
        return outs if self._again is None else [outs[i] for i in self._again]

    def _temporary(self, name: str, queue: int, kept: list[Any]) -> int:
        """Return the address of a temporary buffer, zeroed where it has to be."""
        layout, buffer = self._bound.plan.layouts[name], self._roles.buffers[name]
        nbytes = layout.numel * buffer.dtype.nbytes
        if buffer.zeroed:
            counter = self._bound.counters.address(name, nbytes, "torch", queue)
            if counter is not None:
                return counter
        dtype = torch_dtype(buffer.dtype)
        made = self._empty((layout.capacity,), (1,), dtype=dtype, device=self._device)
        kept.append(made)
        address = int(made.data_ptr())
        if buffer.zeroed:
            zero(address, nbytes, queue, f"buffer {name}")
        return address

    def _copy(self, source: str, target: str, at: Mapping[str, int], queue: int) -> None:
        layout, into = self._bound.plan.layouts[source], self._views[target]
        view = replace(
            into, pointer=at[source], shape=layout.shape, strides_elems=layout.strides,
            dtype=self._roles.buffers[source].dtype,
        )  # fmt: skip
        what = f"output {source} into input {target}"
        copy_on_device(replace(into, pointer=at[target]), view, queue, what)
