"""``python -m fuser``."""

import sys

from fuser.cli.process import exit_status


def command() -> int:
    """Run the command line; its imports are part of it, so that Ctrl-C may come in them."""
    from fuser.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(exit_status(command))
