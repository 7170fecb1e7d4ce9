"""``python -m fuser``."""

import sys

from fuser.cli import INTERRUPTED


def start() -> int:
    """Run the command line; return its exit status, also when Ctrl-C comes in its imports."""
    try:
        from fuser.cli.main import main

        return main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(start())
