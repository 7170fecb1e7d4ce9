"""Tell the user, once for each shape class, that inputs made a run slower than its schedule."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from fuser.core.errors import FallbackWarning
from fuser.core.location import caller_location
from fuser.kir.fallback import Fallback
from fuser.kir.program import Program
from fuser.runtime.arrays import ArrayView


def tell_fallbacks(
    program: Program, views: Mapping[str, ArrayView], values: Mapping[str, int]
) -> None:
    """Warn, at the line that runs the fusion, of every copy that is not made as asked.

    Parameters
    ----------
    values
        Sizes and strides of the call, in elements.
    """
    where = caller_location()
    for kernel in program.kernels:
        for fallback in kernel.fallbacks:
            text = fallback_text(fallback, views, values)
            if where is None:
                warnings.warn(text, FallbackWarning, stacklevel=1)
            else:  # without a registry: how often it is said is not a matter of the line
                warnings.warn_explicit(text, FallbackWarning, where.file, where.line)


def fallback_text(
    fallback: Fallback, views: Mapping[str, ArrayView], values: Mapping[str, int]
) -> str:
    """Return what was found, what it costs and what to do."""
    obstacle, view = fallback.obstacle, views.get(fallback.source)
    if fallback.is_store:
        return (
            f"{fallback.tensor}: threads store it, element by element, and not TMA, because "
            f"{obstacle.text(values)}. Results are the same, but stores are slower; "
            f"{obstacle.cure}, or store it yourself with LoadStoreOpType.set"
        )
    found = "" if view is None else f" ({_seen(view)})"
    other = ", or choose the threads' copies yourself with LoadStoreOpType.cp_async"
    return (
        f"{fallback.tensor}: threads copy it, element by element, and not TMA, because "
        f"{obstacle.text(values)}{found}. Results are the same, but loads are slower and take "
        f"registers and issue slots from the computation; {obstacle.cure}"
        f"{'' if fallback.is_operand else other}"
    )


def _seen(view: ArrayView) -> str:
    return (
        f"shape {list(view.shape)}, strides {list(view.strides_elems)}, "
        f"{view.dtype.nbytes} bytes an element, address % 16 = {view.pointer % 16}"
    )
