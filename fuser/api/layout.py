"""Layout promises of input tensors: contiguity, stride order, and both from example strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.core.errors import DefinitionError
from fuser.core.expr import ONE, Expr
from fuser.fusion.attrs import InputAttrs


def layout_from_promise(
    shape: Sequence[Expr], contiguity: Any, stride_order: Sequence[int], is_cpu: bool
) -> InputAttrs:
    """Return the layout of ``define_tensor(shape, contiguity, stride_order=...)``.

    `contiguity` is one bool for all dimensions or one entry per dimension *in memory order*,
    outermost first; the record is per logical dimension. ``None`` next to an extent other than 1
    marks an expanded dimension (stride 0).
    """
    rank = len(shape)
    order = tuple(stride_order) or tuple(range(rank))[::-1]
    if sorted(order) != list(range(rank)):
        raise DefinitionError(
            f"define_tensor: stride_order is {list(stride_order)}; the positions 0 to {rank - 1} "
            "counted from the innermost dimension are needed"
        )
    in_memory = sorted(range(rank), key=lambda d: -order[d])
    if isinstance(contiguity, bool):
        listed = [None if shape[d] == ONE else contiguity for d in in_memory]
    else:
        listed = list(contiguity)
    if len(listed) != rank or not all(c is None or isinstance(c, bool) for c in listed):
        raise DefinitionError(
            f"define_tensor: contiguity is {contiguity!r}; True, False or None for each of the "
            f"{rank} dimensions is needed"
        )
    for c, d in zip(listed, in_memory, strict=True):
        if c is not None and shape[d] == ONE:
            raise DefinitionError(
                f"define_tensor: contiguity of dimension {d} is {c} and its extent is 1; None is "
                "needed for broadcast dimensions"
            )
    return _attrs(shape, dict(zip(in_memory, listed, strict=True)), order, is_cpu)


def layout_from_strides(sizes: Sequence[int], strides: Sequence[int], is_cpu: bool) -> InputAttrs:
    """Return the layout that an example with these sizes and strides (in elements) has."""
    if len(sizes) != len(strides):
        raise DefinitionError(
            f"define_tensor: {len(sizes)} sizes and {len(strides)} strides; one stride per size "
            "is needed"
        )
    rank = len(sizes)
    inward = inner_to_outer(sizes, strides, range(rank))
    order = [0] * rank
    contiguity: dict[int, bool | None] = {}
    expected = 1
    for position, d in enumerate(inward):
        order[d] = position
        if sizes[d] == 1 or strides[d] == 0:
            contiguity[d] = None
            continue
        contiguity[d] = strides[d] == expected
        expected = strides[d] * sizes[d]
    shape: list[Any] = list(sizes)
    return _attrs(shape, contiguity, tuple(order), is_cpu)


def inner_to_outer(
    sizes: Sequence[int], strides: Sequence[int], declared: Sequence[int]
) -> list[int]:
    """Order dimensions by stride; those without a meaningful stride stay where they are.

    Parameters
    ----------
    declared
        The dimensions where they are, outermost first.
    """
    result: list[int] = []
    for d in reversed(declared):
        at = len(result)
        if sizes[d] != 1 and strides[d] != 0:
            for i in reversed(range(len(result))):
                other = result[i]
                if sizes[other] != 1 and abs(strides[other]) > abs(strides[d]):
                    at = i
        result.insert(at, d)
    return result


def _attrs(
    shape: Sequence[Any],
    contiguity: dict[int, bool | None],
    order: tuple[int, ...],
    is_cpu: bool,
) -> InputAttrs:
    per_dim = tuple(contiguity[d] for d in range(len(shape)))
    expanded = tuple(
        c is None and extent not in (1, ONE) for c, extent in zip(per_dim, shape, strict=True)
    )
    return InputAttrs(per_dim, order, is_cpu, expanded)
