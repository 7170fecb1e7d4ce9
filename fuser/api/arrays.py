"""What a definition reads of an example array of any library: dtype, extents, strides."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from fuser.api.layout import layout_from_strides
from fuser.core.dtypes import DataType
from fuser.core.errors import DefinitionError
from fuser.core.location import caller_location

_BY_NAME = {d.np.name: d for d in DataType}


@dataclass(frozen=True, slots=True)
class ArrayKind:
    """Dtype, extents and strides, in elements, of one array."""

    dtype: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def key(self) -> Hashable:
        """Equal for arrays that share a trace: extents count only where they are 1."""
        ones = tuple(n == 1 for n in self.sizes)
        return self.dtype, ones, layout_from_strides(self.sizes, self.strides, False)


def array_kind(array: Any) -> ArrayKind:
    """Describe an array with NumPy's or torch's attributes; raise on anything else."""
    if not (hasattr(array, "dtype") and hasattr(array, "shape")):
        raise DefinitionError(
            f"array: got {array!r}, a {type(array).__name__}; needed an array with a dtype and a "
            "shape, of NumPy, torch, cupy, jax or numba",
            caller_location(),
        )
    name = str(array.dtype).rpartition(".")[2]
    dtype = _BY_NAME.get(name)
    if dtype is None:
        known = ", ".join(_BY_NAME)
        raise DefinitionError(
            f"array: dtype {name} is not supported; use {known}", caller_location()
        )
    sizes = tuple(int(n) for n in array.shape)
    if callable(getattr(array, "stride", None)):
        return ArrayKind(dtype, sizes, tuple(int(s) for s in array.stride()))
    strides = getattr(array, "strides", None)
    if strides is None:
        return ArrayKind(dtype, sizes, row_major(sizes))
    return ArrayKind(dtype, sizes, tuple(int(s) // dtype.nbytes for s in strides))


def row_major(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a contiguous array."""
    strides: list[int] = []
    step = 1
    for n in reversed(sizes):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))
