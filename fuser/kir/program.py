"""A fusion lowered for one shape class: kernels in order and the buffers between them."""

from __future__ import annotations

from dataclasses import dataclass

from fuser.core.boundary import Boundary
from fuser.core.dtypes import DataType
from fuser.core.expr import Expr
from fuser.kir.core import Kernel


@dataclass(frozen=True, slots=True)
class Buffer:
    """Global memory that the launch provides: an output or a temporary.

    Attributes
    ----------
    shape, strides
        Extents and strides in elements over size variables.
    numel
        Elements to allocate (0 when any extent is 0).
    zeroed
        Must be all-zero before the first kernel (grid-reduction counters).
    """

    name: str
    dtype: DataType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    numel: Expr
    zeroed: bool = False


@dataclass(frozen=True, slots=True)
class OutputBinding:
    """What the caller receives for one ``add_output``.

    Attributes
    ----------
    buffer
        Name of a buffer, or of an input that is returned as it is.
    copy_into
        Input that receives a copy of the buffer after the last kernel (in-place alias whose
        input is still read by other threads while it is written).
    returned
        Whether ``execute`` returns it (aliased outputs are not returned).
    """

    buffer: str
    copy_into: str | None = None
    returned: bool = True


@dataclass(frozen=True, slots=True)
class Program:
    """Everything needed to run a fusion once sizes are bound.

    A kernel's tensor parameter names an input tensor or a buffer of the program.

    Attributes
    ----------
    boundaries
        Sizes between which recipes choose these schedules; others run right, but maybe slowly.
    """

    name: str
    inputs: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    outputs: tuple[OutputBinding, ...]
    boundaries: tuple[Boundary, ...] = ()
