"""Run the command line: ``python -m nbsketch`` is equivalent to ``nbsketch``."""

import sys

from nbsketch.cli import main

if __name__ == "__main__":
    sys.exit(main())
