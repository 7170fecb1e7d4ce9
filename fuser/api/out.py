"""Arrays of the caller that outputs go to: checked, then written by kernels or by a copy.

Kernels write where a buffer would lie just so: dense, aligned, and apart from every input. Into any
other array the finished output is copied, so that every read of an input comes before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from fuser.core.errors import InputError
from fuser.kir.program import Buffer, Program
from fuser.runtime.arrays import (
    ArrayView,
    may_overlap,
    repeats_elements,
    share_elements,
    view_of,
)
from fuser.runtime.copies import copy_on_device
from fuser.runtime.driver import on_device
from fuser.runtime.job import is_direct
from fuser.runtime.memory import allocating_on
from fuser.runtime.plan import Layout, Roles, layout_of


@dataclass(frozen=True, slots=True)
class Given:
    """The arrays of one call.

    Attributes
    ----------
    arrays, views
        In the order of the returned outputs.
    buffers
        The buffer that holds each output.
    """

    arrays: tuple[Any, ...]
    views: tuple[ArrayView, ...]
    buffers: tuple[str, ...]

    def direct(
        self, roles: Roles, env: Mapping[str, int], inputs: Mapping[str, ArrayView]
    ) -> dict[str, ArrayView]:
        """Return the arrays that kernels write, by buffer; those on a host are all copied to."""
        found: dict[str, ArrayView] = {}
        for name, view in zip(self.buffers, self.views, strict=True):
            buffer = roles.buffers[name]
            layout, place = layout_of(buffer, env), ("cuda", view.device_id)
            if name in found or not is_direct(
                view, buffer.dtype, layout, place, roles.aligned[name]
            ):
                continue
            others = (*inputs.values(), *found.values())
            if not any(may_overlap(view, other) for other in others):
                found[name] = view
        return found

    def receive(self, results: Mapping[str, ArrayView], stream: int = 0) -> list[Any]:
        """Copy the outputs that lie elsewhere, in the order of `stream`; return the arrays."""
        for i, (name, view) in enumerate(zip(self.buffers, self.views, strict=True)):
            result = results[name]
            if result is not view:
                write_into(view, result, stream, f"out[{i}] ({name})")
        return list(self.arrays)


def given_outputs(
    program: Program,
    arrays: Sequence[Any],
    env: Mapping[str, int],
    inputs: Mapping[str, ArrayView],
    written: frozenset[str],
) -> Given:
    """Check the arrays that a caller gives for the outputs.

    Parameters
    ----------
    written
        Inputs that other outputs are written into.

    Raises
    ------
    InputError
        Their number, or a dtype, shape or place is not that of the output; or one is read-only,
        repeats elements, or shares memory with an input of `written` or elements with another.
    """
    names = tuple(output.buffer for output in program.outputs if output.returned)
    if len(arrays) != len(names):
        raise InputError(
            f"out: got {len(arrays)} arrays; the fusion returns {len(names)}: {', '.join(names)}"
        )
    buffers = {buffer.name: buffer for buffer in program.buffers}
    first = next(iter(inputs.values()), None)
    place = (first.device, first.device_id) if first else ("cpu", 0)
    views: list[ArrayView] = []
    for i, (name, array) in enumerate(zip(names, arrays, strict=True)):
        what = f"out[{i}] ({name})"
        view = view_of(array, what=what)
        _check_like(what, view, buffers[name], layout_of(buffers[name], env), place)
        for other in written:
            if may_overlap(view, inputs[other]):
                raise InputError(
                    f"{what}: shares memory with input {other}, which another output is written "
                    "into; memory of its own is needed"
                )
        views.append(view)
    _check_apart(views, names)
    return Given(tuple(arrays), tuple(views), names)


def _check_like(
    what: str, view: ArrayView, buffer: Buffer, layout: Layout, place: tuple[str, int]
) -> None:
    if view.readonly or repeats_elements(view):
        raise InputError(
            f"{what}: {'is read-only' if view.readonly else 'repeats elements'}; a writable array "
            "is needed in which every element has a place of its own"
        )
    found = (view.dtype, view.shape, view.device, view.device_id)
    if found != (buffer.dtype, layout.shape, *place):
        raise InputError(
            f"{what}: is {view.dtype.name}{list(view.shape)} on {view.device}:{view.device_id}; "
            f"{buffer.dtype.name}{list(layout.shape)} on {place[0]}:{place[1]} is needed"
        )


def _check_apart(views: Sequence[ArrayView], names: Sequence[str]) -> None:
    """Refuse arrays in which one output would overwrite another.

    An output that is returned twice may be given one array for both.
    """
    given = [*enumerate(zip(names, views, strict=True))]
    for (i, (name, view)), (j, (other, its_view)) in combinations(given, 2):
        is_same = name == other and _place_of(view) == _place_of(its_view)
        if not is_same and share_elements(view, its_view):
            raise InputError(
                f"out[{i}] ({name}) and out[{j}] ({other}): share memory; an element of its own is "
                "needed for each element of an output"
            )


def check_written_apart(written: Collection[str | None], inputs: Mapping[str, ArrayView]) -> None:
    """Refuse a call in which two outputs are written into the same elements of inputs.

    Raises
    ------
    InputError
        Two inputs of `written` share an element: the later output would overwrite the earlier.
    """
    views = [(name, view) for name, view in inputs.items() if name in written]
    for (name, view), (other, its_view) in combinations(views, 2):
        if share_elements(view, its_view):
            raise InputError(
                f"inputs {name} and {other}: share memory, and an output is written into each; an "
                "element of its own is needed for each element of an output"
            )


def _place_of(view: ArrayView) -> tuple[int, tuple[int, ...]]:
    return view.pointer, view.strides_elems


def write_into(view: ArrayView, result: ArrayView, stream: int, what: str) -> None:
    """Copy a finished output into the array of the caller, in the order of `stream`."""
    if view.device == "cpu":
        view.numpy()[...] = result.numpy()
    elif view.kind == result.kind and view.kind in ("torch", "cupy"):
        with allocating_on(view.kind, view.device_id, stream):
            if view.kind == "torch":
                view.owner.copy_(result.owner)
            else:
                view.owner[...] = result.owner
    else:
        with on_device(view.device_id):
            copy_on_device(view, result, stream, what)
