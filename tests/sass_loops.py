"""Whether machine code has the loops that PTX asks to be left rolled, no more and no fewer."""

from __future__ import annotations

from fuser.codegen.emit import emit
from fuser.kir.core import Kernel
from fuser.runtime.cache import CUBINS
from fuser.sass import SassReport, nounroll_pragmas, read_cubin


def count_loops(source: str, name: str, arch: str = "sm_90a") -> tuple[SassReport, int]:
    """Return what is in the machine code of a kernel, and the marks of loops in its PTX."""
    cubin = CUBINS.get(source, name, arch, on_spill="ignore")
    assert cubin.ptx is not None
    return read_cubin(cubin.image), nounroll_pragmas(cubin.ptx)


def require_marked_loops(what: object, kernel: Kernel, arch: str = "sm_90a") -> SassReport:
    """Raise `AssertionError` unless every loop of a kernel's code has a mark in its PTX.

    A wait for an mbarrier is a loop with a mark too. Loops that ptxas makes of one instruction have
    none, and are not counted.
    """
    report, marks = count_loops(emit(kernel), kernel.name, arch)
    found = f"{report.rolled_loops} rolled loops and {report.spin_loops} waits"
    assert report.irreducible_edges == 0, what
    assert report.rolled_loops + report.spin_loops == marks, (
        f"{what}: {found}, {marks} marks in PTX"
    )
    return report
