"""Kernel IR: the per-thread program, one statement per hardware action."""
