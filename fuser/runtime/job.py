"""One run of a program: buffers made, kernels queued, results handed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from fuser.core.dtypes import DataType
from fuser.core.errors import InputError
from fuser.kir.program import Buffer
from fuser.runtime.arrays import ArrayKind, ArrayView, may_overlap
from fuser.runtime.copies import copy_on_device, fetch, stage_in, zero
from fuser.runtime.counters import Counters
from fuser.runtime.driver import synchronize
from fuser.runtime.memory import Scratch, allocate, allocating_on, deliver
from fuser.runtime.plan import Layout, Plan, Roles
from fuser.runtime.prepared import Prepared

Arrays: TypeAlias = dict[str, tuple[Any, ArrayView]]


@dataclass(frozen=True, slots=True)
class Bound:
    """A program for one set of sizes on one GPU.

    Attributes
    ----------
    tensors
        Inputs, returned buffers, temporaries: the order in which `prepared` takes addresses.
    """

    plan: Plan
    prepared: Prepared
    counters: Counters
    tensors: tuple[str, ...]


class Job:
    """One call of `CudaProgram.run`, in the context of its GPU."""

    def __init__(
        self, roles: Roles, bound: Bound, numbers: tuple[Any, ...], device_id: int
    ) -> None:
        self.roles = roles
        self.bound = bound
        self.plan = bound.plan
        self.numbers = numbers
        self.device_id = device_id

    def run_on_device(
        self,
        tensors: Mapping[str, ArrayView],
        outputs: Mapping[str, ArrayView],
        kind: ArrayKind,
        stream: int,
    ) -> Arrays:
        """Run on arrays in device memory; outputs are made by the library `kind`."""
        roles = self.roles
        pooled: ArrayKind | None = kind if kind in ("torch", "cupy") else None
        made: Arrays = {}
        temporaries: list[Any] = []  # kept until the launches are queued
        with (
            Scratch(self.device_id, stream) as scratch,
            allocating_on(kind, self.device_id, stream),
        ):
            views = dict(tensors)
            for name, buffer in roles.buffers.items():
                layout = self.plan.layouts[name]
                if name in roles.returned:
                    made[name] = self._output(buffer, layout, outputs.get(name), kind)
                    views[name] = made[name][1]
                elif pooled:
                    numel = layout.capacity
                    flat = allocate(pooled, (numel,), (1,), buffer.dtype, self.device_id)
                    temporaries.append(flat)
                    views[name] = replace(flat[1], shape=layout.shape, strides_elems=layout.strides)
                else:
                    views[name] = _scratch_view(scratch, layout, buffer.dtype)
            self._queue(views, stream, kind)
        return {name: (deliver(array, kind), view) for name, (array, view) in made.items()}

    def run_on_host(
        self,
        tensors: Mapping[str, ArrayView],
        outputs: Mapping[str, ArrayView],
        kind: ArrayKind,
        stream: int,
    ) -> Arrays:
        """Run on copies of host arrays; results are copied back when everything has run."""
        roles = self.roles
        with Scratch(self.device_id, stream) as scratch:
            views = {
                name: stage_in(view, scratch, f"input {name}") for name, view in tensors.items()
            }
            for name, buffer in roles.buffers.items():
                views[name] = _scratch_view(scratch, self.plan.layouts[name], buffer.dtype)
            self._queue(views, stream, "numpy")
            changed = roles.changed & set(tensors)
            results = {
                name: fetch(views[name], stream, f"output {name}")
                for name in (*roles.returned, *changed)
            }
            synchronize(stream)
        made: Arrays = {}
        for name in roles.returned:
            layout, buffer = self.plan.layouts[name], roles.buffers[name]
            array, view = self._output(buffer, layout, outputs.get(name), kind, on_host=True)
            view.numpy()[...] = results[name]
            made[name] = deliver(array, kind), view
        for name in changed:
            tensors[name].numpy()[...] = results[name]
        return made

    def _output(
        self,
        buffer: Buffer,
        layout: Layout,
        given: ArrayView | None,
        kind: ArrayKind,
        on_host: bool = False,
    ) -> tuple[Any, ArrayView]:
        if given is not None:
            return given.owner, given
        place = "cpu" if on_host else self.device_id
        return allocate(kind, layout.shape, layout.strides, buffer.dtype, place)

    def check_outputs(
        self, outputs: Mapping[str, ArrayView], tensors: Mapping[str, ArrayView], on_host: bool
    ) -> None:
        """Raise `InputError` for a given output of another layout, or one that an input shares."""
        for name, given in outputs.items():
            if name not in self.roles.returned:
                raise InputError(f"output {name}: unknown; needed one of {self.roles.returned}")
            layout, dtype = self.plan.layouts[name], self.roles.buffers[name].dtype
            place = ("cpu", 0) if on_host else ("cuda", self.device_id)
            aligned = 1 if on_host else self.roles.aligned[name]
            if not is_direct(given, dtype, layout, place, aligned):
                raise InputError(
                    f"output {name}: {'read-only ' if given.readonly else ''}{given.dtype.short}"
                    f"{list(given.shape)} with strides {given.strides_elems} on "
                    f"{given.device}:{given.device_id}, address {given.pointer:#x}; needed a "
                    f"writable {dtype.short}{list(layout.shape)} with strides {layout.strides} on "
                    f"{place[0]}:{place[1]}, address a multiple of {aligned}"
                )
            for other, view in tensors.items():
                if may_overlap(given, view):
                    raise InputError(
                        f"output {name}: shares memory with input {other}; needed memory of its own"
                    )

    def _queue(self, views: Mapping[str, ArrayView], stream: int, kind: ArrayKind) -> None:
        """Provide zeros, launch the kernels in order, then copy into aliased inputs."""
        roles = self.roles
        addresses = {name: view.pointer for name, view in views.items()}
        for name, buffer in roles.buffers.items():
            if not buffer.zeroed:
                continue
            nbytes = self.plan.layouts[name].numel * buffer.dtype.nbytes
            kept = self.bound.counters.address(name, nbytes, kind, stream)
            if kept is None:
                zero(addresses[name], nbytes, stream, f"buffer {name}")
            else:
                addresses[name] = kept
        values = (addresses[name] for name in self.bound.tensors)
        self.bound.prepared.launch((*values, *self.numbers), stream)
        for source, target in roles.copies:
            what = f"output {source} into input {target}"
            copy_on_device(views[target], views[source], stream, what)


def _scratch_view(scratch: Scratch, layout: Layout, dtype: DataType) -> ArrayView:
    return scratch.view(layout.shape, layout.strides, layout.capacity, dtype)


def is_direct(
    given: ArrayView, dtype: DataType, layout: Layout, place: tuple[str, int], aligned: int
) -> bool:
    """Return whether kernels can write a buffer into `given`, laid out and aligned like it."""
    found = (given.dtype, given.shape, given.device, given.device_id)
    return (
        found == (dtype, layout.shape, *place)
        and all(
            have == want or n == 1
            for n, have, want in zip(layout.shape, given.strides_elems, layout.strides, strict=True)
        )
        and not given.readonly
        and (given.pointer % aligned == 0 or given.size == 0)
    )
