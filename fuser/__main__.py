"""``python -m fuser``."""

import sys

from fuser.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
