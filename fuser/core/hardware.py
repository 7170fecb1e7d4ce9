"""Limits of the hardware that a schedule and a kernel both keep."""

MAX_CLUSTER = 8
"""Blocks of the largest cluster that every GPU with clusters can launch."""

REGISTERS = 64 * 1024
"""Registers of an SM, all of which one block may have."""
MAX_REGISTERS = 256
"""Registers of a thread that ``setmaxnreg`` may ask for."""


def registers_at_entry(threads: int) -> int:
    """Return the registers per thread when `threads` threads share an SM from the start."""
    return min(REGISTERS // threads, MAX_REGISTERS) // 8 * 8
