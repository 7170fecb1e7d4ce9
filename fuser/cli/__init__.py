"""The command line, ``python -m fuser``."""
