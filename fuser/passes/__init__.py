"""Rewrites of the loop nest and of the kernel, one subject a file."""
