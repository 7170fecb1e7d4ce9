"""Sizes with which a kernel makes few trips, so that a picture has room for all of them."""

from __future__ import annotations

from collections.abc import Mapping

from fuser.core.errors import FuserError
from fuser.kir.core import Kernel
from fuser.protocol.model import analyse

ONE_LOOP = 12
"""Trips of a ring that has one loop: at least so many, and two rounds of its stages."""
MOST_TRIPS = 20
TWO_LOOPS = (3, 5)
"""Trips of the outer and of the inner loop where two count."""


def few_trips(kernel: Kernel, sizes: Mapping[str, int]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return `sizes` with those cut that make a kernel's trips many, and which were cut.

    A size that does not decide on trips, or that decides in a way that is not understood, is left.
    """
    cut = dict(sizes)
    try:
        analysis = analyse(kernel)
    except FuserError:
        return cut, ()
    if analysis is None:
        return cut, ()
    stages = max((ring.stages for ring in kernel.rings), default=1)
    one = min(MOST_TRIPS, max(ONE_LOOP, 2 * stages + 2))
    wanted = (one,) if analysis.levels < len(TWO_LOOPS) else TWO_LOOPS
    said = list[str]()
    for size in analysis.sizes:
        least = size.tile * wanted[min(size.level, len(wanted) - 1)]
        if cut.get(size.name, 0) > least:
            said.append(f"{size.name} = {least} instead of {cut[size.name]}")
            cut[size.name] = least
    return cut, tuple(said)
