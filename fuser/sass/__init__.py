"""Machine code read back: loops, loads, local memory. See docs/sass.md."""

from fuser.sass.ptx import nounroll_pragmas
from fuser.sass.report import Loop, SassReport, Section, read_cubin, read_sass

__all__ = ["Loop", "SassReport", "Section", "nounroll_pragmas", "read_cubin", "read_sass"]
