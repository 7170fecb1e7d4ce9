"""Check the layout promises of a definition against the arrays of a call."""

from __future__ import annotations

from collections.abc import Mapping

from fuser.core.errors import InputError
from fuser.fusion.attrs import InputAttrs
from fuser.fusion.graph import FusionGraph
from fuser.runtime.arrays import ArrayView


def check_contiguity(graph: FusionGraph, views: Mapping[str, ArrayView]) -> None:
    """Raise `InputError` when an input is not as contiguous as its definition promises.

    A dimension promised contiguous has the stride of the next inner dimension times its extent, or
    1 if it is the innermost. Dimensions of extent 1 have no stride to speak of, and arrays without
    elements none at all.
    """
    for name, view in views.items():
        attrs = graph.value(name).attrs
        if not isinstance(attrs, InputAttrs) or 0 in view.shape:
            continue
        expected = 1
        for d in reversed(attrs.outer_to_inner):
            promised, extent, stride = attrs.contiguity[d], view.shape[d], view.strides_elems[d]
            if promised is None or extent == 1:
                continue
            if promised and stride != expected:
                raise InputError(
                    f"input {name}: stride of dimension {d} is {stride} elements; the definition "
                    f"promises a contiguous dimension, which needs {expected}"
                )
            expected = stride * extent
        _check_expanded(name, attrs, view)


def _check_expanded(name: str, attrs: InputAttrs, view: ArrayView) -> None:
    for d, expanded in enumerate(attrs.expanded):
        if expanded and view.shape[d] > 1 and view.strides_elems[d] != 0:
            raise InputError(
                f"input {name}: stride of dimension {d} is {view.strides_elems[d]} elements; the "
                "definition promises an expanded dimension, which needs 0"
            )
