"""Limits of the hardware that a schedule and a kernel both keep."""

MAX_CLUSTER = 8
"""Blocks of the largest cluster that every GPU with clusters can launch."""
