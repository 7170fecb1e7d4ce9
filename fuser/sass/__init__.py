"""Machine code read back: loops, loads, local memory. See docs/sass.md."""

from fuser.sass.ptx import nounroll_pragmas
from fuser.sass.report import Loop, LoopKind, SassReport, Section, read_cubin, read_sass

__all__ = [
    "Loop",
    "LoopKind",
    "SassReport",
    "Section",
    "nounroll_pragmas",
    "read_cubin",
    "read_sass",
]
