"""The command line, ``python -m fuser``."""

INTERRUPTED = 130
"""Exit status of what Ctrl-C ended, as a shell says it."""
