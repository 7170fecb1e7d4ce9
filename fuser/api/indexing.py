"""NumPy basic indexing taken apart: slices per dimension, dimensions dropped and inserted."""

from __future__ import annotations

from dataclasses import dataclass
from types import EllipsisType
from typing import Any, cast

import numpy as np

from fuser.api.tensor import Scalar
from fuser.core.errors import DefinitionError
from fuser.fusion.graph import Value


@dataclass(frozen=True, slots=True)
class Selection:
    """What an index asks for.

    Attributes
    ----------
    slices
        One slice or integer per dimension; ``None`` when every dimension is taken whole.
    squeezed
        Dimensions indexed by an integer.
    inserted
        Per output dimension whether it is new.
    """

    slices: tuple[Any, ...] | None
    squeezed: tuple[int, ...]
    inserted: tuple[bool, ...]


def parse_index(value: Value, index: Any) -> Selection:
    """Take `index` into `value` apart; raise `DefinitionError` on what is not basic indexing."""
    parts: list[Any] = list(cast("Any", index)) if isinstance(index, tuple) else [index]
    for part in parts:
        if isinstance(part, bool) or not isinstance(
            part, int | np.integer | slice | EllipsisType | Scalar | None
        ):
            raise DefinitionError(
                f"index into {value.name}: {part!r} is no basic index; ints, slices, None and ... "
                "are needed"
            )
    consumed = sum(part is not None and part is not Ellipsis for part in parts)
    ellipses = [i for i, part in enumerate(parts) if part is Ellipsis]
    if consumed > value.rank or len(ellipses) > 1:
        raise DefinitionError(
            f"index into {value.name}: {consumed} indices and {len(ellipses)} ellipses; at most "
            f"{value.rank} and 1 are needed"
        )
    at = ellipses[0] if ellipses else len(parts)
    whole: list[Any] = [slice(None)] * (value.rank - consumed)
    parts = [*parts[:at], *whole, *parts[at + 1 :]]
    taken = tuple(part for part in parts if part is not None)
    squeezed = tuple(d for d, part in enumerate(taken) if not isinstance(part, slice))
    untouched = all(_is_whole(part) for part in taken if isinstance(part, slice))
    return Selection(
        None if untouched and not squeezed else taken,
        squeezed,
        tuple(part is None for part in parts if part is None or isinstance(part, slice)),
    )


def _is_whole(part: Any) -> bool:
    """Whether a slice is ``:``; not by ``==``, which a scalar in it would turn into an op."""
    return part.start is None and part.stop is None and part.step is None
